// GroupMember: what a process owns as one of its PXN group - its registry entry with side file, its
// staging arena, and the arena's registration with each of its NICs.
//
// Join and the destructor run on the thread that builds and destroys the rank, while no reactor
// runs; in between it is the control reactor's (PeerActor), which never waits longer than
// kLockWait for a lock. It outlives the actors.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/fabric/fabric.h"
#include "transport/ring/lane_claim.h"
#include "transport/ring/registry.h"
#include "transport/staging/host_staging.h"

namespace railhop {

class GroupMember {
 public:
  static constexpr std::chrono::milliseconds kLockWait{1};

  struct Options {
    // lock_timeout bounds Join as a whole. The group is named as its directory is: for ranks that
    // stage in host memory with ".host" at its end.
    RegistryOptions registry;
    std::vector<std::string> rails;  // of the NICs, by position
    std::vector<Nic*> nics;          // they outlive the member
    std::shared_ptr<Staging> staging = std::make_shared<HostStaging>();
  };

  // All or nothing: makes the arena, registers it, makes the entry and publishes it. From then on
  // others may claim lanes, so start the actors soon. An error says why this process cannot relay
  // nor be relayed for; nothing is left behind.
  static absl::StatusOr<std::unique_ptr<GroupMember>> Join(const Options& options);
  ~GroupMember();
  GroupMember(const GroupMember&) = delete;
  GroupMember& operator=(const GroupMember&) = delete;

  Registry& registry() { return *registry_; }
  Registration& self() { return *self_; }
  const Registration& self() const { return *self_; }
  // As others see it when it claims lanes of theirs.
  LaneSender sender() const { return {self_->owner(), self_->epoch()}; }
  Arena& arena() { return *arena_; }
  const std::shared_ptr<Staging>& staging() const { return staging_; }
  const std::vector<uint32_t>& arena_lkeys() const { return lkeys_; }  // per NIC
  const std::vector<std::string>& rails() const { return rails_; }

  // Takes the entry away; no more lanes are claimed. May fail for want of a lock: try again.
  absl::Status Leave() { return self_->Unpublish(); }
  // Inbound lanes that a living sender holds: it may write into their slots.
  uint32_t HeldLanes() const;

 private:
  GroupMember() = default;

  std::unique_ptr<Registry> registry_;
  std::shared_ptr<Staging> staging_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Registration> self_;
  std::vector<std::string> rails_;
  std::vector<Nic*> nics_;
  std::vector<uint32_t> lkeys_;
  std::vector<MemoryKey> keys_;
};

}  // namespace railhop
