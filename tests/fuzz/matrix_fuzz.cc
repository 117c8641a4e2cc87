// NIC priority matrices and memory locations: any bytes; what is accepted is consistent, comes back
// from its own encoding, and always finds a NIC if it has one.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "transport/topology/memory_location.h"
#include "transport/topology/priority_matrix.h"

namespace {

using railhop::PriorityMatrix;

void Expect(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(data, data + size);
  const bool is_location = railhop::ValidateLocation(text).ok();
  for (const uint64_t length : {uint64_t{0}, uint64_t{1}, uint64_t{4097}, UINT64_MAX}) {
    const std::string location = railhop::LocationAt(text, length, length / 2);
    if (is_location) Expect(railhop::ValidateLocation(location).ok());
  }

  const auto matrix = PriorityMatrix::Decode(text);
  if (!matrix.ok()) {
    Expect(!matrix.status().message().empty() && matrix.status().message().size() < 2000);
    return 0;
  }
  for (size_t i = 0; i < matrix->nics().size(); ++i) {
    Expect(matrix->IndexOf(matrix->nics()[i]) == i);
  }
  for (const auto& [location, row] : matrix->rows()) {
    for (uint32_t retry = 0; retry < 5; ++retry) {
      const std::string* const nic = matrix->Select(location, retry, size);
      // Without one, neither the location nor "*" lists any.
      if (nic != nullptr) Expect(matrix->IndexOf(*nic).has_value());
      if (!row.preferred.empty() || !row.available.empty()) Expect(nic != nullptr);
    }
  }
  const std::string encoded = matrix->Encode();
  const auto again = PriorityMatrix::Decode(encoded);
  Expect(again.ok() && again->Encode() == encoded && again->nics() == matrix->nics());
  return 0;
}
