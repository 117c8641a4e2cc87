#include "actors/cq_poll_actor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/actors/relay_support.h"
#include "tests/actors/scripted_nic.h"
#include "tests/support/hand_driven_system.h"
#include "transport/ring/lane.h"

namespace railhop {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// All other actors at once, and the poster of the NICs.
class World : public Actor {
 public:
  using Actor::Actor;
  bool OnSlice(const SliceDone& message) {
    if (!take_slices) return false;
    slices.push_back(message);
    return true;
  }
  bool OnJob(const JobDone& message) { return jobs.push_back(message), true; }
  bool OnRoom(const RoomReturned& message) { return room.push_back(message), true; }
  bool OnError(const EndpointError& message) {
    if (!take_errors) return false;
    errors.push_back(message);
    return true;
  }
  bool OnClosed(const LaneClosed& message) { return closed.push_back(message), true; }
  bool OnTaken(const SenderSideTaken& message) { return taken.push_back(message), true; }

  bool take_slices = true, take_errors = true;
  std::vector<SliceDone> slices;
  std::vector<JobDone> jobs;
  std::vector<RoomReturned> room;
  std::vector<EndpointError> errors;
  std::vector<LaneClosed> closed;
  std::vector<SenderSideTaken> taken;

  OutPort<JobPosted> posted_out;
  OutPort<PieceRefused> refused_out;
  OutPort<PieceRung> rung_out;
  OutPort<LaneReady> ready_out;
  OutPort<CloseLane> close_out;
  OutPort<SenderSide> side_out;
};

// A peer that relays for us: its process does nothing, its completions are written here. Made once.
class Relays {
 public:
  static Relays& Get() {
    static Relays relays;
    return relays;
  }
  std::unique_ptr<LaneMapping> Map(uint32_t lane, bool version_one = false) const {
    auto mapping =
        std::make_unique<LaneMapping>(version_one ? old_ : new_, LaneClaim{.lane = lane}, nullptr);
    for (Completion& completion : mapping->control().completions) completion = {};
    return mapping;
  }

 private:
  Relays() : member_(testing::MakeMember(root_.Options(), "rail1")) {
    if (member_.Await() == 0) std::abort();
    auto registry = *Registry::Open(root_.Options());
    const PeerInfo peer = registry->Discover()->front();
    new_ = *registry->MapPeer(peer);
    for (const std::string& name : testing::PrivateRoot::List(root_.Side())) {
      std::filesystem::remove(root_.Side() + "/" + name);
    }
    old_ = *registry->MapPeer(peer);
    if (new_->side() == nullptr || old_->side() != nullptr) std::abort();
  }

  testing::PrivateRoot root_;
  testing::Child member_;
  std::shared_ptr<const PeerMapping> new_, old_;
};

// Remembers what was told by when it was asked.
class FakeFlush final : public ReadFlush {
 public:
  absl::StatusOr<uint8_t> Of(const void*, size_t) override { return uint8_t{0}; }
  uint64_t Flush(uint64_t gpus) override {
    flushes.push_back(gpus);
    if (before) before();
    return failing & gpus;
  }

