#include "actors/bootstrap_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "transport/setting_text.h"

namespace railhop {
namespace {

using Type = PxnSetting::Type;

constexpr uint64_t kMaxMs = 31'536'000'000;  // a year: far from what a clock can hold
constexpr uint64_t kMaxNameBytes = 256;
constexpr std::string_view kHostSuffix = ".host";  // takes 5 of the 64 characters of a group
constexpr size_t kMaxGroupBytes = 64;

constexpr PxnSetting kSettings[] = {
    {.field = "enable",
     .environment = "MC_PXN_ENABLE",
     .type = Type::kBool,
     .min = 0,
     .max = 0,
     .default_value = "false",
     .help = "relay over other ranks' NICs, and for them",
     .flag = &PxnConfig::enable},
    {.field = "group_id",
     .environment = "MC_PXN_GROUP_ID",
     .type = Type::kGroupId,
     .min = 1,
     .max = kMaxGroupBytes,
     .default_value = "none: required when on",
     .help = "ranks of one host that may relay for each other"},
    {.field = "rail_map",
     .environment = "MC_PXN_RAIL_MAP",
     .type = Type::kRailMap,
     .min = 0,
     .max = 0,
     .default_value = "{}",
     .help = "JSON object, NIC name -> rail name; a NIC that is not in it is its own rail"},
    {.field = "inflight_depth",
     .environment = "MC_PXN_INFLIGHT_DEPTH",
     .type = Type::kNumber,
     .min = 1,
     .max = 64,
     .default_value = "4",
     .help = "relay budget over all lanes, in pieces of 8 MiB",
     .number = &PxnConfig::inflight_depth},
    {.field = "credit_timeout_ms",
     .environment = "MC_PXN_CREDIT_TIMEOUT_MS",
     .type = Type::kNumber,
     .min = 1,
     .max = kMaxMs,
     .default_value = "1000",
     .help = "wait for a ring slot before a piece goes direct",
     .number = &PxnConfig::credit_timeout_ms},
    {.field = "heartbeat_timeout_ms",
     .environment = "MC_PXN_HEARTBEAT_TIMEOUT_MS",
     .type = Type::kNumber,
     .min = 2,
     .max = kMaxMs,
     .default_value = "3000",
     .help = "a peer whose heartbeat stood still for so long is offered nothing new",
     .number = &PxnConfig::heartbeat_timeout_ms},
    {.field = "preattach",
     .environment = nullptr,
     .type = Type::kBool,
     .min = 0,
     .max = 0,
     .default_value = "false",
     .help = "attach to peers at start instead of at the first transfer that wants them",
     .flag = &PxnConfig::preattach},
    {.field = "min_relay_bytes",
     .environment = nullptr,
     .type = Type::kNumber,
     .min = 0,
     .max = UINT64_MAX,
     .default_value = "0",
     .help = "smaller batches go direct; 0: none does for its size",
     .number = &PxnConfig::min_relay_bytes},
    {.field = "max_piece_bytes",
     .environment = nullptr,
     .type = Type::kNumber,
     .min = 4096,
     .max = 8 << 20,
     .default_value = "8388608",
     .help = "bytes of a piece, at most",
     .number = &PxnConfig::max_piece_bytes},
    {.field = "heartbeat_ms",
     .environment = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = kMaxMs,
     .default_value = "500",
     .help = "interval of this rank's own heartbeat",
     .number = &PxnConfig::heartbeat_ms},
    {.field = "lane_grace_ms",
     .environment = nullptr,
     .type = Type::kNumber,
     .min = 0,
     .max = kMaxMs,
     .default_value = "200",
     .help = "how long the lane of a dead sender rests before it is drained and reused",
     .number = &PxnConfig::lane_grace_ms},
    {.field = "probe_timeout_ms",
     .environment = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = kMaxMs,
     .default_value = "100",
     .help = "wait for the answer of a peer that is probed",
     .number = &PxnConfig::probe_timeout_ms},
    {.field = "fabric_drain_ms",
     .environment = nullptr,
     .type = Type::kNumber,
     .min = 0,
     .max = kMaxMs,
     .default_value = "10",
     .help = "wait for work requests on the NIC before their slot's memory is used again",
     .number = &PxnConfig::fabric_drain_ms},
    {.field = "doorbell_poll_us",
     .environment = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 1'000'000,
     .default_value = "50",
     .help = "longest sleep of a relay that expects a doorbell",
     .number = &PxnConfig::doorbell_poll_us},
};

bool IsGroupId(std::string_view text) {
  const auto allowed = [](unsigned char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !text.empty() && text.size() <= kMaxGroupBytes && text != "." && text != ".." &&
         std::all_of(text.begin(), text.end(), allowed);
}

// Empty for a good map, else what is wrong with it.
std::string ParseRailMap(const std::string& text, std::map<std::string, std::string>* rail_map) {
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    return e.what();
  }
  if (!json.is_object()) return fmt::format("it is of type {}", json.type_name());
  std::map<std::string, std::string> result;
  for (const auto& [nic, rail] : json.items()) {
    if (!rail.is_string()) {
      return fmt::format("the rail of \"{}\" is of type {}", nic, rail.type_name());
    }
    const auto& name = rail.get_ref<const std::string&>();
    if (name.empty() || name.size() > kMaxNameBytes) {
      return fmt::format("the rail name of \"{}\" has {} bytes, not 1..{}", nic, name.size(),
                         kMaxNameBytes);
    }
    result.emplace(nic, name);
  }
  *rail_map = std::move(result);
  return {};
}

// Rails of the NICs: the rail map wins over a NIC's own `rail`, which wins over its name. The map
// then has both, because a target's NICs of the same names are on the same rails.
void ResolveRails(RankConfig* config) {
  for (NicConfig& nic : config->nics) {
    if (!nic.rail.empty()) config->pxn.rail_map.emplace(nic.name, nic.rail);
    const auto found = config->pxn.rail_map.find(nic.name);
    nic.rail = found == config->pxn.rail_map.end() ? nic.name : found->second;
  }
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// Empty if the rank can take part, with valid settings and `enable` on.
std::string WhyNoRelay(const RankConfig& config) {
  const std::string& group = config.pxn.group_id;
  if (group.empty()) {
    return "no group id is set: give the ranks of this host one (pxn.group_id or MC_PXN_GROUP_ID)";
  }
  if (config.staging == StagingKind::kHost && group.size() + kHostSuffix.size() > kMaxGroupBytes) {
    return fmt::format(
        "the group id \"{}\" has {} characters; ranks that stage in host memory may use {}", group,
        group.size(), kMaxGroupBytes - kHostSuffix.size());
  }
  if (config.pxn.heartbeat_timeout_ms <= config.pxn.heartbeat_ms) {
    return fmt::format(
        "pxn.heartbeat_timeout_ms (MC_PXN_HEARTBEAT_TIMEOUT_MS) = {} is not above pxn.heartbeat_ms "
        "= {}, so that each peer would seem dead between two heartbeats: several times that is "
        "right",
        config.pxn.heartbeat_timeout_ms, config.pxn.heartbeat_ms);
  }
  if (config.nics.empty()) return "this rank has no NIC, so it is on no rail";
  std::map<std::string_view, std::string_view> nic_of_rail;
  for (const NicConfig& nic : config.nics) {
    const auto [other, is_new] = nic_of_rail.emplace(nic.rail, nic.name);
    if (!is_new) {
      return fmt::format(
          "NICs \"{}\" and \"{}\" of this rank are both on rail \"{}\": correct the rail map, or "
          "give the rank one of them",
          other->second, nic.name, nic.rail);
    }
  }
  return {};
}

}  // namespace

std::span<const PxnSetting> PxnSettings() {
  return kSettings;
}

std::string AllowedRange(const PxnSetting& setting) {
  switch (setting.type) {
    case Type::kBool:
      return kBoolValues;
    case Type::kNumber:
      return setting.max == UINT64_MAX ? fmt::format("{} or more", setting.min)
                                       : fmt::format("{}..{}", setting.min, setting.max);
    case Type::kGroupId:
      return fmt::format(
          "{}..{} of A-Z a-z 0-9 _ - . and neither \".\" nor \"..\" ({} when "
          "staging in host memory)",
          setting.min, setting.max, kMaxGroupBytes - kHostSuffix.size());
    case Type::kRailMap:
      return R"(a JSON object of strings, as in {"mlx5_0": "rail0"}, rail names 1..256 bytes)";
  }
  return {};
}

const char* SettingTypeName(const PxnSetting& setting) {
  switch (setting.type) {
    case Type::kBool:
      return "boolean";
    case Type::kNumber:
      return "number";
    case Type::kGroupId:
      return "group id";
    case Type::kRailMap:
      return "rail map";
  }
  return "";
}

std::string ValueOf(const PxnSetting& setting, const PxnConfig& pxn) {
  switch (setting.type) {
    case Type::kBool:
      return pxn.*setting.flag ? "true" : "false";
    case Type::kNumber:
      return std::to_string(pxn.*setting.number);
    case Type::kGroupId:
      return pxn.group_id;
    case Type::kRailMap:
      return nlohmann::json(pxn.rail_map).dump();
  }
  return {};
}

void PxnSettingsReader::Set(const PxnSetting& setting, const std::string& source,
                            const std::string& value) {
  bool good = false;
  std::string detail;
  switch (setting.type) {
    case Type::kBool: {
      const std::optional<bool> flag = ParseBool(value);
      good = flag.has_value();
      if (good) pxn_->*setting.flag = *flag;
      break;
    }
    case Type::kNumber: {
      const std::optional<uint64_t> number = ParseNumber(value);
      good = number.has_value() && *number >= setting.min && *number <= setting.max;
      if (good) pxn_->*setting.number = *number;
      break;
    }
    case Type::kGroupId:
      good = IsGroupId(value);
      if (good) pxn_->group_id = value;
      break;
    case Type::kRailMap:
      detail = ParseRailMap(value, &pxn_->rail_map);
      good = detail.empty();
      break;
  }
  if (good) {
    errors_.erase(&setting);
    return;
  }
  errors_[&setting] =
      fmt::format("{} = \"{}\" is not valid; allowed: {}{}", source, ShownValue(value),
                  AllowedRange(setting), detail.empty() ? "" : ". " + detail);
}

std::vector<std::string> UnknownPxnVariables(const char* const* environment) {
  constexpr std::string_view kPrefix = "MC_PXN_";
  std::vector<std::string> warnings;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!name.starts_with(kPrefix)) continue;
    const bool known = std::any_of(std::begin(kSettings), std::end(kSettings), [&](const auto& s) {
      return s.environment != nullptr && name == s.environment;
    });
    if (known) continue;
    warnings.push_back(fmt::format(
        "{} is set and changes nothing: no setting has that name (`railhop env` lists them)",
        ShownValue(std::string(name))));
  }
  std::sort(warnings.begin(), warnings.end());
  return warnings;
}

