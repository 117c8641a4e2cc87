#include "tests/bench/rdma/rails.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "fmt/format.h"

namespace railhop {
namespace {

// More than the packets of a queue pair that are under way: none is dropped.
constexpr char kQueue[] = "limit 8mb";
constexpr char kBurst[] = "burst 64kb";

std::string DeviceFolder(int rail) {
  return fmt::format("/sys/class/infiniband/rxe{}", rail);
}

absl::Status RunCommand(const std::string& command) {
  if (std::system(command.c_str()) == 0) return absl::OkStatus();
  return absl::UnavailableError(fmt::format("`{}` failed", command));
}

}  // namespace

bool HasRails(int count) {
  for (int rail = 0; rail < count; ++rail) {
    if (!std::filesystem::exists(DeviceFolder(rail))) return false;
  }
  return true;
}

ShapedRails::ShapedRails(std::vector<int> rails, int mbit_per_s) : rails_(std::move(rails)) {
  for (const int rail : rails_) {
    status_.Update(RunCommand(fmt::format("tc qdisc replace dev rail{} root tbf rate {}mbit {} {}",
                                          rail, mbit_per_s, kBurst, kQueue)));
  }
}

ShapedRails::~ShapedRails() {
  for (const int rail : rails_) {
    RunCommand(fmt::format("tc qdisc delete dev rail{} root", rail)).IgnoreError();
  }
}

absl::Status SetLink(const std::string& interface, bool up) {
  return RunCommand(fmt::format("ip link set {} {}", interface, up ? "up" : "down"));
}

absl::Status ForgetNeighbors() {
  return RunCommand("ip neigh flush all");
}

uint64_t PacketsSent(int rail) {
  std::ifstream file(DeviceFolder(rail) + "/ports/1/hw_counters/sent_pkts");
  uint64_t packets = 0;
  file >> packets;
  return packets;
}

// proc(5): user, nice, system, idle, iowait, irq, softirq, steal.
double BusySeconds() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0;
  file >> cpu >> user >> nice >> system >> idle >> iowait >> irq >> softirq;
  return (user + nice + system + irq + softirq) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace railhop
