// Every message that travels between the actors, named for what it tells.
//
// Values of at most 56 bytes (runtime/message.h). A pointer in a message points to something that
// the sender has given away, or that is immutable and outlives both ends; which of the two is said
// here.
#pragma once

#include <atomic>
#include <cstdint>

#include "actors/target_route.h"
#include "runtime/message.h"
#include "transport/engine/data_path.h"
#include "transport/fabric/fabric.h"
#include "transport/ring/completion.h"
#include "transport/ring/lane.h"

namespace railhop {

struct PieceContent;
struct Region;

// Outbound lanes of this rank are numbered 0..6 by PeerActor; this number means its own NICs.
inline constexpr uint32_t kDirectLane = kLaneCount;

// --- Application -> SubmitActor, in the order in which the application calls
struct RegionReply {
  std::atomic<uint32_t> answer{0};  // 0 none yet, 1 done, 2 refused; notified
};
struct BatchCommand {
  enum Kind : uint32_t { kSubmit, kCancel, kAddRegion, kRemoveRegion };
  Kind kind;
  BatchId batch = {};        // kSubmit gives the batch away
  Region* region = nullptr;  // kAddRegion lends it until kRemoveRegion was answered "done"
  RegionReply* reply = nullptr;
};

// --- SubmitActor -> CopyActor
// `content` belongs to CopyActor until PieceCopied. A ring slot has been taken for it.
struct CopyPiece {
  const PieceContent* content;
  const TargetRoute* target;
  uint64_t sequence;
  uint32_t lane;
  uint32_t lane_generation;  // how many LaneReady of that lane there were, this one's included
};

// --- CopyActor -> SubmitActor
enum class CopyOutcome : uint32_t {
  kRung,     // the bytes are in the slot and the doorbell is rung; the source is no longer read
  kRefused,  // nothing was offered and the sequence is used up: go direct, leave the lane alone
};
struct PieceCopied {
  uint64_t sequence;
  uint32_t lane;
  CopyOutcome outcome;
};

// --- CopyActor -> CqPollActor
// From now on the completion of this sequence may appear.
struct PieceRung {
  uint64_t sequence;
  uint32_t lane;
};

// --- SubmitActor -> RelayPostActor
// One contiguous range over one path of its target. Both ends lie inside one registration.
struct PostSlice {
  std::byte* local;
  uint64_t remote_address;
  uint64_t length;
  uint64_t token;  // comes back in SliceDone
  const TargetRoute* target;
  uint32_t lkey;
  PathId path;
  FabricOpcode opcode;
  uint8_t flush_gpu = 0;  // of a read: ReadFlush
};

// --- RelayPostActor -> CqPollActor
// Sent before the first work request of the job is posted, so that it arrives before a completion.
struct JobPosted {
  uint64_t token;         // direct
  uint64_t sequence;      // relayed
  uint64_t sender_epoch;  // relayed
  uint64_t length;
  uint32_t job;              // as in the user_data of its requests: actors/post_job.h
  uint32_t lane;             // inbound lane, or kDirectLane
  uint32_t lane_generation;  // of the inbound lane, as its reader counts
  uint32_t target;           // index
  uint32_t target_version;
  PathId path;
  uint8_t flush_gpu = 0;  // to be flushed before its end is told: ReadFlush; 0: none
};
// An inbound piece that ends without a post (bad descriptor, revoked, no such target, ...).
struct PieceRefused {
  uint64_t sequence;
  uint64_t sender_epoch;
  uint32_t lane;
  uint32_t lane_generation;
  RelayStatus status;  // for the completion ring
};

// --- CqPollActor -> RelayPostActor
struct JobDone {
  uint32_t job;
  FabricStatus status;
};
// Requests completed that ended no job: their send queue room is back. Not one for each of them.
struct RoomReturned {
  uint32_t nic;
};

// --- CqPollActor -> SubmitActor
struct SliceDone {
  uint64_t token;     // direct
  uint64_t sequence;  // relayed
  uint32_t lane;      // outbound lane, or kDirectLane
  int32_t status;     // 0, or a TransferError; relayed: whatever the relay wrote, 0 = success
};
inline constexpr int32_t kMalformedCompletion = INT32_MIN;  // SliceDone.status: quarantine the lane

// --- CqPollActor, RelayPostActor -> EndpointActor
// An endpoint went into error: everything posted to it is flushed until it is connected anew. Once
// per endpoint from CqPollActor; from RelayPostActor when nothing has completed on it for too long.
struct EndpointError {
  uint32_t target;
  uint32_t target_version;
  PathId path;
  FabricStatus status;
};

// --- RelayPostActor -> EndpointActor
// `session` stays unchanged until TargetReady or TargetFailed answers with the same token.
struct ResolveTarget {
  const char* session;
  uint32_t length;
  uint32_t token;
};

// --- EndpointActor -> RelayPostActor, SubmitActor
inline constexpr uint32_t kNoToken = UINT32_MAX;
struct TargetReady {
  const TargetRoute* route;  // immutable; lives as long as the rank
  uint32_t token;            // of ResolveTarget, or kNoToken
};
// It ends the routes of its target up to and including `version`. What is said about a target
// arrives in the order in which it was said (ordered_ports.h).
struct TargetFailed {
  uint32_t target;  // index; kMaxTargets if it never had one
  uint32_t token;   // of ResolveTarget, or kNoToken
  TransferError error;
  uint32_t version = 0;  // of the newest route when it failed; 0: there never was one
};

// --- EndpointActor -> RelayPostActor: post nothing more to this endpoint, then disconnect it. Only
// the thread that posts may do that, or it could post behind the disconnection.
struct CloseEndpoint {
  EndpointId endpoint;
  uint32_t target;
  PathId path;
};

// --- PeerActor -> SubmitActor, CopyActor, CqPollActor
// `mapping` is immutable and stays until all three have answered LaneClosed.
struct LaneReady {
  const LaneMapping* mapping;
  uint64_t next_sequence;
  uint32_t lane;  // outbound
};
enum class LaneEnd : uint32_t {
  kPeerDead,  // and its NICs are quiet: what it has not completed may be sent another way
  kStale,     // heartbeat stopped: offer nothing new; what is offered may still complete
};
struct CloseLane {
  uint32_t lane;
  LaneEnd end;
};
// --- SubmitActor, CopyActor, CqPollActor -> PeerActor: nothing of the lane is used any more. At
// least one answer for each LaneReady; kStale may be followed by kPeerDead. LaneReady and CloseLane
// arrive in the order in which they were sent.
struct LaneClosed {
  uint32_t lane;
};
// --- SubmitActor -> PeerActor: a target would be relayed if a peer on this rail were attached.
// `rail` points into a TargetRoute.
struct WantRail {
  const char* rail;
  uint32_t length;
};

// --- RelayPostActor -> PeerActor: an inbound lane has a sender that was not admitted yet. Once per
// claim; PeerActor looks by itself as well, but rarely.
struct SenderSeen {
  uint64_t sender_epoch;
  uint32_t lane;
};
// --- PeerActor -> RelayPostActor: that sender is alive and watched; its pieces may be read.
struct SenderAdmitted {
  uint64_t sender_epoch;
  uint32_t lane;
};
// --- PeerActor -> CqPollActor: whom to wake when a completion of this inbound lane was written.
// nullptr: nobody (a version-1 sender polls, a dead one is gone). Answered with SenderSideTaken.
struct SenderSide {
  const PeerSide* side;  // stays until a later SenderSide of the lane is answered
  uint64_t sender_epoch;
  uint32_t lane;
};
// --- CqPollActor -> PeerActor: what was in use for the lane before is no longer.
struct SenderSideTaken {
  uint64_t sender_epoch;
  uint32_t lane;
};
// --- PeerActor -> RelayPostActor: the sender of an inbound lane died; post nothing more from it.
struct SenderLost {
  uint64_t sender_epoch;
  uint32_t lane;
};
// --- RelayPostActor -> PeerActor: nothing of that sender is posted any more.
struct SenderDrained {
  uint64_t sender_epoch;
  uint32_t lane;
};

// --- SubmitActor -> WatchdogActor. One deadline per slot; a later message takes the place of an
// earlier one. Slots: the outbound lanes, each for the oldest of its pieces, and one for the
// earliest deadline of all batches. (A message for each batch woke the control reactor twice per
// batch: docs/performance.md.)
inline constexpr uint32_t kBatchDeadline = kLaneCount;
inline constexpr uint32_t kDeadlineSlots = kLaneCount + 1;
struct ArmDeadline {
  uint64_t deadline;  // cycles
  uint32_t slot;
};
// --- WatchdogActor -> SubmitActor. A deadline of the slot has passed, not necessarily the last.
struct DeadlineExpired {
  uint32_t slot;
};

static_assert(Message<BatchCommand> && Message<CopyPiece> && Message<PieceCopied>);
static_assert(Message<PieceRung> && Message<PostSlice> && Message<JobPosted>);
static_assert(Message<PieceRefused> && Message<JobDone> && Message<RoomReturned>);
static_assert(Message<SliceDone> && Message<EndpointError> && Message<ResolveTarget>);
static_assert(Message<TargetReady> && Message<TargetFailed> && Message<LaneReady>);
static_assert(Message<CloseEndpoint>);
static_assert(Message<CloseLane> && Message<LaneClosed> && Message<WantRail>);
static_assert(Message<SenderSeen> && Message<SenderAdmitted>);
static_assert(Message<SenderSide> && Message<SenderSideTaken>);
static_assert(Message<SenderLost> && Message<SenderDrained> && Message<ArmDeadline>);
static_assert(Message<DeadlineExpired>);

}  // namespace railhop
