#include "transport/engine/etcd_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "tests/transport/engine/http_support.h"

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kLimit = 1000;

absl::StatusOr<std::string> ValueOf(const std::string& reply) {
  const ScriptedHttpServer server(
      [&reply](const ReceivedRequest&) { return HttpText(200, reply); });
  return EtcdStore({server.address()}, kLimit).Get("k");
}

TEST(EtcdStoreTest, SpeaksTheJsonGatewaysForms) {
  std::vector<std::string> lines;
  {
    const ScriptedHttpServer server([&lines](const ReceivedRequest& request) {
      lines.push_back(request.line + " " + request.body);
      return HttpText(200, R"({"header":{},"kvs":[{"key":"YS9i","value":"eyJjIjoxfQ=="}]})");
    });
    EtcdStore store({server.address()}, kLimit);
    EXPECT_TRUE(store.Put("a/b", "{\"c\":1}").ok());
    EXPECT_EQ(store.Get("a/b").value_or(""), "{\"c\":1}");
    EXPECT_TRUE(store.Remove("a/b").ok());
  }
  EXPECT_THAT(lines,
              ElementsAre(R"(POST /v3/kv/put HTTP/1.1 {"key":"YS9i","value":"eyJjIjoxfQ=="})",
                          R"(POST /v3/kv/range HTTP/1.1 {"key":"YS9i"})",
                          R"(POST /v3/kv/deleterange HTTP/1.1 {"key":"YS9i"})"));
}

TEST(EtcdStoreTest, AKeyThatIsNotThere) {
  EXPECT_EQ(ValueOf(R"({"header":{"revision":"7"}})").status().code(), absl::StatusCode::kNotFound);
}

TEST(EtcdStoreTest, MalformedRepliesAreRefused) {
  for (const char* reply :
       {"", "[]", "7", "{", R"({"kvs":{}})", R"({"kvs":[]})", R"({"kvs":[1]})", R"({"kvs":[{}]})",
        R"({"kvs":[{"value":1}]})", R"({"kvs":[{"value":"not base64!"}]})",
        R"({"kvs":[{"value":"eA=="},{"value":"eA=="}]})"}) {
    const absl::Status status = ValueOf(reply).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << reply;
    EXPECT_THAT(std::string(status.message()), HasSubstr("range k")) << reply;
  }
}

TEST(EtcdStoreTest, AValueOfTheLimitFitsItsReply) {
  const std::string value = absl::Base64Escape(std::string(kLimit, 'x'));
  const auto longest = ValueOf(R"({"header":{},"kvs":[{"value":")" + value + "\"}]}");
  EXPECT_EQ(longest.value_or("").size(), kLimit);
  EXPECT_FALSE(ValueOf(std::string(100000, ' ')).ok());
}

TEST(EtcdStoreTest, TheNextAddressIsTriedInTime) {
  const ScriptedHttpServer silent([](const ReceivedRequest&) { return std::string(); });
  const ScriptedHttpServer good([](const ReceivedRequest&) { return HttpText(200, "{}"); });
  EXPECT_TRUE(EtcdStore({RefusingAddress(), good.address()}, kLimit).Put("k", "v").ok());
  EXPECT_TRUE(EtcdStore({silent.address(), good.address()}, kLimit).Put("k", "v").ok());
}

TEST(EtcdStoreTest, ErrorsNameEachAddress) {
  const ScriptedHttpServer refusing(
      [](const ReceivedRequest&) { return HttpText(503, "no leader"); });
  const std::string nobody = RefusingAddress();
  const absl::Status status = EtcdStore({nobody, refusing.address()}, kLimit).Put("k", "v");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("put k: " + nobody));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(refusing.address() + ": status 503: no leader"));
}

}  // namespace
}  // namespace railhop
