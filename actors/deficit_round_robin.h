// Deficit round robin: shares something by bytes among sources whose items differ in size.
//
// Each turn adds a quantum to a source's deficit, and the source may send items for as long as the
// deficit covers them; so over time each source with something to send gets the same number of
// bytes, within one quantum and one item. A source that has nothing keeps no deficit. Pure logic,
// one owner, no allocation.
#pragma once

#include <array>
#include <bit>
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

  // Goes on until none of `sources` (bits; the others have nothing) has anything, or there is no
  // room. `next(source)`: bytes of the item that the source would send now; 0: none.
  // `serve(source)`: tries to send it.
  template <class Next, class Serve>
  void Run(uint32_t sources, Next next, Serve serve) {
    for (uint32_t gone = owed_ & ~sources; gone != 0; gone &= gone - 1) {
      deficit_[static_cast<size_t>(std::countr_zero(gone))] = 0;
    }
    owed_ &= sources;
    // What was sent may change what the others can send, so sizes are asked for anew then.
    uint32_t known = 0;
    for (uint32_t left = sources; left != 0;) {
      const uint32_t bit = uint32_t{1} << turn_;
      if ((left & bit) == 0) {
        NextTurn(left);
        continue;
      }
      if ((known & bit) == 0) bytes_[turn_] = next(turn_);
      known |= bit;
      if (bytes_[turn_] == 0) {
        deficit_[turn_] = 0;
        owed_ &= ~bit;
        left &= ~bit;
        NextTurn(left);
        continue;
      }
      if (!granted_) deficit_[turn_] += quantum_;
      granted_ = true;
      owed_ |= bit;
      if (deficit_[turn_] < bytes_[turn_]) {
        NextTurn(left);
        continue;
      }
      const Served served = serve(turn_);
      if (served == Served::kNoRoom) return;
      if (served == Served::kSent) deficit_[turn_] -= bytes_[turn_];
      known = 0;
      left = sources;
    }
  }

 private:
  static_assert(kSources < 32);

  // To the next of these sources, round the circle.
  void NextTurn(uint32_t sources) {
    const uint32_t after = sources >> turn_ >> 1;
    if (after != 0) {
      turn_ += 1 + static_cast<size_t>(std::countr_zero(after));
    } else if (sources != 0) {
      turn_ = static_cast<size_t>(std::countr_zero(sources));
    }
    granted_ = false;
  }

  const uint64_t quantum_;
  size_t turn_ = 0;
  bool granted_ = false;  // the quantum of this turn was added
  uint32_t owed_ = 0;     // sources, as bits: their deficit may be above 0
  std::array<uint64_t, kSources> deficit_{};
  std::array<uint64_t, kSources> bytes_{};  // of each source's item, as far as known
};

}  // namespace railhop
