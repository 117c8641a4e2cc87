// Deficit round robin: shares something by bytes among sources whose items differ in size.
//
// Each turn adds a quantum to a source's deficit, and the source may send items for as long as the
// deficit covers them; so over time each source with something to send gets the same number of
// bytes, within one quantum and one item. A source that has nothing keeps no deficit. Pure logic,
// one owner, no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace railhop {

enum class Served : uint8_t {
  kSent,     // its bytes count
  kDropped,  // the item is gone without having cost anything
  kNoRoom,   // nobody can send now; the same source goes on next time
};

template <size_t kSources>
class DeficitRoundRobin {
 public:
  explicit DeficitRoundRobin(uint64_t quantum) : quantum_(quantum) {}

  // Goes on until no source has anything or there is no room.
  // `next(source)`: bytes of the item that the source would send now; 0: none.
  // `serve(source)`: tries to send it.
  template <class Next, class Serve>
  void Run(Next next, Serve serve) {
    // What was sent may change what the others can send, so sizes are asked for anew then.
    uint32_t known = 0;
    size_t without = 0;  // sources in a row that have nothing
    while (without < kSources) {
      if ((known >> turn_ & 1) == 0) bytes_[turn_] = next(turn_);
      known |= 1u << turn_;
      if (bytes_[turn_] == 0) {
        deficit_[turn_] = 0;
        ++without;
        NextTurn();
        continue;
      }
      without = 0;
      if (!granted_) deficit_[turn_] += quantum_;
      granted_ = true;
      if (deficit_[turn_] < bytes_[turn_]) {
        NextTurn();
        continue;
      }
      const Served served = serve(turn_);
      if (served == Served::kNoRoom) return;
      if (served == Served::kSent) deficit_[turn_] -= bytes_[turn_];
      known = 0;
    }
  }

 private:
  static_assert(kSources <= 32);

  void NextTurn() {
    turn_ = (turn_ + 1) % kSources;
    granted_ = false;
  }

  const uint64_t quantum_;
  size_t turn_ = 0;
  bool granted_ = false;  // the quantum of this turn was added
  std::array<uint64_t, kSources> deficit_{};
  std::array<uint64_t, kSources> bytes_{};  // of each source's item, as far as known
};

}  // namespace railhop
