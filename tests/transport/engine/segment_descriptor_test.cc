#include "transport/engine/segment_descriptor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Captured from a Mooncake target.
constexpr char kTcpSample[] =
    R"({"buffers":[{"addr":140356209344512,"length":100663296,"name":"127.0.0.1:15369"}],)"
    R"("name":"127.0.0.1:15369","protocol":"tcp","tcp_data_port":15674,"tcp_proto_version":2,)"
    R"("timestamp":"2026-11-29 12:58:22.874935"})"
    "\n";

constexpr char kRdmaSample[] =
    R"({"buffers":[{"addr":4096,"length":8192,"lkey":[7,8],"name":"cpu:0","rkey":[4294967295,2]}],)"
    R"("devices":[{"gid":"fe:80","lid":3,"name":"mlx5_0"},{"gid":"fe:81","lid":65535,)"
    R"("name":"mlx5_1"}],"name":"10.0.0.1:15432",)"
    R"("priority_matrix":{"cpu:0":[["mlx5_0"],["mlx5_1"]]},"protocol":"rdma",)"
    R"("rdma_server_name":"10.1.0.1:15432","tcp_data_port":0,"tcp_proto_version":2,)"
    R"("timestamp":"2026-11-29 12:58:22.874935"})"
    "\n";

std::string ErrorOf(const std::string& json,
                    absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::StatusOr<SegmentDescriptor> segment = SegmentDescriptor::Decode(json);
  EXPECT_EQ(segment.status().code(), code) << json.substr(0, 300);
  return std::string(segment.status().message());
}

