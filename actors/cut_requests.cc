#include "actors/cut_requests.h"

#include <algorithm>

namespace railhop {
namespace {

bool Contains(const TargetBuffer& buffer, uint64_t address) {
  return address - buffer.address < buffer.length;
}

}  // namespace

bool InsideRegistrations(const TargetRoute& route, std::span<const PlanEntry> plan) {
  const TargetBuffer* buffer = nullptr;
  for (const PlanEntry& entry : plan) {
    uint64_t address = entry.final_destination;
    for (uint64_t left = entry.length; left != 0;) {
      if (buffer == nullptr || !Contains(*buffer, address)) buffer = route.Find(address);
      if (buffer == nullptr) return false;
      const uint64_t step = std::min(left, buffer->length - (address - buffer->address));
      address += step;
      left -= step;
    }
  }
  return true;
}

// How many bytes from here on are neighbours at the target; counted no further than `enough`.
uint64_t RequestCutter::RunLength(uint64_t enough) const {
  uint64_t length = plan_.front().length - offset_;
  const uint64_t address = plan_.front().final_destination + offset_;
  for (const PlanEntry& entry : plan_.subspan(1)) {
    if (length >= enough || entry.final_destination != address + length) break;
    length += entry.length;
  }
  return length;
}

CutRequest RequestCutter::Next() {
  const uint64_t address = plan_.front().final_destination + offset_;
  if (buffer_ == nullptr || !Contains(*buffer_, address)) buffer_ = route_->Find(address);
  uint64_t run = RunLength(uint64_t{slice_.bytes} + slice_.fragment + 1);
  if (buffer_ != nullptr) run = std::min(run, buffer_->length - (address - buffer_->address));
  const uint64_t limit = slice_.Next(run);
  CutRequest request{.local = local_,
                     .remote_address = address,
                     .rkey = buffer_ == nullptr ? 0 : buffer_->rkeys[remote_nic_]};
  uint64_t length = 0;
  while (!plan_.empty() && plan_.front().final_destination + offset_ == address + length) {
    const uint64_t step = std::min(plan_.front().length - offset_, limit - length);
    length += step;
    offset_ += step;
    if (offset_ != plan_.front().length) break;
    plan_ = plan_.subspan(1);
    offset_ = 0;
    if (length == limit) break;
  }
  local_ += length;
  request.length = static_cast<uint32_t>(length);
  request.last = plan_.empty();
  return request;
}

}  // namespace railhop
