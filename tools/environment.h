// `railhop env`: the Transfer Engine's environment variables, and what this environment makes of
// them.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace railhop {

// Adds the subcommand. `*run` is set to what must run after parsing; it returns the exit code.
void AddEnvironmentCommand(CLI::App& app, std::function<int()>* run);

}  // namespace railhop