  std::vector<uint64_t> flushes;
  std::function<void()> before;
  uint64_t failing = 0;
};

class CqPollActorTest : public ::testing::Test {
 protected:
  CqPollActorTest()
      : reactor_(hand_.AddReactor("poll")), world_reactor_(hand_.AddReactor("world")) {
    CqPollActor::Options options;
    options.control = memory_.block.get();
    options.side = &*memory_.side;
    options.nics = {&nic_, &other_nic_};
    options.flush = &flush_;
    ActorSystem& system = hand_.system();
    actor_ = &system.AddActor<CqPollActor>(reactor_, "cq_poll", options);
    world_ = &system.AddActor<World>(world_reactor_, "world");
    const EdgeOptions jobs{.capacity = kJobEdgeCapacity};
    const EdgeOptions small{.capacity = 4};
    const EdgeOptions control{.capacity = 16, .control = true};
    system.Connect<&World::OnSlice>(*actor_, actor_->slice_out, *world_, small);
    system.Connect<&World::OnJob>(*actor_, actor_->job_out, *world_, jobs);
    system.Connect<&World::OnRoom>(*actor_, actor_->room_out, *world_, small);
    system.Connect<&World::OnError>(*actor_, actor_->error_out, *world_, {.capacity = 2});
    system.Connect<&World::OnClosed>(*actor_, actor_->lane_closed_out, *world_, small);
    system.Connect<&World::OnTaken>(*actor_, actor_->side_taken_out, *world_, small);
    system.Connect<&CqPollActor::OnJobPosted>(*world_, world_->posted_out, *actor_, jobs);
    system.Connect<&CqPollActor::OnPieceRefused>(*world_, world_->refused_out, *actor_);
    system.Connect<&CqPollActor::OnPieceRung>(*world_, world_->rung_out, *actor_);
    system.Connect<&CqPollActor::OnLaneReady>(*world_, world_->ready_out, *actor_, control);
    system.Connect<&CqPollActor::OnCloseLane>(*world_, world_->close_out, *actor_, control);
    system.Connect<&CqPollActor::OnSenderSide>(*world_, world_->side_out, *actor_, control);
  }
  void SetUp() override { hand_.Start(); }

  void Run() { hand_.RunUntilIdle(); }

  // A job of inbound lane 0, unless it says otherwise.
  JobPosted Piece(uint32_t index, uint64_t sequence, uint32_t lane = 0, uint32_t generation = 1,
                  uint64_t epoch = 500) {
    JobPosted job{};
    job.job = JobTag::Make(index, ++generation_);
    job.sequence = sequence;
    job.sender_epoch = epoch;
    job.length = 100;
    job.lane = lane;
    job.lane_generation = generation;
    job.target = 3;
    job.target_version = 1;
    return job;
  }
  JobPosted Slice(uint32_t index, uint64_t token) {
    JobPosted job = Piece(index, 0, kDirectLane);
    job.token = token;
    job.sender_epoch = 0;
    return job;
  }
  void Post(const JobPosted& job, uint32_t requests, EndpointId endpoint = 1, bool cut = false) {
    for (uint32_t i = 1; i <= requests; ++i) {
      nic_.Prepare(
          {.signaled = true,
           .endpoint = endpoint,
           .length = 10,
           .user_data = JobTag{.job = job.job, .last = i == requests, .cut = cut && i == requests}
                            .ToWord()});
    }
    nic_.Submit();
  }
  // Known to the actor, and posted.
  JobPosted Start(const JobPosted& job, uint32_t requests = 1, EndpointId endpoint = 1) {
    world_->posted_out.Send(job);
    Post(job, requests, endpoint);
    Run();
    return job;
  }
  void Ready(uint32_t lane, const LaneMapping& mapping) {
    world_->ready_out.Send({.mapping = &mapping, .next_sequence = 2, .lane = lane});
    Run();
  }

