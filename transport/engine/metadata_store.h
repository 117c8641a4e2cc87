// A service that keeps metadata: texts by key. And which one a metadata connection string means:
//
//   http://host:port/path, https://...     GET, PUT and DELETE of <string>?key=<key>, as Mooncake's
//                                          metadata server has it
//   etcd://host:port[;host:port...]        etcd version 3.4 or newer, by its JSON gateway; the port
//   host:port[;host:port...]               is 2379 unless given
//
// Threads: any, at once. A call blocks for kTimeout at most, all addresses together, and takes in
// no value of more than `max_value` bytes.
// Errors: NOT_FOUND: no such key. FAILED_PRECONDITION: the service cannot be reached, does not
// answer in time, or refuses. INVALID_ARGUMENT: what it answers is not what it should be, or is too
// long. The texts name the service and the key.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace railhop {

class MetadataStore {
 public:
  static constexpr std::chrono::milliseconds kTimeout{3000};  // as Mooncake's HTTP plugin

  virtual ~MetadataStore() = default;
  virtual absl::StatusOr<std::string> Get(const std::string& key) = 0;
  virtual absl::Status Put(const std::string& key, const std::string& value) = 0;
  // A key that is not there is no error.
  virtual absl::Status Remove(const std::string& key) = 0;
};

// Does not talk to the service yet. INVALID_ARGUMENT: `connection` means none of the above.
absl::StatusOr<std::unique_ptr<MetadataStore>> OpenMetadataStore(const std::string& connection,
                                                                 size_t max_value);

}  // namespace railhop
