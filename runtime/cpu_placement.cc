#include "runtime/cpu_placement.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "runtime/log.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace railhop {
namespace {

// Above any machine's core count: a bound for what a list may name and for the affinity mask.
constexpr int kMaxCores = 1 << 16;

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, FreeCpuSet>;

int GetAffinity(std::vector<int>* cores) {
  cores->clear();
  // The kernel answers EINVAL while the mask is smaller than its own.
  for (int count = 1024; count <= kMaxCores; count *= 2) {
    const CpuSet set(CPU_ALLOC(count));
    if (set == nullptr) return ENOMEM;
    const size_t size = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(size, set.get());
    if (sched_getaffinity(0, size, set.get()) == 0) {
      for (int core = 0; core < count; ++core) {
        if (CPU_ISSET_S(core, size, set.get())) cores->push_back(core);
      }
      return 0;
    }
    if (errno != EINVAL) return errno;
  }
  return EINVAL;
}

int SetAffinity(std::span<const int> cores) {
  const int count = *std::max_element(cores.begin(), cores.end()) + 1;
  const CpuSet set(CPU_ALLOC(count));
  if (set == nullptr) return ENOMEM;
  const size_t size = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(size, set.get());
  for (const int core : cores) CPU_SET_S(core, size, set.get());
  return sched_setaffinity(0, size, set.get()) == 0 ? 0 : errno;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::optional<int> ParseCore(std::string_view text) {
  int core = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), core);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (core < 0 || core >= kMaxCores) return std::nullopt;
  return core;
}

absl::Status TryPin(int core, const AffinityCalls& calls) {
  std::vector<int> allowed;
  if (const int error = calls.get(&allowed); error != 0) {
    return absl::PermissionDeniedError(
        fmt::format("cannot pin to core {}: the allowed cores are unknown, sched_getaffinity: {}",
                    core, std::strerror(error)));
  }
  if (absl::Status status = CheckCoreAllowed(core, allowed); !status.ok()) return status;
  if (const int error = calls.set({&core, 1}); error != 0) {
    return absl::PermissionDeniedError(
        fmt::format("cannot pin to core {} (allowed cores {}): sched_setaffinity: {}", core,
                    FormatCoreList(allowed), std::strerror(error)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<int>> ParseCoreList(std::string_view text) {
  std::vector<int> cores;
  std::string_view rest = Trim(text);
  bool more = !rest.empty();
  while (more) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) rest.remove_prefix(comma + 1);

    const size_t dash = item.find('-');
    const std::optional<int> first = ParseCore(item.substr(0, dash));
    const std::optional<int> last =
        dash == std::string_view::npos ? first : ParseCore(item.substr(dash + 1));
    if (!first.has_value() || !last.has_value() || *first > *last) {
      return absl::InvalidArgumentError(
          fmt::format("core list \"{}\": \"{}\" is neither a core (0..{}) nor a range like 2-5",
                      text, item, kMaxCores - 1));
    }
    for (int core = *first; core <= *last; ++core) cores.push_back(core);
  }
  std::sort(cores.begin(), cores.end());
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  return cores;
}

std::string FormatCoreList(std::span<const int> cores) {
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t end = i + 1;
    while (end < cores.size() && cores[end] == cores[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text +=
        end - i == 1 ? fmt::format("{}", cores[i]) : fmt::format("{}-{}", cores[i], cores[end - 1]);
    i = end;
  }
  return text;
}

std::vector<int> AllowedCores() {
  std::vector<int> cores;
  GetAffinity(&cores);
  return cores;
}

int PinnedCore() {
  const std::vector<int> cores = AllowedCores();
  return cores.size() == 1 ? cores.front() : -1;
}

AffinityCalls SystemAffinityCalls() {
  return {.get = GetAffinity, .set = SetAffinity};
}

absl::Status CheckCoreAllowed(int core, std::span<const int> allowed) {
  if (std::find(allowed.begin(), allowed.end(), core) != allowed.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "core {} is outside the cores this process may use ({}): name one of them, or widen the "
      "cpuset or taskset that the process runs in",
      core, FormatCoreList(allowed)));
}

bool LeaveThisCore(const AffinityCalls& calls) {
  std::vector<int> allowed;
  if (calls.get(&allowed) != 0) return false;
  std::vector<int> others = allowed;
  std::erase(others, sched_getcpu());
  return !others.empty() && calls.set(others) == 0 && calls.set(allowed) == 0;
}

absl::Status PinThisThread(int core, PinPolicy policy, const AffinityCalls& calls) {
  absl::Status status = TryPin(core, calls);
  if (status.ok() || policy == PinPolicy::kRequired) return status;
  Log(LogLevel::kWarning,
      fmt::format("a reactor runs unpinned: {}", std::string(status.message())));
  return absl::OkStatus();
}

std::vector<int> CoreTopology::Siblings(int core) const {
  std::ifstream file(fmt::format("{}/cpu/cpu{}/topology/thread_siblings_list", root_, core));
  std::ostringstream text;
  if (file) text << file.rdbuf();
  absl::StatusOr<std::vector<int>> siblings = ParseCoreList(text.str());
  if (!siblings.ok() || siblings->empty()) return {core};
  return *std::move(siblings);
}

int CoreTopology::NumaNode(int core) const {
  // The core's folder holds a link named after its node, and none on a machine without NUMA.
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(
      opendir(fmt::format("{}/cpu/cpu{}", root_, core).c_str()), closedir);
  if (folder == nullptr) return -1;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with("node")) continue;
    if (const std::optional<int> node = ParseCore(name.substr(4))) return *node;
  }
  return -1;
}

bool IsVirtualised() {
#if defined(__x86_64__)
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kHypervisorBit = 1U << 31;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & kHypervisorBit) != 0;
#else
  return false;
#endif
}

std::vector<std::string> PlacementWarnings(std::span<const ReactorPlacement> reactors,
                                           const CoreTopology& topology) {
  std::vector<std::string> warnings;
  for (size_t i = 0; i < reactors.size(); ++i) {
    const ReactorPlacement& a = reactors[i];
    if (a.core < 0) continue;
    const std::vector<int> siblings = topology.Siblings(a.core);
    for (const ReactorPlacement& b : reactors.subspan(i + 1)) {
      if (b.core < 0) continue;
      const char* const cost =
          a.busy || b.busy ? "; one of them never parks, the other starves or waits" : "";
      if (a.core == b.core) {
        warnings.push_back(fmt::format("reactors \"{}\" and \"{}\" are both pinned to core {}{}",
                                       a.name, b.name, a.core, cost));
      } else if (std::find(siblings.begin(), siblings.end(), b.core) != siblings.end()) {
        warnings.push_back(fmt::format(
            "reactors \"{}\" (core {}) and \"{}\" (core {}) are hyper-threads of one core{}",
            a.name, a.core, b.name, b.core, cost));
      }
    }
  }
  return warnings;
}

}  // namespace railhop
