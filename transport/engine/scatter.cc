#include "transport/engine/scatter.h"

#include <fmt/format.h>

namespace railhop {
namespace {

bool IsInside(uint64_t offset, uint64_t length, uint64_t size) {
  return offset <= size && length <= size - offset;
}

}  // namespace

bool AppendFragments(const ScatterRange& range, SegmentHandle target,
                     std::vector<TransferTask>* tasks, std::string* error) {
  const size_t count = range.lengths.size();
  if (range.local_offsets.size() != count || range.remote_offsets.size() != count) {
    *error = fmt::format("{} local offsets, {} remote offsets and {} lengths are not equally many",
                         range.local_offsets.size(), range.remote_offsets.size(), count);
    return false;
  }
  if (range.remote_size > UINT64_MAX - range.remote_address) {
    *error = fmt::format("the remote range {:#x} of {} bytes wraps around", range.remote_address,
                         range.remote_size);
    return false;
  }
  for (size_t i = 0; i < count; ++i) {
    if (IsInside(range.local_offsets[i], range.lengths[i], range.local_size) &&
        IsInside(range.remote_offsets[i], range.lengths[i], range.remote_size)) {
      continue;
    }
    *error = fmt::format(
        "fragment {}: {} bytes at {} of {} local bytes and at {} of {} remote bytes do not lie "
        "inside both",
        i, range.lengths[i], range.local_offsets[i], range.local_size, range.remote_offsets[i],
        range.remote_size);
    return false;
  }
  for (size_t i = 0; i < count; ++i) {
    tasks->push_back({.opcode = range.opcode,
                      .source = static_cast<std::byte*>(range.local) + range.local_offsets[i],
                      .target = target,
                      .target_address = range.remote_address + range.remote_offsets[i],
                      .length = range.lengths[i]});
  }
  return true;
}

}  // namespace railhop
