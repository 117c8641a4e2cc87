#include "actors/bootstrap_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "actors/bootstrap_settings.h"
#include "proto/runtime_config.pb.h"

namespace railhop {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;

constexpr uint64_t kMaxMs = 31'536'000'000;  // a year: far from what a clock can hold
constexpr size_t kMaxNameBytes = 256;

std::string KnownFields(const Descriptor& type) {
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(type.field_count()));
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return fmt::format("{}", fmt::join(names, ", "));
}

// The enumeration of the field `name`, anywhere in `type`: field names of enumerations are unique.
const EnumDescriptor* FindEnum(const Descriptor& type, const std::string& name) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.enum_type() != nullptr && field.name() == name) return field.enum_type();
    if (field.message_type() == nullptr) continue;
    if (const EnumDescriptor* found = FindEnum(*field.message_type(), name)) return found;
  }
  return nullptr;
}

std::string_view TextBetween(std::string_view text, std::string_view before,
                             std::string_view after) {
  const size_t start = text.find(before);
  if (start == std::string_view::npos) return {};
  text.remove_prefix(start + before.size());
  return text.substr(0, text.find(after));
}

// Keeps the first error, as FILE:LINE:COLUMN, with what would have been right where that is a list.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  FirstError(std::string_view file, std::string_view text) : file_(file), text_(text) {}

  void AddError(int line, int column, const std::string& message) override {
    if (!error_.empty()) return;
    const std::string_view value = TextBetween(message, "numeration value of \"", "\"");
    if (!value.empty()) MoveToValue(value, &line, &column);
    error_ = line < 0 ? fmt::format("{}: {}", file_, message)
                      : fmt::format("{}:{}:{}: {}", file_, line + 1, column + 1, message);
    AddHelp(message);
  }
  void AddWarning(int, int, const std::string&) override {}

  const std::string& error() const { return error_; }

 private:
  // The parser reports a bad value of an enumeration where the next token is, which may be many
  // lines on: goes back from there to the value.
  void MoveToValue(std::string_view value, int* line, int* column) const {
    size_t end = 0;
    for (int i = 0; i <= *line && end != std::string_view::npos; ++i) {
      end = text_.find('\n', i == 0 ? 0 : end + 1);
    }
    const size_t at = text_.rfind(value, end);
    if (at == std::string_view::npos) return;
    const std::string_view before = text_.substr(0, at);
    *line = static_cast<int>(std::count(before.begin(), before.end(), '\n'));
    const size_t line_start = before.rfind('\n');  // npos + 1 is 0: the first line
    *column = static_cast<int>(at - (line_start + 1));
  }

  void AddHelp(std::string_view message) {
    const Descriptor& config = *proto::RankConfig::descriptor();
    if (message.find("has no field named") != std::string_view::npos) {
      const std::string type(TextBetween(message, "Message type \"", "\""));
      const Descriptor* const found = config.file()->pool()->FindMessageTypeByName(type);
      if (found != nullptr) error_ += " Known fields here: " + KnownFields(*found) + ".";
    } else if (message.find("numeration value") != std::string_view::npos) {
      const std::string field(TextBetween(message, "for field \"", "\""));
      const EnumDescriptor* const found = FindEnum(config, field);
      if (found == nullptr) return;
      std::vector<std::string> names;
      names.reserve(static_cast<size_t>(found->value_count()));
      for (int i = 0; i < found->value_count(); ++i) names.push_back(found->value(i)->name());
      error_ += fmt::format(" Known values: {}.", fmt::join(names, ", "));
    }
  }

  const std::string file_;
  const std::string_view text_;
  std::string error_;
};

// Carries one text over into a RankConfig. Stops at the first error.
class ConfigReader {
 public:
  ConfigReader(std::string_view file, const proto::RankConfig& message,
               const TextFormat::ParseInfoTree& locations, RankConfig* config)
      : file_(file), message_(message), locations_(locations), config_(*config) {}

  bool Read() {
    ReadRank();
    ReadNics();
    ReadLayout();
    ReadTracing();
    ReadSlotLog();
    return error_.empty();
  }
  void ReadPxn(PxnSettingsReader* reader) const;
  const std::string& error() const { return error_; }

