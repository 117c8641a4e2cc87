#include "actors/slicer.h"

#include <algorithm>

namespace railhop {

PieceContent::PieceContent() {
  spans.reserve(kMaxPlanEntries);
  copies.reserve(kMaxPlanEntries);
  plans.reserve(kMaxPlanEntries);
}

void PieceContent::Clear() {
  spans.clear();
  copies.clear();
  plans.clear();
  length = 0;
}

void PieceContent::Append(const Span& span) {
  const bool continues = !spans.empty() && spans.back().region == span.region &&
                         spans.back().source + spans.back().length == span.source &&
                         spans.back().destination + spans.back().length == span.destination;
  if (continues) {
    copies.back().length += span.length;
    plans.back().length += span.length;
  } else {
    copies.push_back({span.source, span.length});
    plans.push_back({span.destination, span.length});
  }
  spans.push_back(span);
  length += span.length;
}

namespace {

// A quarter of all there is, for the others are being copied, sent and answered meanwhile.
uint64_t Share(const PieceLoad& load, const JobSizes& sizes) {
  return std::min((load.waiting + load.under_way + 3) / 4, sizes.idle);
}

// Whether a piece beside others that are being copied would do more than queue.
bool IsWorthCopying(const PieceLoad& load, const JobSizes& sizes) {
  if (sizes.at_once == 0 || load.copying == 0) return true;
  return load.copying < sizes.at_once && load.waiting >= Share(load, sizes);
}

}  // namespace

uint64_t PieceTarget(const PieceLoad& load, const JobSizes& sizes, uint64_t max_piece_bytes) {
  if (!IsWorthCopying(load, sizes)) return 0;
  // An eighth of what waits: the first piece is a small part of it, and so is the last.
  const uint64_t share = std::min(load.waiting / 8, sizes.backlog);
  // A quarter of what the relay has: the copy is over before it is sent.
  const uint64_t grown = std::max(share, load.at_relay / 4);
  if (sizes.at_once != 0 && load.under_way != 0 && load.waiting < sizes.idle) {
    return std::min({load.waiting, std::max(Share(load, sizes), grown), max_piece_bytes});
  }
  const uint64_t target = std::clamp(grown, std::min(sizes.idle, max_piece_bytes), max_piece_bytes);
  // The rest would not be worth a piece of its own.
  return load.waiting < 2 * target ? std::min(load.waiting, max_piece_bytes) : target;
}

bool CutPiece(SpanPool& pool, SpanQueue& queue, const PieceLimits& limits, PieceContent* piece) {
  piece->Clear();
  while (!queue.empty() && piece->length < limits.target) {
    if (piece->full()) break;
    const Span& front = pool.Front(queue);
    const uint64_t room = limits.target - piece->length;
    const bool goes_whole =
        front.length <= limits.whole && front.length <= limits.max - piece->length;
    if (front.length <= room || goes_whole) {
      piece->Append(front);
      pool.PopFront(queue);
    } else {
      Span part = front;
      part.length = room;
      piece->Append(part);
      pool.ShortenFront(queue, room);
    }
  }
  return piece->length != 0;
}

}  // namespace railhop
