#include "transport/engine/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/engine/http_support.h"

namespace railhop {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kPatience{20000};
constexpr size_t kLimit = 1000;

absl::StatusOr<HttpReply> ReplyOf(const std::string& text, milliseconds timeout = kPatience) {
  const ScriptedHttpServer server([&text](const ReceivedRequest&) { return text; });
  return ExchangeHttp({.url = server.url()}, timeout, kLimit);
}

TEST(HttpClientTest, SendsABodyAndTakesAReplyOfAnyStatus) {
  ReceivedRequest seen;
  absl::StatusOr<HttpReply> reply;
  {
    const ScriptedHttpServer server([&seen](const ReceivedRequest& request) {
      seen = request;
      return HttpText(418, "short and stout");
    });
    reply = ExchangeHttp({.method = "PUT", .url = server.url() + "?key=a", .body = "{\"b\":1}"},
                         kPatience, kLimit);
  }
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ(reply->status, 418);
  EXPECT_EQ(reply->body, "short and stout");
  EXPECT_EQ(seen.line, "PUT /metadata?key=a HTTP/1.1");
  EXPECT_EQ(seen.body, "{\"b\":1}");
}

TEST(HttpClientTest, ABodyMayBeAsLongAsTheLimitAndNoLonger) {
  const auto longest = ReplyOf(HttpText(200, std::string(kLimit, 'x')));
  ASSERT_TRUE(longest.ok()) << longest.status().message();
  EXPECT_EQ(longest->body.size(), kLimit);
  const auto longer = ReplyOf(HttpText(200, std::string(kLimit + 1, 'x')));
  EXPECT_EQ(longer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(longer.status().message()), HasSubstr("longer than 1000 bytes"));
  // One that does not say how long it is.
  const auto endless = ReplyOf("HTTP/1.1 200 x\r\n\r\n" + std::string(10 << 20, 'x'));
  EXPECT_EQ(endless.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(HttpClientTest, AServerThatDoesNotAnswerIsGivenUp) {
  const auto reply = ReplyOf("", milliseconds(20));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(reply.status().message()), HasSubstr("timed out"));
}

TEST(HttpClientTest, ATruncatedReplyIsNone) {
  const auto reply = ReplyOf("HTTP/1.1 200 x\r\nContent-Length: 10\r\n\r\n12345");
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(HttpClientTest, SomethingElseThanHttpIsRefused) {
  const auto reply = ReplyOf("\x16\x03\x01 hello\r\n");
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(HttpClientTest, ARedirectIsAReplyLikeAnyOther) {
  const auto reply = ReplyOf(
      "HTTP/1.1 302 x\r\nLocation: file:///etc/passwd\r\n"
      "Content-Length: 0\r\n\r\n");
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->status, 302);
}

TEST(HttpClientTest, NobodyThereAndNoHttpUrl) {
  EXPECT_EQ(ExchangeHttp({.url = "http://" + RefusingAddress()}, kPatience, kLimit).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ExchangeHttp({.url = "file:///etc/passwd"}, kPatience, kLimit).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(HttpClientTest, EncodesAndShows) {
  EXPECT_EQ(UrlEncode("mooncake/ram/[fe80::1%eth0]:5 -._~"),
            "mooncake%2Fram%2F%5Bfe80%3A%3A1%25eth0%5D%3A5%20-._~");
  EXPECT_EQ(UrlEncode("\xc3\xa4"), "%C3%A4");
  EXPECT_EQ(ShowBody("a\nb\x01"), "a b ");
  EXPECT_EQ(ShowBody(std::string(300, 'x')), std::string(200, 'x') + "...");
}

}  // namespace
}  // namespace railhop
