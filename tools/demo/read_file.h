// Reads a whole file that a user named: at most so many bytes, whatever kind of file it is.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace railhop {

// `what` and `option` are for messages: "the batch file", "--batches".
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t limit, const char* what,
                                          const char* option);

}  // namespace railhop
