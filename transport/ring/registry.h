// The registry of a PXN group: how a process makes itself known, and how it finds and maps others.
//
//   auto registry = Registry::Open({.group_id = "prefill"});
//   auto self = (*registry)->CreateLocal(rails, arena_handle);   // reserved, marked, unseen
//   (*self)->Publish();                                          // seen
//   for (const PeerInfo& peer : *(*registry)->Discover()) (*registry)->MapPeer(peer);
//
// Control path, one thread; calls wait at most the lock timeout. What they hand out (block(),
// side()) is what data actors read and write, without system calls. Errors say what happened, to
// what, and what to do: a process that gets one runs without relaying, and everything goes direct.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/ring/registry_directory.h"

namespace railhop {

using HandleBytes = std::array<uint8_t, kArenaHandleBytes>;

struct PeerInfo {
  ProcessIdentity owner;
  uint64_t epoch = 0;
  std::vector<std::string> rails;  // at least one
  HandleBytes arena_handle;
  // False: it lives in another PID namespace. It counts as a member, but cannot be mapped.
  bool visible = false;
};

// This process's own entry. Unpublishes when it is destroyed; the block stays mapped until then.
// Destroying it while senders may still write into its lanes is safe for the memory: they have
// their own mappings of the file.
class Registration {
 public:
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  // Makes it seen. RESOURCE_EXHAUSTED: the group is full; ALREADY_EXISTS: this process is in it.
  absl::Status Publish();
  // Idempotent. The state becomes "stopping" even if a lock could not be had; the files are then
  // left to whoever scans next.
  absl::Status Unpublish();

  ControlBlock& block() const { return *static_cast<ControlBlock*>(mapping_.data()); }
  const ProcessIdentity& owner() const { return owner_; }
  uint64_t epoch() const { return epoch_; }
  LocalSide& side() { return *side_; }

  // Shows peers that the control thread runs.
  void Beat() { StoreRelaxed(block().header.heartbeat, ++heartbeat_); }

  // The entry lock: claim, attach, detach, release of its lanes.
  absl::StatusOr<FileLock> LockEntry() const;
  RegistryDirectory& directory() const { return *directory_; }

 private:
  friend class Registry;
  Registration() = default;
  void FillHeader(std::span<const std::string> rails, const HandleBytes& handle);

  std::shared_ptr<RegistryDirectory> directory_;
  ProcessIdentity owner_{};
  uint64_t epoch_ = 0;
  uint64_t heartbeat_ = 0;
  GuardedFd fd_;  // holds the owner's mark
  SharedMapping mapping_;
  std::optional<LocalSide> side_;
  std::string name_;  // as it stands in the directory now; empty: nowhere
};

// Another process's entry, mapped. Stays valid after the peer's death.
class PeerMapping {
 public:
  PeerMapping(const PeerMapping&) = delete;
  PeerMapping& operator=(const PeerMapping&) = delete;

  ControlBlock& block() const { return *static_cast<ControlBlock*>(mapping_.data()); }
  const PeerInfo& info() const { return info_; }
  uint64_t epoch() const { return info_.epoch; }
  // nullptr: a version-1 process.
  const PeerSide* side() const { return side_.has_value() ? &*side_ : nullptr; }
  // It drains lanes of dead senders itself (docs/ring.md, rule 5).
  bool drains_dead_lanes() const { return side_.has_value() || IsMarkHeld(fd_.get()); }
  uint64_t heartbeat() const { return LoadRelaxed(block().header.heartbeat); }

  absl::StatusOr<FileLock> LockEntry() const;
  RegistryDirectory& directory() const { return *directory_; }

 private:
  friend class Registry;
  PeerMapping() = default;

  std::shared_ptr<RegistryDirectory> directory_;
  PeerInfo info_;
  GuardedFd fd_;
  SharedMapping mapping_;
  std::optional<PeerSide> side_;
};

class Registry {
 public:
  static absl::StatusOr<std::unique_ptr<Registry>> Open(const RegistryOptions& options);

  const std::string& path() const { return directory_->path(); }
  const std::string& side_path() const { return directory_->side().path(); }
  const ProcessIdentity& self() const { return directory_->self(); }

  // Makes this process's entry and side file, with all their pages, unpublished.
  absl::StatusOr<std::unique_ptr<Registration>> CreateLocal(std::span<const std::string> rails,
                                                            const HandleBytes& arena_handle);

  // The other processes of the group. Clears away what dead ones left.
  absl::StatusOr<std::vector<PeerInfo>> Discover();

  // NOT_FOUND: it left meanwhile.
  absl::StatusOr<std::shared_ptr<PeerMapping>> MapPeer(const PeerInfo& peer);

 private:
  explicit Registry(std::shared_ptr<RegistryDirectory> directory)
      : directory_(std::move(directory)) {}

  std::shared_ptr<RegistryDirectory> directory_;
};

}  // namespace railhop
