// The words that settings are written in, in the environment and in config texts alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace railhop {

// A decimal number and nothing else.
std::optional<uint64_t> ParseNumber(std::string_view text);

// 1, true, yes, on; 0, false, no, off, and nothing at all; in any case.
std::optional<bool> ParseBool(std::string_view text);
inline constexpr const char* kBoolValues = "true or false (1 or 0, yes or no, on or off)";

// What one line can show of a value: no control characters, not too long.
std::string ShownValue(std::string_view value);

}  // namespace railhop
