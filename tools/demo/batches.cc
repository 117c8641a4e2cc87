#include "tools/demo/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/demo/read_file.h"

namespace railhop {
namespace {

constexpr uint64_t kMaxBatchBytes = uint64_t{8} << 30;
constexpr size_t kMaxRequests = 100'000;
constexpr size_t kMaxFileBytes = size_t{64} << 20;
constexpr size_t kMaxNameBytes = 64;

// Odd multiplier: neighbouring words differ in all bytes, and no two offsets below 2^63 agree.
uint64_t PatternWord(uint64_t seed, uint64_t index) {
  return (index + 1) * 0x9E3779B97F4A7C15u ^ seed * 0xD6E8FEB86659FD93u;
}

absl::StatusOr<KvBatch> ParseBatch(const nlohmann::json& json) {
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string() ||
      !json.contains("lengths") || !json["lengths"].is_array()) {
    return absl::InvalidArgumentError("a batch needs a \"name\" and an array \"lengths\"");
  }
  KvBatch batch{.name = json["name"].get<std::string>(), .lengths = {}};
  // It is shown on terminals.
  const bool printable = std::all_of(batch.name.begin(), batch.name.end(),
                                     [](unsigned char c) { return c >= ' ' && c != 0x7F; });
  if (batch.name.empty() || batch.name.size() > kMaxNameBytes || !printable) {
    return absl::InvalidArgumentError(
        fmt::format("the name {} of a batch is not 1 to {} printable characters",
                    json["name"].dump(), kMaxNameBytes));
  }
  if (json["lengths"].empty() || json["lengths"].size() > kMaxRequests) {
    return absl::InvalidArgumentError(
        fmt::format("batch \"{}\" has {} lengths; 1 to {} can be replayed", batch.name,
                    json["lengths"].size(), kMaxRequests));
  }
  for (const nlohmann::json& length : json["lengths"]) {
    if (!length.is_number_unsigned() || length == 0 || length > kMaxBatchBytes) {
      return absl::InvalidArgumentError(
          fmt::format("batch \"{}\" has the length {}; lengths are bytes, 1 to {}", batch.name,
                      length.dump(), kMaxBatchBytes));
    }
    batch.lengths.push_back(length.get<uint64_t>());
    batch.total += batch.lengths.back();
  }
  if (batch.total > kMaxBatchBytes) {
    return absl::InvalidArgumentError(
        fmt::format("batch \"{}\" has {} bytes in all; at most {} can be replayed", batch.name,
                    batch.total, kMaxBatchBytes));
  }
  // Optional, and then they say whether the file is whole.
  const std::pair<const char*, uint64_t> sums[] = {{"count", batch.lengths.size()},
                                                   {"total", batch.total}};
  for (const auto& [member, sum] : sums) {
    if (json.contains(member) && json[member] != sum) {
      return absl::InvalidArgumentError(
          fmt::format("batch \"{}\" says \"{}\": {}, and its lengths make {}", batch.name, member,
                      json[member].dump(), sum));
    }
  }
  return batch;
}

}  // namespace

absl::StatusOr<std::vector<KvBatch>> ReadBatches(const std::string& path) {
  std::string text = DefaultBatches();
  if (!path.empty()) {
    absl::StatusOr<std::string> content =
        ReadWholeFile(path, kMaxFileBytes, "the batch file", "--batches");
    if (!content.ok()) return content.status();
    text = *std::move(content);
  }
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("batches") || !json["batches"].is_array() ||
      json["batches"].empty()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: not a JSON object with a non-empty array \"batches\"", path));
  }
  std::vector<KvBatch> batches;
  for (const nlohmann::json& entry : json["batches"]) {
    absl::StatusOr<KvBatch> batch = ParseBatch(entry);
    if (!batch.ok()) {
      return absl::InvalidArgumentError(path + ": " + std::string(batch.status().message()));
    }
    const auto same = [&](const KvBatch& other) { return other.name == batch->name; };
    if (std::any_of(batches.begin(), batches.end(), same)) {
      return absl::InvalidArgumentError(
          fmt::format("{}: two batches are named \"{}\"", path, batch->name));
    }
    batches.push_back(*std::move(batch));
  }
  return batches;
}

void FillPattern(std::span<std::byte> memory, uint64_t seed) {
  const size_t words = memory.size() / sizeof(uint64_t);
  for (size_t i = 0; i < words; ++i) {
    const uint64_t word = PatternWord(seed, i);
    std::memcpy(memory.data() + i * sizeof(word), &word, sizeof(word));
  }
  const uint64_t last = PatternWord(seed, words);
  std::memcpy(memory.data() + words * sizeof(last), &last, memory.size() % sizeof(last));
}

int64_t FindMismatch(std::span<const std::byte> memory, uint64_t seed) {
  for (size_t at = 0; at < memory.size(); at += sizeof(uint64_t)) {
    const uint64_t word = PatternWord(seed, at / sizeof(word));
    const size_t bytes = std::min(sizeof(word), memory.size() - at);
    if (std::memcmp(memory.data() + at, &word, bytes) == 0) continue;
    for (size_t i = 0; i < bytes; ++i) {
      const auto expected = static_cast<std::byte>(word >> (8 * i) & 0xFF);
      if (memory[at + i] != expected) return static_cast<int64_t>(at + i);
    }
  }
  return -1;
}

}  // namespace railhop
