#include "tools/demo/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <ostream>

namespace railhop {
namespace {

using nlohmann::json;

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double MedianOf(const std::vector<DemoRun>& runs, double DemoRun::*field) {
  std::vector<double> values;
  for (const DemoRun& run : runs) values.push_back(run.*field);
  return Median(std::move(values));
}

double MedianRatio(const DemoKind& kind) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(kind.relayed.size(), kind.direct.size()); ++i) {
    ratios.push_back(kind.relayed[i].gb_per_s / kind.direct[i].gb_per_s);
  }
  return Median(std::move(ratios));
}

std::string Size(uint64_t bytes) {
  if (bytes >= 1'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  if (bytes >= 1'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{} B", bytes);
}

void PrintKinds(const DemoReport& report, std::ostream& out) {
  out << fmt::format("{:<12} {:>8} {:>10} {:>6} {:>13} {:>12} {:>7} {:>9} {:>16}\n", "batch",
                     "requests", "bytes", "runs", "relayed GB/s", "direct GB/s", "ratio",
                     "relayed %", "CPU s/GB rel/dir");
  for (const DemoKind& kind : report.kinds) {
    const double share = MedianOf(kind.relayed, &DemoRun::relayed_share);
    const auto if_relayed = [share](const char* format, double value) {
      return share == 0 ? "-" : fmt::format(fmt::runtime(format), value);
    };
    out << fmt::format(
        "{:<12} {:>8} {:>10} {:>6} {:>13} {:>12.4f} {:>7} {:>9.0f} {:>8.2f}/{:<7.2f}\n",
        kind.batch.name, kind.batch.lengths.size(), Size(kind.batch.total), kind.relayed.size(),
        if_relayed("{:.4f}", MedianOf(kind.relayed, &DemoRun::gb_per_s)),
        MedianOf(kind.direct, &DemoRun::gb_per_s), if_relayed("{:.3f}", MedianRatio(kind)),
        100 * share, MedianOf(kind.relayed, &DemoRun::cpu_s_per_gb),
        MedianOf(kind.direct, &DemoRun::cpu_s_per_gb));
  }
}

std::string Percentiles(const json& latency) {
  if (latency["count"] == 0) return "-";
  return fmt::format("{:.1f}/{:.1f}", latency["p50_us"].get<double>(),
                     latency["p99_us"].get<double>());
}

std::string Core(int core) {
  return core < 0 ? "any" : std::to_string(core);
}

void PrintActors(const DemoReport& report, std::ostream& out) {
  out << fmt::format("{:<5} {:<11} {:<10} {:>4} {:>7} {:>10} {:>19} {:>19}\n", "rank", "actor",
                     "reactor", "core", "busy %", "messages", "wait p50/p99 us",
                     "service p50/p99 us");
  for (size_t rank = 0; rank < report.rank_stats.size(); ++rank) {
    for (const json& actor : report.rank_stats[rank]["actors"]) {
      out << fmt::format("{:<5} {:<11} {:<10} {:>4} {:>7.2f} {:>10} {:>19} {:>19}\n", rank,
                         actor["actor"].get<std::string>(), actor["reactor"].get<std::string>(),
                         Core(actor["core"].get<int>()), 100 * actor["busy"].get<double>(),
                         actor["messages"].get<uint64_t>(), Percentiles(actor["queue_wait"]),
                         Percentiles(actor["service"]));
    }
  }
}

void PrintFallbacks(const DemoReport& report, std::ostream& out) {
  for (size_t rank = 0; rank < report.rank_stats.size(); ++rank) {
    for (const auto& [reason, count] : report.rank_stats[rank]["fallbacks"].items()) {
      out << fmt::format("rank {}: {} spans went direct: {}\n", rank, count.get<uint64_t>(),
                         reason);
    }
  }
}

}  // namespace

void PrintTables(const DemoReport& report, std::ostream& out) {
  const std::string where =
      report.gpus.empty()
          ? fmt::format("memcpy {:.2f} GB/s", report.memcpy_gb_per_s)
          : fmt::format("staged on {} GPU(s): {}; target memory: {}", report.gpus.size(),
                        fmt::join(report.gpus, ", "), report.target == "cuda" ? "GPU" : "host");
  out << fmt::format(
      "{} ranks, {} rail(s) each, layout {}; {}, simulated NIC line rate {:.3f} GB/s; {} checked, "
      "all right\n\n",
      report.ranks, report.rails_per_rank, report.layout, where, report.line_gb_per_s,
      Size(report.checked_bytes));
  PrintKinds(report, out);
  out << "\n";
  PrintActors(report, out);
  out << "\n";
  report.pieces->PrintTables(out);
  PrintFallbacks(report, out);
}

void WriteJsonLines(const DemoReport& report, std::ostream& out) {
  const json includes = {"submit", "staging copy", "simulated NIC", "completion"};
  json line_rate{{"name", "demo.line_rate"},
                 {"value", report.line_gb_per_s},
                 {"unit", "GB/s"},
                 {"ranks", report.ranks},
                 {"rails_per_rank", report.rails_per_rank},
                 {"layout", report.layout},
                 {"gpus", report.gpus},
                 {"target", report.target},
                 {"includes", json::array()}};
  if (report.gpus.empty()) {
    line_rate["reference"] = report.memcpy_gb_per_s;
    line_rate["ratio"] = report.line_gb_per_s / report.memcpy_gb_per_s;
    line_rate["reference_is"] = "memcpy by one thread";
  }
  out << line_rate << "\n";
  out << json{{"name", "demo.checked"},
              {"value", report.checked_bytes},
              {"unit", "bytes compared at the target, all right"}}
      << "\n";
  for (const DemoKind& kind : report.kinds) {
    const bool relayed = MedianOf(kind.relayed, &DemoRun::relayed_share) != 0;
    const auto if_relayed = [relayed](double value) { return relayed ? json(value) : json(); };
    out << json{{"name", "demo.relay_ratio"},
                {"batch", kind.batch.name},
                {"value", if_relayed(MedianOf(kind.relayed, &DemoRun::gb_per_s))},
                {"reference", MedianOf(kind.direct, &DemoRun::gb_per_s)},
                {"ratio", if_relayed(MedianRatio(kind))},
                {"unit", "GB/s"},
                {"reference_is", "the same batch sent direct by the same simulated NICs"},
                {"requests", kind.batch.lengths.size()},
                {"bytes", kind.batch.total},
                {"pairs", kind.relayed.size()},
                {"relayed_share", MedianOf(kind.relayed, &DemoRun::relayed_share)},
                {"cpu_s_per_gb", MedianOf(kind.relayed, &DemoRun::cpu_s_per_gb)},
                {"reference_cpu_s_per_gb", MedianOf(kind.direct, &DemoRun::cpu_s_per_gb)},
                {"includes", includes}}
        << "\n";
  }
  for (size_t rank = 0; rank < report.rank_stats.size(); ++rank) {
    for (const json& actor : report.rank_stats[rank]["actors"]) {
      json line = actor;
      line["name"] = "demo.actor";
      line["rank"] = rank;
      line["value"] = actor["busy"];
      line["unit"] = "share of a core";
      out << line << "\n";
    }
    json line = report.rank_stats[rank];
    line.erase("actors");
    line["name"] = "demo.rank";
    line["rank"] = rank;
    line["value"] = line["bytes_relayed"];
    line["unit"] = "bytes";
    out << line << "\n";
  }
  report.pieces->WriteJsonLines(out);
}

}  // namespace railhop
