// Both relaying actors together over a simulated NIC: by hand with every byte checked, and on two
// reactors of their own with senders on other threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "actors/cq_poll_actor.h"
#include "actors/piece_trace.h"
#include "actors/relay_post_actor.h"
#include "tests/actors/relay_support.h"
#include "tests/support/hand_driven_system.h"
#include "tests/support/scale.h"
#include "tests/support/wait_until.h"
#include "transport/fabric/sim/sim_nic.h"
#include "transport/fabric/sim/sim_target.h"

namespace railhop {
namespace {

using ::testing::SizeIs;

constexpr uint64_t kMiB = 1 << 20;

// Sends direct slices, one after another with a few under way, and plays the control actors.
class World : public Actor, public Poller {
 public:
  explicit World(std::string name) : Actor(std::move(name)) { AddPoller(this); }

  bool OnSlice(const SliceDone& message) {
    if (message.status != 0) ++failed;
    --under_way_;
    done.store(done.load() + 1);
    return true;
  }
  bool OnResolve(const ResolveTarget& message) {
    ready_out.Send({route, message.token});
    return true;
  }
  bool OnError(const EndpointError& message) { return errors.push_back(message), true; }
  bool OnSeen(const SenderSeen& message) {
    admitted_out.Send({message.sender_epoch, message.lane});
    return true;
  }
  bool OnDrained(const SenderDrained&) { return true; }
  bool OnClosed(const LaneClosed&) { return true; }
  bool OnTaken(const SenderSideTaken&) { return true; }
  size_t Poll(uint64_t) override {
    size_t sent = 0;
    for (; to_send != 0 && under_way_ < 8 && slice_out.TrySend(slice); ++sent) {
      --to_send;
      ++under_way_;
    }
    return sent;
  }

  const TargetRoute* route = nullptr;
  PostSlice slice{};
  uint64_t to_send = 0;
  std::atomic<uint64_t> done{0};
  uint64_t failed = 0;
  std::vector<EndpointError> errors;

  OutPort<PostSlice> slice_out;
  OutPort<TargetReady> ready_out;
  OutPort<SenderAdmitted> admitted_out;

 private:
  uint64_t under_way_ = 0;
};

// A target with memory, a NIC that is connected to it, and the two actors.
struct Relay {
  explicit Relay(SimMode mode, uint64_t bytes, CycleClock clock = {}) {
    target = *SimTarget::Create(directory.path(), "t");
    memory = *target->AllocateMemory(bytes);
    buffer = *target->Register(memory.data(), memory.size(), {"nic0"});
    SimNicOptions options;
    options.mode = mode;
    options.line_rate = 1e12;
    options.send_queue_depth = 32;
    options.clock = clock;
    nic = *SimNic::Create(options);
    lkey = nic->Register(ring.arena(), kArenaBytes)->lkey;
    route.name = "t";
    route.version = 1;
    route.buffers = {MakeBuffer(buffer.address, buffer.length, buffer.rkeys[0])};
    route.endpoints.resize(PathCount(1));
    route.endpoints[0] = *nic->Connect(target->info(), 0);
  }

