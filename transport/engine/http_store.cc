#include "transport/engine/http_store.h"

#include <fmt/format.h>

#include <utility>

namespace railhop {
namespace {

constexpr long kOk = 200;
constexpr long kNotFound = 404;

}  // namespace

HttpStore::HttpStore(std::string url, size_t max_value)
    : url_(std::move(url)), max_value_(max_value) {}

absl::StatusOr<std::string> HttpStore::Call(const char* method, const std::string& key,
                                            std::string body) {
  absl::StatusOr<HttpReply> reply = ExchangeHttp(
      {.method = method, .url = url_ + "?key=" + UrlEncode(key), .body = std::move(body)}, kTimeout,
      max_value_);
  const auto what = [&] { return fmt::format("metadata service {}, {} {}", url_, method, key); };
  if (!reply.ok()) {
    return absl::Status(reply.status().code(),
                        fmt::format("{}: {}{}", what(), std::string(reply.status().message()),
                                    absl::IsFailedPrecondition(reply.status())
                                        ? "; is it running, and is this its address?"
                                        : ""));
  }
  if (reply->status == kOk) return std::move(reply->body);
  if (reply->status == kNotFound) return absl::NotFoundError(what() + ": there is no such key");
  return absl::FailedPreconditionError(
      fmt::format("{}: status {}: {}", what(), reply->status, ShowBody(reply->body)));
}

absl::StatusOr<std::string> HttpStore::Get(const std::string& key) {
  return Call("GET", key, "");
}

// A server that has no such path answers as if the key were missing.
absl::Status HttpStore::Put(const std::string& key, const std::string& value) {
  absl::Status status = Call("PUT", key, value).status();
  if (!absl::IsNotFound(status)) return status;
  return absl::FailedPreconditionError(
      fmt::format("metadata service {} does not take keys: is its path right?", url_));
}

absl::Status HttpStore::Remove(const std::string& key) {
  absl::Status status = Call("DELETE", key, "").status();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace railhop
