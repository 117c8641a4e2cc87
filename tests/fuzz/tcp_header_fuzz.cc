// Whatever 24 bytes a client sends, what is read from them is a request that is safe to look at and
// that reads the same when it is sent again; and 8 bytes are a status only if they encode as one.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "transport/fabric/tcp/tcp_protocol.h"

namespace railhop {
namespace {

void Check(bool condition) {
  if (!condition) abort();
}

void CheckHeader(std::span<const std::byte, kTcpHeaderBytes> bytes) {
  const TcpHeader header = DecodeTcpHeader(bytes);
  const bool between_peers =
      header.operation == TcpOperation::kJoin || header.operation == TcpOperation::kDrain;
  Check(header.operation <= TcpOperation::kDrain);
  Check(!between_peers || (header.acknowledged && header.size == 0));
  std::byte again[kTcpHeaderBytes];
  EncodeTcpHeader(header, again);
  Check(memcmp(again, bytes.data(), 16) == 0);
  const TcpHeader second = DecodeTcpHeader(again);
  Check(second.size == header.size && second.address == header.address &&
        second.operation == header.operation && second.acknowledged == header.acknowledged);
}

void CheckStatus(std::span<const std::byte, kTcpStatusBytes> bytes) {
  TcpCode code;
  if (!DecodeTcpStatus(bytes, &code)) return;
  std::byte again[kTcpStatusBytes];
  EncodeTcpStatus(code, again);
  Check(memcmp(again, bytes.data(), kTcpStatusBytes) == 0);
}

}  // namespace
}  // namespace railhop

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(data);
  if (size >= railhop::kTcpHeaderBytes) {
    railhop::CheckHeader(
        std::span<const std::byte, railhop::kTcpHeaderBytes>(bytes, railhop::kTcpHeaderBytes));
  }
  if (size >= railhop::kTcpStatusBytes) {
    railhop::CheckStatus(
        std::span<const std::byte, railhop::kTcpStatusBytes>(bytes, railhop::kTcpStatusBytes));
  }
  return 0;
}
