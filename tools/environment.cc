#include "tools/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "transport/engine/environment.h"

namespace railhop {
namespace {

using nlohmann::json;

// Numbers and booleans as such.
json Typed(const EngineSetting& setting, const std::string& value) {
  if (setting.number != nullptr) return std::stoull(value);
  if (setting.flag != nullptr) return value == "true";
  return value;
}

void PrintJson(const EngineEnvironment& environment) {
  for (const EngineSetting& setting : EngineSettings()) {
    json line = {{"name", setting.name},
                 {"type", SettingTypeName(setting.type)},
                 {"value", Typed(setting, ValueOf(setting, environment))},
                 {"default", Typed(setting, setting.default_value)},
                 {"allowed", AllowedValues(setting)},
                 {"help", setting.help}};
    if (setting.alias != nullptr) line["alias"] = setting.alias;
    std::cout << line.dump(-1, ' ', false, json::error_handler_t::replace) << '\n';
  }
}

void PrintTable(const EngineEnvironment& environment) {
  constexpr std::string_view kHeads[] = {"variable", "value", "default", "allowed"};
  size_t name_width = kHeads[0].size();
  size_t value_width = kHeads[1].size();
  size_t default_width = kHeads[2].size();
  size_t allowed_width = kHeads[3].size();
  for (const EngineSetting& setting : EngineSettings()) {
    name_width = std::max(name_width, std::string_view(setting.name).size());
    value_width = std::max(value_width, ValueOf(setting, environment).size());
    default_width = std::max(default_width, std::string_view(setting.default_value).size());
    allowed_width = std::max(allowed_width, AllowedValues(setting).size());
  }
  const auto print = [&](std::string_view name, std::string_view value, std::string_view standard,
                         std::string_view allowed, std::string_view help) {
    std::cout << fmt::format("{:{}}  {:{}}  {:{}}  {:{}}  {}\n", name, name_width, value,
                             value_width, standard, default_width, allowed, allowed_width, help);
  };
  print(kHeads[0], kHeads[1], kHeads[2], kHeads[3], "meaning");
  for (const EngineSetting& setting : EngineSettings()) {
    std::string help = setting.help;
    if (setting.alias != nullptr) help += fmt::format(" (older name: {})", setting.alias);
    print(setting.name, ValueOf(setting, environment), setting.default_value,
          AllowedValues(setting), help);
  }
}

int PrintEnvironment(bool as_json) {
  const EngineEnvironment environment = ReadEngineEnvironment(std::getenv);
  for (const std::string& warning : environment.warnings) {
    std::cerr << "railhop warning: " << warning << '\n';
  }
  if (as_json) {
    PrintJson(environment);
  } else {
    PrintTable(environment);
  }
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
