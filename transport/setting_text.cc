#include "transport/setting_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <iterator>
#include <system_error>

namespace railhop {

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<bool> ParseBool(std::string_view text) {
  std::string lower;
  std::transform(text.begin(), text.end(), std::back_inserter(lower),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::array<std::string_view, 5> kOff = {"0", "false", "", "no", "off"};
  constexpr std::array<std::string_view, 4> kOn = {"1", "true", "yes", "on"};
  if (std::find(kOff.begin(), kOff.end(), lower) != kOff.end()) return false;
  if (std::find(kOn.begin(), kOn.end(), lower) != kOn.end()) return true;
  return std::nullopt;
}

std::string ShownValue(std::string_view value) {
  constexpr size_t kLongest = 100;
  std::string shown;
  for (const char c : value.substr(0, kLongest)) {
    shown += std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?';
  }
  return value.size() > kLongest ? shown + "..." : shown;
}

}  // namespace railhop
