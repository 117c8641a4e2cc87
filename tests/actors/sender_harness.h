// SenderHarness: a SubmitActor driven by hand, with everything around it played by the test - copy
// actor, relays, NICs, watchdog - on one thread and with a clock that stands still until it is
// moved.
//
//   SenderHarness sender;
//   sender.AddTarget(0, {{kTarget, 1 << 20, {"rail1"}}});
//   sender.OpenLane(0);
//   BatchId batch = sender.Submit({Write(0, 0, 4096)});
//   sender.Pass();                           // the actor runs once; what it sent lies in copies
//   ... sender.Copied(sender.copies.at(0));      // ... and the test answers sender.Answer(0, 2,
//   0); EXPECT_EQ(sender.Status(batch).state, BatchState::kCompleted); sender.ExpectIdle(); //
//   every pool is full again
//
// Lanes are real: mappings of entries that two forked processes published in a private root, so
// that claim words are the ones the ABI defines. Source and target addresses are made up: nothing
// here reads them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/submit_actor.h"
#include "runtime/reactor.h"
#include "tests/actors/test_relays.h"
#include "tests/support/manual_clock.h"

namespace railhop {

// Looks into the actor's books. Everything by value.
class SubmitActorPeer {
 public:
  static uint32_t FreeSpans(const SubmitActor& actor) { return actor.pool_.available(); }
  static uint32_t DirectInUse(const SubmitActor& actor) { return actor.direct_.in_use(); }
  // Whose slice it is: the index of its batch.
  static uint32_t BatchOf(SubmitActor& actor, const PostSlice& slice) {
    return actor.direct_.Get(SlabHandle::FromWord(slice.token))->span.batch;
  }
  static size_t WaitingAgain(const SubmitActor& actor) { return actor.again_.size(); }
  static uint32_t Batches(const SubmitActor& actor) { return actor.batches_; }
  static uint32_t WaitingPieces(const SubmitActor& actor) { return actor.waiting_pieces_; }
  static bool NothingToRoute(const SubmitActor& actor) { return actor.active_.empty(); }
  static uint64_t NextPoll(SubmitActor& actor) { return actor.NextPoll(0); }
  static bool Suspect(const SubmitActor& actor, uint32_t target) {
    return actor.targets_[target].suspect;
  }
  static OutboundLane& Lane(SubmitActor& actor, uint32_t lane) { return actor.lanes_[lane]; }
  static Flow& LaneFlow(SubmitActor& actor, uint32_t lane, uint32_t target) {
    return actor.outlets_[lane].flow(target);
  }
  static bool OutletEmpty(const SubmitActor& actor, uint32_t lane) {
    return actor.outlets_[lane].empty();
  }
};

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
// Where the made-up memory lies.
inline constexpr uint64_t kSource = 0x1000'0000'0000;
inline constexpr uint64_t kTarget = 0x2000'0000'0000;

inline std::byte* SourceAt(uint64_t offset) {
  return reinterpret_cast<std::byte*>(kSource + offset);
}
inline TransferRequest Write(uint64_t source, uint64_t destination, uint64_t length,
                             SegmentId target = 1) {
  return {.opcode = Opcode::kWrite,
          .source = SourceAt(source),
          .target = target,
          .target_address = kTarget + destination,
          .length = length};
}
inline TransferRequest Read(uint64_t source, uint64_t destination, uint64_t length,
                            SegmentId target = 1) {
  TransferRequest request = Write(source, destination, length, target);
  request.opcode = Opcode::kRead;
  return request;
}

struct TestBuffer {
  uint64_t address = kTarget;
  uint64_t length = uint64_t{1} << 36;
  std::vector<std::string> rails = {"rail1"};
  std::vector<uint32_t> own_nics = {};  // to alternate over; none: all
};

class SenderHarness {
 public:
  static constexpr uint64_t kCreditTimeout = 1000;
  static constexpr uint64_t kPieceTimeout = 5000;
  static constexpr uint64_t kFar = uint64_t{1} << 62;  // a deadline that never comes

