#include "tools/demo/rank_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace railhop {

std::string NicName(uint32_t number) {
  return fmt::format("sim{}", number);
}

absl::StatusOr<std::string> MakeRankConfig(const RankConfigFacts& facts) {
  std::string text;
  if (!facts.base_config.empty()) {
    std::ifstream file(facts.base_config);
    std::ostringstream content;
    content << file.rdbuf();
    if (!file) {
      return absl::NotFoundError(fmt::format(
          "the config {} cannot be read; give another with --config", facts.base_config));
    }
    text = content.str() + "\n";
  }
  text += fmt::format(
      "name: \"prefill-{0}{1}\"\n"
      "sim_directory: \"{2}\"\n"
      "registry_root: \"{2}\"\n"
      "ranks_on_host: {3}\n"
      "local_rank: {0}\n",
      facts.rank, facts.relays ? "" : "-direct", facts.directory, facts.ranks);
  // Left out when it is the default, so that a base config may list reactors one by one.
  if (facts.layout != "auto") {
    std::string layout = facts.layout;
    std::transform(layout.begin(), layout.end(), layout.begin(), ::toupper);
    text += fmt::format("layout: {}\n", layout);
  }
  if (facts.relays) text += "pxn { enable: true group_id: \"demo\" preattach: true }\n";
  for (uint32_t i = 0; i < facts.rails_per_rank; ++i) {
    text += fmt::format("nics {{ name: \"{}\" sim {{ line_rate_bytes_per_s: {} mode: MOVE }} }}\n",
                        NicName(facts.rank * facts.rails_per_rank + i),
                        static_cast<uint64_t>(facts.line_gb_per_s * 1e9));
  }
  return text;
}

}  // namespace railhop
