#include "transport/staging/host_arena.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "transport/ring/control_block.h"

namespace railhop {
namespace {

constexpr char kMarker[8] = {'R', 'H', 'H', 'O', 'S', 'T', '1', '\0'};
constexpr uint64_t kLaneBytes = uint64_t{kSlotsPerLane} * kSlotBytes;

// The 64 bytes as they lie in the registry header.
struct HandleBytes {
  char marker[8];
  int32_t pid;
  int32_t fd;
  uint64_t start_ticks;
  uint64_t device;
  uint64_t inode;
  uint64_t size;
  uint8_t padding[16];
};
static_assert(sizeof(HandleBytes) == sizeof(ArenaHandle));
static_assert(offsetof(HandleBytes, pid) == 8 && offsetof(HandleBytes, fd) == 12);
static_assert(offsetof(HandleBytes, start_ticks) == 16 && offsetof(HandleBytes, device) == 24);
static_assert(offsetof(HandleBytes, inode) == 32 && offsetof(HandleBytes, size) == 40);
static_assert(std::endian::native == std::endian::little);

absl::Status Reserve(MappedMemory& memory, std::vector<bool>& reserved, uint32_t lane) {
  if (lane >= kLaneCount) {
    return absl::OutOfRangeError(fmt::format("lane {} of an arena of {}", lane, kLaneCount));
  }
  if (reserved[lane]) return absl::OkStatus();
  absl::Status status = memory.Reserve(lane * kLaneBytes, kLaneBytes);
  if (!status.ok()) {
    return absl::Status(status.code(), fmt::format("no memory for staging lane {}: {}", lane,
                                                   std::string(status.message())));
  }
  reserved[lane] = true;
  return absl::OkStatus();
}

}  // namespace

bool IsHostArenaHandle(const ArenaHandle& handle) {
  return std::memcmp(handle.data(), kMarker, sizeof(kMarker)) == 0;
}

ArenaHandle EncodeHostArenaHandle(const SharedMemoryId& id) {
  HandleBytes bytes{.marker = {},
                    .pid = id.pid,
                    .fd = id.fd,
                    .start_ticks = id.start_ticks,
                    .device = id.device,
                    .inode = id.inode,
                    .size = id.size,
                    .padding = {}};
  std::memcpy(bytes.marker, kMarker, sizeof(kMarker));
  return std::bit_cast<ArenaHandle>(bytes);
}

absl::StatusOr<SharedMemoryId> DecodeHostArenaHandle(const ArenaHandle& handle) {
  if (!IsHostArenaHandle(handle)) {
    return absl::InvalidArgumentError(
        "not the handle of a host arena (a CUDA process publishes in a group without .host)");
  }
  const auto bytes = std::bit_cast<HandleBytes>(handle);
  if (bytes.size != kArenaBytes) {
    return absl::InvalidArgumentError(
        fmt::format("host arena of {} bytes, {} expected", bytes.size, kArenaBytes));
  }
  const uint8_t zero[sizeof(bytes.padding)] = {};
  if (bytes.pid <= 0 || bytes.fd < 0 || bytes.start_ticks == 0 ||
      std::memcmp(bytes.padding, zero, sizeof(zero)) != 0) {
    return absl::InvalidArgumentError(
        fmt::format("malformed handle of a host arena: pid {}, descriptor {}, start ticks {}",
                    bytes.pid, bytes.fd, bytes.start_ticks));
  }
  return SharedMemoryId{.pid = bytes.pid,
                        .fd = bytes.fd,
                        .start_ticks = bytes.start_ticks,
                        .device = bytes.device,
                        .inode = bytes.inode,
                        .size = bytes.size};
}

HostArena::HostArena(std::unique_ptr<SharedMemory> memory)
    : memory_(std::move(memory)),
      handle_(EncodeHostArenaHandle(memory_->id())),
      reserved_(kLaneCount) {}

absl::StatusOr<std::unique_ptr<HostArena>> HostArena::Create() {
  absl::StatusOr<std::unique_ptr<SharedMemory>> memory =
      SharedMemory::Create("railhop-arena", kArenaBytes);
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<HostArena>(new HostArena(*std::move(memory)));
}

absl::Status HostArena::ReserveLane(uint32_t lane) {
  return Reserve(*memory_, reserved_, lane);
}

ImportedHostArena::ImportedHostArena(std::unique_ptr<ImportedMemory> memory)
    : memory_(std::move(memory)), reserved_(kLaneCount) {}

absl::StatusOr<std::unique_ptr<ImportedHostArena>> ImportedHostArena::Open(
    const ArenaHandle& handle, const ProcessIdentity& peer) {
  absl::StatusOr<SharedMemoryId> id = DecodeHostArenaHandle(handle);
  if (!id.ok()) return id.status();
  if (id->pid != peer.pid || id->start_ticks != peer.start_ticks) {
    return absl::InvalidArgumentError(
        fmt::format("arena handle of process {} (start ticks {}) in the entry of process {} (start "
                    "ticks {})",
                    id->pid, id->start_ticks, peer.pid, peer.start_ticks));
  }
  absl::StatusOr<std::unique_ptr<ImportedMemory>> memory = ImportedMemory::Open(*id);
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<ImportedHostArena>(new ImportedHostArena(*std::move(memory)));
}

absl::Status ImportedHostArena::ReserveLane(uint32_t lane) {
  return Reserve(*memory_, reserved_, lane);
}

}  // namespace railhop
