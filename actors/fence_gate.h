// FenceGate: the batches whose sources are not ready yet, and which of them have become so.
//
// Of each stream the batch that was recorded last is asked for first: once it is done, so are those
// that were recorded before it. While it is not, they are asked for from the first one on, up to
// the first that is not done either. A look costs about a microsecond of the driver's, so a batch
// that waits long is looked at less and less often, at 1/16 of what it has waited already.
// One owner (SubmitActor), no allocation after construction. Times are cycles.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/poller.h"
#include "transport/copy/fence.h"

namespace railhop {

class FenceGate {
 public:
  struct Ended {
    uint32_t batch;
    FenceState state;  // kDone or kFailed
  };

  // `fences` may be nullptr if nothing is ever held.
  FenceGate(Fences* fences, uint32_t capacity);

  bool empty() const { return streams_.empty(); }
  // `ticket` is pending.
  void Hold(uint32_t batch, const FenceTicket& ticket, uint64_t now);
  // Nothing happens if the batch is not held.
  void Remove(uint32_t batch);
  // Those that are held no longer, of each stream in the order in which they came. Valid until the
  // next call.
  std::span<const Ended> Poll(uint64_t now);
  // For a reactor that parks: not so soon that it wakes all the time.
  uint64_t NextPoll(uint64_t now) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Entry {
    FenceTicket ticket;
    uint64_t since = 0;
    uint32_t older = kNone;
    uint32_t newer = kNone;
    bool held = false;
  };
  struct Stream {
    uint64_t id;  // 0: of one batch alone
    uint32_t oldest;
    uint32_t newest;
    uint64_t ask_at;
  };

  void Ask(Stream& stream, uint64_t now);
  void End(Stream& stream, uint32_t batch, FenceState state);
  void Unlink(Stream& stream, uint32_t batch);

  Fences* const fences_;
  const uint64_t soonest_;
  const uint64_t latest_;
  const uint64_t parked_;
  std::vector<Entry> entries_;  // by batch
  std::vector<Stream> streams_;
  std::vector<Ended> ended_;
  uint64_t ask_at_ = Poller::kNever;  // the first of the streams'
};

}  // namespace railhop
