#include "tools/demo/rank_config.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "proto/runtime_config.pb.h"

namespace railhop {
namespace {

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  explicit FirstError(std::string file) : file_(std::move(file)) {}
  void AddError(int line, int column, const std::string& message) override {
    if (!text_.empty()) return;
    text_ = fmt::format("{}:{}:{}: {}; all fields: docs/configuration.md", file_, line + 1,
                        column + 1, message);
  }
  const std::string& text() const { return text_; }

 private:
  const std::string file_;
  std::string text_;
};

absl::Status ReadBase(const std::string& path, proto::RankConfig* config) {
  std::ifstream file(path);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file) {
    return absl::NotFoundError(
        fmt::format("the config {} cannot be read; give another with --config", path));
  }
  FirstError error(path);
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (parser.ParseFromString(content.str(), config)) return absl::OkStatus();
  return absl::InvalidArgumentError(error.text());
}

}  // namespace

std::string NicName(uint32_t number) {
  return fmt::format("sim{}", number);
}

absl::StatusOr<std::string> MakeRankConfig(const RankConfigFacts& facts) {
  proto::RankConfig config;
  if (!facts.base_config.empty()) {
    if (absl::Status read = ReadBase(facts.base_config, &config); !read.ok()) return read;
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
  config.clear_nics();
  for (uint32_t i = 0; i < facts.rails_per_rank; ++i) {
    proto::Nic& nic = *config.add_nics();
    nic.set_name(NicName(facts.rank * facts.rails_per_rank + i));
    nic.mutable_sim()->set_line_rate_bytes_per_s(static_cast<uint64_t>(facts.line_gb_per_s * 1e9));
    nic.mutable_sim()->set_mode(proto::SimNic::MOVE);
  }
  std::string text;
  google::protobuf::TextFormat::PrintToString(config, &text);
  return text;
}

}  // namespace railhop