  struct Setup {
    bool pxn = true;
    uint32_t nics = 1;
    uint32_t slice_attempts = 1;
    uint64_t min_relay_bytes = 0;
    JobSizes job_sizes = {.idle = 256 * kKiB, .backlog = 256 * kKiB};
    uint64_t max_piece_bytes = kSlotBytes;
    uint32_t batches = 64;
    size_t copy_edge = 256;
    size_t post_edge = 512;
    size_t deadline_edge = 1024;
    Fences* fences = nullptr;
  };

  SenderHarness() : SenderHarness(Setup{}) {}
  explicit SenderHarness(const Setup& setup)
      : table(setup.batches),
        reactor_({.name = "submit", .clock = clock.clock()}),
        submit("submit", &table,
               {.routes = {.pxn = setup.pxn,
                           .own_rails = {"rail0"},
                           .min_relay_bytes = setup.min_relay_bytes},
                .nic_count = setup.nics,
                .slice = {.bytes = 64 * kKiB, .fragment = 16 * kKiB},
                .slice_attempts = setup.slice_attempts,
                .job_sizes = setup.job_sizes,
                .fences = setup.fences,
                .max_piece_bytes = setup.max_piece_bytes,
                .credit_timeout = kCreditTimeout,
                .piece_timeout = kPieceTimeout}),
        nics_(setup.nics),
        copy_ring_(setup.copy_edge),
        post_ring_(setup.post_edge),
        deadline_ring_(setup.deadline_edge),
        want_ring_(64),
        closed_ring_(64) {
    reactor_.AddActor(&submit);
    submit.copy_out.Connect(&copy_ring_, &wakes_, 0);
    submit.post_out.Connect(&post_ring_, &wakes_, 0);
    submit.deadline_out.Connect(&deadline_ring_, &wakes_, 0);
    submit.want_out.Connect(&want_ring_, &wakes_, 0);
    submit.lane_closed_out.Connect(&closed_ring_, &wakes_, 0);
    reactor_.StartActors();
    AddRegion(kSource, uint64_t{1} << 36);
  }

  // --- Set-up
  Region& AddRegion(uint64_t base, uint64_t length, bool staging = true) {
    auto region = std::make_unique<Region>();
    region->base = reinterpret_cast<std::byte*>(base);
    region->length = length;
    region->staging = staging;
    for (uint32_t nic = 0; nic < nics_; ++nic) region->lkeys.push_back(100 + nic);
    regions.push_back(std::move(region));
    EXPECT_TRUE(TellRegion(BatchCommand::kAddRegion, *regions.back()));
    return *regions.back();
  }
  bool TellRegion(BatchCommand::Kind kind, Region& region) {
    RegionReply reply;
    EXPECT_TRUE(submit.OnBatchCommand({.kind = kind, .region = &region, .reply = &reply}));
    EXPECT_NE(reply.answer.load(), 0u);
    return reply.answer.load() == 1;
  }
  const TargetRoute& AddTarget(uint32_t index,
                               const std::vector<TestBuffer>& buffers = {TestBuffer{}},
                               uint32_t version = 1, const std::string& name = "") {
    auto route = std::make_unique<TargetRoute>();
    route->index = index;
    route->version = version;
    route->name = name.empty() ? "target" + std::to_string(index) : name;
    for (const TestBuffer& buffer : buffers) {
      route->buffers.push_back({.address = buffer.address,
                                .length = buffer.length,
                                .rkeys = {9},
                                .paths = {},
                                .rails = buffer.rails});
      for (const uint32_t nic : buffer.own_nics) {
        route->buffers.back().paths.push_back(MakePath(nic));
      }
      for (uint32_t nic = 0; buffer.own_nics.empty() && nic < nics_; ++nic) {
        route->buffers.back().paths.push_back(MakePath(nic));
      }
    }
    // Connected anew: no endpoint is one that there was before.
    route->endpoints.resize(PathCount(nics_));
    for (uint32_t nic = 0; nic < nics_; ++nic) route->endpoints[MakePath(nic)] = ++endpoints_;
    routes.push_back(std::move(route));
    EXPECT_TRUE(submit.OnTargetReady({.route = routes.back().get(), .token = kNoToken}));
    return *routes.back();
  }
  const LaneMapping& OpenLane(uint32_t lane, uint32_t relay = 0, uint64_t next_sequence = 2,
                              bool version1 = false) {
    mappings.push_back(TestRelays::Get().Map(relay, lane, version1));
    lanes[lane] = mappings.back().get();
    EXPECT_TRUE(
        submit.OnLaneReady({.mapping = lanes[lane], .next_sequence = next_sequence, .lane = lane}));
    Pass();
    return *lanes[lane];
  }

