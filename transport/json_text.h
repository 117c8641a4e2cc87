// Reads a JSON text that a peer or a file gave: bounded before anything is built of it.
//
// Pure. Nothing throws: what the JSON library throws, and what it would build without measure, is
// an INVALID_ARGUMENT here that says where in the text it is. For .cc files.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "absl/status/status.h"

namespace railhop {

// Descriptors nest four deep. A value takes 16 bytes and at most some 100 more as a key's: a peer
// can make us hold half a gigabyte at the very most, and with frames of 1 MiB some 32 times that.
inline constexpr size_t kMaxJsonDepth = 16;
inline constexpr size_t kMaxJsonValues = size_t{4} << 20;

absl::Status ParseJsonText(std::string_view text, nlohmann::json* json);

}  // namespace railhop