 private:
  // "FILE:LINE: " of a field of the message that `tree` describes.
  std::string Where(const TextFormat::ParseInfoTree* tree, const Descriptor& type,
                    const char* field, int index = -1) const {
    const FieldDescriptor* const found = type.FindFieldByName(field);
    const int line = tree == nullptr ? -1 : tree->GetLocation(found, index).line;
    return line < 0 ? fmt::format("{}: ", file_) : fmt::format("{}:{}: ", file_, line + 1);
  }
  std::string Where(const char* field, int index = -1) const {
    return Where(&locations_, *proto::RankConfig::descriptor(), field, index);
  }

  // False if something is wrong already, so that the first error is the one that is told.
  bool Check(bool good, const std::string& where, const std::string& what) {
    if (!good && error_.empty()) error_ = where + what;
    return error_.empty();
  }
  // Takes a number that the text gives, if it is in its range.
  template <class Number, class Field>
  void Take(bool given, Number value, uint64_t min, uint64_t max, const std::string& where,
            const char* name, Field* field) {
    if (!given) return;
    if (Check(value >= min && value <= max, where,
              fmt::format("{} = {} is not in its range {}..{}", name, value, min, max))) {
      *field = value;
    }
  }

  void ReadRank();
  void ReadStaging();
  void ReadCopyCosts(const proto::Copy& copy);
  void ReadNics();
  void ReadRdma(const proto::RdmaNic& rdma, const std::string& where, NicConfig* read);
  void ReadSim(const proto::SimNic& sim, const std::string& where, NicConfig* read);
  void ReadLayout();
  void ReadReactors();
  void ReadPlacement();
  void ReadTracing();
  void ReadSlotLog();

  const std::string file_;
  const proto::RankConfig& message_;
  const TextFormat::ParseInfoTree& locations_;
  RankConfig& config_;
  std::string error_;
};

void ConfigReader::ReadRank() {
  config_.name = message_.name();
  Check(!config_.name.empty(), Where("name"),
        "the rank has no name: add  name: \"prefill-3\"  or the like, unique among the ranks");
  Check(config_.name.size() <= kMaxNameBytes, Where("name"),
        fmt::format("the name has {} bytes; allowed: 1..{}", config_.name.size(), kMaxNameBytes));
  config_.sim_directory = message_.sim_directory();
  if (message_.has_registry_root()) config_.registry_root = message_.registry_root();
  Check(config_.registry_root.starts_with('/'), Where("registry_root"),
        fmt::format("registry_root = \"{}\" is not an absolute path", config_.registry_root));
  ReadStaging();

  Take(message_.has_batch_timeout_ms(), message_.batch_timeout_ms(), 1, kMaxMs,
       Where("batch_timeout_ms"), "batch_timeout_ms", &config_.batch_timeout_ms);
  Take(message_.has_piece_timeout_ms(), message_.piece_timeout_ms(), 1, kMaxMs,
       Where("piece_timeout_ms"), "piece_timeout_ms", &config_.piece_timeout_ms);
  Take(message_.has_max_batches(), message_.max_batches(), 1, 65536, Where("max_batches"),
       "max_batches", &config_.max_batches);
  Take(message_.has_slice_size(), message_.slice_size(), 512, 8 << 20, Where("slice_size"),
       "slice_size", &config_.slice_size);
}

void ConfigReader::ReadStaging() {
  config_.staging = static_cast<StagingKind>(message_.staging());
  config_.gpu = message_.gpu();
  const proto::Copy& copy = message_.copy();
  Check(config_.staging == StagingKind::kCuda || !message_.has_gpu(), Where("gpu"),
        "gpu names the GPU of  staging: CUDA : add that, or leave gpu out");
  Check(config_.staging == StagingKind::kCuda || !message_.has_copy(), Where("copy"),
        "copy says how the GPU of  staging: CUDA  copies: add that, or leave copy out");
  if (copy.doorbell() != proto::Doorbell::AUTO) {
    config_.copy.doorbell =
        static_cast<CudaDoorbell>(copy.doorbell() - proto::Doorbell::STREAM_WRITE);
  }
  if (copy.way() != proto::CopyWay::AUTO) {
    config_.copy.way = static_cast<CopyWay>(copy.way() - proto::CopyWay::ASYNC);
  }
  config_.copy.stream_priority = copy.stream_priority();
  Take(copy.has_gather_max_blocks(), copy.gather_max_blocks(), 1, 65535, Where("copy"),
       "gather_max_blocks", &config_.copy.gather_max_blocks);
  ReadCopyCosts(copy);
}

