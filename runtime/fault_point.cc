#include "runtime/fault_point.h"

#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace railhop {
namespace {

struct Fault {
  std::string_view name;
  uint64_t pass = 0;
  bool kill = false;
};

// The process ends if the variable makes no sense: a test that asks for nothing must not pass.
Fault ReadFault() {
  const char* const variable = std::getenv("RAILHOP_FAULT");
  if (variable == nullptr) return {};
  const std::string_view text = variable;
  const size_t first = text.find(':');
  const size_t second = first == text.npos ? first : text.find(':', first + 1);
  if (second != text.npos) {
    Fault fault{.name = text.substr(0, first)};
    const std::string_view action = text.substr(second + 1);
    const char* const end = variable + second;
    const auto [read_to, error] = std::from_chars(variable + first + 1, end, fault.pass);
    fault.kill = action == "kill";
    const bool known_action = fault.kill || action == "stop";
    if (error == std::errc() && read_to == end && fault.pass != 0 && known_action) return fault;
  }
  std::fprintf(stderr,
               "RAILHOP_FAULT is \"%s\"; it must be POINT:PASS:ACTION, as in relay.taken:3:stop, "
               "with a pass from 1 on and the action stop or kill\n",
               variable);
  std::exit(2);
}

}  // namespace

FaultPoint::FaultPoint(const char* marker) {
  static const Fault fault = ReadFault();
  if (std::string_view(marker).substr(sizeof(RAILHOP_FAULT_MARKER) - 1) != fault.name) return;
  left_ = fault.pass;
  kill_ = fault.kill;
}

// To this thread and not to any of the process: it must not run on behind the point.
void FaultPoint::Act() const {
  raise(kill_ ? SIGKILL : SIGSTOP);
}

}  // namespace railhop
