// The railhop command line: `railhop demo`, `railhop env`; `railhop --help` lists the rest.
#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <new>

#include "tools/demo/demo.h"
#include "tools/environment.h"

int main(int argc, char** argv) {
  CLI::App app("Railhop moves KV caches over the right NIC of a host");
  app.require_subcommand(1);
  std::function<int()> run;
  railhop::AddDemoCommands(app, &run);
  railhop::AddEnvironmentCommand(app, &run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // 0 for --help; else that the command line was wrong, as shells say it.
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return run();
  } catch (const std::bad_alloc&) {
    std::cerr
        << "railhop: not enough memory: the demo holds its largest batch twice per rank and a "
           "staging arena each; give smaller --batches or fewer --ranks\n";
    return 1;
  }
}