  RelayMemory memory_;
  ScriptedNic nic_, other_nic_;
  FakeFlush flush_;
  HandDrivenSystem hand_;
  Reactor& reactor_;
  Reactor& world_reactor_;
  CqPollActor* actor_ = nullptr;
  World* world_ = nullptr;
  uint16_t generation_ = 0;
};

// --- Jobs

TEST_F(CqPollActorTest, ADirectSliceEndsWithItsLastRequest) {
  const JobPosted job = Start(Slice(200, 1234), 3);
  nic_.Complete(1, 2);
  Run();
  EXPECT_THAT(world_->slices, IsEmpty());
  EXPECT_THAT(world_->room, SizeIs(1));  // once for both
  EXPECT_FALSE(actor_->Drained());
  nic_.Complete(1, 1);
  Run();
  ASSERT_THAT(world_->slices, SizeIs(1));
  EXPECT_EQ(world_->slices[0].token, 1234u);
  EXPECT_EQ(world_->slices[0].lane, kDirectLane);
  EXPECT_EQ(world_->slices[0].status, 0);
  ASSERT_THAT(world_->jobs, SizeIs(1));
  EXPECT_EQ(world_->jobs[0].job, job.job);
  EXPECT_EQ(world_->jobs[0].status, FabricStatus::kOk);
  EXPECT_TRUE(actor_->Drained());
  EXPECT_EQ(actor_->stats().bytes_direct.load(), 100u);
  EXPECT_EQ(actor_->stats().slices_direct.load(), 1u);
  EXPECT_EQ(actor_->stats().bytes_relayed.load(), 0u);
}

// --- Reads into GPU memory

TEST_F(CqPollActorTest, ADrainOfReadsIsFlushedOnceBeforeAnyIsTold) {
  for (uint32_t i = 0; i < 3; ++i) {
    JobPosted read = Slice(200 + i, i);
    read.flush_gpu = i == 2 ? 7 : 1;
    Start(read, 2);
  }
  Start(Slice(203, 3));
  flush_.before = [this] {
    EXPECT_EQ(actor_->slice_out.Room(4), 4u);
    EXPECT_EQ(actor_->stats().slices_direct.load(), 0u);
  };
  nic_.Complete(1);
  Run();
  EXPECT_THAT(flush_.flushes, ElementsAre(uint64_t{1} << 6 | 1));
  EXPECT_THAT(world_->slices, SizeIs(4));
  EXPECT_EQ(actor_->stats().flushes.load(), 1u);
}

TEST_F(CqPollActorTest, WhatIsNoReadIntoAGpuThatNeedsItIsNotFlushed) {
  Start(Slice(200, 1), 3);
  JobPosted read = Slice(201, 2);
  read.flush_gpu = 1;
  Start(read, 2, 2);
  nic_.Complete(1);
  nic_.Complete(2, 1);  // not its last request
  Run();
  EXPECT_THAT(world_->slices, SizeIs(1));
  EXPECT_THAT(flush_.flushes, IsEmpty());
  nic_.Complete(2);
  Run();
  EXPECT_THAT(flush_.flushes, ElementsAre(1u));
}

TEST_F(CqPollActorTest, AReadWhoseGpuWasNotFlushedFailsAndTheOthersDoNot) {
  flush_.failing = 2;
  for (uint32_t i = 0; i < 3; ++i) {
    JobPosted read = Slice(200 + i, i);
    read.flush_gpu = static_cast<uint8_t>(i);
    Start(read);
  }
  nic_.Complete(1);
  Run();
  ASSERT_THAT(world_->slices, SizeIs(3));
  EXPECT_EQ(world_->slices[0].status, 0);
  EXPECT_EQ(world_->slices[1].status, 0);
  EXPECT_EQ(world_->slices[2].status, static_cast<int32_t>(TransferError::kDevice));
  EXPECT_EQ(world_->jobs[2].status, FabricStatus::kDevice);
}

TEST_F(CqPollActorTest, ACompletionWaitsForItsJob) {
  const JobPosted early = Slice(200, 1);
  Post(early, 1);
  nic_.Complete(1);
  Run();
  EXPECT_THAT(world_->slices, IsEmpty());
  world_->posted_out.Send(early);
  Run();
  EXPECT_THAT(world_->slices, SizeIs(1));
  // The same record again: what it was used for before does not count.
  const JobPosted later = Slice(200, 2);
  Post(later, 1);
  nic_.Complete(1);
  Run();
  EXPECT_THAT(world_->slices, SizeIs(1));
  world_->posted_out.Send(later);
  Run();
  ASSERT_THAT(world_->slices, SizeIs(2));
  EXPECT_EQ(world_->slices[1].token, 2u);
}

TEST_F(CqPollActorTest, ARecordsNextJobIsNotTakenForThisOne) {
  Start(Slice(200, 1), 1, 1);
  Post(Slice(200, 2), 1, 2);
  nic_.Complete(2);
  Run();
  EXPECT_THAT(world_->jobs, IsEmpty());
}

TEST_F(CqPollActorTest, TheFirstErrorCountsAndFlushesFollowIt) {
  Start(Slice(200, 1), 3);
  nic_.Complete(1, 1);
  nic_.Fail(1, FabricStatus::kRemoteAccess);
  Run();
  ASSERT_THAT(world_->slices, SizeIs(1));
  EXPECT_EQ(world_->slices[0].status, static_cast<int32_t>(TransferError::kRemoteAccess));
  EXPECT_EQ(world_->jobs[0].status, FabricStatus::kRemoteAccess);
  EXPECT_EQ(actor_->stats().jobs_failed.load(), 1u);
  EXPECT_EQ(actor_->stats().bytes_direct.load(), 0u);
}

TEST_F(CqPollActorTest, Rule2QuiescentCompletionsComeAfterAllIsFlushed) {
  LaneUser user(memory_, 0, 500);
  Start(Piece(0, 1), 3);
  nic_.FailOne(1, FabricStatus::kRemoteAccess);
  nic_.FailOne(1, FabricStatus::kFlushed);
  Run();
  EXPECT_EQ(user.StatusOf(1), std::nullopt);
  EXPECT_THAT(world_->jobs, IsEmpty());
  EXPECT_THAT(world_->errors, SizeIs(1));  // the endpoint's repair needs not wait
  nic_.FailOne(1, FabricStatus::kFlushed);
  Run();
  EXPECT_EQ(user.StatusOf(1), RelayStatus::kRemoteAccess);
  EXPECT_THAT(world_->jobs, SizeIs(1));
}

TEST_F(CqPollActorTest, EachFabricErrorHasItsTransferError) {
  const std::vector<std::pair<FabricStatus, TransferError>> cases = {
      {FabricStatus::kLocalProtection, TransferError::kNotRegistered},
      {FabricStatus::kRemoteAccess, TransferError::kRemoteAccess},
      {FabricStatus::kTargetDead, TransferError::kTargetDead},
      {FabricStatus::kDevice, TransferError::kDevice},
      {FabricStatus::kTransport, TransferError::kTransport},
      {FabricStatus::kFlushed, TransferError::kTransport}};
  EndpointId endpoint = 1;
  for (const auto& [status, error] : cases) {
    Start(Slice(200, 1), 1, endpoint);
    nic_.Fail(endpoint++, status);
    Run();
    ASSERT_FALSE(world_->slices.empty());
    EXPECT_EQ(world_->slices.back().status, static_cast<int32_t>(error));
  }
}

TEST_F(CqPollActorTest, AJobThatWasCutShortFailsWhateverTheNicSays) {
  LaneUser user(memory_, 0, 500);
  const JobPosted job = Piece(0, 1);
  world_->posted_out.Send(job);
  Post(job, 2, 1, /*cut=*/true);
  Run();
  nic_.Complete(1);
  Run();
  EXPECT_EQ(user.StatusOf(1), RelayStatus::kTransport);
  EXPECT_EQ(world_->jobs[0].status, FabricStatus::kFlushed);
}

TEST_F(CqPollActorTest, AnEndpointsErrorIsToldOncePerVersion) {
  Start(Slice(200, 1), 2);
  Start(Slice(201, 2), 2);
  nic_.FailOne(1, FabricStatus::kTransport);
  nic_.Fail(1, FabricStatus::kRemoteAccess);
  Run();
  EXPECT_THAT(world_->jobs, SizeIs(2));
  ASSERT_THAT(world_->errors, SizeIs(1));
  EXPECT_EQ(world_->errors[0].target, 3u);
  EXPECT_EQ(world_->errors[0].target_version, 1u);
  EXPECT_EQ(world_->errors[0].path, MakePath(0));
  EXPECT_EQ(world_->errors[0].status, FabricStatus::kTransport);
  JobPosted anew = Slice(200, 3);
  anew.target_version = 2;
  Start(anew, 1, 2);
  nic_.Fail(2, FabricStatus::kTargetDead);
  Run();
  ASSERT_THAT(world_->errors, SizeIs(2));
  EXPECT_EQ(world_->errors[1].target_version, 2u);
  // Flushed because of a disconnection: nothing to tell.
  JobPosted last = Slice(200, 4);
  last.target_version = 3;
  Start(last, 1, 3);
  nic_.Fail(3, FabricStatus::kFlushed);
  Run();
  EXPECT_THAT(world_->errors, SizeIs(2));
}

TEST_F(CqPollActorTest, FullEdgesLoseNothing) {
  world_->take_slices = false;
  for (uint32_t i = 0; i < 40; ++i) Start(Slice(200 + i, i));
  nic_.Complete(1);
  for (int i = 0; i < 20; ++i) hand_.RunAll();
  EXPECT_EQ(world_->jobs.size(), 4u);  // as many as there was room to tell of
  world_->take_slices = true;
  Run();
  ASSERT_THAT(world_->slices, SizeIs(40));
  for (uint64_t i = 0; i < 40; ++i) EXPECT_EQ(world_->slices[i].token, i);

  world_->take_errors = false;
  for (uint32_t i = 0; i < 5; ++i) {
    JobPosted job = Slice(200 + i, i);
    job.target = i;
    Start(job, 1, 10 + i);
    nic_.Fail(10 + i, FabricStatus::kTransport);
  }
  for (int i = 0; i < 20; ++i) hand_.RunAll();
  EXPECT_THAT(world_->slices, SizeIs(42));
  world_->take_errors = true;
  Run();
  EXPECT_THAT(world_->slices, SizeIs(45));
  EXPECT_THAT(world_->errors, SizeIs(5));
}

// --- Inbound lanes

TEST_F(CqPollActorTest, CompletionsOutOfOrderMoveThePrefix) {
  LaneUser user(memory_, 0, 500);
  for (uint32_t i = 0; i < 3; ++i) Start(Piece(i, i + 1), 1, i + 1);
  nic_.Complete(2);
  Run();
  EXPECT_EQ(user.StatusOf(2), RelayStatus::kOk);
  EXPECT_EQ(user.StatusOf(1), std::nullopt);
  EXPECT_EQ(user.completed(), 0u);
  nic_.Complete(1);
  Run();
  EXPECT_EQ(user.completed(), 2u);
  nic_.Complete(3);
  Run();
  EXPECT_EQ(user.completed(), 3u);
  EXPECT_EQ(actor_->stats().pieces_relayed.load(), 3u);
  EXPECT_EQ(actor_->stats().bytes_relayed.load(), 300u);
  EXPECT_THAT(world_->slices, IsEmpty());
  EXPECT_THAT(world_->jobs, SizeIs(3));
}

TEST_F(CqPollActorTest, RefusalsAreCompletedAndCounted) {
  LaneUser user(memory_, 2, 500);
  world_->refused_out.Send({.sequence = 1,
                            .sender_epoch = 500,
                            .lane = 2,
                            .lane_generation = 1,
                            .status = RelayStatus::kBadDescriptor});
  world_->refused_out.Send({.sequence = 2,
                            .sender_epoch = 500,
                            .lane = 2,
                            .lane_generation = 1,
                            .status = RelayStatus::kStopping});
  Run();
  EXPECT_EQ(user.StatusOf(1), RelayStatus::kBadDescriptor);
  EXPECT_EQ(user.StatusOf(2), RelayStatus::kStopping);
  EXPECT_EQ(user.completed(), 2u);
  EXPECT_EQ(actor_->stats().pieces_refused[1].load(), 1u);
  EXPECT_EQ(actor_->stats().pieces_refused[7].load(), 1u);
  EXPECT_THAT(world_->jobs, IsEmpty());
}

TEST_F(CqPollActorTest, ACompletionForASenderThatIsGoneIsNotWritten) {
  { LaneUser old(memory_, 0, 500); }
  Start(Piece(0, 1));
  LaneUser anew(memory_, 0, 501);
  nic_.Complete(1);
  Run();
  EXPECT_EQ(anew.Answer(1), std::nullopt);
  EXPECT_EQ(anew.completed(), 0u);
  EXPECT_THAT(world_->jobs, SizeIs(1));  // the poster is told all the same
  Start(Piece(0, 1, 0, 2, 501));
  nic_.Complete(1);
  Run();
  EXPECT_EQ(anew.StatusOf(1), RelayStatus::kOk);
}

TEST_F(CqPollActorTest, WakesAParkedSender) {
  LaneUser user(memory_, 0, 500);
  // The sender's side file: here our own, opened as a peer opens it.
  const PeerSide sender = memory_.OpenAsPeer();
  world_->side_out.Send({.side = &sender, .sender_epoch = 500, .lane = 0});
  Run();
  ASSERT_THAT(world_->taken, SizeIs(1));
  EXPECT_EQ(world_->taken[0].lane, 0u);
  Start(Piece(0, 1));
  nic_.Complete(1);
  Run();
  EXPECT_EQ(reactor_.loop().RunReady(), 0);  // awake: no wake
  memory_.side->Park(WakeRole::kCompletion);
  Start(Piece(0, 2));
  nic_.Complete(1);
  Run();
  EXPECT_EQ(reactor_.loop().RunReady(), 1);
  // Withdrawn: nobody is woken.
  world_->side_out.Send({.side = nullptr, .sender_epoch = 500, .lane = 0});
  Run();
  EXPECT_THAT(world_->taken, SizeIs(2));
  Start(Piece(0, 3));
  nic_.Complete(1);
  Run();
  EXPECT_EQ(user.StatusOf(3), RelayStatus::kOk);
  EXPECT_EQ(reactor_.loop().RunReady(), 0);
}

TEST_F(CqPollActorTest, ASenderThatParksJustAfterACompletionIsWokenByTheNextPass) {
  LaneUser user(memory_, 0, 500);
  const PeerSide sender = memory_.OpenAsPeer();
  world_->side_out.Send({.side = &sender, .sender_epoch = 500, .lane = 0});
  Run();
  Start(Piece(0, 1));
  nic_.Complete(1);
  reactor_.RunPass();
  EXPECT_EQ(user.StatusOf(1), RelayStatus::kOk);
  memory_.side->Park(WakeRole::kCompletion);
  reactor_.RunPass();
  EXPECT_EQ(reactor_.loop().RunReady(), 1);
  reactor_.RunPass();
  EXPECT_EQ(reactor_.loop().RunReady(), 0);
}

TEST_F(CqPollActorTest, ASenderWhoseSideCameLateIsWokenOnce) {
  LaneUser user(memory_, 0, 500);
  Start(Piece(0, 1));
  nic_.Complete(1);
  Run();
  memory_.side->Park(WakeRole::kCompletion);
  const PeerSide sender = memory_.OpenAsPeer();
  world_->side_out.Send({.side = &sender, .sender_epoch = 500, .lane = 0});
  Run();
  EXPECT_EQ(reactor_.loop().RunReady(), 1);
}

// --- Outbound lanes

TEST_F(CqPollActorTest, FindsCompletionsInAnyOrder) {
  const auto lane = Relays::Get().Map(4);
  Ready(1, *lane);
  for (const uint64_t sequence : {2, 3, 4}) world_->rung_out.Send({sequence, 1});
  Run();
  EXPECT_FALSE(actor_->Drained());
  CommitCompletion(lane->control().completions[SlotIndex(4)], 4, 0);
  Run();
  CommitCompletion(lane->control().completions[SlotIndex(2)], 2, -9);
  Run();
  ASSERT_THAT(world_->slices, SizeIs(2));
  EXPECT_EQ(world_->slices[0].sequence, 4u);
  EXPECT_EQ(world_->slices[0].status, 0);
  EXPECT_EQ(world_->slices[0].lane, 1u);
  EXPECT_EQ(world_->slices[1].sequence, 2u);
  EXPECT_EQ(world_->slices[1].status, -9);
  CommitCompletion(lane->control().completions[SlotIndex(3)], 3, 0);
  Run();
  EXPECT_THAT(world_->slices, SizeIs(3));
  EXPECT_TRUE(actor_->Drained());
  // A second time round the ring.
  world_->rung_out.Send({20, 1});
  Run();
  EXPECT_THAT(world_->slices, SizeIs(3));
  CommitCompletion(lane->control().completions[SlotIndex(20)], 20, 0);
  Run();
  EXPECT_THAT(world_->slices, SizeIs(4));
}

TEST_F(CqPollActorTest, APieceMayBeRungBeforeItsLaneIsKnown) {
  const auto lane = Relays::Get().Map(4);
  world_->rung_out.Send({2, 1});
  CommitCompletion(lane->control().completions[SlotIndex(2)], 2, 0);
  Run();
  EXPECT_THAT(world_->slices, IsEmpty());
  Ready(1, *lane);
  EXPECT_THAT(world_->slices, SizeIs(1));
}

TEST_F(CqPollActorTest, NonsenseInACompletionIsToldAsSuch) {
  const auto lane = Relays::Get().Map(4);
  Ready(0, *lane);
  world_->rung_out.Send({2, 0});
  world_->rung_out.Send({3, 0});
  lane->control().completions[SlotIndex(2)].reserved = 1;
  StoreRelease(lane->control().completions[SlotIndex(2)].commit_sequence, 2);
  CommitCompletion(lane->control().completions[SlotIndex(3)], 3, 5);  // no status is positive
  Run();
  ASSERT_THAT(world_->slices, SizeIs(2));
  EXPECT_EQ(world_->slices[0].status, kMalformedCompletion);
  EXPECT_EQ(world_->slices[1].status, kMalformedCompletion);
  EXPECT_TRUE(actor_->Drained());
}

TEST_F(CqPollActorTest, ADeadPeersLaneIsLookedAtOnceMoreAndLeft) {
  const auto lane = Relays::Get().Map(4);
  Ready(0, *lane);
  world_->rung_out.Send({2, 0});
  world_->rung_out.Send({3, 0});
  Run();
  CommitCompletion(lane->control().completions[SlotIndex(2)], 2, 0);
  world_->close_out.Send({.lane = 0, .end = LaneEnd::kPeerDead});
  Run();
  EXPECT_THAT(world_->slices, SizeIs(1));
  EXPECT_THAT(world_->closed, SizeIs(1));
  EXPECT_TRUE(actor_->Drained());
  CommitCompletion(lane->control().completions[SlotIndex(3)], 3, 0);
  Run();
  EXPECT_THAT(world_->slices, SizeIs(1));
}

TEST_F(CqPollActorTest, WhatAStalePeerStillCompletesIsPassedOn) {
  const auto lane = Relays::Get().Map(4);
  Ready(0, *lane);
  world_->rung_out.Send({2, 0});
  Run();
  world_->close_out.Send({.lane = 0, .end = LaneEnd::kStale});
  Run();
  EXPECT_THAT(world_->closed, SizeIs(1));
  world_->rung_out.Send({3, 0});  // its copy was under way
  Run();
  CommitCompletion(lane->control().completions[SlotIndex(2)], 2, 0);
  CommitCompletion(lane->control().completions[SlotIndex(3)], 3, 0);
  Run();
  EXPECT_THAT(world_->slices, SizeIs(2));
  EXPECT_TRUE(actor_->Drained());
}

TEST_F(CqPollActorTest, AFlushGivesUpWhatARelayKeeps) {
  const auto lane = Relays::Get().Map(4);
  Ready(0, *lane);
  world_->rung_out.Send({2, 0});
  Run();
  EXPECT_FALSE(actor_->Drained());
  actor_->OnStop();
  EXPECT_FALSE(actor_->Drained());
  actor_->OnFlush();
  EXPECT_TRUE(actor_->Drained());
}

// --- Parking

TEST_F(CqPollActorTest, ACompletionWrittenWhileParkingIsFound) {
  const auto lane = Relays::Get().Map(4);
  Ready(0, *lane);
  world_->rung_out.Send({2, 0});
  Run();
  actor_->OnPark();
  FullFence();
  EXPECT_EQ(memory_.side->file().parked[1].parked, 1u);
  EXPECT_EQ(nic_.armed, 1);
  EXPECT_EQ(other_nic_.armed, 1);
  CommitCompletion(lane->control().completions[SlotIndex(2)], 2, 0);
  EXPECT_NE(reactor_.RunPass(), 0u);
  actor_->OnUnpark();
  EXPECT_EQ(memory_.side->file().parked[1].parked, 0u);
  EXPECT_EQ(nic_.armed, 0);
}

TEST_F(CqPollActorTest, ANicsDescriptorWakesTheReactor) {
  EXPECT_EQ(reactor_.loop().RunReady(), 0);
  other_nic_.WakePoller();
  EXPECT_EQ(reactor_.loop().RunReady(), 1);
  EXPECT_EQ(reactor_.loop().RunReady(), 0);  // edge-triggered
  other_nic_.WakePoller();
  EXPECT_EQ(reactor_.loop().RunReady(), 1);
}

TEST_F(CqPollActorTest, TheEarliestNicSaysWhenToLook) {
  nic_.park_until = 900;
  other_nic_.park_until = 700;
  actor_->OnPark();
  EXPECT_EQ(actor_->NextPoll(0), 700u);
  actor_->OnUnpark();
  nic_.park_until = other_nic_.park_until = Nic::kNoDeadline;
  actor_->OnPark();
  EXPECT_EQ(actor_->NextPoll(0), Poller::kNever);
  actor_->OnUnpark();
}

TEST_F(CqPollActorTest, AnOldRelayIsPolledMoreAndMoreRarely) {
  const auto lane = Relays::Get().Map(4, /*version_one=*/true);
  Ready(0, *lane);
  actor_->OnPark();
  EXPECT_EQ(actor_->NextPoll(hand_.clock().now()), Poller::kNever);
  actor_->OnUnpark();
  uint64_t interval = ToCycles(microseconds(50));
  world_->rung_out.Send({2, 0});
  Run();
  actor_->OnPark();
  for (int i = 0; i < 10; ++i) {
    const uint64_t now = hand_.clock().now();
    EXPECT_EQ(actor_->NextPoll(now), now + interval);
    hand_.clock().Advance(interval);
    interval = std::min(2 * interval, ToCycles(milliseconds(5)));
  }
  EXPECT_EQ(interval, ToCycles(milliseconds(5)));
  CommitCompletion(lane->control().completions[SlotIndex(2)], 2, 0);
  Run();
  EXPECT_EQ(actor_->NextPoll(hand_.clock().now()), Poller::kNever);
  actor_->OnUnpark();
}

TEST_F(CqPollActorTest, ANewRelayNeedsNoTimer) {
  const auto lane = Relays::Get().Map(4);
  Ready(0, *lane);
  world_->rung_out.Send({2, 0});
  Run();
  actor_->OnPark();
  EXPECT_EQ(actor_->NextPoll(hand_.clock().now()), Poller::kNever);
  actor_->OnUnpark();
}

}  // namespace
}  // namespace railhop
