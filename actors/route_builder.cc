#include "actors/route_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace railhop {
namespace {

std::vector<std::string> RailsOf(const RailMap& rail_map, const std::vector<std::string>& nics) {
  std::vector<std::string> rails;
  for (const std::string& nic : nics) rails.push_back(RailOf(rail_map, nic));
  std::sort(rails.begin(), rails.end());
  rails.erase(std::unique(rails.begin(), rails.end()), rails.end());
  return rails;
}

std::vector<uint32_t> NicsOn(const std::vector<std::string>& rails,
                             std::span<const std::string> own_rails) {
  std::vector<uint32_t> nics;
  for (uint32_t i = 0; i < own_rails.size(); ++i) {
    if (std::binary_search(rails.begin(), rails.end(), own_rails[i])) nics.push_back(i);
  }
  std::stable_sort(nics.begin(), nics.end(),
                   [&](uint32_t a, uint32_t b) { return own_rails[a] < own_rails[b]; });
  return nics;
}

std::string RangeText(const TargetBuffer& buffer) {
  return fmt::format("[{:#x}, +{} bytes]", buffer.address, buffer.length);
}

}  // namespace

const std::string& RailOf(const RailMap& rail_map, const std::string& nic) {
  const auto found = rail_map.find(nic);
  return found == rail_map.end() ? nic : found->second;
}

absl::StatusOr<std::vector<TargetBuffer>> BuildTargetBuffers(
    const TargetInfo& info, const RailMap& rail_map, std::span<const std::string> own_rails) {
  std::vector<TargetBuffer> buffers;
  for (const RemoteBuffer& remote : info.buffers) {
    if (remote.length == 0) continue;
    TargetBuffer buffer{.address = remote.address,
                        .length = remote.length,
                        .rkey = remote.rkey,
                        .rails = RailsOf(rail_map, remote.preferred_nics),
                        .own_nics = {}};
    if (buffer.address + buffer.length - 1 < buffer.address) {
      return absl::FailedPreconditionError(
          fmt::format("the metadata of target {} has a buffer {} that wraps around the address "
                      "space; the target must register it anew",
                      info.name, RangeText(buffer)));
    }
    buffer.own_nics = NicsOn(buffer.rails, own_rails);
    buffers.push_back(std::move(buffer));
  }
  std::sort(buffers.begin(), buffers.end(),
            [](const TargetBuffer& a, const TargetBuffer& b) { return a.address < b.address; });
  for (size_t i = 1; i < buffers.size(); ++i) {
    if (buffers[i].address - buffers[i - 1].address >= buffers[i - 1].length) continue;
    return absl::FailedPreconditionError(fmt::format(
        "the metadata of target {} has buffers that overlap: {} and {}; the target must register "
        "disjoint ranges",
        info.name, RangeText(buffers[i - 1]), RangeText(buffers[i])));
  }
  return buffers;
}

}  // namespace railhop