void ConfigReader::ReadCopyCosts(const proto::Copy& copy) {
  if (copy.costs().empty()) return;
  Check(copy.way() == proto::CopyWay::AUTO, Where("copy"),
        "way and costs exclude each other: costs are what a way is chosen by");
  CopyCosts costs;
  for (const proto::CopyCost& cost : copy.costs()) {
    Check(cost.way() != proto::CopyWay::AUTO, Where("copy"),
          "costs are those of a way: ASYNC, BATCH or GATHER");
    if (cost.way() == proto::CopyWay::AUTO) return;
    const auto way = static_cast<CopyWay>(cost.way() - proto::CopyWay::ASYNC);
    CopyWayCost& taken = costs.of(way);
    Check(!taken.available, Where("copy"),
          fmt::format("the costs of {} are given twice", proto::CopyWay::Kind_Name(cost.way())));
    Check(cost.has_fixed_ns() && cost.has_behind_ns(), Where("copy"),
          fmt::format("the costs of {} need fixed_ns and behind_ns: without them it would cost "
                      "nothing, and always be chosen",
                      proto::CopyWay::Kind_Name(cost.way())));
    taken = {.available = true,
             .fixed = static_cast<double>(cost.fixed_ns()),
             .per_span = static_cast<double>(cost.span_ns()),
             .behind = static_cast<double>(cost.behind_ns()),
             .behind_per_span = static_cast<double>(cost.behind_span_ns()),
             .per_byte = static_cast<double>(cost.mib_ns()) / (1 << 20)};
  }
  Check(costs.of(CopyWay::kAsync).available, Where("copy"),
        "the costs of ASYNC are missing: it is what is left where the others are not there");
  config_.copy.costs = costs;
}

void ConfigReader::ReadNics() {
  std::set<std::string> names;
  for (int i = 0; i < message_.nics_size(); ++i) {
    const proto::Nic& nic = message_.nics(i);
    const std::string where = Where("nics", i);
    const auto name_fits = [](const std::string& name) {
      return !name.empty() && name.size() <= kMaxNameBytes;
    };
    Check(name_fits(nic.name()), where,
          fmt::format("the name of a NIC has {} bytes; allowed: 1..{}", nic.name().size(),
                      kMaxNameBytes));
    Check(!nic.has_rail() || name_fits(nic.rail()), where,
          fmt::format("the rail of NIC \"{}\" has {} bytes; allowed: 1..{}", nic.name(),
                      nic.rail().size(), kMaxNameBytes));
    Check(names.insert(nic.name()).second, where,
          fmt::format("there are two NICs named \"{}\"", nic.name()));
    Check(nic.has_sim() || nic.has_rdma(), where,
          fmt::format("NIC \"{}\" is of no kind: add  sim {{}}  or  rdma {{}}  to it", nic.name()));

    NicConfig read;
    read.name = nic.name();
    read.rail = nic.rail();
    Take(nic.has_numa_node(), nic.numa_node(), 0, 1023, where, "numa_node", &read.numa_node);
    if (nic.has_rdma()) {
      ReadRdma(nic.rdma(), where, &read);
    } else {
      ReadSim(nic.sim(), where, &read);
    }
    config_.nics.push_back(std::move(read));
  }
  const bool any_sim = std::any_of(config_.nics.begin(), config_.nics.end(),
                                   [](const NicConfig& nic) { return nic.kind == NicKind::kSim; });
  Check(!any_sim || !config_.sim_directory.empty(), Where("sim_directory"),
        "a simulated NIC needs sim_directory, where its targets publish their segments");
}

void ConfigReader::ReadRdma(const proto::RdmaNic& rdma, const std::string& where, NicConfig* read) {
  read->kind = NicKind::kRdma;
  Take(rdma.has_port(), rdma.port(), 1, 255, where, "port", &read->port);
  Take(rdma.has_gid_index(), rdma.gid_index(), 0, 255, where, "gid_index", &read->gid_index);
  Take(rdma.has_queue_depth(), rdma.queue_depth(), 2, 16384, where, "queue_depth",
       &read->queue_depth);
  Take(rdma.has_max_endpoints(), rdma.max_endpoints(), 1, 4000, where, "max_endpoints",
       &read->max_endpoints);
  Take(rdma.has_queue_pairs(), rdma.queue_pairs(), 1, 255, where, "queue_pairs",
       &read->queue_pairs);
  read->evict_oldest = rdma.eviction() == proto::RdmaNic::FIFO;
}

