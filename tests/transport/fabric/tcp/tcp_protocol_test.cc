#include "transport/fabric/tcp/tcp_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <initializer_list>

namespace railhop {
namespace {

using Header = std::array<std::byte, kTcpHeaderBytes>;
using Status = std::array<std::byte, kTcpStatusBytes>;

template <size_t kSize>
std::array<std::byte, kSize> Bytes(std::initializer_list<int> values) {
  std::array<std::byte, kSize> bytes{};
  size_t i = 0;
  for (const int value : values) bytes[i++] = static_cast<std::byte>(value);
  return bytes;
}

TEST(TcpProtocolTest, TheHeaderIsTheFrozenOne) {
  Header bytes;
  bytes.fill(std::byte{0xEE});
  EncodeTcpHeader({.size = 0x0102030405060708,
                   .address = 0x1112131415161718,
                   .operation = TcpOperation::kWrite,
                   .acknowledged = true},
                  bytes);
  EXPECT_EQ(bytes, Bytes<kTcpHeaderBytes>({8, 7, 6, 5, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14,
                                           0x13, 0x12, 0x11, 0x81}));
  EncodeTcpHeader(
      {.size = 1, .address = 2, .operation = TcpOperation::kRead, .acknowledged = false}, bytes);
  EXPECT_EQ(bytes, Bytes<kTcpHeaderBytes>({1, 0, 0, 0, 0, 0, 0, 0, 2}));
}

TEST(TcpProtocolTest, EveryHeaderMeansSomething) {
  const auto decode = [](uint64_t size, int word) {
    Header bytes = Bytes<kTcpHeaderBytes>({static_cast<int>(size)});
    bytes[16] = static_cast<std::byte>(word);
    bytes[17] = bytes[23] = std::byte{0x77};  // padding: may be anything
    return DecodeTcpHeader(bytes);
  };
  EXPECT_EQ(decode(5, 0x01).operation, TcpOperation::kWrite);
  EXPECT_FALSE(decode(5, 0x01).acknowledged);
  EXPECT_EQ(decode(5, 0x81).operation, TcpOperation::kWrite);
  EXPECT_TRUE(decode(5, 0x81).acknowledged);
  EXPECT_EQ(decode(5, 0x81).size, 5u);
  for (const int word : {0x00, 0x80, 0x07, 0x87, 0x7F, 0xFF}) {
    EXPECT_EQ(decode(5, word).operation, TcpOperation::kRead) << word;
    EXPECT_EQ(decode(5, word).acknowledged, word >= 0x80) << word;
  }
}

TEST(TcpProtocolTest, JoinAndDrainAreEmptyReadsToThoseWhoDoNotKnowThem) {
  Header bytes;
  for (const TcpOperation operation : {TcpOperation::kJoin, TcpOperation::kDrain}) {
    EncodeTcpHeader({.size = 0, .address = 99, .operation = operation}, bytes);
    EXPECT_EQ(DecodeTcpHeader(bytes).operation, operation);
    EXPECT_EQ(DecodeTcpHeader(bytes).address, 99u);
    EXPECT_NE(static_cast<uint8_t>(bytes[16]) & 0x7F, 1);  // no write
    bytes[0] = std::byte{1};
    EXPECT_EQ(DecodeTcpHeader(bytes).operation, TcpOperation::kRead);
    bytes[0] = std::byte{0};
    bytes[16] &= std::byte{0x7F};
    EXPECT_EQ(DecodeTcpHeader(bytes).operation, TcpOperation::kRead);
  }
}

TEST(TcpProtocolTest, TheStatusIsTheFrozenOne) {
  Status bytes;
  EncodeTcpStatus(TcpCode::kRefused, bytes);
  EXPECT_EQ(bytes, Bytes<kTcpStatusBytes>({1, 0, 0, 0, 'V', 'T', 'C', 'M'}));
  TcpCode code{};
  EXPECT_TRUE(DecodeTcpStatus(bytes, &code));
  EXPECT_EQ(code, TcpCode::kRefused);
  EncodeTcpStatus(TcpCode::kDone, bytes);
  EXPECT_TRUE(DecodeTcpStatus(bytes, &code));
  EXPECT_EQ(code, TcpCode::kDone);
  bytes[4] = std::byte{'W'};
  EXPECT_FALSE(DecodeTcpStatus(bytes, &code));
}

}  // namespace
}  // namespace railhop