void PxnSettingsReader::SetFromEnvironment(const GetEnvironment& environment) {
  for (const PxnSetting& setting : kSettings) {
    if (setting.environment == nullptr) continue;
    const char* const value = environment(setting.environment);
    if (value != nullptr) Set(setting, setting.environment, value);
  }
}

std::vector<std::string> PxnSettingsReader::Errors() const {
  // The keys point into one array, so their order is the table's.
  std::vector<std::string> errors;
  errors.reserve(errors_.size());
  for (const auto& [setting, text] : errors_) errors.push_back(text);
  return errors;
}

void FinishPxn(const std::vector<std::string>& errors, RankConfig* config) {
  ResolveRails(config);
  PxnConfig& pxn = config->pxn;
  if (!errors.empty()) {
    for (const std::string& error : errors) {
      pxn.off_reason += pxn.off_reason.empty() ? error : "; " + error;
    }
  } else if (pxn.enable) {
    pxn.off_reason = WhyNoRelay(*config);
  } else {
    pxn.off_reason = "not enabled (pxn.enable or MC_PXN_ENABLE)";
    return;  // what was asked for: nothing to warn of
  }
  if (pxn.off_reason.empty()) return;
  pxn.enable = false;
  config->warnings.push_back("PXN is off, everything goes direct: " + pxn.off_reason);
}

