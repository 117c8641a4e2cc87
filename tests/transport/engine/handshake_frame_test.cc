#include "transport/engine/handshake_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace railhop {
namespace {

using testing::HasSubstr;

std::string Header(uint64_t length) {
  std::string header;
  for (int i = 0; i < 8; ++i) header += static_cast<char>(length >> (8 * i));
  return header;
}

// Feeds `bytes` in parts of `part`; the frame must be complete with the last one.
HandshakeFrame Read(std::string_view bytes, size_t part) {
  FrameReader reader;
  bool complete = false;
  while (!bytes.empty()) {
    EXPECT_FALSE(complete);
    const std::string_view piece = bytes.substr(0, std::min(part, reader.wanted()));
    const absl::StatusOr<bool> taken = reader.Take(piece);
    EXPECT_TRUE(taken.ok()) << taken.status().message();
    if (!taken.ok()) return {};
    complete = *taken;
    bytes.remove_prefix(piece.size());
  }
  EXPECT_TRUE(complete);
  EXPECT_EQ(reader.wanted(), 0u);
  return reader.TakeFrame();
}

std::string ErrorOf(const std::string& bytes, uint64_t max = kDefaultMaxFrameLength) {
  FrameReader reader(max);
  absl::StatusOr<bool> result = reader.Take(std::string_view(bytes).substr(0, reader.wanted()));
  if (result.ok() && bytes.size() > kFrameHeaderBytes) {
    result = reader.Take(std::string_view(bytes).substr(kFrameHeaderBytes));
  }
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(result.status().message());
}

TEST(HandshakeFrameTest, TheLengthIsLittleEndianAndCountsTheType) {
  EXPECT_EQ(EncodeFrame({.type = FrameType::kProbe, .typed = true, .json = "{}"}),
            Header(3) + "\x03{}");
  const std::string json(300, 'x');
  EXPECT_EQ(EncodeFrame({.type = FrameType::kMetadata, .typed = true, .json = json}).substr(0, 9),
            std::string("\x2d\x01\0\0\0\0\0\0\x01", 9));
}

TEST(HandshakeFrameTest, AnUntypedFrameIsTheJsonAlone) {
  EXPECT_EQ(EncodeFrame({.type = FrameType::kConnection, .typed = false, .json = "{}"}),
            Header(2) + "{}");
}

TEST(HandshakeFrameTest, ReadsEachTypeInPartsOfAnySize) {
  for (const FrameType type :
       {FrameType::kConnection, FrameType::kMetadata, FrameType::kNotify, FrameType::kProbe}) {
    const std::string bytes = EncodeFrame({.type = type, .typed = true, .json = "{\"a\":1}\n"});
    for (size_t part = 1; part <= bytes.size(); ++part) {
      const HandshakeFrame frame = Read(bytes, part);
      EXPECT_EQ(frame.type, type);
      EXPECT_TRUE(frame.typed);
      EXPECT_EQ(frame.json, "{\"a\":1}\n");
    }
  }
}

TEST(HandshakeFrameTest, AFrameOfBeforeTheTypesIsAConnection) {
  for (const char first : {'{', '\x04', '\x7f'}) {
    const std::string json = first + std::string("x}");
    const HandshakeFrame frame = Read(Header(json.size()) + json, 1);
    EXPECT_EQ(frame.type, FrameType::kConnection);
    EXPECT_FALSE(frame.typed);
    EXPECT_EQ(frame.json, json);
  }
}

TEST(HandshakeFrameTest, ATypeAloneIsAFrameWithoutJson) {
  const HandshakeFrame frame = Read(Header(1) + "\x01", 3);
  EXPECT_EQ(frame.type, FrameType::kMetadata);
  EXPECT_EQ(frame.json, "");
}

TEST(HandshakeFrameTest, RefusesUnknownTypesAtTheirFirstByte) {
  EXPECT_THAT(ErrorOf(Header(100) + "\x80"), HasSubstr("unknown type 0x80"));
  EXPECT_THAT(ErrorOf(Header(100) + "\xff"), HasSubstr("unknown type 0xff"));
}

TEST(HandshakeFrameTest, RefusesLengthsOutsideTheLimits) {
  EXPECT_THAT(ErrorOf(Header(0)), HasSubstr("0 bytes; allowed: 1..1048576"));
  EXPECT_THAT(ErrorOf(Header(kDefaultMaxFrameLength + 1)), HasSubstr("1048577 bytes"));
  EXPECT_THAT(ErrorOf(Header(UINT64_MAX)), HasSubstr("18446744073709551615 bytes"));
  EXPECT_THAT(ErrorOf(Header(5), 4), HasSubstr("allowed: 1..4"));
  FrameReader reader(4);
  EXPECT_TRUE(reader.Take(Header(4)).ok());
  EXPECT_EQ(reader.wanted(), 4u);
}

TEST(HandshakeFrameTest, HoldsNoMoreThanHasArrived) {
  FrameReader reader;
  ASSERT_TRUE(reader.Take(Header(kDefaultMaxFrameLength)).ok());
  ASSERT_TRUE(reader.Take("\x01{").ok());
  EXPECT_EQ(reader.size(), kFrameHeaderBytes + 2);
}

TEST(HandshakeFrameTest, LeavesWhatIsBehindTheFrame) {
  FrameReader reader;
  const absl::StatusOr<bool> complete = reader.Take(Header(3) + "\x03{}garbage");
  ASSERT_TRUE(complete.ok());
  EXPECT_TRUE(*complete);
  EXPECT_EQ(reader.TakeFrame().json, "{}");
}

TEST(HandshakeFrameTest, EachTypeHasAName) {
  EXPECT_STREQ(FrameTypeName(FrameType::kConnection), "connection");
  EXPECT_STREQ(FrameTypeName(FrameType::kProbe), "probe");
}

}  // namespace
}  // namespace railhop
