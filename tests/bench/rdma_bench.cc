// the Transfer Engine over RDMA: beside ib_write_bw and Mooncake's own engine, direct and relayed
//
// For the rails of tools/rdma-vm, which ./dev bench rdma boots: real verbs, an emulated processor.
// So only ratios say anything, and where the rails are shaped they, not the processor, are the
// limit. Each subject is two processes, or three: engines in the Python module, or ib_write_bw. The
// bytes of each engine are checked once before it is measured. CPU time is that of these processes,
// user and system; since threads and interrupts of the kernel work for a software device as well,
// the time that the whole machine was busy stands beside it.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "tests/bench/harness.h"
#include "tests/bench/in_workplace.h"
#include "tests/bench/rdma/loads.h"
#include "tests/bench/rdma/rails.h"
#include "tests/bench/rdma/stuck.h"
#include "tests/bench/rdma/subject.h"

namespace railhop {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
constexpr uint64_t kSideMib = 16;  // memory of each engine
constexpr uint64_t kPacketBytes = 4096;
constexpr int kRails = 4;
constexpr int kShapedMbit = 50;      // about half of what the emulated processor carries
constexpr double kMbitPerMb = 8.08;  // of a rail, with the headers of packets
constexpr double kEqual = 0.05;      // as far as two rates may be apart
constexpr char kRelayedRail[] = "b";
constexpr char kPython[] = "/usr/bin/python3";
constexpr char kMooncakePython[] = RAILHOP_SOURCE_DIR "/build/peers/bin/python3";
constexpr char kIbWriteBw[] = "/usr/bin/ib_write_bw";

SideProgram Engine(const std::string& python, const char* kind,
                   std::vector<std::string> environment) {
  environment.emplace_back("SIDE_PROTOCOL=rdma");
  environment.push_back(fmt::format("SIDE_MIB={}", kSideMib));
  return {python, RAILHOP_SOURCE_DIR "/tests/bench/sides/side.py", kind, std::move(environment)};
}
SideProgram Railhop(const std::string& device) {
  return Engine(kPython, "railhop", {"PYTHONPATH=" RAILHOP_PYTHON, "MC_TE_FILTERS=" + device});
}
SideProgram Mooncake(const std::string& device) {
  return Engine(kMooncakePython, "mooncake",
                {"SIDE_DEVICES=" + device, "MC_LOG_LEVEL=ERROR", "GLOG_minloglevel=2"});
}
SideProgram Perftest() {
  return {kPython,
          RAILHOP_SOURCE_DIR "/tests/bench/sides/perftest.py",
          "ib_write_bw",
          {"PERFTEST_DEVICES=rxe0,rxe1"}};
}
// Of a rank in a group whose ranks relay for each other: rxe1 and rxe3 are of one rail.
std::string RankConfigText(const std::string& device, const std::string& folder) {
  return fmt::format(
      "nics {{ name: '{0}' rdma {{}} }}\nregistry_root: '{1}'\nranks_on_host: 2\n"
      "pxn {{ enable: true group_id: 'bench' preattach: true\n"
      "  rail_map: '{{\"rxe0\": \"a\", \"rxe1\": \"{2}\", \"rxe3\": \"{2}\"}}' }}\n",
      device, folder, kRelayedRail);
}
SideProgram Ranked(const std::string& device, const std::string& folder) {
  const std::string path = folder + "/" + device + ".textproto";
  std::ofstream file(path);
  file << RankConfigText(device, folder);
  if (!file.flush()) GiveUp(device, absl::ErrnoToStatus(errno, path + " cannot be written"));
  SideProgram program = Railhop(device);
  program.environment.push_back("RAILHOP_CONFIG=" + path);
  return program;
}

class RdmaBench {
 public:
  RdmaBench(Bench* bench, const std::string& folder)
      : bench_(*bench),
        folder_(folder),
        railhop_("railhop", {.initiator = Railhop("rxe0"), .target = Railhop("rxe1")}),
        mooncake_("mooncake", {.initiator = Mooncake("rxe0"), .target = Mooncake("rxe1")}),
        perftest_("ib_write_bw", {.initiator = Perftest()}),
        direct_("direct", {.initiator = Railhop("rxe0"), .target = Railhop("rxe3")}),
        relayed_("relayed", {.initiator = Ranked("rxe0", folder),
                             .target = Railhop("rxe3"),
                             .relay = Ranked("rxe1", folder)}) {}

  // False: some figures were skipped.
  bool RunAll() {
    if (Has(kIbWriteBw, "rdma.direct_64k and rdma.sweep")) VersusPerftest();
    if (Has(kMooncakePython, "rdma.vs_mooncake, rdma.cpu_vs_mooncake and rdma.first_write")) {
      VersusMooncake();
      Cpu();
      using enum RdmaSubject::Initiator;
      FirstWrite("rdma.first_write", kNew, true, ">= 5");
      FirstWrite("rdma.first_write_known_host", kNew, false, "");
      FirstWrite("rdma.first_write_in_use", kInUse, false, "");
    }
    Stuck();  // before the ranks below are there: this machine has not the memory for more of them
    Relayed();
    return !skipped_;
  }