void SwitchPxnOff(const std::string& reason, RankConfig* config) {
  PxnConfig& pxn = config->pxn;
  if (pxn.enable) {
    pxn.off_reason = reason;
    config->warnings.push_back("PXN is off, everything goes direct: " + reason);
  }
  pxn.enable = false;
}

RouteOptions RoutesOf(const RankConfig& config) {
  RouteOptions routes{.rail_map = config.pxn.rail_map,
                      .destination_affinity = config.destination_affinity};
  for (const NicConfig& nic : config.nics) routes.own_rails.push_back(nic.rail);
  return routes;
}

void ApplyEngineEnvironment(const EngineEnvironment& environment, RankConfig* config) {
  if (environment.Gives("MC_TRANSFER_TIMEOUT")) {
    config->batch_timeout_ms = environment.transfer_timeout_s * 1000;
  }
  if (environment.Gives("MC_SLICE_SIZE")) config->slice_size = environment.slice_size;
  config->fragment_ratio = environment.fragment_ratio;
  config->slice_attempts = environment.retry_count;
  config->destination_affinity = environment.destination_device_affinity;
  config->environment_warnings = environment.warnings;
}

bool FilterNics(std::string_view source, const std::string& filters, RankConfig* config,
                std::string* error, std::vector<std::string>* missing) {
  std::set<std::string> wanted;
  for (size_t first = 0; first <= filters.size();) {
    const size_t comma = std::min(filters.find(',', first), filters.size());
    const std::string name(Trimmed(std::string_view(filters).substr(first, comma - first)));
    if (!name.empty()) wanted.insert(name);
    first = comma + 1;
  }
  if (wanted.empty() || config->nics.empty()) return true;
  std::string names;
  for (const NicConfig& nic : config->nics) names += (names.empty() ? "" : ", ") + nic.name;
  std::erase_if(config->nics, [&](const NicConfig& nic) { return !wanted.contains(nic.name); });
  if (missing != nullptr) {
    for (const NicConfig& nic : config->nics) wanted.erase(nic.name);
    missing->assign(wanted.begin(), wanted.end());
  }
  if (!config->nics.empty()) return true;
  *error = fmt::format("{} = \"{}\" leaves none of this rank's NICs; they are {}", source,
                       ShownValue(filters), names);
  return false;
}

std::string RegistryGroup(const RankConfig& config) {
  return config.staging == StagingKind::kHost ? config.pxn.group_id + std::string(kHostSuffix)
                                              : config.pxn.group_id;
}

}  // namespace railhop
