// An HTTP metadata service (metadata_store.h).
#pragma once

#include <string>

#include "transport/engine/http_client.h"
#include "transport/engine/metadata_store.h"

namespace railhop {

class HttpStore final : public MetadataStore {
 public:
  HttpStore(std::string url, size_t max_value);

  absl::StatusOr<std::string> Get(const std::string& key) override;
  absl::Status Put(const std::string& key, const std::string& value) override;
  absl::Status Remove(const std::string& key) override;

 private:
  // The body of a reply of status 200.
  absl::StatusOr<std::string> Call(const char* method, const std::string& key, std::string body);

  const std::string url_;
  const size_t max_value_;
};

}  // namespace railhop
