#include "transport/engine/http_client.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string_view>

namespace railhop {
namespace {

struct EndCall {
  void operator()(CURL* call) const { curl_easy_cleanup(call); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

struct Body {
  std::string text;
  size_t limit = 0;
  bool too_long = false;
};

// Less than was offered ends the exchange.
size_t TakeBody(char* data, size_t, size_t size, void* to) {
  auto& body = *static_cast<Body*>(to);
  body.too_long = size > body.limit - body.text.size();
  if (body.too_long) return 0;
  body.text.append(data, size);
  return size;
}

curl_socket_t OpenSocket(void*, curlsocktype, curl_sockaddr* address) {
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

absl::Status Explain(CURLcode code, const char* details, const Body& body) {
  if (body.too_long) {
    return absl::InvalidArgumentError(
        fmt::format("the reply is longer than {} bytes (MC_HANDSHAKE_MAX_LENGTH)", body.limit));
  }
  const char* const text = *details != 0 ? details : curl_easy_strerror(code);
  switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_BAD_CONTENT_ENCODING:
      return absl::InvalidArgumentError(text);
    default:
      return absl::FailedPreconditionError(text);
  }
}

}  // namespace

absl::StatusOr<HttpReply> ExchangeHttp(const HttpRequest& request,
                                       std::chrono::milliseconds timeout, size_t max_body) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::unique_ptr<CURL, EndCall> call(curl_easy_init());
  if (ready != CURLE_OK || call == nullptr) {
    return absl::FailedPreconditionError("libcurl cannot be initialized");
  }
  const std::unique_ptr<curl_slist, FreeList> headers(
      curl_slist_append(curl_slist_append(nullptr, "Content-Type: application/json"), "Expect:"));
  Body body{.text = {}, .limit = max_body};
  char details[CURL_ERROR_SIZE] = "";
  CURL* const c = call.get();
  curl_easy_setopt(c, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(c, CURLOPT_PROXY, "");
  curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));
  curl_easy_setopt(c, CURLOPT_ERRORBUFFER, details);
  curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, OpenSocket);
  curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, TakeBody);
  curl_easy_setopt(c, CURLOPT_WRITEDATA, &body);
  curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, request.method);
  if (!request.body.empty()) {
    curl_easy_setopt(c, CURLOPT_POSTFIELDS, request.body.data());
    curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  }
  const CURLcode code = curl_easy_perform(c);
  if (code != CURLE_OK) return Explain(code, details, body);
  HttpReply reply{.status = 0, .body = std::move(body.text)};
  curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &reply.status);
  return reply;
}

std::string UrlEncode(const std::string& text) {
  constexpr std::string_view kPlain = "-._~";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain =
        (byte < 0x80 && std::isalnum(byte) != 0) || kPlain.find(c) != std::string_view::npos;
    encoded += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return encoded;
}

std::string ShowBody(const std::string& body) {
  constexpr size_t kShown = 200;
  std::string shown = body.substr(0, kShown);
  std::replace_if(
      shown.begin(), shown.end(),
      [](char c) { return std::isprint(static_cast<unsigned char>(c)) == 0; }, ' ');
  return body.size() > kShown ? shown + "..." : shown;
}

}  // namespace railhop