void ConfigReader::ReadSim(const proto::SimNic& sim, const std::string& where, NicConfig* read) {
  Take(sim.has_line_rate_bytes_per_s(), sim.line_rate_bytes_per_s(), 1, 1'000'000'000'000'000,
       where, "line_rate_bytes_per_s", &read->line_rate_bytes_per_s);
  Take(sim.has_base_delay_ns(), sim.base_delay_ns(), 0, 1'000'000'000, where, "base_delay_ns",
       &read->base_delay_ns);
  Take(sim.has_queue_depth(), sim.queue_depth(), 2, 65536, where, "queue_depth",
       &read->queue_depth);
  read->model_only = sim.mode() == proto::SimNic::MODEL;
}

void ConfigReader::ReadLayout() {
  if (message_.has_layout()) {
    config_.layout = static_cast<LayoutPreset>(message_.layout());
    Check(message_.reactors().empty(), Where("layout"),
          "layout and reactors exclude each other: a preset makes its own reactors");
  }
  Take(message_.has_ranks_on_host(), message_.ranks_on_host(), 1, 1024, Where("ranks_on_host"),
       "ranks_on_host", &config_.ranks_on_host);
  Take(message_.has_local_rank(), message_.local_rank(), 0, config_.ranks_on_host - 1,
       Where("local_rank"), "local_rank", &config_.local_rank);
  Take(message_.has_spin_us(), message_.spin_us(), 0, 1'000'000, Where("spin_us"), "spin_us",
       &config_.spin_us);
  ReadReactors();
  ReadPlacement();
}

void ConfigReader::ReadReactors() {
  std::set<std::string> names;
  for (int i = 0; i < message_.reactors_size(); ++i) {
    const proto::Reactor& reactor = message_.reactors(i);
    ReactorConfig read;
    read.where = Where("reactors", i);
    read.name = reactor.name();
    Check(!read.name.empty(), read.where, "a reactor has no name");
    Check(names.insert(read.name).second, read.where,
          fmt::format("there are two reactors named \"{}\"", read.name));
    if (reactor.has_core()) {
      read.core = reactor.core();
      Check(read.core >= -1, read.where,
            fmt::format("reactor \"{}\": core {} is no core; allowed: 0 or more, or -1 for not "
                        "pinned",
                        read.name, read.core));
    }
    read.pin_required = reactor.pin() == proto::Reactor::REQUIRED;
    switch (reactor.idle()) {
      case proto::Reactor::BUSY:
        read.idle = ReactorIdle::kBusy;
        break;
      case proto::Reactor::EVENT:
        read.idle = ReactorIdle::kEvent;
        break;
      default:
        read.idle = ReactorIdle::kAdaptive;
    }
    Take(reactor.has_spin_us(), reactor.spin_us(), 0, 1'000'000, read.where, "spin_us",
         &read.spin_us);
    config_.reactors.push_back(std::move(read));
  }
}

void ConfigReader::ReadPlacement() {
  std::set<int> placed;
  for (int i = 0; i < message_.placement_size(); ++i) {
    const proto::Placement& placement = message_.placement(i);
    const std::string where = Where("placement", i);
    Check(placement.has_actor() && placement.has_reactor(), where,
          "a placement names an actor and a reactor");
    const auto actor = static_cast<ActorKind>(placement.actor());
    Check(placed.insert(placement.actor()).second, where,
          fmt::format("actor \"{}\" is placed twice", ActorKindName(actor)));
    config_.placement.push_back({.actor = actor, .reactor = placement.reactor(), .where = where});
  }
}

void ConfigReader::ReadTracing() {
  const proto::Tracing& tracing = message_.tracing();
  if (tracing.has_histograms()) config_.histograms = tracing.histograms();
  if (tracing.has_pieces()) config_.trace_pieces = tracing.pieces();
  if (!tracing.has_sample_every()) return;
  config_.trace_sample_every = tracing.sample_every();
  Check(std::has_single_bit(config_.trace_sample_every), Where("tracing"),
        fmt::format("sample_every = {} is not a power of two (1 records every message)",
                    config_.trace_sample_every));
}

