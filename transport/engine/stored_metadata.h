// Metadata in a service that all engines know (metadata_store.h). Keys and values are Mooncake's
// (mooncake-compat (c)), P the prefix "mooncake/", then "<MC_METADATA_CLUSTER_ID>/" if that is set:
//
//   P ram/<name>        the descriptor of the segment; P <name> if the name has a '/'
//   P rpc_meta/<name>   {"ip_or_host_name": ..., "rpc_port": ...}, its engine's handshake listener
//
// Threads: any. Each call takes MetadataStore::kTimeout at most per key that it touches; publishing
// threads wait for each other within that time.
// Errors: those of the store, and INVALID_ARGUMENT for a value that is malformed.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "transport/engine/environment.h"
#include "transport/engine/listener_metadata.h"
#include "transport/engine/metadata_store.h"

namespace railhop {

// What is published: `descriptor` gives the segment as it is, encoded; any thread calls it.
struct OwnSegment {
  std::string name;
  HostPort listener;
  std::function<std::string()> descriptor;
};

class StoredMetadata final : public ListenerMetadata {
 public:
  StoredMetadata(std::unique_ptr<MetadataStore> store, const EngineEnvironment& environment,
                 OwnSegment own);

  absl::StatusOr<SegmentDescriptor> Fetch(const std::string& name,
                                          const Patience& patience) override;
  absl::StatusOr<HostPort> Locate(const std::string& name) override;
  absl::Status Publish() override;
  absl::Status Withdraw() override;

 private:
  std::string SegmentKey(const std::string& name) const;
  absl::Status PutAll();
  std::string ListenerKey(const std::string& name) const { return prefix_ + "rpc_meta/" + name; }

  const std::unique_ptr<MetadataStore> store_;
  const OwnSegment own_;
  const std::string prefix_;
  // One thread at a time publishes, so that an older descriptor never replaces a newer one.
  std::mutex mutex_;
  std::condition_variable idle_;
  bool busy_ = false;
  bool listener_is_known_ = false;  // of who is busy
};

}  // namespace railhop
