// Writes pieces as a trace in Chrome's JSON format, which ui.perfetto.dev and chrome://tracing
// open.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>

#include "actors/piece_trace.h"

namespace railhop {

// A process per rank, in it some rows per actor: a complete event ("X") per stage, in the row of
// the actor that ends it. Stages of one actor that overlap lie in different rows, as the format
// asks for. Times are microseconds since the earliest stage.
//
// Many pieces are submitted at once and sliced one by one: the event of that stage begins when the
// piece before it on the lane was sliced, and `waited_us` has the whole time.
void WriteChromeTrace(std::span<const TracedPiece> pieces, std::ostream& out);

}  // namespace railhop
