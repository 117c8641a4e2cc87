#include "tools/demo/read_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

namespace railhop {

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t limit, const char* what,
                                          const char* option) {
  if (std::error_code none; std::filesystem::is_directory(path, none)) {
    return absl::InvalidArgumentError(
        fmt::format("{} {} is a folder; give a file with {}", what, path, option));
  }
  std::ifstream file(path, std::ios::binary);
  std::string content(limit + 1, '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  const auto got = static_cast<size_t>(file.gcount());
  if (!file.eof() && got <= limit) {
    return absl::NotFoundError(
        fmt::format("{} {} cannot be read; give another with {}", what, path, option));
  }
  if (got > limit) {
    return absl::InvalidArgumentError(
        fmt::format("{} {} has more than {} bytes, which is too much; "
                    "give another with {}",
                    what, path, limit, option));
  }
  content.resize(got);
  return content;
}

}  // namespace railhop
