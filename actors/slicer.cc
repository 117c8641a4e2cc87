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

uint64_t PieceTarget(uint64_t bytes_waiting, uint64_t bytes_at_relay, const JobSizes& sizes,
                     uint64_t max_piece_bytes) {
  // An eighth of what waits: the first piece is a small part of it, and so is the last.
  const uint64_t share = std::min(bytes_waiting / 8, sizes.backlog);
  // A quarter of what the relay has: the copy is over before it is sent.
  const uint64_t target = std::clamp(std::max(share, bytes_at_relay / 4),
                                     std::min(sizes.idle, max_piece_bytes), max_piece_bytes);
  // The rest would not be worth a piece of its own.
  return bytes_waiting < 2 * target ? std::min(bytes_waiting, max_piece_bytes) : target;
}

bool CutPiece(SpanPool& pool, SpanQueue& queue, uint64_t max_bytes, PieceContent* piece) {
  piece->Clear();
  while (!queue.empty() && piece->length < max_bytes) {
    if (piece->full()) break;
    const Span& front = pool.Front(queue);
    const uint64_t room = max_bytes - piece->length;
    if (front.length <= room) {
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
