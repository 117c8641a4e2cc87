#include "transport/fabric/sim/segment_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "transport/fabric/key_table.h"
#include "transport/ring/guarded_fd.h"

namespace railhop {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;
constexpr off_t kMaxFileBytes = 16 << 20;
constexpr size_t kMaxFileName = 255;

// Thrown and caught inside this file only: nlohmann's own accessors throw as well.
struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename T>
T Number(const Json& object, const char* field) {
  const Json& value = object.at(field);
  if (!value.is_number_unsigned() ||
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<T>::max())) {
    throw Malformed(fmt::format("field {} is not a number of its range", field));
  }
  return static_cast<T>(value.get<uint64_t>());
}

Json EncodeMemory(const SharedMemoryId& id) {
  return {{"fd", id.fd}, {"device", id.device}, {"inode", id.inode}, {"size", id.size}};
}

SharedMemoryId DecodeMemory(const Json& object, const ProcessIdentity& owner) {
  return {.pid = owner.pid,
          .fd = Number<int32_t>(object, "fd"),
          .start_ticks = owner.start_ticks,
          .device = Number<uint64_t>(object, "device"),
          .inode = Number<uint64_t>(object, "inode"),
          .size = Number<uint64_t>(object, "size")};
}

std::string EncodeHandle(const DeviceHandle& handle) {
  return fmt::format("{:02x}", fmt::join(handle, ""));
}

DeviceHandle DecodeHandle(const std::string& text) {
  DeviceHandle handle{};
  if (text.size() != 2 * handle.size()) throw Malformed("a device handle of another size");
  for (size_t i = 0; i < handle.size(); ++i) {
    const char* const digits = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(digits, digits + 2, handle[i], 16);
    if (error != std::errc() || end != digits + 2) throw Malformed("a device handle is not hex");
  }
  return handle;
}

SegmentRecord DecodeOrThrow(const std::string& text) {
  const Json root = Json::parse(text);
  if (!root.is_object()) throw Malformed("not a JSON object");
  if (root.at("kind") != kSimFabricKind) throw Malformed("not a simulated target (kind)");
  if (root.at("version") != kVersion) throw Malformed("unknown version");
  SegmentRecord record;
  record.name = root.at("name").get<std::string>();
  const Json& owner = root.at("owner");
  record.owner = {.uid = Number<uint32_t>(owner, "uid"),
                  .pid = Number<int32_t>(owner, "pid"),
                  .start_ticks = Number<uint64_t>(owner, "start_ticks")};
  record.key_table = DecodeMemory(root.at("key_table"), record.owner);
  if (record.key_table.size != sizeof(KeyTable)) throw Malformed("key table of another size");
  for (const Json& memory : root.at("memories")) {
    record.memories.push_back(
        {.address = Number<uint64_t>(memory, "address"), .id = DecodeMemory(memory, record.owner)});
    if (!memory.contains("handle")) continue;
    record.memories.back().device = DecodeHandle(memory.at("handle").get<std::string>());
  }
  for (const Json& buffer : root.at("buffers")) {
    record.buffers.push_back(
        {.address = Number<uint64_t>(buffer, "address"),
         .length = Number<uint64_t>(buffer, "length"),
         .rkeys = {Number<uint32_t>(buffer, "rkey")},
         .preferred_nics = buffer.at("preferred_nics").get<std::vector<std::string>>()});
  }
  return record;
}

absl::StatusOr<std::string> ReadSegmentFile(const std::string& path, const std::string& name) {
  GuardedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat found {};
  if (fd.get() < 0 || fstat(fd.get(), &found) != 0) {
    if (errno == ENOENT) {
      return absl::NotFoundError(
          fmt::format("no segment {}: {} does not exist; is its target running, in this directory?",
                      name, path));
    }
    return absl::FailedPreconditionError(
        fmt::format("segment {}: cannot open {}: {}", name, path, strerror(errno)));
  }
  if (!S_ISREG(found.st_mode) || found.st_size > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        fmt::format("segment {}: {} is not a segment file", name, path));
  }
  std::string text(static_cast<size_t>(found.st_size), '\0');
  const ssize_t got = pread(fd.get(), text.data(), text.size(), 0);
  if (got != found.st_size) {
    return absl::FailedPreconditionError(
        fmt::format("segment {}: cannot read {}: {}", name, path, strerror(errno)));
  }
  return text;
}

}  // namespace

std::string EncodeSegment(const SegmentRecord& record) {
  Json memories = Json::array();
  for (const SharedRange& memory : record.memories) {
    memories.push_back(EncodeMemory(memory.id));
    memories.back()["address"] = memory.address;
    if (memory.device.has_value()) memories.back()["handle"] = EncodeHandle(*memory.device);
  }
  Json buffers = Json::array();
  for (const RemoteBuffer& buffer : record.buffers) {
    buffers.push_back({{"address", buffer.address},
                       {"length", buffer.length},
                       {"rkey", buffer.rkeys.front()},
                       {"preferred_nics", buffer.preferred_nics}});
  }
  const Json root = {{"kind", kSimFabricKind},
                     {"version", kVersion},
                     {"name", record.name},
                     {"owner",
                      {{"uid", record.owner.uid},
                       {"pid", record.owner.pid},
                       {"start_ticks", record.owner.start_ticks}}},
                     {"key_table", EncodeMemory(record.key_table)},
                     {"memories", std::move(memories)},
                     {"buffers", std::move(buffers)}};
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<SegmentRecord> DecodeSegment(const std::string& text) {
  try {
    return DecodeOrThrow(text);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        fmt::format("malformed description of a simulated target: {}", error.what()));
  }
}

absl::StatusOr<std::string> SegmentPath(const std::string& directory, const std::string& name) {
  std::string file;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '-' || (c == '.' && i != 0);
    file += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  file += ".segment";
  if (name.empty() || file.size() > kMaxFileName) {
    return absl::InvalidArgumentError(
        fmt::format("segment name \"{}\" is empty or makes a file name of more than {} bytes", name,
                    kMaxFileName));
  }
  return directory + "/" + file;
}

absl::StatusOr<SegmentRecord> ReadSegment(const std::string& directory, const std::string& name,
                                          std::string* text) {
  absl::StatusOr<std::string> path = SegmentPath(directory, name);
  if (!path.ok()) return path.status();
  absl::StatusOr<std::string> read = ReadSegmentFile(*path, name);
  if (!read.ok()) return read.status();
  absl::StatusOr<SegmentRecord> record = DecodeSegment(*read);
  if (!record.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {}", *path, std::string(record.status().message())));
  }
  if (record->name != name) {
    return absl::InvalidArgumentError(
        fmt::format("{}: describes segment {}, not {}", *path, record->name, name));
  }
  if (text != nullptr) *text = *std::move(read);
  return record;
}

absl::StatusOr<TargetInfo> LoadSimTarget(const std::string& directory, const std::string& name) {
  std::string text;
  absl::StatusOr<SegmentRecord> record = ReadSegment(directory, name, &text);
  if (!record.ok()) return record.status();
  if (IsDead(record->owner)) {
    return absl::UnavailableError(
        fmt::format("segment {}: {} that served it has ended; its file in {} is left over", name,
                    ToString(record->owner), directory));
  }
  return TargetInfo{.name = name,
                    .kind = kSimFabricKind,
                    .buffers = std::move(record->buffers),
                    .nics = {{.name = name, .connection = std::move(text)}}};
}

}  // namespace railhop
