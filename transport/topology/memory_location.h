// Where registered memory lies, as text: "*" (unknown), "cpu:<NUMA node>", "cuda:<ordinal>", or
// "segments:<page bytes>:<n0>,<n1>,...", a buffer cut into as many equal regions as there are
// nodes, region i on NUMA node n_i (mooncake-compat (f)).
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace railhop {

inline constexpr std::string_view kAnyLocation = "*";

// INVALID_ARGUMENT that says what is allowed. Peers may publish other names (of other vendors'
// accelerators): those are not invalid in a descriptor, only in a registration.
absl::Status ValidateLocation(std::string_view location);

// The location of the byte at `offset` of a buffer of `length` bytes: "cpu:<n>" for a segmented
// buffer, the last region taking the bytes that equal regions leave over; "*" if it is shorter than
// its regions are many or the text is malformed; any other location is what it is.
std::string LocationAt(std::string_view location, uint64_t length, uint64_t offset);

}  // namespace railhop
