// The subjects of the pipeline benchmark: pairs of processes, a sender and its relay, over one lane
// of shared memory.
//
//   Subject actors(MakeActors(site), ...);
//   LoadResult result = actors.Run({.outstanding = 64, ...});
//
// A side is made in its own process (fork, before the parent has threads) and told what to do over
// a socket. While no run is on, neither side of a subject uses a core.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/harness.h"
#include "tests/bench/pipeline/load.h"

namespace railhop {

// Where a pair works and how.
struct PipelineSite {
  std::string directory;  // of the registry and of the target's segment
  std::string target;     // name of the target
  std::string name;       // of the subject; its registry group too
  CorePair cores;         // sender, relay
  bool copies = true;     // false: doorbells ring, and no byte is copied
  bool move = false;      // the NIC moves bytes; else it only keeps the clock
  bool histograms = true;
  bool pieces = true;  // stage times of pieces, sampled as by default
};

// The part of a subject that lives in a process.
class PipelineSide {
 public:
  virtual ~PipelineSide() = default;
  virtual absl::Status Prepare(const PipelineSite& site) = 0;
  // The sender runs the load; the relay serves until Pause.
  virtual LoadResult Run(const LoadOrder&) { return {}; }
  virtual void Serve() {}
  virtual void Pause() {}
};

struct PipelineSides {
  std::function<std::unique_ptr<PipelineSide>()> sender;
  std::function<std::unique_ptr<PipelineSide>()> relay;
};
PipelineSides ActorSides();
enum class PumpKind {
  kOneThread,   // pump1: four steps in order, one slot per lane per sweep, sleeps 50 us
  kTwoThreads,  // pump2: sender and relay apart, batched, spins
};
PipelineSides PumpSides(PumpKind kind);

class Subject {
 public:
  // Forks both sides and waits until a lane connects them.
  static absl::StatusOr<std::unique_ptr<Subject>> Start(const PipelineSides& sides,
                                                        const PipelineSite& site);
  ~Subject();
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  struct Measured {
    LoadResult load;
    double cpu_seconds = 0;  // of both processes, during the run
  };
  absl::StatusOr<Measured> Run(const LoadOrder& order);

 private:
  struct Process {
    pid_t pid = -1;
    int socket = -1;
  };
  Subject() = default;
  static absl::StatusOr<Process> Fork(const std::function<std::unique_ptr<PipelineSide>()>& make,
                                      const PipelineSite& site, int close_too);

  std::string name_;
  Process relay_;
  Process sender_;
};

}  // namespace railhop
