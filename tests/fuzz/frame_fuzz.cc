// Handshake frames: any bytes in any parts; what is accepted encodes to the same bytes.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "transport/engine/handshake_frame.h"

namespace {

using railhop::EncodeFrame;
using railhop::FrameReader;
using railhop::HandshakeFrame;

constexpr uint64_t kMaxLength = 4096;

void Expect(bool condition) {
  if (!condition) std::abort();
}

// Feeds parts of 1..`most_part` bytes. True with the frame if it is complete; `*used` bytes of it.
bool Read(std::string_view bytes, size_t most_part, HandshakeFrame* frame, size_t* used) {
  FrameReader reader(kMaxLength);
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, std::min(reader.wanted(), most_part));
    Expect(!part.empty());
    const auto complete = reader.Take(part);
    if (!complete.ok()) return false;
    rest.remove_prefix(part.size());
    *used = bytes.size() - rest.size();
    Expect(reader.size() == *used && reader.size() <= railhop::kFrameHeaderBytes + kMaxLength);
    Expect(*complete == (reader.wanted() == 0));
    if (!*complete) continue;
    *frame = reader.TakeFrame();
    return true;
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t most_part = data[0] % 32 + size_t{1};
  const std::string bytes(data + 1, data + size);
  HandshakeFrame in_parts;
  HandshakeFrame at_once;
  size_t used = 0;
  const bool complete = Read(bytes, most_part, &in_parts, &used);
  size_t used_at_once = 0;
  Expect(Read(bytes, SIZE_MAX, &at_once, &used_at_once) == complete);
  if (!complete) return 0;
  Expect(used == used_at_once && in_parts.json == at_once.json);
  Expect(in_parts.type == at_once.type && in_parts.typed == at_once.typed);
  Expect(EncodeFrame(in_parts) == bytes.substr(0, used));
  return 0;
}
