#include "transport/json_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace railhop {
namespace {

// Counts what the parser would build. A text that is no JSON may be miscounted: the parser says so.
absl::Status CheckShape(std::string_view text) {
  size_t depth = 0;
  size_t values = 1;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      ++values;
      if (++depth > kMaxJsonDepth) {
        return absl::InvalidArgumentError(
            fmt::format("JSON nested deeper than {} at byte {}", kMaxJsonDepth, i + 1));
      }
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    } else if (c == ',' && ++values > kMaxJsonValues) {
      return absl::InvalidArgumentError(fmt::format("JSON of more than {} values", kMaxJsonValues));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseJsonText(std::string_view text, nlohmann::json* json) {
  if (absl::Status status = CheckShape(text); !status.ok()) return status;
  try {
    *json = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    // Without its what(): that quotes the text, however long.
    return absl::InvalidArgumentError(fmt::format("not JSON, at byte {}", e.byte));
  } catch (const nlohmann::json::exception&) {
    return absl::InvalidArgumentError("JSON with a number that no double holds");
  }
  return absl::OkStatus();
}

}  // namespace railhop