  // --- The application
  BatchId Submit(std::vector<TransferRequest> requests, uint64_t deadline = kFar,
                 const FenceTicket& fence = {}) {
    const BatchId id = table.Allocate();
    EXPECT_TRUE(id.valid());
    Batch& batch = *table.Find(id);
    batch.SetRequests(requests);
    batch.deadline = deadline;
    batch.fence = fence;
    EXPECT_TRUE(submit.OnBatchCommand({BatchCommand::kSubmit, id}));
    return id;
  }
  void Cancel(BatchId id) { EXPECT_TRUE(submit.OnBatchCommand({BatchCommand::kCancel, id})); }
  BatchStatus Status(BatchId id) const { return table.Read(id); }
  BatchState State(BatchId id) const { return table.Read(id).state; }

  // --- The world
  // One pass of the actor; what it sent is then in the containers below.
  size_t Pass() {
    const size_t work = reactor_.RunPass();
    Collect(copy_ring_, [this](const CopyPiece& piece) { copies.push_back(piece); });
    Collect(post_ring_, [this](const PostSlice& slice) { posts.push_back(slice); });
    Collect(deadline_ring_, [this](const ArmDeadline& arm) { armed[arm.slot] = arm; });
    Collect(closed_ring_, [this](const LaneClosed& message) { closed.push_back(message.lane); });
    Collect(want_ring_,
            [this](const WantRail& want) { wanted.emplace_back(want.rail, want.length); });
    return work;
  }
  // The copy actor takes up a piece: its claim word is offered.
  void StartCopy(const CopyPiece& piece) { lanes[piece.lane]->Offer(piece.sequence); }
  // ... and has rung it.
  void Copied(const CopyPiece& piece) {
    StartCopy(piece);
    EXPECT_TRUE(submit.OnPieceCopied({piece.sequence, piece.lane, CopyOutcome::kRung}));
  }
  void CopyAll() {
    while (!copies.empty()) {
      Copied(copies.front());
      rung.push_back(copies.front());
      copies.pop_front();
    }
  }
  TakeResult Take(uint32_t lane, uint64_t sequence) {
    return TakePiece(TestRelays::Words(*lanes[lane]), TestRelays::kSenderEpoch, sequence);
  }
  // The relay's completion arrives.
  void Answer(uint32_t lane, uint64_t sequence, int32_t status) {
    EXPECT_TRUE(
        submit.OnSliceDone({.token = 0, .sequence = sequence, .lane = lane, .status = status}));
  }
  void AnswerAll(int32_t status = 0) {
    while (!rung.empty()) {
      Answer(rung.front().lane, rung.front().sequence, status);
      rung.pop_front();
    }
  }
  void PostDone(const PostSlice& slice, TransferError error = TransferError::kNone) {
    EXPECT_TRUE(submit.OnSliceDone({.token = slice.token,
                                    .sequence = 0,
                                    .lane = kDirectLane,
                                    .status = static_cast<int32_t>(error)}));
  }
  void PostAll(TransferError error = TransferError::kNone) {
    while (!posts.empty()) {
      const PostSlice slice = posts.front();
      posts.pop_front();
      PostDone(slice, error);
    }
  }
  // Everything goes well until nothing moves any more.
  void RunToEnd() {
    for (int i = 0; i < 1'000'000; ++i) {
      const size_t work = Pass();
      if (work == 0 && copies.empty() && rung.empty() && posts.empty()) return;
      CopyAll();
      AnswerAll();
      PostAll();
    }
    ADD_FAILURE() << "it does not come to an end";
  }
  void Close(uint32_t lane, LaneEnd end = LaneEnd::kPeerDead) {
    EXPECT_TRUE(submit.OnCloseLane({.lane = lane, .end = end}));
    Pass();
  }
  // The batch's deadline passes.
  void Expire(BatchId id) {
    if (Batch* batch = table.Find(id); batch != nullptr) batch->deadline = 0;
    EXPECT_TRUE(submit.OnDeadlineExpired({.slot = kBatchDeadline}));
  }
  // The lane's deadline passes, if it is armed and the clock is there; as the watchdog would say.
  bool ExpireLane(uint32_t lane) {
    const auto found = armed.find(lane);
    if (found == armed.end() || found->second.deadline > clock.now()) return false;
    const ArmDeadline arm = found->second;
    armed.erase(found);
    EXPECT_TRUE(submit.OnDeadlineExpired({.slot = arm.slot}));
    return true;
  }
  // Time passes; the actor notices.
  void Advance(uint64_t cycles) {
    clock.Advance(cycles);
    Pass();
  }
  uint64_t Direct(DirectReason reason) const {
    return submit.stats().direct[static_cast<size_t>(reason)].load();
  }

