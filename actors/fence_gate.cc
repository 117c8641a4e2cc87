#include "actors/fence_gate.h"

#include <algorithm>
#include <chrono>

#include "runtime/cycle_clock.h"

namespace railhop {
namespace {

constexpr std::chrono::microseconds kSoonest{2};
constexpr std::chrono::microseconds kLatest{1000};
// As the timer for doorbells that nobody announces.
constexpr std::chrono::microseconds kParked{50};

}  // namespace

FenceGate::FenceGate(Fences* fences, uint32_t capacity)
    : fences_(fences),
      soonest_(ToCycles(kSoonest)),
      latest_(ToCycles(kLatest)),
      parked_(ToCycles(kParked)),
      entries_(capacity) {
  streams_.reserve(capacity);
  ended_.reserve(capacity);
}

void FenceGate::Hold(uint32_t batch, const FenceTicket& ticket, uint64_t now) {
  const auto same = [&](const Stream& stream) { return stream.id == ticket.stream; };
  auto stream =
      ticket.stream == 0 ? streams_.end() : std::find_if(streams_.begin(), streams_.end(), same);
  if (stream == streams_.end()) {
    stream = streams_.insert(stream, {ticket.stream, kNone, kNone, now});
  }
  entries_[batch] = {.ticket = ticket, .since = now, .older = stream->newest, .held = true};
  (stream->newest == kNone ? stream->oldest : entries_[stream->newest].newer) = batch;
  stream->newest = batch;
  stream->ask_at = now;
  ask_at_ = std::min(ask_at_, now);
}

void FenceGate::Remove(uint32_t batch) {
  if (!entries_[batch].held) return;
  const uint64_t id = entries_[batch].ticket.stream;
  const auto found = std::find_if(streams_.begin(), streams_.end(), [&](const Stream& stream) {
    return stream.id == id && (id != 0 || stream.oldest == batch);
  });
  Unlink(*found, batch);
  if (found->newest == kNone) streams_.erase(found);
}

std::span<const FenceGate::Ended> FenceGate::Poll(uint64_t now) {
  ended_.clear();
  if (now < ask_at_) return ended_;
  ask_at_ = Poller::kNever;
  for (Stream& stream : streams_) {
    if (now >= stream.ask_at) Ask(stream, now);
    if (stream.newest != kNone) ask_at_ = std::min(ask_at_, stream.ask_at);
  }
  std::erase_if(streams_, [](const Stream& stream) { return stream.newest == kNone; });
  return ended_;
}

uint64_t FenceGate::NextPoll(uint64_t now) const {
  return empty() ? Poller::kNever : std::max(ask_at_, now + parked_);
}

void FenceGate::Ask(Stream& stream, uint64_t now) {
  const uint32_t last = stream.newest;
  const FenceState state = fences_->Query(last);
  if (state == FenceState::kDone) {
    const uint64_t begin = entries_[last].ticket.begin;
    for (uint32_t batch = stream.oldest, next; batch != last; batch = next) {
      next = entries_[batch].newer;
      if (entries_[batch].ticket.end < begin) End(stream, batch, FenceState::kDone);
    }
  }
  if (state != FenceState::kPending) End(stream, last, state);
  // Those recorded before it, or, by another thread, at the same time.
  const uint32_t end = state == FenceState::kPending ? last : kNone;
  for (uint32_t batch = stream.oldest, next; batch != end; batch = next) {
    next = entries_[batch].newer;
    const FenceState older = fences_->Query(batch);
    if (older == FenceState::kPending) break;
    End(stream, batch, older);
  }
  if (stream.newest == kNone) return;
  const uint64_t waited = now - entries_[stream.newest].since;
  stream.ask_at = now + std::clamp(waited / 16, soonest_, latest_);
}

void FenceGate::End(Stream& stream, uint32_t batch, FenceState state) {
  Unlink(stream, batch);
  ended_.push_back({batch, state});
}

void FenceGate::Unlink(Stream& stream, uint32_t batch) {
  Entry& entry = entries_[batch];
  (entry.older == kNone ? stream.oldest : entries_[entry.older].newer) = entry.newer;
  (entry.newer == kNone ? stream.newest : entries_[entry.newer].older) = entry.older;
  entry.held = false;
}

}  // namespace railhop
