// Writes the config text of a demo rank.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace railhop {

struct RankConfigFacts {
  uint32_t rank = 0;
  uint32_t ranks = 0;
  uint32_t rails_per_rank = 1;
  double line_gb_per_s = 0;  // of one NIC
  std::string layout;
  std::string directory;    // of the simulated targets and the registry
  bool relays = false;      // takes part in PXN
  std::string gpu = {};     // stages there, by PCI address; empty: as the base config says
  bool moves = true;        // the NICs move the bytes; else they keep the clock alone
  bool trace_all = false;   // records every piece, whatever the base config says
  std::string base_config;  // the file's name, for messages; may be empty
  std::string base_text;    // what it holds
};

// The NIC of the host with this number, and the rail it is on.
std::string NicName(uint32_t number);

// What the file of --config holds.
absl::StatusOr<std::string> ReadBaseConfig(const std::string& path);

// What the demo decides (name, NICs, directories, group, layout if one was asked for) takes the
// place of what the base config says. Errors of the base config name its file and line.
absl::StatusOr<std::string> MakeRankConfig(const RankConfigFacts& facts);

}  // namespace railhop