  void AddActors(ActorSystem& system, Reactor& post, Reactor& poll, Reactor& rest) {
    RelayPostActor::Options post_options;
    post_options.control = ring.block.get();
    post_options.side = &*ring.side;
    post_options.epoch = RelayMemory::kEpoch;
    post_options.arena = ring.arena();
    post_options.arena_lkeys = {lkey};
    post_options.nics = {nic.get()};
    CqPollActor::Options poll_options;
    poll_options.control = ring.block.get();
    poll_options.side = &*ring.side;
    poll_options.nics = {nic.get()};
    world = &system.AddActor<World>(rest, "world");
    poster = &system.AddActor<RelayPostActor>(post, "relay_post", post_options);
    poller = &system.AddActor<CqPollActor>(poll, "cq_poll", poll_options);
    world->route = &route;
    const EdgeOptions jobs{.capacity = kJobEdgeCapacity};
    const EdgeOptions control{.control = true};
    system.Connect<&RelayPostActor::OnPostSlice>(*world, world->slice_out, *poster);
    system.Connect<&RelayPostActor::OnTargetReady>(*world, world->ready_out, *poster, control);
    system.Connect<&RelayPostActor::OnSenderAdmitted>(*world, world->admitted_out, *poster,
                                                      control);
    system.Connect<&CqPollActor::OnJobPosted>(*poster, poster->posted_out, *poller, jobs);
    system.Connect<&CqPollActor::OnPieceRefused>(*poster, poster->refused_out, *poller);
    system.Connect<&World::OnResolve>(*poster, poster->resolve_out, *world);
    system.Connect<&World::OnError>(*poster, poster->error_out, *world);
    system.Connect<&World::OnSeen>(*poster, poster->seen_out, *world);
    system.Connect<&World::OnDrained>(*poster, poster->drained_out, *world);
    system.Connect<&RelayPostActor::OnJobDone>(*poller, poller->job_out, *poster, jobs);
    system.Connect<&RelayPostActor::OnRoomReturned>(*poller, poller->room_out, *poster);
    system.Connect<&World::OnSlice>(*poller, poller->slice_out, *world);
    system.Connect<&World::OnError>(*poller, poller->error_out, *world);
    system.Connect<&World::OnClosed>(*poller, poller->lane_closed_out, *world);
    system.Connect<&World::OnTaken>(*poller, poller->side_taken_out, *world);
  }

  std::byte Expected(uint64_t seed, uint64_t offset) const {
    return static_cast<std::byte>((seed * 131 + offset * 7 + (offset >> 9)) & 0xFF);
  }

