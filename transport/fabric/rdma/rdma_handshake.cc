#include "transport/fabric/rdma/rdma_handshake.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "transport/json_text.h"

namespace railhop {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxQueuePairNumber = (1u << 24) - 1;  // of the InfiniBand specification
constexpr size_t kMaxTextBytes = 1024;

// The members of a message; null counts as missing, as for peers.
class Members {
 public:
  explicit Members(const json& object) : object_(object) {}

  const absl::Status& status() const { return status_; }

  void Text(const char* key, std::string* text) {
    const json* const value = Find(key);
    if (value == nullptr) return;
    if (!value->is_string() || value->get_ref<const std::string&>().size() > kMaxTextBytes) {
      return Bad(key, fmt::format("must be a text of at most {} bytes", kMaxTextBytes));
    }
    *text = value->get<std::string>();
  }

  void Flag(const char* key, std::optional<bool>* flag) {
    const json* const value = Find(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) return Bad(key, "must be true or false");
    *flag = value->get<bool>();
  }

  template <typename T>
  void Number(const char* key, uint64_t max, T* number) {
    const json* const value = Find(key);
    if (value != nullptr) Convert(key, *value, max, number);
  }

  void Numbers(const char* key, uint64_t max, size_t max_count, std::vector<uint32_t>* numbers) {
    const json* const value = Find(key);
    if (value == nullptr) return;
    if (!value->is_array() || value->size() > max_count) {
      return Bad(key, fmt::format("must be an array of at most {} numbers", max_count));
    }
    for (const json& number : *value) Convert(key, number, max, &numbers->emplace_back());
  }

  void Address(const char* key, std::optional<Gid>* gid) {
    std::string text;
    Text(key, &text);
    if (!status_.ok() || text.empty()) return;
    const absl::StatusOr<Gid> parsed = ParseGid(text);
    if (!parsed.ok()) return Bad(key, std::string(parsed.status().message()));
    *gid = *parsed;
  }

 private:
  template <typename T>
  void Convert(const char* key, const json& value, uint64_t max, T* number) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > max) {
      return Bad(key, fmt::format("must be in 0..{}", max));
    }
    *number = static_cast<T>(value.get<uint64_t>());
  }

  const json* Find(const char* key) const {
    const auto found = status_.ok() ? object_.find(key) : object_.end();
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  void Bad(const char* key, std::string_view what) {
    status_ = absl::InvalidArgumentError(fmt::format("RDMA handshake: {} {}", key, what));
  }

  const json& object_;
  absl::Status status_;
};

}  // namespace

std::string FormatNicPath(const NicPath& path) {
  return fmt::format("{}@{}", path.server, path.nic);
}

absl::StatusOr<NicPath> ParseNicPath(std::string_view text) {
  const size_t at = text.rfind('@');
  if (at == std::string_view::npos || at == 0 || at + 1 == text.size()) {
    return absl::InvalidArgumentError(
        fmt::format("\"{}\" is no path of a NIC: host:port@nic is", text.substr(0, 256)));
  }
  return NicPath{.server = std::string(text.substr(0, at)),
                 .nic = std::string(text.substr(at + 1))};
}

std::string RdmaHandshake::Encode() const {
  json message = {{"local_nic_path", local_nic_path},
                  {"peer_nic_path", peer_nic_path},
                  {"qp_num", qp_numbers},
                  {"local_lid", lid},
                  {"local_gid", gid.has_value() ? FormatGid(*gid) : ""},
                  {"payload", ""},
                  {"reply_msg", reply_msg}};
  if (ready_ack.has_value()) message["ready_ack"] = *ready_ack;
  return message.dump(-1, ' ', true, json::error_handler_t::replace) + '\n';
}

absl::StatusOr<RdmaHandshake> RdmaHandshake::Decode(std::string_view text) {
  json object;
  if (absl::Status status = ParseJsonText(text, &object); !status.ok()) return status;
  if (!object.is_object()) {
    return absl::InvalidArgumentError(
        fmt::format("RDMA handshake: is of type {}, not object", object.type_name()));
  }
  RdmaHandshake message;
  Members members(object);
  members.Text("local_nic_path", &message.local_nic_path);
  members.Text("peer_nic_path", &message.peer_nic_path);
  members.Numbers("qp_num", kMaxQueuePairNumber, kMaxQueuePairs, &message.qp_numbers);
  members.Number("local_lid", UINT16_MAX, &message.lid);
  members.Address("local_gid", &message.gid);
  members.Flag("ready_ack", &message.ready_ack);
  members.Text("reply_msg", &message.reply_msg);
  if (!members.status().ok()) return members.status();
  return message;
}

absl::StatusOr<RdmaAddress> RdmaHandshake::SenderAddress(const RdmaAddressOf& address_of) const {
  if (gid.has_value()) return RdmaAddress{.gid = *gid, .lid = lid};
  const absl::StatusOr<NicPath> path = ParseNicPath(local_nic_path);
  if (!path.ok()) return path.status();
  if (address_of == nullptr) {
    return absl::FailedPreconditionError(fmt::format(
        "the handshake of {} has no local_gid, and its segment is not known", local_nic_path));
  }
  absl::StatusOr<RdmaAddress> found = address_of(*path);
  if (found.ok()) return found;
  return absl::Status(found.status().code(),
                      fmt::format("the handshake of {} has no local_gid: {}", local_nic_path,
                                  std::string(found.status().message())));
}

}  // namespace railhop
