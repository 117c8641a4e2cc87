// Scattered transfers: many parts of one local buffer, and as many of a remote one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transport/engine/transfer_engine.h"

namespace railhop {

// Fragment i moves lengths[i] bytes between local + local_offsets[i] and
// remote_address + remote_offsets[i]. What the lists point to stays the caller's, and is not used
// after the call.
struct ScatterRange {
  Opcode opcode = Opcode::kWrite;
  std::string segment;  // by name
  uint64_t remote_address = 0;
  uint64_t remote_size = 0;  // bytes that fragments may lie in, from remote_address
  void* local = nullptr;
  uint64_t local_size = 0;  // bytes that fragments may lie in, from `local`
  std::span<const size_t> local_offsets;
  std::span<const size_t> remote_offsets;
  std::span<const size_t> lengths;
};

// Appends the fragments of the range. False, and `error`, if the lists are not equally long, or a
// fragment is not inside both buffers: then nothing was appended.
bool AppendFragments(const ScatterRange& range, SegmentHandle target,
                     std::vector<TransferTask>* tasks, std::string* error);

}  // namespace railhop
