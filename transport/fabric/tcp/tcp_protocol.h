// The bytes of the TCP data protocol: what travels between an initiator and the data port of a
// target. Encoding and decoding only; sizes and positions are the protocol's, all little endian.
//
//   request header, 24 bytes               status frame, 8 bytes
//    0  u64 size, bytes                     u64  0x4D43545600000000 ("MCTV" << 32) | code
//    8  u64 address in the target           code 0: done, 1: refused
//   16  u8  operation, 0x80: version 2
//   17  zeros, ignored
//
//   version 1  write: header, payload ->               read: header ->  <- payload
//   version 2  write: header, payload ->  <- status    read: header ->  <- status, payload
//
// A version 1 target closes the connection on a request that it refuses; a version 2 target sends
// code 1 first. Version 2 goes only to targets that advertise it.
//
// Two operations exist between Railhop peers only, version 2 and size 0: a target that does not
// know them takes them for an empty read, which it refuses. `address` is the initiator's token.
//   kJoin   this connection belongs to the token; sent first, acknowledged before anything else
//   kDrain  close all connections of the token; acknowledged when nothing of them can land any more
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace railhop {

enum class TcpOperation : uint8_t { kRead = 0, kWrite = 1, kJoin = 2, kDrain = 3 };

inline constexpr size_t kTcpHeaderBytes = 24;
inline constexpr size_t kTcpStatusBytes = 8;

struct TcpHeader {
  uint64_t size = 0;     // bytes; 0 for kJoin and kDrain, and only for them
  uint64_t address = 0;  // or the token
  TcpOperation operation = TcpOperation::kRead;
  bool acknowledged = true;  // version 2
};

void EncodeTcpHeader(const TcpHeader& header, std::span<std::byte, kTcpHeaderBytes> bytes);

// Every header means something: as with all targets of this protocol, what is no other operation is
// a read, and kJoin and kDrain are themselves only with version 2 and size 0.
TcpHeader DecodeTcpHeader(std::span<const std::byte, kTcpHeaderBytes> bytes);

enum class TcpCode : uint32_t { kDone = 0, kRefused = 1 };

void EncodeTcpStatus(TcpCode code, std::span<std::byte, kTcpStatusBytes> bytes);

// False: no status frame. Codes that are not known are given as they are: none but 0 is a success.
bool DecodeTcpStatus(std::span<const std::byte, kTcpStatusBytes> bytes, TcpCode* code);

}  // namespace railhop
