// The nic_priority_matrix: which NICs are near which memory.
//
//   {"cpu:0": [["mlx5_0"], ["mlx5_1"]], "cuda:0": [["mlx5_1"], ["mlx5_0"]]}
//
// location -> [preferred NICs, other available NICs]. It travels in segment descriptors, in the
// file that MC_CUSTOM_TOPO_JSON names and as an argument of installTransport (mooncake-compat (e)).
// A NIC's index is its place in the order of first appearance, over the locations sorted by name,
// preferred before available. Peers derive indices in an order of their own, so what two processes
// agree on is the NIC's *name*; an index means something within one process only.
//
// Immutable: any thread may read it. Errors: INVALID_ARGUMENT that names the location.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace railhop {

class PriorityMatrix {
 public:
  // Far beyond a host; they bound what a peer can make us hold.
  static constexpr size_t kMaxNics = 1024;
  static constexpr size_t kMaxNameBytes = 256;

  struct Row {
    std::vector<std::string> preferred;
    std::vector<std::string> available;
  };
  using Rows = std::map<std::string, Row, std::less<>>;

  PriorityMatrix() = default;  // no location, no NIC
  // Names of 1..256 bytes. A NIC listed twice in a row counts where it comes first.
  static absl::StatusOr<PriorityMatrix> Create(Rows rows);
  static absl::StatusOr<PriorityMatrix> Decode(std::string_view json);
  // Compact, keys sorted, no line end.
  std::string Encode() const;

  const Rows& rows() const { return rows_; }
  // By index.
  const std::vector<std::string>& nics() const { return nics_; }
  std::optional<size_t> IndexOf(std::string_view nic) const;

  // The NICs for memory at `location`; one that is not listed, or lists no NIC, counts as "*".
  // Unless that is listed itself, it prefers all NICs, in index order.
  const Row& RowOf(std::string_view location) const;

  // The NIC for attempt `retry` of a piece of work at `location`, or nullptr if there is none.
  // The first attempt takes one of the preferred, else of the available ones, by `draw` (a random
  // number, or a counter for round robin); attempt n number (n - 1) of preferred, then available,
  // over and over. `location` as for RowOf.
  const std::string* Select(std::string_view location, uint32_t retry, uint64_t draw) const;

 private:
  Rows rows_;
  Row wildcard_;  // what "*" means
  std::vector<std::string> nics_;
};

}  // namespace railhop
