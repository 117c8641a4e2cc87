#include "transport/fabric/tcp/tcp_protocol.h"

#include <algorithm>

namespace railhop {
namespace {

constexpr uint8_t kVersion2 = 0x80;
constexpr uint64_t kStatusMagic = 0x4D43545600000000;

void PutWord(uint64_t value, std::byte* bytes) {
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
}

uint64_t GetWord(const std::byte* bytes) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  return value;
}

}  // namespace

void EncodeTcpHeader(const TcpHeader& header, std::span<std::byte, kTcpHeaderBytes> bytes) {
  PutWord(header.size, bytes.data());
  PutWord(header.address, bytes.data() + 8);
  const auto operation = static_cast<uint8_t>(header.operation);
  bytes[16] = static_cast<std::byte>(operation | (header.acknowledged ? kVersion2 : 0));
  std::fill(bytes.begin() + 17, bytes.end(), std::byte{0});
}

TcpHeader DecodeTcpHeader(std::span<const std::byte, kTcpHeaderBytes> bytes) {
  TcpHeader header{.size = GetWord(bytes.data()), .address = GetWord(bytes.data() + 8)};
  const auto word = static_cast<uint8_t>(bytes[16]);
  header.acknowledged = (word & kVersion2) != 0;
  const auto operation = static_cast<TcpOperation>(word & ~kVersion2);
  const bool between_peers =
      (operation == TcpOperation::kJoin || operation == TcpOperation::kDrain) &&
      header.acknowledged && header.size == 0;
  if (operation == TcpOperation::kWrite || between_peers) header.operation = operation;
  return header;
}

void EncodeTcpStatus(TcpCode code, std::span<std::byte, kTcpStatusBytes> bytes) {
  PutWord(kStatusMagic | static_cast<uint32_t>(code), bytes.data());
}

bool DecodeTcpStatus(std::span<const std::byte, kTcpStatusBytes> bytes, TcpCode* code) {
  const uint64_t word = GetWord(bytes.data());
  if ((word & ~uint64_t{UINT32_MAX}) != kStatusMagic) return false;
  *code = static_cast<TcpCode>(word);
  return true;
}

}  // namespace railhop
