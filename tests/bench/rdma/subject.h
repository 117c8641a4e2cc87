// A subject of the RDMA benchmark: processes of which one writes to another one's memory. One
// thread. What goes wrong ends the program: a figure without its subject says nothing. But a write
// that fails is said and tried again: a virtual machine that stands still for half a second, since
// others use its processor, breaks the connections of everybody.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/bench/harness.h"
#include "tests/bench/rdma/loads.h"
#include "tests/bench/sides/side.h"

namespace railhop {

// Says so on standard error, and exits.
[[noreturn]] void GiveUp(const std::string& subject, const absl::Status& status);

class RdmaSubject {
 public:
  struct Programs {
    SideProgram initiator;
    std::optional<SideProgram> target = {};  // nullopt: the initiator starts its own, unchecked
    std::optional<SideProgram> relay = {};
  };

  RdmaSubject(std::string name, Programs programs);

  const std::string& name() const { return name_; }

  // Starts the processes if they are not up yet, and checks bytes.
  void Start();
  // Writes all of the memory, whose bytes must arrive. Not without a target.
  void CheckBytes();
  // MB/s; beside it CPU seconds per GB: of all its processes, and of the whole machine.
  Sample Rate(const RdmaLoad& load, std::chrono::milliseconds duration);
  // Milliseconds of the first write to a target that is started for it, by an initiator that has
  // written to others, or by one that is started for it as well. `new_host`: the link address of
  // the target's host is not known.
  enum class Initiator { kInUse, kNew };
  double FirstWrite(uint64_t length, Initiator initiator, bool new_host);

 private:
  std::unique_ptr<Side> StartSide(const SideProgram& program) const;
  std::vector<double> Ask(Side& side, const std::string& order) const;
  // Of the initiator. nullopt: a write failed, which was said.
  std::optional<std::vector<double>> TryWrites(const std::string& order);
  std::string Where() const;
  double UsedSeconds() const;

  const std::string name_;
  const Programs programs_;
  int failures_ = 0;
  std::unique_ptr<Side> target_;
  std::unique_ptr<Side> relay_;
  std::unique_ptr<Side> initiator_;
};

}  // namespace railhop