 private:
  void Skip(const std::string& figures, const std::string& why) {
    std::cerr << "rdma: skipped: " << figures << ": " << why << "\n";
    skipped_ = true;
  }
  bool Has(const std::string& program, const std::string& figures) {
    if (std::filesystem::exists(program)) return true;
    Skip(figures, "there is no " + program + " here; ./dev bench rdma installs it if it can");
    return false;
  }

  // `shaped`: rails that are slower than the processor.
  Sample Measure(RdmaSubject& subject, const RdmaLoad& load, const std::vector<int>& shaped,
                 int mbit_per_s = kShapedMbit) {
    subject.Start();
    const ShapedRails rails(shaped, mbit_per_s);
    if (!rails.status().ok()) GiveUp(subject.name(), rails.status());
    return subject.Rate(load, bench_.options().sample);
  }
  static std::string Describe(const RdmaSubject& subject, const RdmaLoad& load, int mbit_per_s) {
    return fmt::format("{}, writes {}{}", subject.name(), LoadName(load),
                       mbit_per_s != 0 ? fmt::format(", rails of {} Mbit/s", mbit_per_s) : "");
  }

  void Rate(const std::string& figure, RdmaSubject& subject, RdmaSubject& reference,
            const RdmaLoad& load, const std::string& goal, const std::vector<int>& shaped = {}) {
    bench_.Run({.name = figure,
                .unit = "MB/s",
                .subject_is = Describe(subject, load, shaped.empty() ? 0 : kShapedMbit),
                .reference_is = reference.name(),
                .goal = goal,
                .includes = {"submission", "work requests", "completion"},
                .beside = {"cpu_s_per_gb", "machine_busy_s_per_gb"},
                .subject = [&] { return Measure(subject, load, shaped); },
                .reference = [&] { return Measure(reference, load, shaped); }});
  }

  void VersusPerftest() {
    const RdmaLoad many{.length = 64 * kKiB, .count = 128};
    Rate("rdma.direct_64k", railhop_, perftest_, many, ">= 0.95", {0});
    Rate("rdma.direct_64k_unshaped", railhop_, perftest_, many, "");
    for (const RdmaLoad& load : AllLoads()) {
      Rate("rdma.sweep." + LoadName(load), railhop_, perftest_, load, "");
    }
  }

  void VersusMooncake() {
    std::set<std::string> measured;
    const auto rate = [&](const RdmaLoad& load, const std::string& goal) {
      if (!measured.insert(LoadName(load)).second) return;
      Rate("rdma.vs_mooncake." + LoadName(load), railhop_, mooncake_, load, goal);
    };
    for (const RdmaLoad& load :
         {RdmaLoad{64 * kKiB, 16}, RdmaLoad{64 * kKiB, 64}, RdmaLoad{kMiB, 8}}) {
      rate(load, ">= 1.25");
    }
    for (const RdmaLoad& load : AllLoads()) rate(load, "");
  }

  // At equal throughput: an engine that waits longer for each byte waits at its own expense, too.
  // An own rail that Mooncake does not fill is that much faster than Railhop's.
  void Cpu() {
    const std::string name = "rdma.cpu_vs_mooncake";
    if (!bench_.Wants(name)) return;
    const RdmaLoad load{.length = 64 * kKiB, .count = 16};
    const double reached = Measure(mooncake_, load, {0}).value;
    const int mbit = static_cast<int>(std::lround(reached * kMbitPerMb));
    std::cerr << fmt::format(
        "rdma: mooncake: {:.3g} MB/s on a rail of {} Mbit/s; railhop gets one of "
        "{} Mbit/s\n",
        reached, kShapedMbit, mbit);
    const auto sample = [&](RdmaSubject& each, int rail) {
      const Sample rate = Measure(each, load, {0}, rail);
      return Sample(rate.beside[0], {rate.beside[1], rate.value});
    };
    const auto unequal = [](const Result& result) {
      const double ours = result.beside[1];
      const double theirs = result.reference_beside[1];
      if (std::abs(ours - theirs) <= kEqual * std::max(ours, theirs)) return std::string();
      return fmt::format("throughput was not equal, {:.3g} and {:.3g} MB/s", ours, theirs);
    };
    bench_.Run({.name = name,
                .unit = "CPU s/GB",
                .subject_is = Describe(railhop_, load, mbit) + ": user and system time",
                .reference_is = Describe(mooncake_, load, kShapedMbit),
                .goal = "<= 0.8",
                .includes = {"submission", "work requests", "completion", "both processes"},
                .beside = {"machine_busy_s_per_gb", "mb_per_s"},
                .subject = [&] { return sample(railhop_, mbit); },
                .reference = [&] { return sample(mooncake_, kShapedMbit); },
                .objection = unequal});
  }

