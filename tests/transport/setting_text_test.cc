#include "transport/setting_text.h"

#include <gtest/gtest.h>

namespace railhop {
namespace {

TEST(SettingTextTest, NumbersAreDecimalAndNothingElse) {
  EXPECT_EQ(ParseNumber("0"), 0u);
  EXPECT_EQ(ParseNumber("18446744073709551615"), UINT64_MAX);
  for (const char* text : {"", " 1", "1 ", "+1", "-1", "0x10", "1.0", "18446744073709551616"}) {
    EXPECT_EQ(ParseNumber(text), std::nullopt) << text;
  }
}

TEST(SettingTextTest, BooleansAreWordsInAnyCase) {
  for (const char* text : {"1", "true", "YES", "On"}) EXPECT_EQ(ParseBool(text), true) << text;
  for (const char* text : {"", "0", "False", "no", "OFF"})
    EXPECT_EQ(ParseBool(text), false) << text;
  for (const char* text : {"2", "truth", " 1"}) EXPECT_EQ(ParseBool(text), std::nullopt) << text;
}

TEST(SettingTextTest, AValueIsShownOnOneLine) {
  EXPECT_EQ(ShownValue("a\nb\x1b"), "a?b?");
  EXPECT_EQ(ShownValue(std::string(100, 'x')), std::string(100, 'x'));
  EXPECT_EQ(ShownValue(std::string(101, 'x')), std::string(100, 'x') + "...");
}

}  // namespace
}  // namespace railhop
