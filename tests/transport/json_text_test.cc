#include "transport/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace railhop {
namespace {

using testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  nlohmann::json json;
  const absl::Status status = ParseJsonText(text, &json);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 100);
  return std::string(status.message());
}

TEST(JsonTextTest, ReadsJson) {
  nlohmann::json json;
  ASSERT_TRUE(ParseJsonText(" {\"a\": [1, -2, 3.5, \"x\\\"]\", null]}\n", &json).ok());
  EXPECT_EQ(json.dump(), R"({"a":[1,-2,3.5,"x\"]",null]})");
}

TEST(JsonTextTest, SaysWhereItIsNoJson) {
  EXPECT_EQ(ErrorOf("{\"a\":1,}"), "not JSON, at byte 8");
  for (const char* text : {"", "{", "nan", "NaN", "[1 2]", "{\"a\":}", "\"\xff\"", "1 x", "]",
                           "'a'", "[\"\\", "\"abc"}) {
    EXPECT_THAT(ErrorOf(text), HasSubstr("not JSON, at byte")) << text;
  }
  EXPECT_THAT(ErrorOf("1e999"), HasSubstr("number"));
}

TEST(JsonTextTest, DoesNotRepeatAText) {
  EXPECT_LT(ErrorOf("[" + std::string(100'000, 'x')).size(), 100u);
}

TEST(JsonTextTest, BoundsTheNesting) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  nlohmann::json json;
  EXPECT_TRUE(ParseJsonText(nested(kMaxJsonDepth), &json).ok());
  EXPECT_THAT(ErrorOf(nested(kMaxJsonDepth + 1)), HasSubstr("nested deeper than 16 at byte 17"));
  EXPECT_THAT(ErrorOf(std::string(1'000'000, '[')), HasSubstr("nested deeper"));
  std::string objects;
  for (size_t i = 0; i <= kMaxJsonDepth; ++i) objects += "{\"a\":";
  EXPECT_THAT(ErrorOf(objects), HasSubstr("nested deeper"));
  // Brackets in a string are text, also behind an escaped quote.
  EXPECT_TRUE(ParseJsonText("\"\\\"" + std::string(100, '[') + "\"", &json).ok());
}

TEST(JsonTextTest, BoundsTheNumberOfValues) {
  std::string many = "[0";
  for (size_t i = 0; i < kMaxJsonValues; ++i) many += ",0";
  EXPECT_THAT(ErrorOf(many + "]"), HasSubstr("more than 4194304 values"));
}

}  // namespace
}  // namespace railhop