  // --- The invariant: nothing is taken any more. Every test ends with it.
  void ExpectIdle() {
    Pass();
    EXPECT_EQ(SubmitActorPeer::FreeSpans(submit), SubmitActor::kSpanPool);
    EXPECT_EQ(SubmitActorPeer::DirectInUse(submit), 0u);
    EXPECT_EQ(SubmitActorPeer::WaitingAgain(submit), 0u);
    EXPECT_EQ(SubmitActorPeer::Batches(submit), 0u);
    EXPECT_EQ(SubmitActorPeer::WaitingPieces(submit), 0u);
    EXPECT_TRUE(SubmitActorPeer::NothingToRoute(submit));
    for (const auto& region : regions) EXPECT_EQ(region->in_flight, 0u);
    for (uint32_t lane = 0; lane <= kLaneCount; ++lane) {
      EXPECT_TRUE(SubmitActorPeer::OutletEmpty(submit, lane)) << "outlet " << lane;
      for (const auto& route : routes) {
        const Flow& flow = SubmitActorPeer::LaneFlow(submit, lane, route->index);
        EXPECT_EQ(flow.in_flight, 0u) << "outlet " << lane;
        EXPECT_EQ(flow.copying, 0u) << "outlet " << lane;
        EXPECT_EQ(flow.piece_bytes, 0u) << "outlet " << lane;
        EXPECT_EQ(flow.blocked_since, 0u) << "outlet " << lane;
        EXPECT_EQ(flow.queue.count, 0u);
        EXPECT_EQ(flow.queue.bytes, 0u);
      }
      if (lane == kLaneCount) continue;
      OutboundLane& book = SubmitActorPeer::Lane(submit, lane);
      EXPECT_EQ(book.in_flight(), 0u) << "lane " << lane;
      EXPECT_EQ(book.bytes_at_relay(), 0u) << "lane " << lane;
      if (book.offer() == OutboundLane::Offer::kOpen) {
        EXPECT_TRUE(book.HasCredit());
      }
    }
    EXPECT_TRUE(copies.empty() && posts.empty()) << "it sent something that was not answered";
    EXPECT_EQ(Pass(), 0u) << "it is busy with nothing";
  }

  ManualClock clock;
  RequestTable table;

 private:
  Reactor reactor_;

 public:
  SubmitActor submit;
  std::vector<std::unique_ptr<Region>> regions;
  std::vector<std::unique_ptr<TargetRoute>> routes;
  std::vector<std::unique_ptr<LaneMapping>> mappings;
  std::array<const LaneMapping*, kLaneCount> lanes{};

  std::deque<CopyPiece> copies;           // not answered yet
  std::deque<CopyPiece> rung;             // copied by CopyAll, not answered by the relay
  std::deque<PostSlice> posts;            // not answered yet
  std::map<uint32_t, ArmDeadline> armed;  // by slot, the last one
  std::vector<uint32_t> closed;           // LaneClosed
  std::vector<std::string> wanted;        // WantRail

 private:
  template <class Ring, class Take>
  static void Collect(Ring& ring, Take take) {
    ring.Drain(SIZE_MAX, [&](const auto& message) {
      take(message);
      return true;
    });
    ring.PublishCredit();
  }

  const uint32_t nics_;
  EndpointId endpoints_ = 0;  // made so far
  WakeList wakes_;
  SpscRing<CopyPiece> copy_ring_;
  SpscRing<PostSlice> post_ring_;
  SpscRing<ArmDeadline> deadline_ring_;
  SpscRing<WantRail> want_ring_;
  SpscRing<LaneClosed> closed_ring_;
};

}  // namespace railhop
