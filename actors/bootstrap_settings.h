// The settings that the config text's pxn block and the environment share: one table of names,
// types, ranges and defaults, which reads them from either and explains what it refuses.
//
// Threads: pure functions over a PxnConfig.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/bootstrap_config.h"
#include "actors/route_builder.h"
#include "transport/engine/environment.h"

namespace railhop {

struct PxnSetting {
  enum class Type { kBool, kNumber, kGroupId, kRailMap };

  const char* field;        // in the pxn block
  const char* environment;  // nullptr: has none
  Type type;
  uint64_t min, max;  // of a kNumber; of the length of a kGroupId
  const char* default_value;
  const char* help;
  // The member it sets: the one of its type.
  bool PxnConfig::*flag = nullptr;
  uint64_t PxnConfig::*number = nullptr;
};

std::span<const PxnSetting> PxnSettings();
// A warning for each variable that is spelt like the table's and is not in it, as MC_PXN_GROUPID.
// Of `environment`, which ends with a nullptr as environ does.
std::vector<std::string> UnknownPxnVariables(const char* const* environment);
// "1..64", "true or false", ...
std::string AllowedRange(const PxnSetting& setting);
// "boolean", "number", "group id", "rail map".
const char* SettingTypeName(const PxnSetting& setting);
// The value of that setting, as text that Set takes; empty: no group id.
std::string ValueOf(const PxnSetting& setting, const PxnConfig& pxn);

// Collects values of settings; a later one, valid or not, takes the place of an earlier one.
class PxnSettingsReader {
 public:
  explicit PxnSettingsReader(PxnConfig* pxn) : pxn_(pxn) {}

  // `source` names where the value is from, as in "rank0.textproto:7: pxn.group_id".
  void Set(const PxnSetting& setting, const std::string& source, const std::string& value);
  void SetFromEnvironment(const GetEnvironment& environment);

  // What was wrong with each value that is still refused, in the table's order.
  std::vector<std::string> Errors() const;

 private:
  PxnConfig* const pxn_;
  std::map<const PxnSetting*, std::string> errors_;
};

// Everything about relaying that needs the whole config: rails of the NICs, group id, and with them
// whether this rank takes part. `errors` are those of the reader.
void FinishPxn(const std::vector<std::string>& errors, RankConfig* config);

// This rank takes no part in relaying, for that reason; warns if it was to.
void SwitchPxnOff(const std::string& reason, RankConfig* config);

// How the rank reaches targets: its rails, the rail map, and what goes before them.
RouteOptions RoutesOf(const RankConfig& config);

// What the Transfer Engine's variables say of a rank: MC_TRANSFER_TIMEOUT and MC_SLICE_SIZE where
// they are given, MC_FRAGMENT_RATIO, MC_RETRY_CNT. Their warnings go to the rank's.
void ApplyEngineEnvironment(const EngineEnvironment& environment, RankConfig* config);
// Leaves only the NICs that `filters` names, a value of `source`: "MC_TE_FILTERS". Before
// FinishPxn. False: that leaves none. `missing`: names in it that no NIC has.
bool FilterNics(std::string_view source, const std::string& filters, RankConfig* config,
                std::string* error, std::vector<std::string>* missing = nullptr);

}  // namespace railhop
