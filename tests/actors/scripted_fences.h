// Fences that are what the test says, and who asked for them.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "transport/copy/fence.h"

namespace railhop {

class ScriptedFences final : public Fences {
 public:
  FenceTicket Record(uint32_t, const SourceFence&) override { return Next(0); }
  FenceState Query(uint32_t batch) override {
    asked.push_back(batch);
    return states.contains(batch) ? states[batch] : FenceState::kPending;
  }

  // A fence of a stream, recorded after all before it.
  FenceTicket Next(uint64_t stream) {
    order_ += 2;
    return {.state = FenceState::kPending, .stream = stream, .begin = order_, .end = order_ + 1};
  }
  std::vector<uint32_t> Asked() { return std::exchange(asked, {}); }

  std::map<uint32_t, FenceState> states;  // by batch; others are pending
  std::vector<uint32_t> asked;

 private:
  uint64_t order_ = 0;
};

}  // namespace railhop
