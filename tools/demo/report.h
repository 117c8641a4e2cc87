// What the demo measured, as tables and as JSON lines.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/demo/batches.h"
#include "tools/demo/piece_report.h"

namespace railhop {

// One run of one batch kind by all ranks at once.
struct DemoRun {
  double gb_per_s = 0;       // of all ranks together
  double cpu_s_per_gb = 0;   // of all rank processes, their NICs' workers included
  double relayed_share = 0;  // of the bytes
};

struct DemoKind {
  KvBatch batch;
  std::vector<DemoRun> relayed;  // run by run,
  std::vector<DemoRun> direct;   // each beside its pair
};

struct DemoReport {
  uint32_t ranks = 0;
  uint32_t rails_per_rank = 0;
  std::vector<std::string> gpus;  // that pieces are staged on; empty: in host memory
  std::string target;             // "host" or "cuda"
  double memcpy_gb_per_s = 0;     // not with GPUs
  double line_gb_per_s = 0;       // of one NIC
  std::string layout;
  uint64_t checked_bytes = 0;
  std::vector<DemoKind> kinds;
  std::vector<nlohmann::json> rank_stats;  // per rank, as rank_process.cc writes it
  std::unique_ptr<PieceReport> pieces;     // once the ranks run
};

void PrintTables(const DemoReport& report, std::ostream& out);
// One JSON object a line, named demo.*.
void WriteJsonLines(const DemoReport& report, std::ostream& out);

}  // namespace railhop