SegmentDescriptor Decoded(const std::string& json) {
  absl::StatusOr<SegmentDescriptor> segment = SegmentDescriptor::Decode(json);
  EXPECT_TRUE(segment.ok()) << segment.status().message();
  return segment.ok() ? *std::move(segment) : SegmentDescriptor();
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string WithBuffer(const std::string& buffer) {
  return R"({"name":"a:1","protocol":"tcp","buffers":[)" + buffer + "]}";
}

std::string WithKeys(const std::string& keys) {
  return R"({"name":"a:1","protocol":"rdma","devices":[{"name":"d","gid":"0"},{"name":"e","gid":"1"}],)"
         R"("buffers":[{"name":"*","addr":1,"length":1)" +
         keys + "}]}";
}

TEST(SegmentDescriptorTest, RailhopsOwnKeysGoThereAndBack) {
  SegmentDescriptor segment = Decoded(kTcpSample);
  EXPECT_EQ(segment.Encode().find("railhop"), std::string::npos);
  segment.railhop_drain = 1;
  segment.railhop_local = "railhop-3f";
  const SegmentDescriptor again = Decoded(segment.Encode());
  EXPECT_EQ(again.railhop_drain, 1u);
  EXPECT_EQ(again.railhop_local, "railhop-3f");
  for (const char* name : {R"("A")", R"("a/b")", R"("a\u0000b")", "7"}) {
    EXPECT_THAT(
        ErrorOf(std::string(R"({"name":"a:1","protocol":"tcp","railhop_local":)") + name + "}"),
        HasSubstr("railhop_local"));
  }
}

TEST(SegmentDescriptorTest, DecodesATcpSegment) {
  const SegmentDescriptor segment = Decoded(kTcpSample);
  EXPECT_EQ(segment.name, "127.0.0.1:15369");
  EXPECT_EQ(segment.protocol, SegmentProtocol::kTcp);
  EXPECT_EQ(segment.tcp_data_port, 15674);
  EXPECT_EQ(segment.tcp_proto_version, 2u);
  EXPECT_EQ(segment.timestamp, "2026-11-29 12:58:22.874935");
  EXPECT_EQ(segment.rdma_server_name, "");
  ASSERT_EQ(segment.buffers.size(), 1u);
  EXPECT_EQ(segment.buffers[0].name, "127.0.0.1:15369");
  EXPECT_EQ(segment.buffers[0].address, 140356209344512u);
  EXPECT_EQ(segment.buffers[0].length, 100663296u);
  EXPECT_THAT(segment.devices, IsEmpty());
}

TEST(SegmentDescriptorTest, EncodesTheVeryBytesOfMooncake) {
  EXPECT_EQ(Decoded(kTcpSample).Encode(), kTcpSample);
  EXPECT_EQ(Decoded(kRdmaSample).Encode(), kRdmaSample);
}

TEST(SegmentDescriptorTest, DecodesAnRdmaSegment) {
  const SegmentDescriptor segment = Decoded(kRdmaSample);
  EXPECT_EQ(segment.protocol, SegmentProtocol::kRdma);
  EXPECT_EQ(segment.rdma_server_name, "10.1.0.1:15432");
  ASSERT_EQ(segment.devices.size(), 2u);
  EXPECT_EQ(segment.devices[1].name, "mlx5_1");
  EXPECT_EQ(segment.devices[1].lid, 65535u);
  EXPECT_EQ(segment.devices[1].gid, "fe:81");
  EXPECT_THAT(segment.buffers.at(0).rkeys, ElementsAre(4294967295u, 2u));
  EXPECT_THAT(segment.buffers.at(0).lkeys, ElementsAre(7u, 8u));
  EXPECT_THAT(segment.priority_matrix.nics(), ElementsAre("mlx5_0", "mlx5_1"));
}

TEST(SegmentDescriptorTest, EncodesAsciiOnly) {
  SegmentDescriptor segment;
  segment.name = "h\xc3\xb6st:1";
  EXPECT_THAT(segment.Encode(), HasSubstr("\"h\\u00f6st:1\""));
  segment.name = "\xff";  // not UTF-8: replaced, never thrown
  EXPECT_THAT(segment.Encode(), HasSubstr("\\ufffd"));
}

TEST(SegmentDescriptorTest, ATcpSegmentSaysNothingOfDevicesAndKeys) {
  SegmentDescriptor segment = Decoded(kRdmaSample);
  segment.protocol = SegmentProtocol::kTcp;
  EXPECT_EQ(segment.Encode(),
            R"({"buffers":[{"addr":4096,"length":8192,"name":"cpu:0"}],"name":"10.0.0.1:15432",)"
            R"("protocol":"tcp","rdma_server_name":"10.1.0.1:15432","tcp_data_port":0,)"
            R"("tcp_proto_version":2,"timestamp":"2026-11-29 12:58:22.874935"})"
            "\n");
}

TEST(SegmentDescriptorTest, MuchMayBeMissingOrNull) {
  for (const char* json :
       {R"({"name":"a:1","protocol":"tcp"})",
        R"({"name":"a:1","protocol":"tcp","tcp_data_port":null,"tcp_proto_version":null,)"
        R"("timestamp":null,"rdma_server_name":null,"buffers":null,"devices":7,"extra":[{}]})"}) {
    const SegmentDescriptor segment = Decoded(json);
    EXPECT_EQ(segment.tcp_data_port, 0);
    EXPECT_EQ(segment.tcp_proto_version, 1u) << "what a peer speaks that does not say";
    EXPECT_THAT(segment.buffers, IsEmpty());
  }
  const SegmentDescriptor rdma = Decoded(R"({"name":"a:1","protocol":"rdma"})");
  EXPECT_THAT(rdma.devices, IsEmpty());
  EXPECT_THAT(rdma.priority_matrix.nics(), IsEmpty());
}

TEST(SegmentDescriptorTest, NamesTheKeyThatIsMissing) {
  EXPECT_EQ(ErrorOf(R"({"protocol":"tcp"})"), "name: is missing or empty");
  EXPECT_EQ(ErrorOf(R"({"name":"","protocol":"tcp"})"), "name: is missing or empty");
  EXPECT_EQ(ErrorOf(R"({"name":"a:1"})"), "protocol: is missing");
}

TEST(SegmentDescriptorTest, NullMeansNoSegmentYet) {
  EXPECT_THAT(ErrorOf("null\n", absl::StatusCode::kFailedPrecondition), HasSubstr("no segment"));
}

TEST(SegmentDescriptorTest, RefusesWhatIsNoObject) {
  EXPECT_EQ(ErrorOf("[]"), "the descriptor: is of type array, not object");
  EXPECT_THAT(ErrorOf("\"tcp\""), HasSubstr("type string, not object"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("not JSON"));
  EXPECT_THAT(ErrorOf(std::string(kTcpSample).substr(0, 100)), HasSubstr("not JSON"));
  EXPECT_EQ(ErrorOf(WithBuffer("7")), "buffers[0]: is of type number, not object");
}

TEST(SegmentDescriptorTest, NamesTheProtocolThatItDoesNotSpeak) {
  const auto with_protocol = [](const std::string& protocol) {
    return R"({"name":"a:1","protocol":)" + protocol + "}";
  };
  constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
  EXPECT_THAT(ErrorOf(with_protocol("\"efa\""), kUnimplemented), HasSubstr("\"efa\" is not supp"));
  EXPECT_THAT(ErrorOf(with_protocol("\"smoke\""), kUnimplemented), HasSubstr("smoke"));
  EXPECT_THAT(ErrorOf(with_protocol("\"TCP\""), kUnimplemented), HasSubstr("TCP"));
  EXPECT_THAT(ErrorOf(with_protocol("\"\""), kUnimplemented), HasSubstr("not known"));
  EXPECT_THAT(ErrorOf(with_protocol(R"(["tcp","rdma"])"), kUnimplemented),
              HasSubstr("several protocols"));
  EXPECT_LT(ErrorOf(with_protocol("\"" + std::string(100'000, 'p') + "\""), kUnimplemented).size(),
            300u);
  EXPECT_EQ(ErrorOf(with_protocol("7")), "protocol: is of type number, not string");
}

TEST(SegmentDescriptorTest, RefusesTheWrongTypeOfEachKey) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"\"name\":\"10.0.0.1:15432\"", "\"name\":7"},
      {"\"tcp_data_port\":0", "\"tcp_data_port\":\"0\""},
      {"\"tcp_data_port\":0", "\"tcp_data_port\":65536"},
      {"\"tcp_data_port\":0", "\"tcp_data_port\":-1"},
      {"\"tcp_data_port\":0", "\"tcp_data_port\":1.5"},
      {"\"tcp_proto_version\":2", "\"tcp_proto_version\":0"},
      {"\"tcp_proto_version\":2", "\"tcp_proto_version\":2147483648"},
      {"\"tcp_proto_version\":2", "\"tcp_proto_version\":true"},
      {"\"timestamp\":\"2026-11-29 12:58:22.874935\"", "\"timestamp\":{}"},
      {"\"rdma_server_name\":\"10.1.0.1:15432\"", "\"rdma_server_name\":[]"},
      {"\"devices\":[", "\"devices\":{},\"x\":["},
      {"\"lid\":3", "\"lid\":65536"},
      {"\"lid\":3", "\"lid\":\"3\""},
      {"\"gid\":\"fe:80\"", "\"gid\":\"\""},
      {"\"gid\":\"fe:80\"", "\"gid\":1"},
      {"\"name\":\"mlx5_0\"", "\"name\":null"},
      {"\"buffers\":[", "\"buffers\":7,\"x\":["},
      {"\"lkey\":[7,8]", "\"lkey\":7"},
      {"\"lkey\":[7,8]", "\"lkey\":[7,4294967296]"},
      {"\"rkey\":[4294967295,2]", "\"rkey\":[-1,2]"},
      {"\"rkey\":[4294967295,2]", "\"rkey\":[\"1\",2]"},
      {"\"priority_matrix\":{", "\"priority_matrix\":[],\"x\":{"},
      {"[[\"mlx5_0\"],[\"mlx5_1\"]]", "[[\"mlx5_0\"]]"},
  };
  for (const auto& [from, to] : cases) {
    const std::string key = std::string(to).substr(1, std::string(to).find('"', 1) - 1);
    EXPECT_THAT(ErrorOf(Replaced(kRdmaSample, from, to)),
                HasSubstr(key == "mlx5_0" || to[0] == '[' ? "priority_matrix" : key))
        << to;
  }
}

TEST(SegmentDescriptorTest, RefusesABufferWithoutNameAddressOrLength) {
  EXPECT_EQ(ErrorOf(WithBuffer(R"({"addr":1,"length":1})")),
            "buffers[0].name: is missing or empty");
  EXPECT_EQ(ErrorOf(WithBuffer(R"({"name":"","addr":1,"length":1})")),
            "buffers[0].name: is missing or empty");
  EXPECT_EQ(ErrorOf(WithBuffer(R"({"name":"n","length":1})")), "buffers[0].addr: is missing or 0");
  EXPECT_EQ(ErrorOf(WithBuffer(R"({"name":"n","addr":0,"length":1})")),
            "buffers[0].addr: is missing or 0");
  EXPECT_EQ(ErrorOf(WithBuffer(R"({"name":"n","addr":1,"length":0})")),
            "buffers[0].length: is missing or 0");
  // The second one: the first is good, the segment is not.
  EXPECT_EQ(ErrorOf(WithBuffer(R"({"name":"n","addr":1,"length":1},{"name":"n","addr":1})")),
            "buffers[1].length: is missing or 0");
}

TEST(SegmentDescriptorTest, RefusesLengthsThatAreNoLength) {
  const auto with_length = [](const std::string& length) {
    return WithBuffer(R"({"name":"n","addr":16,"length":)" + length + "}");
  };
  for (const char* length : {"-1", "1.0", "1e3", "18446744073709551616", "1e300", "\"1\"", "true",
                             "[1]", "{}", "-0.0"}) {
    EXPECT_THAT(ErrorOf(with_length(length)), HasSubstr("buffers[0].length: must be an integer"))
        << length;
  }
  for (const char* length : {"NaN", "nan", "Infinity", "-Infinity", "0x10", "01", "1e999"}) {
    ErrorOf(with_length(length));
  }
}

TEST(SegmentDescriptorTest, RefusesARangeThatWraps) {
  EXPECT_EQ(Decoded(WithBuffer(R"({"name":"n","addr":1,"length":18446744073709551614})"))
                .buffers[0]
                .length,
            UINT64_MAX - 1);
  EXPECT_THAT(ErrorOf(WithBuffer(R"({"name":"n","addr":1,"length":18446744073709551615})")),
              HasSubstr("buffers[0].length: 18446744073709551615 bytes at 1 wrap"));
  EXPECT_THAT(ErrorOf(WithBuffer(R"({"name":"n","addr":18446744073709551615,"length":1})")),
              HasSubstr("wrap"));
}

TEST(SegmentDescriptorTest, KeysAreAsManyAsDevices) {
  EXPECT_THAT(Decoded(WithKeys(R"(,"rkey":[1,2],"lkey":[3,4])")).buffers[0].rkeys,
              ElementsAre(1u, 2u));
  EXPECT_THAT(Decoded(WithKeys(R"(,"rkey":[],"lkey":[3,4])")).buffers[0].rkeys, IsEmpty())
      << "not accessible to others";
  EXPECT_THAT(Decoded(WithKeys("")).buffers[0].rkeys, IsEmpty());
  for (const char* keys :
       {R"(,"rkey":[1],"lkey":[3])", R"(,"rkey":[1,2],"lkey":[3])", R"(,"rkey":[1,2])",
        R"(,"rkey":[1,2,3],"lkey":[1,2,3])", R"(,"rkey":[1],"lkey":[3,4])"}) {
    EXPECT_THAT(ErrorOf(WithKeys(keys)), HasSubstr("buffers[0].rkey:")) << keys;
  }
}

TEST(SegmentDescriptorTest, BoundsNestingAndCounts) {
  EXPECT_THAT(ErrorOf(R"({"name":"a:1","protocol":"tcp","x":)" + std::string(500'000, '[')),
              HasSubstr("nested deeper"));
  std::string many = R"({"name":"a:1","protocol":"tcp","buffers":[{})";
  for (int i = 0; i < 4'200'000; ++i) many += ",{}";
  EXPECT_THAT(ErrorOf(many + "]}"), HasSubstr("values"));
}

TEST(SegmentDescriptorTest, TakesManyBuffers) {
  SegmentDescriptor segment;
  segment.name = "a:1";
  for (uint64_t i = 1; i <= 20'000; ++i) {
    SegmentBuffer& buffer = segment.buffers.emplace_back();
    buffer.name = "a:1";
    buffer.address = i << 20;
    buffer.length = 1 << 20;
  }
  const SegmentDescriptor decoded = Decoded(segment.Encode());
  ASSERT_EQ(decoded.buffers.size(), 20'000u);
  EXPECT_EQ(decoded.buffers.back().address, uint64_t{20'000} << 20);
}

TEST(SegmentTimestampTest, IsLocalTimeWithMicroseconds) {
  setenv("TZ", "UTC", 1);
  tzset();
  const auto time = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::microseconds(1'000'000'000'000'042)));
  EXPECT_EQ(SegmentTimestamp(time), "2001-09-09 01:46:40.000042");
}

}  // namespace
}  // namespace railhop