  // `new_host`: this one has not spoken to the target's before.
  void FirstWrite(const std::string& figure, RdmaSubject::Initiator initiator, bool new_host,
                  const std::string& goal) {
    const auto sample = [=](RdmaSubject& each) {
      return Sample(each.FirstWrite(64 * kKiB, initiator, new_host));
    };
    bench_.Run(
        {.name = figure,
         .unit = "ms",
         .subject_is = fmt::format(
             "mooncake, the first write (64 KiB) to a new target{}, by {}",
             new_host ? " on a host without known link address" : "",
             initiator == RdmaSubject::Initiator::kNew ? "a new initiator" : "an initiator in use"),
         .reference_is = "railhop",
         .goal = goal,
         .includes = {"metadata", "connection", "submission", "work requests", "completion"},
         .subject = [&] { return sample(mooncake_); },
         .reference = [&] { return sample(railhop_); }});
  }

  // Whether the relay's NIC sends what it should. The first writes may come before it is attached.
  bool Relays() {
    relayed_.Start();
    for (int i = 0; i < 5; ++i) {
      const uint64_t before = PacketsSent(1);
      relayed_.CheckBytes();
      if ((PacketsSent(1) - before) * kPacketBytes >= kSideMib * kMiB * 9 / 10) return true;
    }
    return false;
  }

  void Relayed() {
    if (!bench_.Wants("rdma.relay")) return;
    if (!Relays()) return Skip("rdma.relay", "the relay sent nothing: all went direct");
    const std::vector<int> shaped = {0, 1};
    Rate("rdma.relay_2m", relayed_, direct_, {kKvLayer, 4}, ">= 0.95", shaped);
    for (const RdmaLoad& load : AllLoads()) {
      Rate("rdma.relay." + LoadName(load), relayed_, direct_, load, "", shaped);
    }
  }

  // Each trial has a group of its own: no rank waits for one that was killed.
  static FaultSite SiteOf(RdmaFault fault, const std::string& folder) {
    if (!IsOfRelay(fault))
      return {.config = "nics { name: 'rxe0' rdma {} }", .target = Railhop("rxe1")};
    return {.config = RankConfigText("rxe0", folder),
            .target = Railhop("rxe3"),
            .relay = Ranked("rxe1", folder),
            .rail = kRelayedRail};
  }

  Sample CountStuck() {
    double stuck = 0, slices = 0, at_deadline = 0;
    std::vector<double> by_fault;
    for (const RdmaFault fault : kRdmaFaults) {
      const std::string name(RdmaFaultName(fault));
      const std::string folder = folder_ + "/" + name;
      if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
        GiveUp(name, absl::ErrnoToStatus(errno, folder + " cannot be made"));
      }
      const auto found = TryRdmaFault(fault, SiteOf(fault, folder));
      if (!found.ok()) GiveUp(name, found.status());
      std::cerr << fmt::format(
          "rdma: {}: of {} slices {} neither ended nor TIMEOUT at their deadline, {} open 5 s "
          "after its end; {} completed\n",
          name, found->slices, found->at_deadline, found->after_end, found->completed);
      by_fault.push_back(static_cast<double>(found->at_deadline + found->after_end));
      stuck += by_fault.back();
      slices += static_cast<double>(found->slices);
      at_deadline += static_cast<double>(found->at_deadline);
    }
    by_fault.insert(by_fault.begin(), {slices, at_deadline});
    return {stuck, by_fault};
  }

  void Stuck() {
    std::vector<Beside> beside = {"slices", "at_deadline"};
    for (const RdmaFault fault : kRdmaFaults) beside.emplace_back(RdmaFaultName(fault).data());
    bench_.Run(
        {.name = "rdma.stuck",
         .unit = "slices",
         .subject_is = "railhop, target or relay killed or stopped, cable pulled, link down",
         .goal = "<= 0",
         .includes = {"neither ended nor TIMEOUT at their deadline", "open 5 s after the fault"},
         .beside = std::move(beside),
         .subject = [&] { return CountStuck(); }});
  }

  Bench& bench_;
  const std::string folder_;
  bool skipped_ = false;
  RdmaSubject railhop_, mooncake_, perftest_, direct_, relayed_;
};

}  // namespace
}  // namespace railhop

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  auto bench = railhop::Bench::FromArguments(
      argc, argv, "The Transfer Engine over RDMA, beside ib_write_bw and Mooncake's.",
      {.pairs = 5, .sample = std::chrono::milliseconds(1500)});
  if (!railhop::HasRails(railhop::kRails)) {
    std::cerr << "rdma: there are no software RDMA devices here; ./dev bench rdma boots a machine "
                 "that has some\n";
    return railhop::kExitCannotMeasure;
  }
  return railhop::RunInWorkplace("rdma", [&](const std::string& folder) {
    railhop::RdmaBench rdma(&bench, folder);
    const bool complete = rdma.RunAll();
    const int code = bench.Finish();
    return code == 0 || complete ? code : railhop::kExitCannotMeasure;
  });
}
