// etcd as a metadata service, through the JSON gateway of its version 3 API (metadata_store.h):
// POST of /v3/kv/range, /v3/kv/put and /v3/kv/deleterange, keys and values in base64. Its addresses
// are tried in turn, each for its share of the time that is left.
#pragma once

#include <string>
#include <vector>

#include "transport/engine/metadata_store.h"

namespace railhop {

class EtcdStore final : public MetadataStore {
 public:
  // `addresses`: "host:port", at least one.
  EtcdStore(std::vector<std::string> addresses, size_t max_value);

  absl::StatusOr<std::string> Get(const std::string& key) override;
  absl::Status Put(const std::string& key, const std::string& value) override;
  absl::Status Remove(const std::string& key) override;

 private:
  // The body of the first reply of status 200; `key` is for errors.
  absl::StatusOr<std::string> Call(const char* call, const std::string& key,
                                   const std::string& body) const;

  const std::vector<std::string> addresses_;
  const size_t max_body_;
};

}  // namespace railhop
