#include "transport/engine/etcd_store.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "transport/engine/http_client.h"
#include "transport/json_text.h"

namespace railhop {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr long kOk = 200;
constexpr size_t kAroundValue = 4096;  // header, key and numbers of a reply

json KeyOnly(const std::string& key) {
  return {{"key", absl::Base64Escape(key)}};
}

// Of a range reply: nullptr if there is no such key.
absl::StatusOr<const std::string*> FindValue(const json& reply) {
  const auto bad = absl::InvalidArgumentError("it is not a reply of etcd's /v3/kv/range");
  if (!reply.is_object()) return bad;
  const auto list = reply.find("kvs");
  if (list == reply.end()) return nullptr;
  if (!list->is_array() || list->size() != 1 || !list->front().is_object()) return bad;
  const auto value = list->front().find("value");
  if (value == list->front().end() || !value->is_string()) return bad;
  return &value->get_ref<const std::string&>();
}

absl::StatusOr<std::string> DecodeValue(const std::string& body) {
  json reply;
  if (absl::Status status = ParseJsonText(body, &reply); !status.ok()) return status;
  const absl::StatusOr<const std::string*> encoded = FindValue(reply);
  if (!encoded.ok()) return encoded.status();
  if (*encoded == nullptr) return absl::NotFoundError("there is no such key");
  std::string value;
  if (absl::Base64Unescape(**encoded, &value)) return value;
  return absl::InvalidArgumentError("the value is not base64");
}

}  // namespace

EtcdStore::EtcdStore(std::vector<std::string> addresses, size_t max_value)
    : addresses_(std::move(addresses)), max_body_(max_value / 3 * 4 + kAroundValue) {}

absl::StatusOr<std::string> EtcdStore::Call(const char* call, const std::string& key,
                                            const std::string& body) const {
  const Clock::time_point deadline = Clock::now() + kTimeout;
  std::string failures;
  auto code = absl::StatusCode::kFailedPrecondition;
  for (size_t i = 0; i < addresses_.size(); ++i) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    const auto share = std::max(left / static_cast<int64_t>(addresses_.size() - i),
                                std::chrono::milliseconds(1));  // 0 would be no limit
    absl::StatusOr<HttpReply> reply =
        ExchangeHttp({.method = "POST",
                      .url = fmt::format("http://{}/v3/kv/{}", addresses_[i], call),
                      .body = body},
                     share, max_body_);
    if (reply.ok() && reply->status == kOk) return std::move(reply->body);
    code = reply.ok() ? absl::StatusCode::kFailedPrecondition : reply.status().code();
    failures +=
        fmt::format("{}{}: {}", failures.empty() ? "" : ", ", addresses_[i],
                    reply.ok() ? fmt::format("status {}: {}", reply->status, ShowBody(reply->body))
                               : std::string(reply.status().message()));
  }
  return absl::Status(code, fmt::format("etcd, {} {}: {}{}", call, key, failures,
                                        code == absl::StatusCode::kFailedPrecondition
                                            ? "; is it running, version 3.4 or newer?"
                                            : ""));
}

absl::StatusOr<std::string> EtcdStore::Get(const std::string& key) {
  const absl::StatusOr<std::string> reply = Call("range", key, KeyOnly(key).dump());
  if (!reply.ok()) return reply.status();
  absl::StatusOr<std::string> value = DecodeValue(*reply);
  if (value.ok()) return value;
  return absl::Status(value.status().code(), fmt::format("etcd, range {}: {}", key,
                                                         std::string(value.status().message())));
}

absl::Status EtcdStore::Put(const std::string& key, const std::string& value) {
  json request = KeyOnly(key);
  request["value"] = absl::Base64Escape(value);
  return Call("put", key, request.dump()).status();
}

absl::Status EtcdStore::Remove(const std::string& key) {
  return Call("deleterange", key, KeyOnly(key).dump()).status();
}

}  // namespace railhop
