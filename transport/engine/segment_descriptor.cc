#include "transport/engine/segment_descriptor.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "transport/fabric/tcp/local_socket.h"
#include "transport/json_text.h"

namespace railhop {
namespace {

using nlohmann::json;

// Protocols that such a peer may have and that are not spoken here.
constexpr std::array<std::string_view, 15> kForeignProtocols = {
    "barex", "efa",  "cxi",     "nccl",         "ub",     "nvlink", "nvlink_intra", "hip",
    "maca",  "musa", "ubshmem", "sunrise_link", "ascend", "nvmeof", "cxl"};

absl::Status Bad(std::string_view path, std::string_view key, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("{}{}: {}", path, key, what));
}

std::string Shown(const std::string& text) {
  constexpr size_t kLongest = 64;
  return text.size() > kLongest ? text.substr(0, kLongest) + "..." : text;
}

// The member of that name; nullptr if it is missing or null, which peers treat alike.
const json* Find(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

absl::Status ToUnsigned(const json& value, std::string_view path, std::string_view key,
                        uint64_t max, uint64_t* number) {
  // A number beyond 64 bits is a double by now.
  if (!value.is_number_unsigned() || value.get<uint64_t>() > max) {
    return Bad(path, key,
               fmt::format("must be an integer in 0..{}, not {}", max,
                           value.is_number() ? value.dump() : value.type_name()));
  }
  *number = value.get<uint64_t>();
  return absl::OkStatus();
}

// Reads the members of one object; after the first error it reads nothing and keeps that one.
class ObjectReader {
 public:
  // `path` comes before each key in errors: "buffers[3]." It must outlive the reader.
  ObjectReader(const json& object, const std::string& path) : object_(object), path_(path) {
    if (!object.is_object()) {
      status_ = absl::InvalidArgumentError(fmt::format(
          "{}: is of type {}, not object",
          path.empty() ? "the descriptor" : path.substr(0, path.size() - 1), object.type_name()));
    }
  }

  const absl::Status& status() const { return status_; }

  void Text(const char* key, std::string* text) {
    const json* const value = Get(key);
    if (value == nullptr) return;
    if (!value->is_string()) {
      status_ = Bad(path_, key, fmt::format("is of type {}, not string", value->type_name()));
      return;
    }
    *text = value->get<std::string>();
  }
  // Missing or empty is an error.
  void NeedText(const char* key, std::string* text) {
    Text(key, text);
    if (status_.ok() && text->empty()) status_ = Bad(path_, key, "is missing or empty");
  }

  // Missing: *number stays as it is.
  template <typename T>
  void Unsigned(const char* key, uint64_t max, T* number) {
    const json* const value = Get(key);
    if (value == nullptr) return;
    uint64_t wide = 0;
    status_ = ToUnsigned(*value, path_, key, max, &wide);
    if (status_.ok()) *number = static_cast<T>(wide);
  }

  // nullptr if it is missing or was no array.
  const json* Array(const char* key) {
    const json* const value = Get(key);
    if (value == nullptr || value->is_array()) return value;
    status_ = Bad(path_, key, fmt::format("is of type {}, not array", value->type_name()));
    return nullptr;
  }

  void Keys(const char* key, std::vector<uint32_t>* keys) {
    const json* const array = Array(key);
    if (array == nullptr) return;
    keys->reserve(array->size());
    for (const json& value : *array) {
      uint64_t number = 0;
      status_ =
          ToUnsigned(value, path_, fmt::format("{}[{}]", key, keys->size()), UINT32_MAX, &number);
      if (!status_.ok()) return;
      keys->push_back(static_cast<uint32_t>(number));
    }
  }

 private:
  const json* Get(const char* key) const { return status_.ok() ? Find(object_, key) : nullptr; }

  const json& object_;
  const std::string& path_;
  absl::Status status_;
};

absl::Status DecodeProtocol(const json& segment, SegmentProtocol* protocol) {
  const json* const value = Find(segment, "protocol");
  if (value == nullptr) return Bad("", "protocol", "is missing");
  if (value->is_array()) {
    return absl::UnimplementedError("protocol: a segment of several protocols is not supported");
  }
  if (!value->is_string()) {
    return Bad("", "protocol", fmt::format("is of type {}, not string", value->type_name()));
  }
  const auto& name = value->get_ref<const std::string&>();
  if (name == "tcp") {
    *protocol = SegmentProtocol::kTcp;
  } else if (name == "rdma") {
    *protocol = SegmentProtocol::kRdma;
  } else if (name == "sim") {
    *protocol = SegmentProtocol::kSim;
  } else if (std::find(kForeignProtocols.begin(), kForeignProtocols.end(), name) !=
             kForeignProtocols.end()) {
    return absl::UnimplementedError(
        fmt::format("protocol: \"{}\" is not supported here, only \"tcp\" and \"rdma\" are", name));
  } else {
    return absl::UnimplementedError(
        fmt::format("protocol: \"{}\" is not known; \"tcp\" and \"rdma\" are supported",
                    Shown(json(name).dump(-1, ' ', true))));
  }
  return absl::OkStatus();
}

absl::Status DecodeDevice(const json& object, const std::string& path, SegmentDevice* device) {
  ObjectReader reader(object, path);
  reader.NeedText("name", &device->name);
  reader.NeedText("gid", &device->gid);
  reader.Unsigned("lid", UINT16_MAX, &device->lid);
  return reader.status();
}

absl::Status DecodeBuffer(const json& object, const std::string& path,
                          const SegmentDescriptor& segment, SegmentBuffer* buffer) {
  ObjectReader reader(object, path);
  reader.NeedText("name", &buffer->name);
  reader.Unsigned("addr", UINT64_MAX, &buffer->address);
  reader.Unsigned("length", UINT64_MAX, &buffer->length);
  if (segment.protocol == SegmentProtocol::kRdma) {
    reader.Keys("rkey", &buffer->rkeys);
    reader.Keys("lkey", &buffer->lkeys);
  }
  if (!reader.status().ok()) return reader.status();
  if (buffer->address == 0) return Bad(path, "addr", "is missing or 0");
  if (buffer->length == 0) return Bad(path, "length", "is missing or 0");
  if (buffer->length > UINT64_MAX - buffer->address) {
    return Bad(path, "length",
               fmt::format("{} bytes at {} wrap around", buffer->length, buffer->address));
  }
  const size_t devices = segment.devices.size();
  if (!buffer->rkeys.empty() &&
      (buffer->rkeys.size() != devices || buffer->lkeys.size() != devices)) {
    return Bad(path, "rkey",
               fmt::format("{} rkeys and {} lkeys for {} devices", buffer->rkeys.size(),
                           buffer->lkeys.size(), devices));
  }
  return absl::OkStatus();
}

}  // namespace

const char* SegmentProtocolName(SegmentProtocol protocol) {
  switch (protocol) {
    case SegmentProtocol::kTcp:
      return "tcp";
    case SegmentProtocol::kRdma:
      return "rdma";
    case SegmentProtocol::kSim:
      return "sim";
  }
  return "?";
}

std::string SegmentDescriptor::Encode() const {
  json segment = {{"name", name},
                  {"protocol", SegmentProtocolName(protocol)},
                  {"tcp_data_port", tcp_data_port},
                  {"tcp_proto_version", tcp_proto_version}};
  if (!timestamp.empty()) segment["timestamp"] = timestamp;
  if (!rdma_server_name.empty()) segment["rdma_server_name"] = rdma_server_name;
  if (railhop_drain != 0) segment["railhop_drain"] = railhop_drain;
  if (!railhop_local.empty()) segment["railhop_local"] = railhop_local;
  const bool is_rdma = protocol == SegmentProtocol::kRdma;
  json& list = segment["buffers"] = json::array();
  for (const SegmentBuffer& buffer : buffers) {
    json& item = list.emplace_back(
        json{{"name", buffer.name}, {"addr", buffer.address}, {"length", buffer.length}});
    if (!is_rdma) continue;
    item["rkey"] = buffer.rkeys;
    item["lkey"] = buffer.lkeys;
  }
  if (is_rdma) {
    json& device_list = segment["devices"] = json::array();
    for (const SegmentDevice& device : devices) {
      device_list.emplace_back(
          json{{"name", device.name}, {"lid", device.lid}, {"gid", device.gid}});
    }
    segment["priority_matrix"] = json::parse(priority_matrix.Encode());
  }
  return segment.dump(-1, ' ', true, json::error_handler_t::replace) + '\n';
}

absl::StatusOr<SegmentDescriptor> SegmentDescriptor::Decode(std::string_view text) {
  json segment;
  if (absl::Status status = ParseJsonText(text, &segment); !status.ok()) return status;
  if (segment.is_null()) {
    return absl::FailedPreconditionError("null: the peer has no segment (yet)");
  }
  SegmentDescriptor descriptor;
  const std::string root;
  ObjectReader reader(segment, root);
  reader.NeedText("name", &descriptor.name);
  if (!reader.status().ok()) return reader.status();
  if (absl::Status status = DecodeProtocol(segment, &descriptor.protocol); !status.ok()) {
    return status;
  }
  reader.Unsigned("tcp_data_port", UINT16_MAX, &descriptor.tcp_data_port);
  reader.Unsigned("tcp_proto_version", INT32_MAX, &descriptor.tcp_proto_version);
  reader.Text("timestamp", &descriptor.timestamp);
  reader.Unsigned("railhop_drain", 1, &descriptor.railhop_drain);
  reader.Text("railhop_local", &descriptor.railhop_local);
  reader.Text("rdma_server_name", &descriptor.rdma_server_name);
  const json* const buffers = reader.Array("buffers");
  const bool is_rdma = descriptor.protocol == SegmentProtocol::kRdma;
  const json* const devices = is_rdma ? reader.Array("devices") : nullptr;
  if (!reader.status().ok()) return reader.status();
  if (descriptor.tcp_proto_version == 0) return Bad("", "tcp_proto_version", "is 0");
  if (!descriptor.railhop_local.empty() && !IsLocalSocketName(descriptor.railhop_local)) {
    return Bad("", "railhop_local", "is not 1 to 64 of [a-z0-9-]");
  }

  if (devices != nullptr) {
    for (const json& device : *devices) {
      const std::string path = fmt::format("devices[{}].", descriptor.devices.size());
      const absl::Status status = DecodeDevice(device, path, &descriptor.devices.emplace_back());
      if (!status.ok()) return status;
    }
  }
  if (buffers != nullptr) {
    descriptor.buffers.reserve(buffers->size());
    for (const json& buffer : *buffers) {
      const std::string path = fmt::format("buffers[{}].", descriptor.buffers.size());
      SegmentBuffer decoded;
      const absl::Status status = DecodeBuffer(buffer, path, descriptor, &decoded);
      if (!status.ok()) return status;
      descriptor.buffers.push_back(std::move(decoded));
    }
  }
  const json* const matrix = is_rdma ? Find(segment, "priority_matrix") : nullptr;
  if (matrix != nullptr) {
    absl::StatusOr<PriorityMatrix> decoded = PriorityMatrix::Decode(matrix->dump());
    if (!decoded.ok()) return Bad("", "priority_matrix", std::string(decoded.status().message()));
    descriptor.priority_matrix = *std::move(decoded);
  }
  return descriptor;
}

std::string SegmentTimestamp(std::chrono::system_clock::time_point time) {
  const auto since_epoch =
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch());
  const time_t seconds = since_epoch.count() / 1'000'000;
  tm local{};
  localtime_r(&seconds, &local);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:06}", local.tm_year + 1900,
                     local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
                     since_epoch.count() % 1'000'000);
}

}  // namespace railhop