void ConfigReader::ReadSlotLog() {
  if (!message_.has_slot_log()) return;
  const proto::SlotLog& slot_log = message_.slot_log();
  config_.slot_log_every_ms = 1000;
  Take(slot_log.has_every_ms(), slot_log.every_ms(), 10, kMaxMs, Where("slot_log"), "every_ms",
       &config_.slot_log_every_ms);
}

void ConfigReader::ReadPxn(PxnSettingsReader* reader) const {
  if (!message_.has_pxn()) return;
  const proto::Pxn& pxn = message_.pxn();
  const google::protobuf::Reflection& reflection = *pxn.GetReflection();
  const Descriptor& type = *proto::Pxn::descriptor();
  const TextFormat::ParseInfoTree* const tree =
      locations_.GetTreeForNested(proto::RankConfig::descriptor()->FindFieldByName("pxn"), -1);
  for (const PxnSetting& setting : PxnSettings()) {
    const FieldDescriptor* const field = type.FindFieldByName(setting.field);
    if (!reflection.HasField(pxn, field)) continue;
    std::string value;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_BOOL:
        value = reflection.GetBool(pxn, field) ? "true" : "false";
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        value = fmt::format("{}", reflection.GetUInt64(pxn, field));
        break;
      default:
        value = reflection.GetString(pxn, field);
    }
    reader->Set(setting, Where(tree, type, setting.field) + "pxn." + setting.field, value);
  }
}

static_assert(static_cast<int>(StagingKind::kCuda) == proto::RankConfig::CUDA);
static_assert(static_cast<int>(CudaDoorbell::kCpu) == proto::Doorbell::CPU - 1);
static_assert(static_cast<int>(CopyWay::kGather) == proto::CopyWay::GATHER - 1);
static_assert(static_cast<int>(ActorKind::kEndpoint) == proto::Placement::ENDPOINT);
static_assert(static_cast<int>(LayoutPreset::kPerNic) == proto::RankConfig::PER_NIC);
constexpr const char* kActorNames[kActorKinds] = {"submit", "copy",     "relay_post", "cq_poll",
                                                  "peer",   "watchdog", "endpoint"};
constexpr const char* kLayoutNames[] = {"auto", "one_core", "two_core", "four_core", "per_nic"};

}  // namespace

const char* ActorKindName(ActorKind kind) {
  return kActorNames[static_cast<int>(kind)];
}

const char* LayoutPresetName(LayoutPreset preset) {
  return kLayoutNames[static_cast<int>(preset)];
}

bool ParseLayoutPreset(std::string_view name, LayoutPreset* preset) {
  const auto* const found = std::find(std::begin(kLayoutNames), std::end(kLayoutNames), name);
  if (found == std::end(kLayoutNames)) return false;
  *preset = static_cast<LayoutPreset>(found - std::begin(kLayoutNames));
  return true;
}

bool LoadRankConfig(std::string_view text, std::string_view name, const GetEnvironment& environment,
                    RankConfig* config, std::string* error, std::string_view default_name) {
  proto::RankConfig message;
  FirstError first_error(name, text);
  TextFormat::ParseInfoTree locations;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&first_error);
  parser.WriteLocationsTo(&locations);
  if (!parser.ParseFromString(std::string(text), &message)) {
    *error = first_error.error();
    return false;
  }
  if (!message.has_name() && !default_name.empty()) message.set_name(std::string(default_name));
  *config = RankConfig();
  ConfigReader reader(name, message, locations, config);
  if (!reader.Read()) {
    *error = reader.error();
    return false;
  }
  const EngineEnvironment engine = ReadEngineEnvironment(environment);
  if (!FilterNics("MC_TE_FILTERS", engine.device_filters, config, error)) return false;
  PxnSettingsReader pxn(&config->pxn);
  reader.ReadPxn(&pxn);
  pxn.SetFromEnvironment(environment);
  FinishPxn(pxn.Errors(), config);
  ApplyEngineEnvironment(engine, config);
  return true;
}

}  // namespace railhop
