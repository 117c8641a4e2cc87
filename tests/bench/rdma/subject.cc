#include "tests/bench/rdma/subject.h"

#include <cstdlib>
#include <iostream>
#include <utility>

#include "fmt/format.h"
#include "tests/bench/cpu_time.h"
#include "tests/bench/rdma/rails.h"

namespace railhop {
namespace {

constexpr int kMostFailures = 10;

}  // namespace

void GiveUp(const std::string& subject, const absl::Status& status) {
  std::cerr << "rdma: " << subject << ": " << std::string(status.message()) << "\n";
  std::exit(1);
}

RdmaSubject::RdmaSubject(std::string name, Programs programs)
    : name_(std::move(name)), programs_(std::move(programs)) {}

std::unique_ptr<Side> RdmaSubject::StartSide(const SideProgram& program) const {
  absl::StatusOr<std::unique_ptr<Side>> side = Side::Start(program);
  if (!side.ok()) GiveUp(name_, side.status());
  return *std::move(side);
}

std::vector<double> RdmaSubject::Ask(Side& side, const std::string& order) const {
  absl::StatusOr<std::vector<double>> answer = side.Ask(order);
  if (!answer.ok()) GiveUp(name_, answer.status());
  return *std::move(answer);
}

std::optional<std::vector<double>> RdmaSubject::TryWrites(const std::string& order) {
  absl::StatusOr<std::vector<double>> answer = initiator_->Ask(order);
  if (answer.ok()) return *std::move(answer);
  if (!absl::IsAborted(answer.status()) || ++failures_ == kMostFailures) {
    GiveUp(name_, answer.status());
  }
  std::cerr << "rdma: " << name_ << ": tried again: " << std::string(answer.status().message());
  return std::nullopt;
}

std::string RdmaSubject::Where() const {
  const Side& there = target_ == nullptr ? *initiator_ : *target_;
  return there.name() + " " + there.address();
}

void RdmaSubject::Start() {
  if (initiator_ != nullptr) return;
  if (programs_.target) target_ = StartSide(*programs_.target);
  if (programs_.relay) relay_ = StartSide(*programs_.relay);
  initiator_ = StartSide(programs_.initiator);
  if (target_ != nullptr) CheckBytes();
}

void RdmaSubject::CheckBytes() {
  Ask(*target_, "fill other");
  Ask(*initiator_, "fill these");
  while (!TryWrites("put " + Where()).has_value()) {
  }
  if (Ask(*target_, "check these")[0] == 1) return;
  GiveUp(name_, absl::DataLossError("the bytes at the target are not those that were sent"));
}

double RdmaSubject::UsedSeconds() const {
  double seconds = 0;
  for (const Side* side : {initiator_.get(), target_.get(), relay_.get()}) {
    if (side == nullptr) continue;
    const auto used = CpuTimeOf(side->pid());
    if (!used.ok()) GiveUp(name_, used.status());
    seconds += std::chrono::duration<double>(*used).count();
  }
  return seconds;
}

Sample RdmaSubject::Rate(const RdmaLoad& load, std::chrono::milliseconds duration) {
  Start();
  const std::string order = fmt::format("write {} {} {} {} {}", Where(), load.count, load.length,
                                        load.threads, duration.count());
  while (true) {
    const double busy = BusySeconds();
    const double used = UsedSeconds();
    const std::optional<std::vector<double>> run = TryWrites(order);
    if (!run.has_value()) continue;
    const double gigabytes = run->at(4);
    // What an initiator with a target of its own says includes both.
    const double cpu = target_ == nullptr ? run->at(3) : (UsedSeconds() - used) / gigabytes;
    return {run->at(0) * 1e3, {cpu, (BusySeconds() - busy) / gigabytes}};
  }
}

double RdmaSubject::FirstWrite(uint64_t length, Initiator initiator, bool new_host) {
  Start();
  while (true) {
    target_ = StartSide(*programs_.target);
    if (initiator == Initiator::kNew) initiator_ = StartSide(programs_.initiator);
    if (new_host) {
      if (absl::Status status = ForgetNeighbors(); !status.ok()) GiveUp(name_, status);
    }
    const auto run = TryWrites(fmt::format("first {} {}", Where(), length));
    if (run.has_value()) return run->at(0) * 1e3;
  }
}

}  // namespace railhop
