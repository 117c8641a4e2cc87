#include "tools/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "actors/bootstrap_settings.h"
#include "transport/engine/environment.h"

namespace railhop {
namespace {

using nlohmann::json;

// One variable, whichever part of the engine reads it.
struct Variable {
  std::string name, type, value, standard, allowed, help;
  bool is_number = false, is_flag = false;  // in JSON; else text
  const char* alias = nullptr;

  json Typed(const std::string& text) const {
    if (is_number) return std::stoull(text);
    if (is_flag) return text == "true";
    return text;
  }
};

std::vector<Variable> EngineVariables(std::vector<std::string>* warnings) {
  const EngineEnvironment environment = ReadEngineEnvironment(std::getenv);
  *warnings = environment.warnings;
  std::vector<Variable> variables;
  for (const EngineSetting& setting : EngineSettings()) {
    variables.push_back({.name = setting.name,
                         .type = SettingTypeName(setting.type),
                         .value = ValueOf(setting, environment),
                         .standard = setting.default_value,
                         .allowed = AllowedValues(setting),
                         .help = setting.help,
                         .is_number = setting.number != nullptr,
                         .is_flag = setting.flag != nullptr,
                         .alias = setting.alias});
  }
  return variables;
}

// As a rank without a config text has them.
std::vector<Variable> PxnVariables(std::vector<std::string>* warnings) {
  PxnConfig pxn;
  PxnSettingsReader reader(&pxn);
  reader.SetFromEnvironment(std::getenv);
  for (const std::string& error : reader.Errors()) {
    warnings->push_back(error + "; PXN is off until that is corrected");
  }
  for (std::string& warning : UnknownPxnVariables(environ)) warnings->push_back(std::move(warning));
  std::vector<Variable> variables;
  for (const PxnSetting& setting : PxnSettings()) {
    if (setting.environment == nullptr) continue;
    variables.push_back({.name = setting.environment,
                         .type = SettingTypeName(setting),
                         .value = ValueOf(setting, pxn),
                         .standard = setting.default_value,
                         .allowed = AllowedRange(setting),
                         .help = setting.help,
                         .is_number = setting.number != nullptr,
                         .is_flag = setting.flag != nullptr});
  }
  return variables;
}

void PrintJson(const std::vector<Variable>& variables) {
  for (const Variable& variable : variables) {
    json line = {{"name", variable.name},
                 {"type", variable.type},
                 {"value", variable.Typed(variable.value)},
                 {"default", variable.Typed(variable.standard)},
                 {"allowed", variable.allowed},
                 {"help", variable.help}};
    if (variable.alias != nullptr) line["alias"] = variable.alias;
    std::cout << line.dump(-1, ' ', false, json::error_handler_t::replace) << '\n';
  }
}

void PrintTable(const std::vector<Variable>& variables) {
  const Variable heads{.name = "variable",
                       .type = "type",
                       .value = "value",
                       .standard = "default",
                       .allowed = "allowed",
                       .help = "meaning"};
  size_t name_width = heads.name.size(), value_width = heads.value.size();
  size_t default_width = heads.standard.size(), allowed_width = heads.allowed.size();
  for (const Variable& variable : variables) {
    name_width = std::max(name_width, variable.name.size());
    value_width = std::max(value_width, variable.value.size());
    default_width = std::max(default_width, variable.standard.size());
    allowed_width = std::max(allowed_width, variable.allowed.size());
  }
  const auto print = [&](const Variable& variable) {
    std::cout << fmt::format(
        "{:{}}  {:{}}  {:{}}  {:{}}  {}{}\n", variable.name, name_width, variable.value,
        value_width, variable.standard, default_width, variable.allowed, allowed_width,
        variable.help,
        variable.alias == nullptr ? "" : fmt::format(" (older name: {})", variable.alias));
  };
  print(heads);
  for (const Variable& variable : variables) print(variable);
}

int PrintEnvironment(bool as_json) {
  std::vector<std::string> warnings;
  std::vector<Variable> variables = EngineVariables(&warnings);
  const std::vector<Variable> pxn = PxnVariables(&warnings);
  variables.insert(variables.end(), pxn.begin(), pxn.end());
  for (const std::string& warning : warnings) std::cerr << "railhop warning: " << warning << '\n';
  (as_json ? PrintJson : PrintTable)(variables);
  return 0;
}

}  // namespace

void AddEnvironmentCommand(CLI::App& app, std::function<int()>* run) {
  CLI::App* env = app.add_subcommand(
      "env", "Prints the Transfer Engine's environment variables and what they are set to");
  auto as_json = std::make_shared<bool>(false);
  env->add_flag("--json", *as_json, "One JSON object a line");
  env->callback([run, as_json] { *run = [as_json] { return PrintEnvironment(*as_json); }; });
}

}  // namespace railhop
