// The frames of the handshake protocol (mooncake-compat (c)):
//
//   offset 0  u64, little endian: bytes that follow, the type included
//   offset 8  u8: type
//   offset 9  JSON text
//
// Peers of before the types send the JSON right after the length: a first byte of 4..0x7F (in fact
// a '{') says so. Such a frame is a Connection, and its answer has no type byte either.
//
// Pure; one thread per object. Memory: what has arrived of the frame, at most `max_length`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace railhop {

enum class FrameType : uint8_t { kConnection = 0, kMetadata = 1, kNotify = 2, kProbe = 3 };
const char* FrameTypeName(FrameType type);

inline constexpr size_t kFrameHeaderBytes = 8;
inline constexpr uint64_t kDefaultMaxFrameLength = uint64_t{1} << 20;

struct HandshakeFrame {
  FrameType type = FrameType::kConnection;
  bool typed = true;  // false: an old peer's, without type byte
  std::string json;
};

std::string EncodeFrame(const HandshakeFrame& frame);

// Takes one frame in parts of any size.
class FrameReader {
 public:
  // Longer frames are refused, as soon as their length is known.
  explicit FrameReader(uint64_t max_length = kDefaultMaxFrameLength) : max_length_(max_length) {}

  // How many bytes are wanted next; 0 when the frame is complete.
  size_t wanted() const;
  // Takes up to wanted() bytes and leaves the rest. True when the frame is complete.
  // INVALID_ARGUMENT: a length of 0 or too large, or an unknown type; the connection is lost.
  absl::StatusOr<bool> Take(std::string_view bytes);
  // Bytes held.
  size_t size() const { return header_bytes_ + payload_.size(); }
  // Once, when the frame is complete.
  HandshakeFrame TakeFrame();

 private:
  const uint64_t max_length_;
  size_t header_bytes_ = 0;  // that have arrived
  uint64_t length_ = 0;
  std::string payload_;
};

}  // namespace railhop
