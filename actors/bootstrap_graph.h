// The actor graph of one rank: its NICs, its part in the PXN group, its actors, and the edges
// between them, placed as a layout says.
//
// Built and destroyed by one thread. Members are destroyed in reverse order: first the actors
// (their reactors are joined by then), then what they used.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/bootstrap_config.h"
#include "actors/bootstrap_layout.h"
#include "actors/bootstrap_staging.h"
#include "actors/copy_actor.h"
#include "actors/cq_poll_actor.h"
#include "actors/endpoint_actor.h"
#include "actors/peer_actor.h"
#include "actors/relay_post_actor.h"
#include "actors/request_table.h"
#include "actors/resolver_pool.h"
#include "actors/submit_actor.h"
#include "actors/watchdog_actor.h"
#include "runtime/actor_system.h"
#include "runtime/submission_queue.h"
#include "transport/fabric/fabric.h"

namespace railhop {

class ActorGraph {
 public:
  // An error is one that keeps the rank from running at all. What only switches PXN off is in
  // config().pxn.off_reason afterwards. `read`: resolver_pool.h. `nics`: one for each of
  // config.nics, to be used in its place; none: they are made as the config says.
  static absl::StatusOr<std::unique_ptr<ActorGraph>> Build(
      RankConfig config, const ResolvedLayout& layout, RankStaging staging, ReadTarget read,
      std::vector<std::unique_ptr<Nic>> nics = {});

  const RankConfig& config() const { return config_; }
  const std::vector<Nic*>& nics() const { return nic_pointers_; }
  const std::shared_ptr<Staging>& staging() const { return staging_.staging; }
  // nullptr: the rank uses no GPU.
  Fences* fences() const { return staging_.fences.get(); }
  // nullptr: as above, or no NIC of it reaches GPU memory itself.
  ReadFlush* read_flush() const { return staging_.read_flush.get(); }
  RequestTable& requests() { return requests_; }
  SubmissionQueue<BatchCommand>& submissions() { return submissions_; }
  ActorSystem& system() { return system_; }
  SubmitActor& submit() { return *submit_; }
  // The reactor that a thread may drive which waits for a batch (Reactor::Drive): the one of all
  // data actors. nullptr: they have several, or do work for others, or use a GPU, whose calls
  // belong to a thread of ours.
  Reactor* driven() const { return driven_; }
  EndpointActor& endpoint() { return *endpoint_; }
  const CqPollActor& cq_poll() const { return *cq_poll_; }
  // Any thread, while the actors live; empty when PXN is off.
  std::vector<LaneSlots> ReadSlots() const;
  // One thread at a time: what the actors recorded since the last call. Cycles.
  PieceTrace TakeTrace();
  // nullptr when PXN is off.
  PeerActor* peer() { return peer_; }

 private:
  ActorGraph(RankConfig config, RankStaging staging);

  absl::Status MakeNics(std::vector<std::unique_ptr<Nic>> ready);
  void JoinGroup();
  void AddActors(const ResolvedLayout& layout, ReadTarget read);
  void AddNicKeeper(Reactor& reactor);
  void EnableTracing();
  void ConnectDataActors();
  void ConnectControlActors();
  void ConnectPeer();
  Reactor& ReactorOf(const ResolvedLayout& layout, ActorKind kind) const;

  RankConfig config_;
  RankStaging staging_;
  std::vector<std::unique_ptr<Nic>> nics_;
  std::vector<Nic*> nic_pointers_;
  std::vector<std::string> rails_;  // of the NICs, by position
  RequestTable requests_;
  SubmissionQueue<BatchCommand> submissions_;
  std::unique_ptr<GroupMember> member_;  // nullptr when PXN is off
  ActorSystem system_;
  std::vector<Reactor*> reactors_;
  Reactor* driven_ = nullptr;
  SubmitActor* submit_ = nullptr;
  CopyActor* copy_ = nullptr;
  PeerActor* peer_ = nullptr;
  RelayPostActor* relay_post_ = nullptr;
  CqPollActor* cq_poll_ = nullptr;
  EndpointActor* endpoint_ = nullptr;
  WatchdogActor* watchdog_ = nullptr;
};

}  // namespace railhop
