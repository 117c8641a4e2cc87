#include "transport/topology/memory_location.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

namespace railhop {
namespace {

constexpr std::string_view kSegmentsPrefix = "segments:";
// Nodes and ordinals are small; the bound keeps a typing error from passing for one.
constexpr uint64_t kMaxOrdinal = 65535;
constexpr size_t kMaxRegions = 4096;

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool IsOrdinal(std::string_view text) {
  const std::optional<uint64_t> value = ParseNumber(text);
  return value.has_value() && *value <= kMaxOrdinal;
}

// The nodes of "<page bytes>:<n0>,<n1>,..."; empty if it is malformed.
std::vector<uint64_t> ParseNodes(std::string_view text) {
  std::vector<uint64_t> nodes;
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return {};
  const std::optional<uint64_t> page = ParseNumber(text.substr(0, colon));
  if (!page.has_value() || *page == 0) return {};
  for (text.remove_prefix(colon + 1);;) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view node = text.substr(0, comma);
    if (!IsOrdinal(node) || nodes.size() == kMaxRegions) return {};
    nodes.push_back(*ParseNumber(node));
    if (comma == text.size()) return nodes;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

absl::Status ValidateLocation(std::string_view location) {
  if (location == kAnyLocation) return absl::OkStatus();
  for (const std::string_view prefix : {"cpu:", "cuda:"}) {
    if (location.starts_with(prefix) && IsOrdinal(location.substr(prefix.size()))) {
      return absl::OkStatus();
    }
  }
  if (location.starts_with(kSegmentsPrefix) &&
      !ParseNodes(location.substr(kSegmentsPrefix.size())).empty()) {
    return absl::OkStatus();
  }
  constexpr size_t kShown = 64;
  return absl::InvalidArgumentError(fmt::format(
      "the location \"{}\"{} is not valid; allowed: \"*\", \"cpu:<NUMA node>\", "
      "\"cuda:<ordinal>\", "
      "\"segments:<page bytes>:<node>,<node>,...\" with 1..{} nodes; nodes and ordinals 0..{}",
      location.substr(0, kShown), location.size() > kShown ? "..." : "", kMaxRegions, kMaxOrdinal));
}

std::string LocationAt(std::string_view location, uint64_t length, uint64_t offset) {
  if (!location.starts_with(kSegmentsPrefix)) return std::string(location);
  const std::vector<uint64_t> nodes = ParseNodes(location.substr(kSegmentsPrefix.size()));
  if (nodes.empty() || length < nodes.size()) return std::string(kAnyLocation);
  const uint64_t region = offset / (length / nodes.size());
  return fmt::format("cpu:{}", nodes[std::min<uint64_t>(region, nodes.size() - 1)]);
}

}  // namespace railhop
