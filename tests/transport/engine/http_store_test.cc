#include "transport/engine/http_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/transport/engine/http_support.h"

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kLimit = 1000;

absl::Status StatusOfPut(int status) {
  const ScriptedHttpServer server(
      [status](const ReceivedRequest&) { return HttpText(status, "because"); });
  return HttpStore(server.url(), kLimit).Put("k", "v");
}

TEST(HttpStoreTest, SpeaksAsMooncakesPlugin) {
  std::vector<std::string> lines;
  {
    const ScriptedHttpServer server([&lines](const ReceivedRequest& request) {
      lines.push_back(request.line + " " + request.body);
      return HttpText(200, "{\"a\":1}");
    });
    HttpStore store(server.url(), kLimit);
    EXPECT_TRUE(store.Put("mooncake/ram/a:1", "{}").ok());
    const auto value = store.Get("mooncake/ram/a:1");
    EXPECT_EQ(value.value_or(""), "{\"a\":1}");
    EXPECT_TRUE(store.Remove("mooncake/ram/a:1").ok());
  }
  EXPECT_THAT(lines, ElementsAre("PUT /metadata?key=mooncake%2Fram%2Fa%3A1 HTTP/1.1 {}",
                                 "GET /metadata?key=mooncake%2Fram%2Fa%3A1 HTTP/1.1 ",
                                 "DELETE /metadata?key=mooncake%2Fram%2Fa%3A1 HTTP/1.1 "));
}

TEST(HttpStoreTest, AKeyThatIsNotThere) {
  const ScriptedHttpServer server(
      [](const ReceivedRequest&) { return HttpText(404, "metadata not found"); });
  HttpStore store(server.url(), kLimit);
  EXPECT_EQ(store.Get("k").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store.Remove("k").ok());
  EXPECT_EQ(store.Put("k", "v").code(), absl::StatusCode::kFailedPrecondition)
      << "the path is wrong";
}

TEST(HttpStoreTest, ARefusalSaysWhatToWhatAndWhy) {
  const absl::Status status = StatusOfPut(400);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/metadata, PUT k: status 400: because"));
  EXPECT_EQ(StatusOfPut(500).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(StatusOfPut(302).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(HttpStoreTest, AServiceThatIsDownIsNamed) {
  const std::string url = "http://" + RefusingAddress() + "/metadata";
  const absl::Status status = HttpStore(url, kLimit).Get("k").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << "not that the engine is gone";
  EXPECT_THAT(std::string(status.message()), HasSubstr(url));
  EXPECT_THAT(std::string(status.message()), HasSubstr("is it running"));
}

}  // namespace
}  // namespace railhop
