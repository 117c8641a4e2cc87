#include "transport/engine/handshake_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace railhop {
namespace {

constexpr uint8_t kLastType = static_cast<uint8_t>(FrameType::kProbe);
constexpr uint8_t kFirstUnknownType = 0x80;

uint8_t FirstByte(const std::string& payload) {
  return static_cast<uint8_t>(payload.front());
}

}  // namespace

const char* FrameTypeName(FrameType type) {
  switch (type) {
    case FrameType::kConnection:
      return "connection";
    case FrameType::kMetadata:
      return "metadata";
    case FrameType::kNotify:
      return "notify";
    case FrameType::kProbe:
      return "probe";
  }
  return "?";
}

std::string EncodeFrame(const HandshakeFrame& frame) {
  const uint64_t length = frame.json.size() + (frame.typed ? 1 : 0);
  std::string bytes;
  bytes.reserve(kFrameHeaderBytes + length);
  for (size_t i = 0; i < kFrameHeaderBytes; ++i) {
    bytes += static_cast<char>((length >> (8 * i)) & 0xff);
  }
  if (frame.typed) bytes += static_cast<char>(frame.type);
  return bytes += frame.json;
}

size_t FrameReader::wanted() const {
  return header_bytes_ < kFrameHeaderBytes ? kFrameHeaderBytes - header_bytes_
                                           : length_ - payload_.size();
}

absl::StatusOr<bool> FrameReader::Take(std::string_view bytes) {
  while (header_bytes_ < kFrameHeaderBytes) {
    if (bytes.empty()) return false;
    length_ |= uint64_t{static_cast<uint8_t>(bytes.front())} << (8 * header_bytes_);
    bytes.remove_prefix(1);
    if (++header_bytes_ < kFrameHeaderBytes) continue;
    if (length_ == 0 || length_ > max_length_) {
      return absl::InvalidArgumentError(
          fmt::format("a frame of {} bytes; allowed: 1..{}", length_, max_length_));
    }
  }
  payload_.append(bytes.substr(0, wanted()));
  if (!payload_.empty() && FirstByte(payload_) >= kFirstUnknownType) {
    return absl::InvalidArgumentError(
        fmt::format("a frame of the unknown type 0x{:02x}", FirstByte(payload_)));
  }
  return wanted() == 0;
}

HandshakeFrame FrameReader::TakeFrame() {
  HandshakeFrame frame;
  frame.typed = FirstByte(payload_) <= kLastType;
  if (frame.typed) {
    frame.type = static_cast<FrameType>(FirstByte(payload_));
    payload_.erase(0, 1);
  }
  frame.json = std::move(payload_);
  return frame;
}

}  // namespace railhop
