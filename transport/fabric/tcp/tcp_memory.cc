#include "transport/fabric/tcp/tcp_memory.h"

#include <fmt/format.h>

#include <iterator>
#include <thread>
#include <utility>

namespace railhop {

absl::Status TcpMemory::Add(uint64_t address, uint64_t length, TcpBounce* bounce) {
  if (length == 0 || address + length < address) {
    return absl::InvalidArgumentError(
        fmt::format("cannot register {} bytes at {:#x}", length, address));
  }
  const std::unique_lock lock(mutex_);
  const auto next = regions_.lower_bound(address);
  const TcpRegion* other = nullptr;
  if (next != regions_.end() && next->first - address < length) other = next->second.get();
  if (next != regions_.begin()) {
    const TcpRegion& before = *std::prev(next)->second;
    if (address - before.address < before.length) other = &before;
  }
  if (other != nullptr) {
    return absl::AlreadyExistsError(
        fmt::format("{} bytes at {:#x} overlap the registered {} bytes at {:#x}", length, address,
                    other->length, other->address));
  }
  regions_.emplace_hint(next, address,
                        std::shared_ptr<TcpRegion>(new TcpRegion{
                            .address = address, .length = length, .bounce = bounce, .gate = {}}));
  return absl::OkStatus();
}

absl::Status TcpMemory::Remove(uint64_t address, std::chrono::milliseconds timeout) {
  std::shared_ptr<TcpRegion> region;
  {
    const std::unique_lock lock(mutex_);
    const auto found = regions_.find(address);
    if (found == regions_.end()) {
      return absl::NotFoundError(fmt::format("no registered region begins at {:#x}", address));
    }
    region = std::move(found->second);
    regions_.erase(found);
  }
  region->gate.Close();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!region->gate.Quiet()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::DeadlineExceededError(
          fmt::format("the {} bytes at {:#x} are still being accessed; this memory must not be "
                      "used for anything else",
                      region->length, region->address));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return absl::OkStatus();
}

std::shared_ptr<TcpRegion> TcpMemory::Find(uint64_t address, uint64_t length) const {
  const std::shared_lock lock(mutex_);
  auto found = regions_.upper_bound(address);
  if (length == 0 || found == regions_.begin()) return nullptr;
  const std::shared_ptr<TcpRegion>& region = std::prev(found)->second;
  const uint64_t offset = address - region->address;
  if (offset >= region->length || length > region->length - offset) return nullptr;
  return region;
}

std::shared_ptr<TcpGroups::Group> TcpGroups::Join(uint64_t token) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Group>& group = groups_[token];
  if (group == nullptr) group.reset(new Group{.token = token, .gate = {}});
  ++group->members;
  return group;
}

void TcpGroups::Leave(const std::shared_ptr<Group>& group) {
  const std::lock_guard lock(mutex_);
  if (--group->members != 0) return;
  const auto found = groups_.find(group->token);
  if (found != groups_.end() && found->second == group) groups_.erase(found);
}

std::shared_ptr<TcpGroups::Group> TcpGroups::Close(uint64_t token) {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(token);
  if (found == groups_.end()) return nullptr;
  std::shared_ptr<Group> group = std::move(found->second);
  groups_.erase(found);
  group->gate.Close();
  return group;
}

}  // namespace railhop
