// Which cores there are, which of them this process may use, and pinning a thread to one.
//
// Threads: free functions without state. PinThisThread changes the calling thread only: a reactor
// calls it on its own thread, set-up code never does, so an application's affinity stays as it was.
// Everything here is control path.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace railhop {

// "0,2-5" <-> {0, 2, 3, 4, 5}: the kernel's own form. Parsing sorts, drops doubles, and takes white
// space around the whole; an empty text is an empty list.
absl::StatusOr<std::vector<int>> ParseCoreList(std::string_view text);
std::string FormatCoreList(std::span<const int> cores);

// The cores that the calling thread may run on, sorted; empty if the kernel refuses to tell.
std::vector<int> AllowedCores();
// The one core that the calling thread is confined to, or -1.
int PinnedCore();

// kRequired: not being pinned is an error. kPreferred: it is one warning, and the thread runs
// wherever the kernel puts it.
enum class PinPolicy { kRequired, kPreferred };

// The two system calls, replaceable by tests. Both work on the calling thread and return an errno
// value, 0 for success. `cores` is not empty.
struct AffinityCalls {
  std::function<int(std::vector<int>* cores)> get;
  std::function<int(std::span<const int> cores)> set;
};
AffinityCalls SystemAffinityCalls();

// InvalidArgument, naming the core and the allowed set, if `core` is not in it.
absl::Status CheckCoreAllowed(int core, std::span<const int> allowed);

// Pins the calling thread. The allowed set is the thread's own at the time of the call.
absl::Status PinThisThread(int core, PinPolicy policy,
                           const AffinityCalls& calls = SystemAffinityCalls());

// Has the kernel move the calling thread to another core that it may use, where it stays no longer
// than the kernel likes: its affinity is the same afterwards. False: there is none. A change of the
// thread's affinity by somebody else within these microseconds is lost.
bool LeaveThisCore(const AffinityCalls& calls = SystemAffinityCalls());

// What /sys tells about the machine's cores. A core that it does not tell about has no siblings
// and is on node -1.
class CoreTopology {
 public:
  explicit CoreTopology(std::string root = "/sys/devices/system") : root_(std::move(root)) {}

  // The hyper-threads of the physical core that `core` belongs to, itself included.
  std::vector<int> Siblings(int core) const;
  int NumaNode(int core) const;

 private:
  std::string root_;
};

// True under a hypervisor, where a spinning virtual core can be descheduled behind our back.
bool IsVirtualised();

struct ReactorPlacement {
  std::string name;
  int core = -1;      // -1: not pinned
  bool busy = false;  // never parks
};

// One line for each pair of reactors that share a core or are hyper-thread siblings.
std::vector<std::string> PlacementWarnings(std::span<const ReactorPlacement> reactors,
                                           const CoreTopology& topology = CoreTopology());

}  // namespace railhop
