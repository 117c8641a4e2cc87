#include "transport/topology/priority_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "transport/json_text.h"
#include "transport/topology/memory_location.h"

namespace railhop {
namespace {

using nlohmann::json;

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= PriorityMatrix::kMaxNameBytes;
}

absl::Status DecodeNics(const std::string& location, const json& list,
                        std::vector<std::string>* nics) {
  if (!list.is_array()) {
    return absl::InvalidArgumentError(fmt::format(
        "location \"{}\": a list of NICs is of type {}, not array", location, list.type_name()));
  }
  for (const json& nic : list) {
    if (!nic.is_string()) {
      return absl::InvalidArgumentError(fmt::format(
          "location \"{}\": a NIC is of type {}, not string", location, nic.type_name()));
    }
    nics->push_back(nic.get<std::string>());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PriorityMatrix> PriorityMatrix::Create(Rows rows) {
  PriorityMatrix matrix;
  std::set<std::string_view> known;
  for (const auto& [location, row] : rows) {
    if (!IsName(location)) {
      return absl::InvalidArgumentError(
          fmt::format("a location's name has {} bytes, not 1..{}", location.size(), kMaxNameBytes));
    }
    for (const auto* nics : {&row.preferred, &row.available}) {
      for (const std::string& nic : *nics) {
        if (!IsName(nic)) {
          return absl::InvalidArgumentError(
              fmt::format("location \"{}\": a NIC's name has {} bytes, not 1..{}", location,
                          nic.size(), kMaxNameBytes));
        }
        if (known.insert(nic).second) matrix.nics_.push_back(nic);
      }
    }
    if (known.size() > kMaxNics) {
      return absl::InvalidArgumentError(
          fmt::format("location \"{}\": more than {} NICs", location, kMaxNics));
    }
  }
  const auto listed = rows.find(kAnyLocation);
  if (listed == rows.end()) {
    matrix.wildcard_.preferred = matrix.nics_;
  } else {
    matrix.wildcard_ = listed->second;
  }
  matrix.rows_ = std::move(rows);
  return matrix;
}

absl::StatusOr<PriorityMatrix> PriorityMatrix::Decode(std::string_view text) {
  json matrix;
  if (absl::Status status = ParseJsonText(text, &matrix); !status.ok()) return status;
  if (!matrix.is_object()) {
    return absl::InvalidArgumentError(
        fmt::format("it is of type {}, not object", matrix.type_name()));
  }
  Rows rows;
  for (const auto& [location, pair] : matrix.items()) {
    // The key is checked first, so that messages that quote it stay short.
    if (!IsName(location)) {
      return absl::InvalidArgumentError(
          fmt::format("a location's name has {} bytes, not 1..{}", location.size(), kMaxNameBytes));
    }
    if (!pair.is_array() || pair.size() != 2) {
      return absl::InvalidArgumentError(
          fmt::format("location \"{}\": must be [preferred NICs, other NICs]", location));
    }
    Row& row = rows[location];
    absl::Status status = DecodeNics(location, pair[0], &row.preferred);
    status.Update(DecodeNics(location, pair[1], &row.available));
    if (!status.ok()) return status;
  }
  return Create(std::move(rows));
}

std::string PriorityMatrix::Encode() const {
  json matrix = json::object();
  for (const auto& [location, row] : rows_) {
    matrix[location] = json::array({row.preferred, row.available});
  }
  return matrix.dump(-1, ' ', true, json::error_handler_t::replace);
}

std::optional<size_t> PriorityMatrix::IndexOf(std::string_view nic) const {
  const auto found = std::find(nics_.begin(), nics_.end(), nic);
  if (found == nics_.end()) return std::nullopt;
  return static_cast<size_t>(found - nics_.begin());
}

const PriorityMatrix::Row& PriorityMatrix::RowOf(std::string_view location) const {
  const auto found = rows_.find(location);
  const bool listed =
      found != rows_.end() && !(found->second.preferred.empty() && found->second.available.empty());
  return listed ? found->second : wildcard_;
}

const std::string* PriorityMatrix::Select(std::string_view location, uint32_t retry,
                                          uint64_t draw) const {
  const Row* const row = &RowOf(location);
  const size_t preferred = row->preferred.size();
  const size_t all = preferred + row->available.size();
  if (all == 0) return nullptr;
  if (retry == 0) {
    const std::vector<std::string>& first = preferred != 0 ? row->preferred : row->available;
    return &first[draw % first.size()];
  }
  const size_t i = (retry - 1) % all;
  return i < preferred ? &row->preferred[i] : &row->available[i - preferred];
}

}  // namespace railhop
