#include "transport/fabric/sim/sim_remote.h"

#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace railhop {
namespace {

// Addresses of a target travel as numbers.
void* Pointer(uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// Memory that is not shared can only be reached if the kernel lets us: better said now than as a
// transport error of each request.
absl::Status CheckKernelAccess(const SegmentRecord& record) {
  for (const RemoteBuffer& buffer : record.buffers) {
    const bool shared =
        std::any_of(record.memories.begin(), record.memories.end(), [&](const SharedRange& range) {
          return buffer.address >= range.address && buffer.address - range.address < range.id.size;
        });
    if (shared) continue;
    char byte;
    iovec local{&byte, 1};
    iovec remote{Pointer(buffer.address), 1};
    if (process_vm_readv(record.owner.pid, &local, 1, &remote, 1, 0) < 0 && errno == EPERM) {
      return absl::PermissionDeniedError(fmt::format(
          "not permitted to reach into the memory of process {} (segment {}). Run both as the same "
          "user with ptrace allowed (kernel.yama.ptrace_scope = 0), or let the target allocate its "
          "memory with SimTarget::AllocateMemory",
          record.owner.pid, record.name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

SimRemote::SimRemote(const SegmentRecord& record, bool same_process, SimMover* mover)
    : pid_(record.owner.pid), same_process_(same_process), mover_(mover), watch_(record.owner) {}

SimRemote::~SimRemote() {
  for (const Mapping& mapping : mappings_) {
    if (mapping.memory == nullptr) mover_->Close(mapping.base);
  }
}

absl::StatusOr<std::unique_ptr<SimRemote>> SimRemote::Open(const std::string& connection,
                                                           SimMover* mover) {
  absl::StatusOr<SegmentRecord> record = DecodeSegment(connection);
  if (!record.ok()) return record.status();
  absl::StatusOr<ProcessIdentity> self = SelfIdentity();
  if (!self.ok()) return self.status();
  const bool same_process =
      self->pid == record->owner.pid && self->start_ticks == record->owner.start_ticks;

  std::unique_ptr<SimRemote> remote(new SimRemote(*record, same_process, mover));
  absl::StatusOr<std::unique_ptr<ImportedMemory>> table = ImportedMemory::Open(record->key_table);
  if (!table.ok()) return table.status();
  remote->table_memory_ = *std::move(table);
  remote->table_ = reinterpret_cast<KeyTable*>(remote->table_memory_->base());
  if (same_process) return remote;

  for (const SharedRange& range : record->memories) {
    if (absl::Status mapped = remote->Map(range); !mapped.ok()) return mapped;
  }
  if (absl::Status status = CheckKernelAccess(*record); !status.ok()) return status;
  return remote;
}

absl::Status SimRemote::Map(const SharedRange& range) {
  if (!range.device.has_value()) {
    absl::StatusOr<std::unique_ptr<ImportedMemory>> memory = ImportedMemory::Open(range.id);
    if (!memory.ok()) return memory.status();
    std::byte* const base = (*memory)->base();
    mappings_.push_back({range.address, range.id.size, base, *std::move(memory)});
    return absl::OkStatus();
  }
  if (mover_ == nullptr) {
    return absl::FailedPreconditionError(
        "the target's memory is a GPU's, and this rank stages in host memory (staging: HOST)");
  }
  const absl::StatusOr<std::byte*> base = mover_->Import(*range.device);
  if (!base.ok()) return base.status();
  mappings_.push_back({range.address, range.id.size, *base, nullptr});
  return absl::OkStatus();
}

bool SimRemote::Copy(void* destination, const void* source, size_t length) const {
  if (mover_ != nullptr) return mover_->Copy(destination, source, length);
  std::memcpy(destination, source, length);
  return true;
}

bool SimRemote::Dead(uint64_t now, uint64_t interval) {
  if (dead_ || (asked_ && now - asked_at_ < interval)) return dead_;
  asked_ = true;
  asked_at_ = now;
  dead_ = watch_.Ended();
  return dead_;
}

FabricStatus SimRemote::Check(uint32_t rkey, uint64_t address, uint32_t length) {
  return table_->Covers(rkey, address, length) ? FabricStatus::kOk : FabricStatus::kRemoteAccess;
}

FabricStatus SimRemote::Move(FabricOpcode opcode, void* local, uint32_t length, uint64_t address,
                             uint32_t rkey) {
  KeyTable::Entry* const entry = table_->Acquire(rkey, address, length);
  if (entry == nullptr) return FabricStatus::kRemoteAccess;
  FabricStatus status = FabricStatus::kOk;
  std::byte* mapped = nullptr;
  if (same_process_) {
    mapped = static_cast<std::byte*>(Pointer(address));
  } else if (entry->memory < mappings_.size()) {
    // The table is the target's word; what was mapped here is what may be touched.
    const Mapping& mapping = mappings_[entry->memory];
    const uint64_t offset = address - mapping.address;
    if (address < mapping.address || offset > mapping.size || length > mapping.size - offset) {
      status = FabricStatus::kRemoteAccess;
    } else {
      mapped = mapping.base + offset;
    }
  }
  if (mapped == nullptr) {
    if (status == FabricStatus::kOk) status = MoveByKernel(opcode, local, length, address);
  } else {
    const bool write = opcode == FabricOpcode::kWrite;
    if (!Copy(write ? mapped : local, write ? local : mapped, length)) {
      status = FabricStatus::kTransport;
    }
  }
  KeyTable::Release(entry);
  return status;
}

FabricStatus SimRemote::MoveByKernel(FabricOpcode opcode, void* local, uint32_t length,
                                     uint64_t address) {
  // The process id may have passed on to another process once the target ended.
  if (watch_.Ended()) return FabricStatus::kTargetDead;
  for (uint32_t done = 0; done < length;) {
    iovec here{static_cast<std::byte*>(local) + done, length - done};
    iovec there{Pointer(address + done), length - done};
    const ssize_t moved = opcode == FabricOpcode::kWrite
                              ? process_vm_writev(pid_, &here, 1, &there, 1, 0)
                              : process_vm_readv(pid_, &here, 1, &there, 1, 0);
    if (moved <= 0) {
      if (moved < 0 && errno == ESRCH) return FabricStatus::kTargetDead;
      if (moved == 0 || errno == EFAULT) return FabricStatus::kRemoteAccess;
      return FabricStatus::kTransport;
    }
    done += static_cast<uint32_t>(moved);
  }
  return FabricStatus::kOk;
}

}  // namespace railhop
