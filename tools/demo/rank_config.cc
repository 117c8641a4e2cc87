#include "tools/demo/rank_config.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cstdlib>

#include "actors/bootstrap_config.h"
#include "actors/bootstrap_layout.h"
#include "proto/runtime_config.pb.h"
#include "tools/demo/read_file.h"

namespace railhop {
namespace {

constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// The protobuf parser would log what LoadRankConfig reports better.
class NoLog : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string&) override {}
};

// Finds what a rank would refuse, while the lines are still those of the user's file.
absl::Status CheckBase(const RankConfigFacts& facts, std::string text,
                       const proto::RankConfig& base) {
  if (facts.layout != "auto" && base.reactors_size() > 0) {
    return absl::InvalidArgumentError(
        fmt::format("{} lists reactors, and --layout {} makes its own: leave one of them out",
                    facts.base_config, facts.layout));
  }
  if (!base.has_name()) text += "\nname: \"demo\"";
  if (!base.has_sim_directory()) text += fmt::format("\nsim_directory: \"{}\"", facts.directory);
  RankConfig config;
  ResolvedLayout layout;
  std::string error;
  if (!LoadRankConfig(text, facts.base_config, std::getenv, &config, &error) ||
      !ResolveLayout(config, DetectHostCores(), &layout, &error)) {
    return absl::InvalidArgumentError(error);
  }
  // A rank would only go direct then, and a demo of relaying has nothing to show.
  if (config.pxn.off_reason.starts_with(facts.base_config + ":")) {
    return absl::InvalidArgumentError(config.pxn.off_reason);
  }
  return absl::OkStatus();
}

absl::Status ReadBase(const RankConfigFacts& facts, proto::RankConfig* config) {
  NoLog quiet;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&quiet);
  parser.ParseFromString(facts.base_text, config);
  return CheckBase(facts, facts.base_text, *config);
}

// Ranks look for each other by the names of their NICs.
absl::Status CheckRails(const std::string& text) {
  RankConfig config;
  std::string error;
  // What else is wrong, the rank says when it is made.
  if (!LoadRankConfig(text, "demo", std::getenv, &config, &error)) return absl::OkStatus();
  for (const NicConfig& nic : config.nics) {
    if (nic.rail == nic.name) continue;
    return absl::InvalidArgumentError(fmt::format(
        "a rail map puts the demo's NIC {0} on rail \"{1}\", but its NICs are rails of their own; "
        "leave `rail_map` out of the config, or unset MC_PXN_RAIL_MAP",
        nic.name, nic.rail));
  }
  return absl::OkStatus();
}

}  // namespace

std::string NicName(uint32_t number) {
  return fmt::format("sim{}", number);
}

absl::StatusOr<std::string> ReadBaseConfig(const std::string& path) {
  return ReadWholeFile(path, kMaxConfigBytes, "the config", "--config");
}

absl::StatusOr<std::string> MakeRankConfig(const RankConfigFacts& facts) {
  proto::RankConfig config;
  if (!facts.base_config.empty()) {
    if (absl::Status read = ReadBase(facts, &config); !read.ok()) return read;
  }
  config.set_name(fmt::format("prefill-{}{}", facts.rank, facts.relays ? "" : "-direct"));
  config.set_sim_directory(facts.directory);
  config.set_registry_root(facts.directory);
  config.set_ranks_on_host(facts.ranks);
  config.set_local_rank(facts.rank);
  // Left out when it is the default, so that a base config may list reactors one by one.
  if (facts.layout != "auto") {
    std::string layout = facts.layout;
    std::transform(layout.begin(), layout.end(), layout.begin(), ::toupper);
    proto::RankConfig::Layout value;
    if (proto::RankConfig::Layout_Parse(layout, &value)) config.set_layout(value);
  }
  config.mutable_pxn()->set_enable(facts.relays);
  if (facts.relays) {
    config.mutable_pxn()->set_group_id("demo");
    config.mutable_pxn()->set_preattach(true);
  }
  if (!facts.gpu.empty()) {
    config.set_staging(proto::RankConfig::CUDA);
    config.set_gpu(facts.gpu);
  }
  if (facts.trace_all) {
    config.mutable_tracing()->set_sample_every(1);
    config.mutable_tracing()->set_pieces(true);
  }
  config.clear_nics();
  for (uint32_t i = 0; i < facts.rails_per_rank; ++i) {
    proto::Nic& nic = *config.add_nics();
    nic.set_name(NicName(facts.rank * facts.rails_per_rank + i));
    nic.mutable_sim()->set_line_rate_bytes_per_s(static_cast<uint64_t>(facts.line_gb_per_s * 1e9));
    nic.mutable_sim()->set_mode(facts.moves ? proto::SimNic::MOVE : proto::SimNic::MODEL);
  }
  std::string text;
  google::protobuf::TextFormat::PrintToString(config, &text);
  if (absl::Status rails = CheckRails(text); !rails.ok()) return rails;
  return text;
}

}  // namespace railhop
