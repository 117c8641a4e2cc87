// From requests to pieces: spans wait in queues, and pieces are cut off a queue when there is room
// for one in the ring - not before, so that a piece carries what has gathered meanwhile.
//
// A piece costs a fixed time however small it is (the issue of its copy alone 4 us through a GPU's
// copy engine), so it packs spans of several requests; when little waits pieces are no larger than
// that asks for, so that copy and send overlap. PieceTarget() is that rule. Pure logic, one owner,
// no allocation after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "actors/span_pool.h"
#include "transport/copy/copy_engine.h"
#include "transport/ring/control_block.h"

namespace railhop {

// What one ring slot carries: spans of one target, and the same as the copy engine and the
// descriptor want them. Nothing grows beyond kMaxPlanEntries, which is there from the start.
struct PieceContent {
  PieceContent();
  void Clear();
  bool full() const { return spans.size() == kMaxPlanEntries; }
  // Only if not full.
  void Append(const Span& span);

  std::vector<Span> spans;
  // These two run in parallel; spans that are neighbours at both ends, in one region, share an
  // entry.
  std::vector<CopySpan> copies;
  std::vector<PlanEntry> plans;
  uint64_t length = 0;
};

// What there is for one target on a lane.
struct PieceLoad {
  uint64_t waiting = 0;    // bytes to cut pieces from
  uint64_t at_relay = 0;   // bytes that the relay has in hand, of all targets
  uint64_t under_way = 0;  // bytes of pieces that were cut and have not ended
  uint32_t copying = 0;    // of these, pieces that the copy engine is not done with
};

// Bytes that the next piece should carry: what the copy engine wants at least, or more when so much
// waits, or when the relay has so much in hand that the piece will not be waited for. Of an engine
// that works on several at a time, and beside others that are under way, a quarter of all there is,
// so that a few requests that are sent over and over spread over copy, send and completion. 0: none
// yet, more will have gathered when a copy is done.
uint64_t PieceTarget(const PieceLoad& load, const JobSizes& sizes, uint64_t max_piece_bytes);

struct PieceLimits {
  uint64_t target = 0;  // bytes; a span that goes beyond is split,
  uint64_t whole = 0;   // unless it has no more than so many
  uint64_t max = 0;     // and the piece no more than so many with it
};
// Moves spans from the front of `queue` into `piece`. Returns false when the queue is empty.
bool CutPiece(SpanPool& pool, SpanQueue& queue, const PieceLimits& limits, PieceContent* piece);

}  // namespace railhop
