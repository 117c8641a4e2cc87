// ResolverPool: the TargetResolver of a rank. Each name is a job of its own, so that a peer that
// does not answer holds up nobody else, unless kThreads of them do.
#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "actors/target_resolver.h"
#include "runtime/background_worker.h"

namespace railhop {

// Reads the metadata of a target. May block for a bounded time, and ends early once asked to stop.
using ReadTarget =
    std::function<absl::StatusOr<TargetInfo>(const std::string& name, std::stop_token stop)>;

class ResolverPool final : public TargetResolver {
 public:
  // Threads are there only while they wait; a rank has up to 1024 targets.
  static constexpr size_t kThreads = 32;

  // `settle`: what reading leaves for after the answer, on the thread that has read.
  explicit ResolverPool(ReadTarget read, std::function<void()> settle = nullptr);
  // Abandons, then waits for what is under way.
  ~ResolverPool() override { Abandon(); }

  void Resolve(const std::string& name, Answer answer) override;
  void Abandon() override { stop_.request_stop(); }

 private:
  const ReadTarget read_;
  const std::function<void()> settle_;
  std::stop_source stop_;
  BackgroundWorker worker_;  // last: its threads use the others
};

}  // namespace railhop