  testing::PrivateRoot directory;
  RelayMemory ring;
  std::unique_ptr<SimTarget> target;
  std::span<std::byte> memory;
  RemoteBuffer buffer;
  std::unique_ptr<SimNic> nic;
  uint32_t lkey = 0;
  TargetRoute route;
  World* world = nullptr;
  RelayPostActor* poster = nullptr;
  CqPollActor* poller = nullptr;
};

TEST(Relay, EveryByteOfAPieceArrives) {
  HandDrivenSystem hand;
  Relay relay(SimMode::kManual, 16 * kMiB, hand.clock().clock());
  Reactor& reactor = hand.AddReactor("relay");
  relay.AddActors(hand.system(), reactor, reactor, hand.AddReactor("rest"));
  hand.Start();
  LaneUser user(relay.ring, 3, 500);
  const std::vector<PlanEntry> plan = {{relay.buffer.address + 5 * kMiB, 3 * kMiB},
                                       {relay.buffer.address + 8 * kMiB, 12345},
                                       {relay.buffer.address + 100, 4 * kMiB}};
  const uint64_t sequence = user.Write("t", plan);
  std::byte* slot = relay.ring.slot(3, sequence);
  const uint64_t length = 7 * kMiB + 12345;
  for (uint64_t i = 0; i < length; ++i) slot[i] = relay.Expected(1, i);
  user.Ring(sequence);
  for (int i = 0; i < 10'000 && !user.Answer(sequence); ++i) {
    hand.RunAll();
    relay.nic->Step(8);
    hand.clock().Advance(100'000);
  }
  ASSERT_EQ(user.StatusOf(sequence), RelayStatus::kOk);
  uint64_t at = 0;
  for (const PlanEntry& entry : plan) {
    const std::byte* there = relay.memory.data() + (entry.final_destination - relay.buffer.address);
    for (uint64_t i = 0; i < entry.length; ++i, ++at) ASSERT_EQ(there[i], slot[at]) << at;
  }
  EXPECT_EQ(relay.poller->stats().bytes_relayed.load(), length);
  EXPECT_TRUE(relay.poster->Drained() || hand.RunUntilIdle() != 0);
  EXPECT_TRUE(relay.poster->Drained());
}

TEST(Relay, AnErrorOfTheNicReachesTheSenderAndTheLaneGoesOn) {
  HandDrivenSystem hand;
  Relay relay(SimMode::kManual, kMiB, hand.clock().clock());
  relay.route.buffers[0].rkeys[0] ^= 1;  // a key that is not valid any more
  Reactor& reactor = hand.AddReactor("relay");
  relay.AddActors(hand.system(), reactor, reactor, hand.AddReactor("rest"));
  hand.Start();
  LaneUser user(relay.ring, 0, 500);
  user.Send("t", relay.buffer.address, kMiB);
  user.Send("t", relay.buffer.address, 10);
  for (int i = 0; i < 1000 && !user.Answer(2); ++i) {
    hand.RunAll();
    relay.nic->Step(100);
    hand.clock().Advance(100'000);
  }
  EXPECT_EQ(user.StatusOf(1), RelayStatus::kRemoteAccess);
  EXPECT_EQ(user.StatusOf(2), RelayStatus::kTransport);  // flushed with it
  hand.RunUntilIdle();
  ASSERT_THAT(relay.world->errors, SizeIs(1));
  EXPECT_EQ(relay.world->errors[0].status, FabricStatus::kRemoteAccess);
}

// Sampled pieces, and only those: seen, posted and completed, or refused.
TEST(Relay, RecordsTheStagesOfPieces) {
  HandDrivenSystem hand;
  Relay relay(SimMode::kManual, kMiB, hand.clock().clock());
  Reactor& reactor = hand.AddReactor("relay");
  relay.AddActors(hand.system(), reactor, reactor, hand.AddReactor("rest"));
  hand.Start();
  relay.poster->trace.Enable(2, RelayMemory::kEpoch);
  relay.poller->trace.Enable(2, RelayMemory::kEpoch);
  LaneUser user(relay.ring, 3, 500);
  for (int i = 0; i < 3; ++i) user.Send("t", relay.buffer.address, 1000);
  user.Send("t", relay.buffer.address + 2 * kMiB, 1000);  // outside of the target's memory
  hand.RunUntilIdle();
  for (int i = 0; i < 1000 && !(user.Answer(2) && user.Answer(4)); ++i) {
    hand.clock().Advance(100'000);
    relay.nic->Step(100);
    hand.RunAll();
  }
  ASSERT_EQ(user.StatusOf(2), RelayStatus::kOk);
  ASSERT_EQ(user.StatusOf(4), RelayStatus::kRemoteAccess);
  std::vector<PieceTrace> taken(1);
  for (PieceTracer* trace : {&relay.poster->trace, &relay.poller->trace}) {
    trace->Take([&](const PieceRecord& record) { taken[0].records.push_back(record); });
  }
  const std::vector<TracedPiece> pieces = JoinPieces(taken);
  ASSERT_THAT(pieces, SizeIs(2));
  for (const TracedPiece& piece : pieces) {
    EXPECT_EQ(piece.lane, 3u);
    EXPECT_EQ(piece.sender_epoch, 500u);
    EXPECT_EQ(piece.relay_epoch, RelayMemory::kEpoch);
    EXPECT_NE(piece.At(PieceStage::kDoorbellSeen), 0u);
    EXPECT_EQ(piece.At(PieceStage::kSliced), 0u);
  }
  EXPECT_EQ(pieces[0].sequence, 2u);
  EXPECT_EQ(pieces[0].status, 0);
  EXPECT_GE(pieces[0].At(PieceStage::kPosted), pieces[0].At(PieceStage::kDoorbellSeen));
  EXPECT_GT(pieces[0].At(PieceStage::kCompleted), pieces[0].At(PieceStage::kPosted));
  EXPECT_EQ(pieces[1].sequence, 4u);
  EXPECT_EQ(pieces[1].At(PieceStage::kPosted), 0u) << "nothing of it was posted";
  EXPECT_NE(pieces[1].At(PieceStage::kCompleted), 0u);
  EXPECT_EQ(pieces[1].status, static_cast<int32_t>(RelayStatus::kRemoteAccess));
}

// One thread that sends `pieces` pieces through one lane and checks that each arrived.
class ThreadedSender {
 public:
  ThreadedSender(Relay& relay, uint32_t lane, uint64_t pieces)
      : relay_(relay),
        peer_(relay.ring.OpenAsPeer()),
        user_(relay.ring, lane, 500 + lane),
        lane_(lane),
        pieces_(pieces) {}

  void Run() {
    constexpr uint64_t kBytes = 96 * 1024;  // two slices
    const uint64_t region = relay_.buffer.address + lane_ * kSlotsPerLane * kBytes;
    std::array<bool, kSlotsPerLane> used{};
    for (uint64_t i = 0; i < pieces_ + kSlotsPerLane; ++i) {
      const uint64_t reused = i + 1;  // this sequence's slot holds the piece 18 before
      const uint32_t slot = SlotIndex(reused);
      const uint64_t place = slot * kBytes;
      if (used[slot]) {
        const uint64_t sequence = reused - kSlotsPerLane;
        ASSERT_TRUE(WaitUntil([&] { return user_.Answer(sequence).has_value(); }));
        ASSERT_EQ(user_.StatusOf(sequence), RelayStatus::kOk);
        const std::byte* there = relay_.memory.data() + (region + place - relay_.buffer.address);
        for (uint64_t b = 0; b < kBytes; b += 509) {
          ASSERT_EQ(there[b], relay_.Expected(sequence + lane_, b)) << sequence;
        }
      }
      used[slot] = i < pieces_;
      if (i >= pieces_) continue;
      const PlanEntry entry{region + place, kBytes};
      const uint64_t sequence = user_.Write("t", {&entry, 1});
      std::byte* bytes = relay_.ring.slot(lane_, sequence);
      for (uint64_t b = 0; b < kBytes; ++b) bytes[b] = relay_.Expected(sequence + lane_, b);
      user_.Ring(sequence);
      FullFence();
      peer_.Wake(WakeRole::kRelay);
    }
  }

 private:
  Relay& relay_;
  PeerSide peer_;
  LaneUser user_;
  uint32_t lane_;
  uint64_t pieces_;
};

class RelayThreadsTest : public ::testing::TestWithParam<IdlePolicy> {};

TEST_P(RelayThreadsTest, TwoSendersAndDirectSlicesAtOnce) {
  Relay relay(SimMode::kMove, 16 * kMiB);
  ActorSystem system;
  // Without a safety tick in the test's lifetime a lost wake-up shows as a failure.
  const auto add = [&](const char* name, IdlePolicy idle) -> Reactor& {
    return *system.AddReactor({.name = name, .idle = idle, .safety_tick = std::chrono::hours(1)});
  };
  Reactor& post = add("post", GetParam());
  Reactor& poll = add("poll", GetParam());
  Reactor& rest = add("rest", IdlePolicy::kEvent);
  relay.AddActors(system, post, poll, rest);
  std::vector<std::byte> source(64 * 1024, std::byte{42});
  const uint64_t slices = StressCount(1000, 100'000);
  relay.world->slice = {.local = source.data(),
                        .remote_address = relay.buffer.address + 15 * kMiB,
                        .length = source.size(),
                        .token = 1,
                        .target = &relay.route,
                        .lkey = relay.nic->Register(source.data(), source.size())->lkey,
                        .path = 0,
                        .opcode = FabricOpcode::kWrite};
  relay.world->to_send = slices;
  const uint64_t pieces = StressCount(500, 50'000);
  ThreadedSender first(relay, 0, pieces);
  ThreadedSender second(relay, 6, pieces);
  ASSERT_TRUE(system.Start().ok());
  std::thread first_thread([&] { first.Run(); });
  std::thread second_thread([&] { second.Run(); });
  first_thread.join();
  second_thread.join();
  EXPECT_TRUE(WaitUntil([&] { return relay.world->done.load() == slices; }));
  EXPECT_EQ(relay.poller->stats().pieces_relayed.load(), 2 * pieces);
  EXPECT_EQ(relay.memory[15 * kMiB + 777], std::byte{42});
  system.Stop(std::chrono::seconds(10));
  EXPECT_EQ(relay.world->failed, 0u);
  EXPECT_TRUE(relay.world->errors.empty());
  EXPECT_TRUE(relay.poster->stopped());
  EXPECT_TRUE(relay.poller->stopped());
}

INSTANTIATE_TEST_SUITE_P(IdlePolicies, RelayThreadsTest,
                         ::testing::Values(IdlePolicy::kAdaptive, IdlePolicy::kEvent));

}  // namespace
}  // namespace railhop
