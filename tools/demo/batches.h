// The batches that the demo replays, as an inference server issued them, and the bytes they carry.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace railhop {

struct KvBatch {
  std::string name;
  std::vector<uint64_t> lengths;  // bytes of each request, > 0
  uint64_t total = 0;
};

// The text of tests/data/kv_batches.json.
const char* DefaultBatches();

// Reads a file of that form, or the default if `path` is empty. Errors name the file and what is
// wrong.
absl::StatusOr<std::vector<KvBatch>> ReadBatches(const std::string& path);

// The pattern that a rank sends: a pure function of seed and offset, so that the target can check
// every byte without being told them, and bytes of an earlier run are wrong ones.
void FillPattern(std::span<std::byte> memory, uint64_t seed);
// The offset of the first byte that differs from the pattern, or -1.
int64_t FindMismatch(std::span<const std::byte> memory, uint64_t seed);

}  // namespace railhop
