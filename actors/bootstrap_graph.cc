#include "actors/bootstrap_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "actors/bootstrap_settings.h"
#include "actors/nic_keeper.h"
#include "actors/ordered_ports.h"
#include "actors/post_job.h"
#include "actors/slot_states.h"
#include "runtime/log.h"
#include "transport/fabric/sim/sim_nic.h"
#include "transport/fabric/tcp/tcp_nic.h"

namespace railhop {
namespace {

// Of edges that carry one message per piece or slice: all that can be under way at once, and what a
// consumer may hold back of its credit.
constexpr size_t kHeldBack = 16;
constexpr EdgeOptions kPieceEdge{.capacity = kLaneCount * kSlotsPerLane + kHeldBack,
                                 .direct = true};
constexpr EdgeOptions kSliceEdge{.capacity = SubmitActor::kDirectWindow + kHeldBack,
                                 .direct = true};
constexpr EdgeOptions kSliceDoneEdge{
    .capacity = kLaneCount * kSlotsPerLane + SubmitActor::kDirectWindow + kHeldBack,
    .direct = true};
constexpr EdgeOptions kJobEdge{.capacity = kJobEdgeCapacity, .direct = true};
// Of edges whose producers keep what does not fit.
constexpr EdgeOptions kDataEdge{.capacity = 256};
constexpr EdgeOptions kControlEdge{.capacity = 64, .control = true};
constexpr EdgeOptions kOrderedEdge = OrderedPorts<LaneReady>::kEdge;

ReactorOptions ToReactorOptions(const ReactorConfig& config) {
  constexpr IdlePolicy kPolicies[] = {IdlePolicy::kBusy, IdlePolicy::kAdaptive, IdlePolicy::kEvent};
  return {.name = config.name,
          .core = config.core,
          .pin = config.pin_required ? PinPolicy::kRequired : PinPolicy::kPreferred,
          .idle = kPolicies[static_cast<size_t>(config.idle)],
          .spin = std::chrono::microseconds(config.spin_us.value_or(0))};
}

size_t StampEvery(const RankConfig& config) {
  return config.histograms ? config.trace_sample_every : kNoStamps;
}

SliceSize SliceOf(const RankConfig& config) {
  return {.bytes = static_cast<uint32_t>(config.slice_size),
          .fragment = static_cast<uint32_t>(config.slice_size / config.fragment_ratio)};
}

std::chrono::milliseconds Milliseconds(uint64_t count) {
  return std::chrono::milliseconds(count);
}

absl::StatusOr<std::unique_ptr<Nic>> MakeSimNic(const NicConfig& nic, const RankStaging& staging) {
  SimNicOptions options;
  options.name = nic.name;
  options.mode = nic.model_only ? SimMode::kModel : SimMode::kMove;
  options.line_rate = static_cast<double>(nic.line_rate_bytes_per_s);
  options.base_delay = std::chrono::nanoseconds(nic.base_delay_ns);
  options.send_queue_depth = nic.queue_depth;
  if (staging.make_mover) {
    absl::StatusOr<std::shared_ptr<SimMover>> mover = staging.make_mover();
    if (!mover.ok()) return mover.status();
    options.mover = *std::move(mover);
  }
  return SimNic::Create(std::move(options));
}

absl::StatusOr<std::unique_ptr<Nic>> MakeTcpNic(const NicConfig& nic, const RankStaging& staging) {
  TcpNicOptions options;
  options.name = nic.name;
  options.connections = nic.connections;
  options.status_timeout = std::chrono::seconds(nic.status_timeout_s);
  options.send_queue_depth = nic.queue_depth;
  options.max_endpoints = kMaxTargets;
  options.bounces = staging.bounces;
  return TcpNic::Create(std::move(options));
}

absl::StatusOr<std::unique_ptr<Nic>> MakeNic(const NicConfig& nic, const RankStaging& staging) {
  switch (nic.kind) {
    case NicKind::kSim:
      return MakeSimNic(nic, staging);
    case NicKind::kTcp:
      return MakeTcpNic(nic, staging);
    case NicKind::kRdma:
      break;
  }
  // Its connections need a handshake listener at both ends.
  return absl::FailedPreconditionError(fmt::format(
      "NIC \"{}\" is of kind rdma, which only an engine with protocol \"rdma\" uses", nic.name));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ActorGraph>> ActorGraph::Build(
    RankConfig config, const ResolvedLayout& layout, RankStaging staging, ReadTarget read,
    std::vector<std::unique_ptr<Nic>> nics) {
  std::unique_ptr<ActorGraph> graph(new ActorGraph(std::move(config), std::move(staging)));
  if (absl::Status made = graph->MakeNics(std::move(nics)); !made.ok()) return made;
  graph->JoinGroup();
  graph->AddActors(layout, std::move(read));
  graph->ConnectDataActors();
  graph->ConnectControlActors();
  if (graph->peer_ != nullptr) graph->ConnectPeer();
  return graph;
}

ActorGraph::ActorGraph(RankConfig config, RankStaging staging)
    : config_(std::move(config)),
      staging_(std::move(staging)),
      requests_(config_.max_batches),
      submissions_(size_t{2} * config_.max_batches, StampEvery(config_)),
      system_({.stamp_every = StampEvery(config_), .histograms = config_.histograms}) {}

absl::Status ActorGraph::MakeNics(std::vector<std::unique_ptr<Nic>> ready) {
  const bool make = ready.empty();
  nics_ = std::move(ready);
  for (const NicConfig& nic : config_.nics) {
    rails_.push_back(nic.rail);
    if (!make) continue;
    absl::StatusOr<std::unique_ptr<Nic>> made = MakeNic(nic, staging_);
    if (!made.ok()) return made.status();
    nics_.push_back(*std::move(made));
  }
  for (const std::unique_ptr<Nic>& nic : nics_) nic_pointers_.push_back(nic.get());
  return absl::OkStatus();
}

// Whatever fails here only switches PXN off.
void ActorGraph::JoinGroup() {
  PxnConfig& pxn = config_.pxn;
  if (!pxn.enable || !pxn.off_reason.empty()) return;
  absl::StatusOr<std::unique_ptr<GroupMember>> member = GroupMember::Join(
      {.registry = {.root = config_.registry_root, .group_id = RegistryGroup(config_)},
       .rails = rails_,
       .nics = nic_pointers_,
       .staging = staging_.staging});
  if (member.ok()) {
    member_ = *std::move(member);
  } else {
    pxn.off_reason = std::string(member.status().message());
  }
}

Reactor& ActorGraph::ReactorOf(const ResolvedLayout& layout, ActorKind kind) const {
  return *reactors_[static_cast<size_t>(layout.reactor_of[static_cast<size_t>(kind)])];
}

// In the order in which they stop: docs/actors.md, "Stop".
void ActorGraph::AddActors(const ResolvedLayout& layout, ReadTarget read) {
  for (const ReactorConfig& reactor : layout.reactors) {
    reactors_.push_back(system_.AddReactor(ToReactorOptions(reactor)));
  }
  const auto on = [&](ActorKind kind) -> Reactor& { return ReactorOf(layout, kind); };
  const PxnConfig& pxn = config_.pxn;
  const auto piece_timeout = Milliseconds(config_.piece_timeout_ms);
  submit_ = &system_.AddActor<SubmitActor>(
      on(ActorKind::kSubmit), "submit", &requests_,
      SubmitActor::Options{.routes = {.pxn = member_ != nullptr,
                                      .own_rails = rails_,
                                      .min_relay_bytes = pxn.min_relay_bytes},
                           .nic_count = static_cast<uint32_t>(nics_.size()),
                           .slice = SliceOf(config_),
                           .slice_attempts = static_cast<uint32_t>(config_.slice_attempts),
                           .job_sizes = staging_.copy_engine->job_sizes(),
                           .fences = fences(),
                           .max_piece_bytes = pxn.max_piece_bytes,
                           .credit_timeout = ToCycles(Milliseconds(pxn.credit_timeout_ms)),
                           .piece_timeout = ToCycles(piece_timeout)});
  copy_ = &system_.AddActor<CopyActor>(on(ActorKind::kCopy), "copy", staging_.copy_engine.get());
  if (member_ != nullptr) {
    peer_ = &system_.AddActor<PeerActor>(
        on(ActorKind::kPeer), "peer",
        PeerActor::Options{.member = member_.get(),
                           .preattach = pxn.preattach,
                           .heartbeat = Milliseconds(pxn.heartbeat_ms),
                           .heartbeat_timeout = Milliseconds(pxn.heartbeat_timeout_ms),
                           .probe_timeout = Milliseconds(pxn.probe_timeout_ms),
                           .lane_grace = Milliseconds(pxn.lane_grace_ms),
                           .fabric_drain = Milliseconds(pxn.fabric_drain_ms),
                           .slot_log_every = Milliseconds(config_.slot_log_every_ms),
                           .read_slots = [this] { return ReadSlots(); }});
  }
  RelayPostActor::Options post;
  post.nics = nic_pointers_;
  post.slice = SliceOf(config_);
  post.inflight_bytes = pxn.inflight_depth * kSlotBytes;
  post.piece_timeout = piece_timeout;
  post.doorbell_poll = std::chrono::microseconds(pxn.doorbell_poll_us);
  CqPollActor::Options poll;
  poll.nics = nic_pointers_;
  poll.flush = read_flush();
  if (member_ != nullptr) {
    post.control = poll.control = &member_->self().block();
    post.side = poll.side = &member_->self().side();
    post.epoch = member_->self().epoch();
    post.arena = member_->arena().base();
    post.arena_lkeys = member_->arena_lkeys();
  }
  relay_post_ = &system_.AddActor<RelayPostActor>(on(ActorKind::kRelayPost), "relay_post", post);
  cq_poll_ = &system_.AddActor<CqPollActor>(on(ActorKind::kCqPoll), "cq_poll", poll);
  endpoint_ = &system_.AddActor<EndpointActor>(
      on(ActorKind::kEndpoint), "endpoint",
      std::make_unique<ResolverPool>(std::move(read),
                                     [this] {
                                       for (Nic* nic : nic_pointers_) nic->Settle();
                                     }),
      EndpointActor::Options{.nics = nic_pointers_, .routes = RoutesOf(config_)});
  AddNicKeeper(on(ActorKind::kEndpoint));
  watchdog_ =
      &system_.AddActor<WatchdogActor>(on(ActorKind::kWatchdog), "watchdog", kDeadlineSlots);
  const bool on_one = std::all_of(layout.reactor_of.begin(),
                                  layout.reactor_of.begin() + static_cast<int>(ActorKind::kPeer),
                                  [&](int reactor) { return reactor == layout.reactor_of[0]; });
  if (on_one && member_ == nullptr && fences() == nullptr) driven_ = &on(ActorKind::kSubmit);
  // The way of a new piece, first of all: each hop within one pass. That of a completion goes
  // against it, by direct edges.
  system_.SetRunOrder({submit_, copy_, relay_post_, cq_poll_});
  if (config_.trace_pieces && member_ != nullptr) EnableTracing();
}

void ActorGraph::AddNicKeeper(Reactor& reactor) {
  std::vector<Nic*> eventful;
  std::copy_if(nic_pointers_.begin(), nic_pointers_.end(), std::back_inserter(eventful),
               [](const Nic* nic) { return nic->event_fd() >= 0; });
  if (eventful.empty()) return;
  system_.AddActor<NicKeeper>(reactor, "nics", std::move(eventful));
}

void ActorGraph::EnableTracing() {
  const uint64_t epoch = member_->self().epoch();
  for (PieceTracer* trace : {&submit_->trace, &copy_->trace, &relay_post_->trace, &cq_poll_->trace})
    trace->Enable(config_.trace_sample_every, epoch);
}

PieceTrace ActorGraph::TakeTrace() {
  PieceTrace taken;
  for (PieceTracer* trace :
       {&submit_->trace, &copy_->trace, &relay_post_->trace, &cq_poll_->trace}) {
    taken.lost += trace->Take([&](const PieceRecord& record) { taken.records.push_back(record); });
  }
  return taken;
}

std::vector<LaneSlots> ActorGraph::ReadSlots() const {
  std::vector<LaneSlots> lanes;
  if (peer_ == nullptr) return lanes;
  for (const AttachedPeer& peer : peer_->Attached()) {
    const PeerSide* side = peer.relay->side();
    LaneSlots slots = CountSlots(submit_->slots(peer.lane),
                                 peer.relay->block().lanes[peer.relay_lane].completions,
                                 side == nullptr ? nullptr : &side->file().lanes[peer.relay_lane]);
    slots.lane = peer.lane;
    slots.relay_pid = peer.pid;
    slots.rails = peer.rails;
    lanes.push_back(std::move(slots));
  }
  return lanes;
}

void ActorGraph::ConnectDataActors() {
  system_.Connect<&SubmitActor::OnBatchCommand>(submissions_, *submit_);
  system_.Connect<&CopyActor::OnCopyPiece>(*submit_, submit_->copy_out, *copy_, kPieceEdge);
  system_.Connect<&SubmitActor::OnPieceCopied>(*copy_, copy_->copied_out, *submit_, kPieceEdge);
  system_.Connect<&CqPollActor::OnPieceRung>(*copy_, copy_->rung_out, *cq_poll_, kPieceEdge);
  system_.Connect<&RelayPostActor::OnPostSlice>(*submit_, submit_->post_out, *relay_post_,
                                                kSliceEdge);
  system_.Connect<&CqPollActor::OnJobPosted>(*relay_post_, relay_post_->posted_out, *cq_poll_,
                                             kJobEdge);
  system_.Connect<&CqPollActor::OnPieceRefused>(*relay_post_, relay_post_->refused_out, *cq_poll_,
                                                kDataEdge);
  system_.Connect<&RelayPostActor::OnJobDone>(*cq_poll_, cq_poll_->job_out, *relay_post_, kJobEdge);
  system_.Connect<&RelayPostActor::OnRoomReturned>(*cq_poll_, cq_poll_->room_out, *relay_post_,
                                                   kDataEdge);
  system_.Connect<&SubmitActor::OnSliceDone>(*cq_poll_, cq_poll_->slice_out, *submit_,
                                             kSliceDoneEdge);
}

void ActorGraph::ConnectControlActors() {
  system_.Connect<&WatchdogActor::OnArm>(*submit_, submit_->deadline_out, *watchdog_, kControlEdge);
  system_.Connect<&SubmitActor::OnDeadlineExpired>(*watchdog_, watchdog_->to_submit, *submit_,
                                                   kControlEdge);
  system_.Connect<&EndpointActor::OnResolve>(*relay_post_, relay_post_->resolve_out, *endpoint_,
                                             kControlEdge);
  system_.Connect<&EndpointActor::OnEndpointError>(*relay_post_, relay_post_->error_out, *endpoint_,
                                                   kControlEdge);
  system_.Connect<&EndpointActor::OnEndpointError>(*cq_poll_, cq_poll_->error_out, *endpoint_,
                                                   kControlEdge);
  system_.Connect<&SubmitActor::OnTargetReady>(*endpoint_, endpoint_->ready_to_submit, *submit_,
                                               kOrderedEdge);
  system_.Connect<&SubmitActor::OnTargetFailed>(*endpoint_, endpoint_->failed_to_submit, *submit_,
                                                kOrderedEdge);
  system_.Connect<&RelayPostActor::OnTargetReady>(*endpoint_, endpoint_->ready_to_relay,
                                                  *relay_post_, kOrderedEdge);
  system_.Connect<&RelayPostActor::OnTargetFailed>(*endpoint_, endpoint_->failed_to_relay,
                                                   *relay_post_, kOrderedEdge);
  system_.Connect<&RelayPostActor::OnCloseEndpoint>(*endpoint_, endpoint_->close_to_relay,
                                                    *relay_post_, kOrderedEdge);
}

void ActorGraph::ConnectPeer() {
  system_.Connect<&SubmitActor::OnLaneReady>(*peer_, peer_->ready_to_submit, *submit_,
                                             kOrderedEdge);
  system_.Connect<&CopyActor::OnLaneReady>(*peer_, peer_->ready_to_copy, *copy_, kOrderedEdge);
  system_.Connect<&CqPollActor::OnLaneReady>(*peer_, peer_->ready_to_cq_poll, *cq_poll_,
                                             kOrderedEdge);
  system_.Connect<&SubmitActor::OnCloseLane>(*peer_, peer_->close_to_submit, *submit_,
                                             kOrderedEdge);
  system_.Connect<&CopyActor::OnCloseLane>(*peer_, peer_->close_to_copy, *copy_, kOrderedEdge);
  system_.Connect<&CqPollActor::OnCloseLane>(*peer_, peer_->close_to_cq_poll, *cq_poll_,
                                             kOrderedEdge);
  system_.Connect<&CqPollActor::OnSenderSide>(*peer_, peer_->side_to_cq_poll, *cq_poll_,
                                              kOrderedEdge);
  system_.Connect<&RelayPostActor::OnSenderAdmitted>(*peer_, peer_->admitted_to_relay, *relay_post_,
                                                     kOrderedEdge);
  system_.Connect<&RelayPostActor::OnSenderLost>(*peer_, peer_->lost_to_relay, *relay_post_,
                                                 kOrderedEdge);
  system_.Connect<&PeerActor::OnWantRail>(*submit_, submit_->want_out, *peer_, kControlEdge);
  system_.Connect<&PeerActor::OnSubmitClosedLane>(*submit_, submit_->lane_closed_out, *peer_,
                                                  kControlEdge);
  system_.Connect<&PeerActor::OnCopyClosedLane>(*copy_, copy_->lane_closed_out, *peer_,
                                                kControlEdge);
  system_.Connect<&PeerActor::OnCqPollClosedLane>(*cq_poll_, cq_poll_->lane_closed_out, *peer_,
                                                  kControlEdge);
  system_.Connect<&PeerActor::OnSenderSeen>(*relay_post_, relay_post_->seen_out, *peer_,
                                            kControlEdge);
  system_.Connect<&PeerActor::OnSenderDrained>(*relay_post_, relay_post_->drained_out, *peer_,
                                               kControlEdge);
  system_.Connect<&PeerActor::OnSenderSideTaken>(*cq_poll_, cq_poll_->side_taken_out, *peer_,
                                                 kControlEdge);
}

}  // namespace railhop
