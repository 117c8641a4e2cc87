#include "actors/rank_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "transport/cuda/memory.h"
#include "transport/fabric/memory_parts.h"

namespace railhop {

namespace {

// Whether every page of host memory is mapped: the processor would end the process at one that is
// not, in the middle of a transfer.
bool IsMapped(std::byte* address, size_t length) {
  constexpr size_t kPagesInTurn = 4096;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(address) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(address) + length;
  std::array<unsigned char, kPagesInTurn> resident;
  for (uintptr_t at = first; at < end; at += kPagesInTurn * page) {
    const size_t bytes = std::min<size_t>(kPagesInTurn * page, end - at);
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    if (mincore(reinterpret_cast<void*>(at), bytes, resident.data()) != 0) return false;
  }
  return true;
}

bool IsOfGpu(std::byte* address, size_t length) {
  const CudaDriver* const driver = CudaDriver::GetIfLoaded();
  if (driver == nullptr) return false;
  const auto gpu = FindGpuOf(*driver, address, length);
  return !gpu.ok() || gpu->has_value();
}

}  // namespace

absl::Status RankMemory::Register(std::byte* address, size_t length, std::string_view location) {
  if (address == nullptr || length == 0 ||
      reinterpret_cast<uintptr_t>(address) + length < reinterpret_cast<uintptr_t>(address)) {
    return absl::InvalidArgumentError(
        fmt::format("memory at {} of {} bytes cannot be registered: give an address and a length "
                    "of at least 1 byte that stay within the address space",
                    static_cast<void*>(address), length));
  }
  if (!IsMapped(address, length) && !location.starts_with("cuda") && !IsOfGpu(address, length)) {
    return absl::InvalidArgumentError(
        fmt::format("memory at {} of {} bytes cannot be registered: not all of it is mapped",
                    static_cast<void*>(address), length));
  }
  const absl::StatusOr<bool> staging = staging_->CanStage(address, length, location);
  if (!staging.ok()) return staging.status();
  const absl::StatusOr<uint8_t> flush_gpu = flush_ == nullptr ? 0 : flush_->Of(address, length);
  if (!flush_gpu.ok()) return flush_gpu.status();
  std::lock_guard lock(mutex_);
  if (closed_) return absl::CancelledError("the rank is stopping");
  Registered registered{.region = std::make_unique<Region>(), .parts = {}};
  Region& region = *registered.region;
  region.base = address;
  region.length = length;
  region.staging = *staging;
  region.flush_gpu = *flush_gpu;
  absl::Status status = RegisterWithNics(&registered);
  if (!status.ok()) return status;
  if (!TellSubmitActor(BatchCommand::kAddRegion, &region)) {
    DeregisterFromNics(registered);
    return absl::AlreadyExistsError(
        fmt::format("memory at {} of {} bytes overlaps memory that is registered already (or {} "
                    "ranges are); unregister that first",
                    static_cast<void*>(address), length, RegionTable::kMaxRegions));
  }
  regions_.emplace(address, std::move(registered));
  return absl::OkStatus();
}

absl::Status RankMemory::Unregister(std::byte* address) {
  std::lock_guard lock(mutex_);
  if (closed_) return absl::CancelledError("the rank is stopping");
  const auto found = regions_.find(address);
  if (found == regions_.end()) {
    return absl::NotFoundError(
        fmt::format("no registered memory starts at {}; give the address that was registered",
                    static_cast<void*>(address)));
  }
  if (!TellSubmitActor(BatchCommand::kRemoveRegion, found->second.region.get())) {
    return absl::FailedPreconditionError(
        fmt::format("memory at {} is in use by a transfer; wait for its batch to end",
                    static_cast<void*>(address)));
  }
  DeregisterFromNics(found->second);
  regions_.erase(found);
  return absl::OkStatus();
}

void RankMemory::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
}

absl::Status RankMemory::RegisterWithNics(Registered* registered) {
  Region& region = *registered->region;
  for (Nic* nic : nics_) {
    absl::StatusOr<std::vector<MemoryPart>> parts = nic->RegisterParts(region.base, region.length);
    if (!parts.ok()) {
      DeregisterFromNics(*registered);
      return parts.status();
    }
    registered->parts.push_back(*std::move(parts));
  }
  const std::vector<CommonPart> common = CommonParts(registered->parts);
  for (const CommonPart& part : common) {
    for (const MemoryKey& key : part.keys) region.lkeys.push_back(key.lkey);
    if (common.size() > 1) region.part_ends.push_back(part.offset + part.length);
  }
  return absl::OkStatus();
}

void RankMemory::DeregisterFromNics(const Registered& registered) {
  for (size_t i = 0; i < registered.parts.size(); ++i) {
    for (const MemoryPart& part : registered.parts[i]) nics_[i]->Deregister(part.key).IgnoreError();
  }
}

// Waits for the actor's answer, which comes within a pass or two. Nobody closes the queue
// meanwhile: Close() is called before the actors are stopped.
bool RankMemory::TellSubmitActor(BatchCommand::Kind kind, Region* region) {
  RegionReply reply;
  while (!submissions_.Prepare({.kind = kind, .region = region, .reply = &reply})) {
    std::this_thread::yield();  // full for a pass at most
  }
  submissions_.Submit();
  reply.answer.wait(0, std::memory_order_acquire);
  return reply.answer.load(std::memory_order_acquire) == 1;
}

}  // namespace railhop
