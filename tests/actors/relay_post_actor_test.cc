#include "actors/relay_post_actor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/actors/relay_support.h"
#include "tests/actors/scripted_nic.h"
#include "tests/support/hand_driven_system.h"

namespace railhop {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kSlice = 64 * 1024;
constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kBase = 0x1000'0000;  // of the targets' buffers

// All other actors at once, and the poller of the NICs.
class World : public Actor {
 public:
  using Actor::Actor;
  bool OnPosted(const JobPosted& message) {
    posted.push_back(message);
    open[message.job] = message;
    return true;
  }
  bool OnRefused(const PieceRefused& message) {
    if (!take_refused) return false;
    refused.push_back(message);
    return true;
  }
  bool OnResolve(const ResolveTarget& message) {
    resolve.push_back(message);
    names.emplace_back(message.session, message.length);
    return true;
  }
  bool OnError(const EndpointError& message) { return errors.push_back(message), true; }
  bool OnSeen(const SenderSeen& message) { return seen.push_back(message), true; }
  bool OnDrained(const SenderDrained& message) { return drained.push_back(message), true; }

  // Polls a NIC as CqPollActor does. Returns the jobs that ended.
  std::vector<JobPosted> PollNic(ScriptedNic& nic, uint32_t number = 0) {
    std::vector<JobPosted> ended;
    std::array<NicCompletion, 1> one;
    while (nic.Peek(one) != 0) {
      nic.Advance(1);
      const JobTag tag = JobTag::FromWord(one[0].user_data);
      EXPECT_EQ(open.count(tag.job), 1u) << "a completion before its JobPosted";
      if (!tag.last) {
        room_out.TrySend({number});
        continue;
      }
      ended.push_back(open[tag.job]);
      open.erase(tag.job);
      job_out.Send({tag.job, tag.cut ? FabricStatus::kFlushed : one[0].status});
      if (tag.cut) cut.push_back(ended.back());
    }
    return ended;
  }

  std::vector<JobPosted> posted, cut;
  std::map<uint32_t, JobPosted> open;  // by job
  bool take_refused = true;
  std::vector<PieceRefused> refused;
  std::vector<ResolveTarget> resolve;
  std::vector<std::string> names;
  std::vector<EndpointError> errors;
  std::vector<SenderSeen> seen;
  std::vector<SenderDrained> drained;

  OutPort<PostSlice> slice_out;
  OutPort<JobDone> job_out;
  OutPort<RoomReturned> room_out;
  OutPort<TargetReady> ready_out;
  OutPort<TargetFailed> failed_out;
  OutPort<CloseEndpoint> close_out;
  OutPort<SenderAdmitted> admitted_out;
  OutPort<SenderLost> lost_out;
};

class RelayPostActorTest : public ::testing::Test {
 protected:
  // Before anything else of the test: the actor, with the options it wants.
  void Make(uint32_t depth = 256, uint64_t inflight = 4 * kSlotBytes, size_t nic_count = 1) {
    for (size_t i = 0; i < nic_count; ++i) nics_.push_back(std::make_unique<ScriptedNic>(depth));
    RelayPostActor::Options options;
    options.control = memory_.block.get();
    options.side = &*memory_.side;
    options.epoch = RelayMemory::kEpoch;
    options.arena = memory_.arena();
    for (const auto& nic : nics_) {
      options.nics.push_back(nic.get());
      options.arena_lkeys.push_back(40 + static_cast<uint32_t>(options.arena_lkeys.size()));
    }
    options.slice = {.bytes = kSlice};
    options.inflight_bytes = inflight;
    options.piece_timeout = seconds(5);
    reactor_ = &hand_.AddReactor("post");
    Reactor& world = hand_.AddReactor("world");
    ActorSystem& system = hand_.system();
    actor_ = &system.AddActor<RelayPostActor>(*reactor_, "relay_post", options);
    world_ = &system.AddActor<World>(world, "world");
    const EdgeOptions jobs{.capacity = kJobEdgeCapacity};
    system.Connect<&World::OnPosted>(*actor_, actor_->posted_out, *world_, jobs);
    system.Connect<&World::OnRefused>(*actor_, actor_->refused_out, *world_, {.capacity = 8});
    system.Connect<&World::OnResolve>(*actor_, actor_->resolve_out, *world_, {.capacity = 4});
    system.Connect<&World::OnError>(*actor_, actor_->error_out, *world_, {.capacity = 4});
    system.Connect<&World::OnSeen>(*actor_, actor_->seen_out, *world_, {.capacity = 4});
    system.Connect<&World::OnDrained>(*actor_, actor_->drained_out, *world_, {.capacity = 4});
    const EdgeOptions control{.capacity = 16, .control = true};
    system.Connect<&RelayPostActor::OnPostSlice>(*world_, world_->slice_out, *actor_,
                                                 {.capacity = 1024});
    system.Connect<&RelayPostActor::OnJobDone>(*world_, world_->job_out, *actor_, jobs);
    system.Connect<&RelayPostActor::OnRoomReturned>(*world_, world_->room_out, *actor_,
                                                    {.capacity = 4});
    system.Connect<&RelayPostActor::OnTargetReady>(*world_, world_->ready_out, *actor_, control);
    system.Connect<&RelayPostActor::OnTargetFailed>(*world_, world_->failed_out, *actor_, control);
    system.Connect<&RelayPostActor::OnCloseEndpoint>(*world_, world_->close_out, *actor_, control);
    system.Connect<&RelayPostActor::OnSenderAdmitted>(*world_, world_->admitted_out, *actor_,
                                                      control);
    system.Connect<&RelayPostActor::OnSenderLost>(*world_, world_->lost_out, *actor_, control);
    hand_.Start();
  }

  ScriptedNic& nic(size_t i = 0) { return *nics_[i]; }
  void Run() { hand_.RunUntilIdle(); }

  const TargetRoute& Know(TargetRoute route) {
    routes_.push_back(std::make_unique<TargetRoute>(std::move(route)));
    world_->ready_out.Send({routes_.back().get(), kNoToken});
    Run();
    return *routes_.back();
  }
  // The answer to the latest question.
  const TargetRoute& Resolve(TargetRoute route) {
    routes_.push_back(std::make_unique<TargetRoute>(std::move(route)));
    world_->ready_out.Send({routes_.back().get(), world_->resolve.back().token});
    Run();
    return *routes_.back();
  }
  LaneUser Claim(uint32_t lane, uint64_t epoch, bool version_one = false) {
    LaneUser user(memory_, lane, epoch, version_one);
    Run();
    world_->admitted_out.Send({epoch, lane});
    Run();
    return user;
  }
  // Ends all requests of an endpoint well, as long as more are posted. Returns the ended jobs.
  std::vector<JobPosted> FinishAll(EndpointId endpoint, size_t number = 0) {
    std::vector<JobPosted> all;
    for (;;) {
      const size_t done = nic(number).Complete(endpoint);
      const auto ended = world_->PollNic(nic(number), static_cast<uint32_t>(number));
      all.insert(all.end(), ended.begin(), ended.end());
      Run();
      if (done == 0 && ended.empty()) return all;
    }
  }
  static std::vector<uint64_t> Sequences(const std::vector<JobPosted>& jobs) {
    std::vector<uint64_t> sequences;
    for (const JobPosted& job : jobs) sequences.push_back(job.sequence);
    return sequences;
  }
  uint64_t ClaimOf(const LaneUser& user, uint64_t sequence) {
    return user.side().claims[SlotIndex(sequence)];
  }
  PostSlice Slice(const TargetRoute& route, uint64_t token, uint64_t length,
                  uint64_t address = kBase) {
    return {.local = reinterpret_cast<std::byte*>(0x5000),
            .remote_address = address,
            .length = length,
            .token = token,
            .target = &route,
            .lkey = 3,
            .path = 0,
            .opcode = FabricOpcode::kWrite};
  }

  RelayMemory memory_;
  std::vector<std::unique_ptr<ScriptedNic>> nics_;
  std::vector<std::unique_ptr<TargetRoute>> routes_;
  HandDrivenSystem hand_;
  Reactor* reactor_ = nullptr;
  RelayPostActor* actor_ = nullptr;
  World* world_ = nullptr;
};

// --- One piece

TEST_F(RelayPostActorTest, PostsAPieceInSlices) {
  Make();
  Know(MakeRoute(0, "t"));
  LaneUser user = Claim(2, 500);
  const std::vector<PlanEntry> plan = {
      {kBase, kSlice}, {kBase + kSlice, 100}, {kBase + 0x100000, 50}};
  const uint64_t sequence = user.Send("t", plan);
  Run();
  ASSERT_THAT(world_->posted, SizeIs(1));
  const JobPosted& job = world_->posted[0];
  EXPECT_EQ(job.sequence, sequence);
  EXPECT_EQ(job.lane, 2u);
  EXPECT_EQ(job.sender_epoch, 500u);
  EXPECT_EQ(job.length, kSlice + 150u);
  EXPECT_EQ(job.target_version, 1u);
  ASSERT_THAT(nic().posted, SizeIs(3));
  const WorkRequest& first = nic().posted[0];
  EXPECT_EQ(first.opcode, FabricOpcode::kWrite);
  EXPECT_EQ(first.endpoint, 1u);
  EXPECT_EQ(first.lkey, 40u);
  EXPECT_EQ(first.rkey, 9u);
  EXPECT_EQ(first.length, kSlice);
  EXPECT_EQ(first.local, memory_.slot(2, sequence));
  EXPECT_EQ(nic().posted[2].local, memory_.slot(2, sequence) + kSlice + 100);
  EXPECT_EQ(nic().posted[2].remote_address, kBase + 0x100000);
  EXPECT_FALSE(first.signaled);
  EXPECT_TRUE(nic().posted[2].signaled);
  EXPECT_EQ(JobTag::FromWord(nic().posted[2].user_data).job, job.job);
  EXPECT_TRUE(JobTag::FromWord(nic().posted[2].user_data).last);
  EXPECT_FALSE(JobTag::FromWord(first.user_data).last);
  EXPECT_EQ(ClaimOf(user, sequence), ClaimWord(sequence, ClaimState::kTaken));
  EXPECT_EQ(nic().submits, 1u);  // rung once
  EXPECT_FALSE(actor_->Drained());
  EXPECT_THAT(FinishAll(1), SizeIs(1));
  EXPECT_TRUE(actor_->Drained());
}

TEST_F(RelayPostActorTest, ReadsNothingBeforeItsSenderIsAdmitted) {
  Make();
  Know(MakeRoute(0, "t"));
  LaneUser user(memory_, 0, 500);
  user.Send("t", kBase, 10);
  Run();
  ASSERT_THAT(world_->seen, SizeIs(1));
  EXPECT_EQ(world_->seen[0].sender_epoch, 500u);
  EXPECT_EQ(world_->seen[0].lane, 0u);
  EXPECT_THAT(world_->posted, IsEmpty());
  world_->admitted_out.Send({500, 0});
  Run();
  EXPECT_THAT(world_->posted, SizeIs(1));
  EXPECT_THAT(world_->seen, SizeIs(1));
}

TEST_F(RelayPostActorTest, ABadDescriptorIsRefusedAndTheLaneGoesOn) {
  Make();
  Know(MakeRoute(0, "t"));
  LaneUser user = Claim(0, 500);
  const PlanEntry entry{kBase, 1};
  const uint64_t probe = user.Write("probe", {&entry, 1}, RelayMemory::kEpoch - 1);
  const uint64_t good = user.Write("t", {&entry, 1});
  const uint64_t bad = user.Write("t", {&entry, 1});
  user.control().descriptors[SlotIndex(bad)].reserved = 1;
  const uint64_t last = user.Send("t", kBase, 1);
  Run();
  ASSERT_THAT(world_->refused, SizeIs(2));
  EXPECT_EQ(world_->refused[0].sequence, probe);
  EXPECT_EQ(world_->refused[0].status, RelayStatus::kBadDescriptor);
  EXPECT_EQ(world_->refused[0].sender_epoch, 500u);
  EXPECT_EQ(world_->refused[1].sequence, bad);
  EXPECT_THAT(Sequences(world_->posted), ElementsAre(good, last));
}

TEST_F(RelayPostActorTest, ARevokedPieceIsRefusedAndNeverPosted) {
  Make();
  LaneUser user = Claim(0, 500);
  const uint64_t sequence = user.Send("t", kBase, 10);  // waits for its session
  Run();
  ASSERT_TRUE(RevokePiece(user.side(), sequence));
  Resolve(MakeRoute(0, "t"));
  ASSERT_THAT(world_->refused, SizeIs(1));
  EXPECT_EQ(world_->refused[0].status, RelayStatus::kRevoked);
  EXPECT_THAT(world_->posted, IsEmpty());
  EXPECT_THAT(nic().posted, IsEmpty());
}

TEST_F(RelayPostActorTest, AVersionOneSenderHasNoClaims) {
  Make();
  Know(MakeRoute(0, "t"));
  LaneUser user = Claim(0, 500, /*version_one=*/true);
  user.Send("t", kBase, 10);
  Run();
  EXPECT_THAT(world_->posted, SizeIs(1));
}

TEST_F(RelayPostActorTest, ADestinationOutsideTheRegistrationsIsRefusedWhole) {
  Make();
  Know(MakeRoute(0, "t", 1, {MakeBuffer(kBase, 1000, 1), MakeBuffer(kBase + 1000, 1000, 2)}));
  LaneUser user = Claim(0, 500);
  user.Send("t", kBase, 2001);
  const uint64_t across = user.Send("t", kBase, 2000);
  Run();
  EXPECT_THAT(world_->refused, IsEmpty()) << "it may have been registered since";
  ASSERT_THAT(world_->names, ElementsAre("t"));
  world_->ready_out.Send({routes_.back().get(), world_->resolve.back().token});
  Run();
  EXPECT_THAT(world_->names, SizeIs(1)) << "asked once";
  ASSERT_THAT(world_->refused, SizeIs(1));
  EXPECT_EQ(world_->refused[0].status, RelayStatus::kRemoteAccess);
  EXPECT_EQ(world_->refused[0].sequence, 1u);
  ASSERT_THAT(Sequences(world_->posted), ElementsAre(across));
  ASSERT_THAT(nic().posted, SizeIs(2));  // cut where one registration ends
  EXPECT_EQ(nic().posted[0].rkey, 1u);
  EXPECT_EQ(nic().posted[1].rkey, 2u);
}

TEST_F(RelayPostActorTest, ARangeThatWasRegisteredSinceIsFoundByAsking) {
  Make();
  Know(MakeRoute(0, "t", 1, {MakeBuffer(kBase, 1000, 1)}));
  LaneUser user = Claim(0, 500);
  const uint64_t sequence = user.Send("t", kBase + 5000, 10);
  Run();
  ASSERT_THAT(world_->names, ElementsAre("t"));
  TargetRoute anew = MakeRoute(0, "t", 1, {MakeBuffer(kBase + 5000, 1000, 3)});
  anew.version = 2;
  Resolve(std::move(anew));
  EXPECT_THAT(world_->refused, IsEmpty());
  ASSERT_THAT(Sequences(world_->posted), ElementsAre(sequence));
  EXPECT_EQ(nic().posted[0].rkey, 3u);
}

TEST_F(RelayPostActorTest, APathUsesTheKeysOfTheTargetsNicThatItLeadsTo) {
  Make(256, 4 * kSlotBytes, 2);
  TargetRoute route = MakeRoute(0, "t", 2, {MakeBuffer(kBase, kMiB, 9)});
  route.buffers[0].rkeys = {50, 51, 52};
  route.buffers[0].paths = {MakePath(1, 2), MakePath(0, 1)};
  route.endpoints[MakePath(1, 2)] = 5;
  route.endpoints[MakePath(0, 1)] = 6;
  Know(std::move(route));
  LaneUser user = Claim(0, 500);
  for (int i = 0; i < 2; ++i) user.Send("t", kBase, 10);
  Run();
  ASSERT_THAT(nic(1).posted, SizeIs(1));
  EXPECT_EQ(nic(1).posted[0].endpoint, 5u);
  EXPECT_EQ(nic(1).posted[0].rkey, 52u);
  EXPECT_EQ(nic(1).posted[0].lkey, 41u);
  ASSERT_THAT(nic(0).posted, SizeIs(1));
  EXPECT_EQ(nic(0).posted[0].endpoint, 6u);
  EXPECT_EQ(nic(0).posted[0].rkey, 51u);
}

TEST_F(RelayPostActorTest, TakesTheNicThatTheSenderExpects) {
  Make(256, 4 * kSlotBytes, 3);
  Know(MakeRoute(0, "t", 3, {MakeBuffer(kBase, kMiB, 9, {2, 0})}));
  LaneUser user = Claim(0, 500);
  for (int i = 0; i < 4; ++i) user.Send("t", kBase, 10);
  Run();
  ASSERT_THAT(world_->posted, SizeIs(4));
  for (const JobPosted& job : world_->posted) {
    EXPECT_EQ(job.path, MakePath(job.sequence % 2 == 0 ? 2 : 0));
  }
  EXPECT_EQ(nic(2).posted[0].endpoint, 3u);
  EXPECT_EQ(nic(2).posted[0].lkey, 42u);
  EXPECT_THAT(nic(1).posted, IsEmpty());
}

TEST_F(RelayPostActorTest, AnotherNicStandsInForOneThatIsNotConnected) {
  Make(256, 4 * kSlotBytes, 2);
  TargetRoute route = MakeRoute(0, "t", 2, {MakeBuffer(kBase, kMiB, 9, {0})});
  route.endpoints[0] = 0;
  Know(std::move(route));
  LaneUser user = Claim(0, 500);
  user.Send("t", kBase, 10);
  Run();
  ASSERT_THAT(world_->posted, SizeIs(1));
  EXPECT_EQ(world_->posted[0].path, MakePath(1));
  TargetRoute none = MakeRoute(1, "none", 2);
  none.endpoints.assign(PathCount(2), 0);
  Know(std::move(none));
  user.Send("none", kBase, 10);
  Run();
  ASSERT_THAT(world_->refused, SizeIs(1));
  EXPECT_EQ(world_->refused[0].status, RelayStatus::kTransport);
}

// --- Lanes

TEST_F(RelayPostActorTest, AnUnknownSessionIsAskedForOnceAndThePiecesWait) {
  Make();
  Know(MakeRoute(1, "other"));
  LaneUser user = Claim(0, 500);
  LaneUser second = Claim(1, 501);
  user.Send("t", kBase, 10);
  second.Send("t", kBase, 10);
  const uint64_t other = user.Send("other", kBase, 10);
  Run();
  ASSERT_THAT(world_->names, ElementsAre("t"));
  EXPECT_THAT(Sequences(world_->posted), ElementsAre(other));  // overtakes
  const TargetRoute route = MakeRoute(0, "t");
  world_->ready_out.Send({&route, world_->resolve[0].token});
  Run();
  EXPECT_THAT(world_->posted, SizeIs(3));
  EXPECT_THAT(world_->names, SizeIs(1));
}

TEST_F(RelayPostActorTest, AFailedSessionIsRefusedAndAskedForAnew) {
  Make();
  LaneUser user = Claim(0, 500);
  user.Send("t", kBase, 10);
  Run();
  ASSERT_THAT(world_->resolve, SizeIs(1));
  world_->failed_out.Send({.target = kMaxTargets,
                           .token = world_->resolve[0].token,
                           .error = TransferError::kUnknownTarget});
  Run();
  ASSERT_THAT(world_->refused, SizeIs(1));
  EXPECT_EQ(world_->refused[0].status, RelayStatus::kUnknownTarget);
  user.Send("t", kBase, 10);
  Run();
  EXPECT_THAT(world_->names, ElementsAre("t", "t"));
}

TEST_F(RelayPostActorTest, MoreSessionsThanCanBeAskedForAtOnce) {
  Make();
  LaneUser user = Claim(0, 500);
  for (uint32_t i = 0; i < kSlotsPerLane; ++i) user.Send("t" + std::to_string(i), kBase, 10);
  Run();
  EXPECT_THAT(world_->resolve, SizeIs(16));
  std::vector<TargetRoute> routes;
  for (uint32_t i = 0; i < kSlotsPerLane; ++i) {
    routes.push_back(MakeRoute(i, "t" + std::to_string(i)));
  }
  for (size_t i = 0; i < world_->resolve.size(); ++i) {
    const auto index = static_cast<size_t>(std::stoi(world_->names[i].substr(1)));
    world_->ready_out.Send({&routes[index], world_->resolve[i].token});
    Run();
  }
  EXPECT_THAT(world_->resolve, SizeIs(kSlotsPerLane));
  EXPECT_THAT(world_->posted, SizeIs(kSlotsPerLane));
}

TEST_F(RelayPostActorTest, AWaitingPieceFollowsItsTargetToANewConnection) {
  Make(256, kSlotBytes);
  Know(MakeRoute(0, "t"));
  LaneUser user = Claim(0, 500);
  for (int i = 0; i < 2; ++i) user.Send("t", kBase, kSlotBytes);  // one is in flight, one waits
  Run();
  ASSERT_THAT(world_->posted, SizeIs(1));
  TargetRoute anew = MakeRoute(0, "t");
  anew.version = 2;
  anew.endpoints[0] = 77;
  Know(std::move(anew));
  FinishAll(1);
  ASSERT_THAT(world_->posted, SizeIs(2));
  EXPECT_EQ(world_->posted[1].target_version, 2u);
  EXPECT_EQ(nic().posted.back().endpoint, 77u);
}

TEST_F(RelayPostActorTest, AFailedTargetEndsWhatWaitsForIt) {
  Make(256, kSlotBytes);
  const TargetRoute& route = Know(MakeRoute(0, "t"));
  LaneUser user = Claim(0, 500);
  for (int i = 0; i < 2; ++i) user.Send("t", kBase, kSlotBytes);
  Run();
  world_->failed_out.Send({.target = route.index,
                           .token = kNoToken,
                           .error = TransferError::kTargetDead,
                           .version = route.version});
  Run();
  ASSERT_THAT(world_->refused, SizeIs(1));
  EXPECT_EQ(world_->refused[0].sequence, 2u);
  EXPECT_EQ(world_->refused[0].status, RelayStatus::kTransport);
}

TEST_F(RelayPostActorTest, APieceThatWaitsTooLongIsRefused) {
  Make();
  LaneUser user = Claim(0, 500);
  user.Send("t", kBase, 10);
  Run();
  hand_.clock().Advance(ToCycles(seconds(3)));
  const uint64_t later = user.Send("t", kBase, 10);
  Run();
  hand_.clock().Advance(ToCycles(seconds(2)) + 10);
  Run();
  ASSERT_THAT(world_->refused, SizeIs(1));
  EXPECT_EQ(world_->refused[0].status, RelayStatus::kDeadline);
  EXPECT_EQ(world_->refused[0].sequence, 1u);
  Resolve(MakeRoute(0, "t"));
  EXPECT_THAT(Sequences(world_->posted), ElementsAre(later));
}

TEST_F(RelayPostActorTest, ANonsensicalDoorbellQuarantinesThatLaneAlone) {
  Make();
  Know(MakeRoute(0, "t"));
  LaneUser mad = Claim(0, 500);
  LaneUser good = Claim(1, 501);
  mad.Ring(19);
  good.Send("t", kBase, 10);
  Run();
  EXPECT_EQ(actor_->stats().lanes_quarantined.load(), 1u);
  EXPECT_THAT(world_->posted, SizeIs(1));
  mad.Send("t", kBase, 10);
  Run();
  EXPECT_THAT(world_->posted, SizeIs(1));
  LaneUser anew = Claim(0, 502);
  anew.Send("t", kBase, 10);
  Run();
  EXPECT_THAT(world_->posted, SizeIs(2));
  EXPECT_EQ(actor_->stats().lanes_quarantined.load(), 1u);
}

TEST_F(RelayPostActorTest, ASenderThatRunsAheadOfItsCompletionsWaits) {
  Make();
  LaneUser user = Claim(0, 500);
  for (uint32_t i = 0; i < kSlotsPerLane + 3; ++i) {
    user.Send("t", kBase + i, 1);
    Run();
  }
  EXPECT_EQ(actor_->stats().pieces_read.load(), kSlotsPerLane);
  Resolve(MakeRoute(0, "t"));
  EXPECT_THAT(world_->posted, SizeIs(kSlotsPerLane));
  FinishAll(1);
  EXPECT_THAT(world_->posted, SizeIs(kSlotsPerLane + 3));
  for (size_t i = 0; i < nic().posted.size(); ++i) {
    EXPECT_EQ(nic().posted[i].remote_address, kBase + i);
  }
}

TEST_F(RelayPostActorTest, AFullEdgeOfRefusalsLosesNone) {
  Make();
  world_->take_refused = false;
  LaneUser user = Claim(0, 500);
  const PlanEntry entry{kBase, 1};
  for (uint32_t i = 0; i < kSlotsPerLane; ++i) user.Write("t", {&entry, 1}, 3);
  user.Ring(kSlotsPerLane);
  for (int i = 0; i < 10; ++i) hand_.RunAll();
  EXPECT_EQ(actor_->stats().pieces_read.load(), 8u);  // as many as the edge holds
  world_->take_refused = true;
  Run();
  EXPECT_THAT(world_->refused, SizeIs(kSlotsPerLane));
}

TEST_F(RelayPostActorTest, ALaneThatChangesHandsDropsWhatWaited) {
  Make(256, kSlotBytes);
  Know(MakeRoute(0, "t"));
  LaneUser old = Claim(0, 500, /*version_one=*/true);
  for (int i = 0; i < 3; ++i) old.Send("t", kBase, kSlotBytes);
  Run();
  ASSERT_THAT(Sequences(world_->posted), ElementsAre(1u));
  // A version-1 process cleared the lane of one that it took for dead, and claimed it.
  LaneUser anew = Claim(0, 600, /*version_one=*/true);
  anew.Send("t", kBase, 20);  // in the slot that is still being sent
  Run();
  EXPECT_EQ(actor_->stats().pieces_dropped.load(), 2u);
  EXPECT_THAT(world_->posted, SizeIs(1));
  FinishAll(1);
  ASSERT_THAT(world_->posted, SizeIs(2));
  EXPECT_EQ(world_->posted[1].sender_epoch, 600u);
  EXPECT_EQ(world_->posted[1].sequence, 1u);
  EXPECT_GT(world_->posted[1].lane_generation, world_->posted[0].lane_generation);
  EXPECT_THAT(world_->refused, IsEmpty());
}

TEST_F(RelayPostActorTest, ADeadSenderIsDroppedAndItsJobsAreCutShort) {
  Make(8);
  Know(MakeRoute(0, "t"));
  Know(MakeRoute(1, "u"));
  LaneUser user = Claim(0, 500);
  LaneUser other = Claim(1, 501);
  user.Send("t", kBase, 20 * kSlice);  // more than the queue is deep
  user.Send("u", kBase, 10);
  user.Send("unknown", kBase, 10);
  other.Send("t", kBase, 10);
  Run();
  const size_t before = nic().posted.size();
  world_->lost_out.Send({500, 0});
  Run();
  EXPECT_THAT(world_->drained, IsEmpty());
  // Nothing of it follows but the end of the piece.
  ASSERT_EQ(nic().posted.size(), before + 1);
  EXPECT_EQ(nic().posted.back().length, 0u);
  EXPECT_TRUE(JobTag::FromWord(nic().posted.back().user_data).cut);
  user.Send("t", kBase, 10);
  Run();
  EXPECT_EQ(nic().posted.size(), before + 1);
  FinishAll(1);
  EXPECT_THAT(world_->drained, IsEmpty());  // the other endpoint is still at it
  FinishAll(11);
  ASSERT_THAT(world_->drained, SizeIs(1));
  EXPECT_EQ(world_->drained[0].sender_epoch, 500u);
  EXPECT_EQ(world_->drained[0].lane, 0u);
  EXPECT_THAT(world_->cut, SizeIs(1));
  EXPECT_THAT(world_->refused, IsEmpty());
  // The relay takes the lane over; it is nobody's then, whatever stands in it.
  StoreRelease(user.control().header.sender_epoch, RelayMemory::kEpoch);
  Run();
  LaneUser anew = Claim(0, 502);
  anew.Send("t", kBase, 30);
  Run();
  EXPECT_EQ(nic().posted.back().length, 30u);
}

TEST_F(RelayPostActorTest, ASenderThatWasNeverReadIsDrainedAtOnce) {
  Make();
  world_->lost_out.Send({500, 3});
  Run();
  EXPECT_THAT(world_->drained, SizeIs(1));
  // An admission that was on the way comes too late.
  LaneUser user(memory_, 3, 500);
  world_->admitted_out.Send({500, 3});
  user.Send("t", kBase, 10);
  Run();
  EXPECT_EQ(actor_->stats().pieces_read.load(), 0u);
}

// --- Sharing

TEST_F(RelayPostActorTest, TheBudgetIsInBytes) {
  Make(4096, 2 * kMiB);
  for (uint32_t i = 0; i < 4; ++i) Know(MakeRoute(i, "t" + std::to_string(i)));
  LaneUser user = Claim(0, 500);
  for (uint32_t i = 0; i < 16; ++i) user.Send("t" + std::to_string(i % 4), kBase, kMiB / 4);
  Run();
  EXPECT_THAT(world_->posted, SizeIs(8));
  nic().Complete(1, 4);  // one piece
  world_->PollNic(nic());
  Run();
  EXPECT_THAT(world_->posted, SizeIs(9));
}

TEST_F(RelayPostActorTest, OneTargetHasHalfOfTheBudgetAndTheRestIsSetAside) {
  Make(4096, 4 * kMiB);
  Know(MakeRoute(0, "slow"));
  Know(MakeRoute(1, "quick"));
  LaneUser user = Claim(0, 500);
  for (int i = 0; i < 5; ++i) user.Send("slow", kBase, kMiB);
  const uint64_t quick = user.Send("quick", kBase, kMiB);
  Run();
  EXPECT_THAT(Sequences(world_->posted), ElementsAre(1u, 2u, quick));
  // Set aside, and the sender's again if it wants.
  EXPECT_EQ(ClaimOf(user, 3), ClaimWord(3, ClaimState::kOffered));
  ASSERT_TRUE(RevokePiece(user.side(), 3));
  FinishAll(1);
  EXPECT_THAT(Sequences(world_->posted), ElementsAre(1u, 2u, quick, 4u, 5u));
  ASSERT_THAT(world_->refused, SizeIs(1));
  EXPECT_EQ(world_->refused[0].sequence, 3u);
}

TEST_F(RelayPostActorTest, OnePieceIsAlwaysLetThrough) {
  Make(4096, 4 * kMiB);
  Know(MakeRoute(0, "t"));
  LaneUser user = Claim(0, 500);
  for (int i = 0; i < 2; ++i) user.Send("t", kBase, kSlotBytes);  // twice the whole budget
  Run();
  EXPECT_THAT(Sequences(world_->posted), ElementsAre(1u));
  FinishAll(1);
  EXPECT_THAT(Sequences(world_->posted), ElementsAre(1u, 2u));
}

TEST_F(RelayPostActorTest, LanesAndSlicesGetEqualBytes) {
  Make(4096, 4 * kMiB);
  std::vector<const TargetRoute*> targets;
  for (uint32_t i = 0; i < 3; ++i) {
    targets.push_back(&Know(MakeRoute(i, "t" + std::to_string(i))));
  }
  LaneUser big = Claim(0, 500);
  LaneUser small = Claim(1, 501);
  std::map<uint32_t, uint64_t> bytes;  // by lane
  uint64_t big_sent = 0, small_sent = 0, slices = 0;
  while (bytes[0] + bytes[1] + bytes[kDirectLane] < 60 * kMiB) {
    // Every source has always something to send.
    while (big_sent - big.completed() < kSlotsPerLane) {
      big.Send("t0", kBase, kMiB);
      ++big_sent;
    }
    while (small_sent - small.completed() < kSlotsPerLane) {
      small.Send("t1", kBase, kMiB / 8);
      ++small_sent;
    }
    while (slices < 200) {
      world_->slice_out.Send(Slice(*targets[2], 0, kMiB / 4));
      ++slices;
    }
    Run();
    // What was posted first ends first, whoever it belongs to.
    const WorkRequest oldest = nic().posted.front();
    nic().Complete(oldest.endpoint, 1);
    nic().posted.erase(nic().posted.begin());
    for (const JobPosted& job : world_->PollNic(nic())) {
      bytes[job.lane] += job.length;
      if (job.lane == kDirectLane) --slices;
      if (job.lane == 0) StoreRelease(big.control().header.completed, job.sequence);
      if (job.lane == 1) StoreRelease(small.control().header.completed, job.sequence);
    }
    Run();
  }
  const double total = static_cast<double>(bytes[0] + bytes[1] + bytes[kDirectLane]);
  for (const uint32_t lane : {0u, 1u, kDirectLane}) {
    EXPECT_NEAR(static_cast<double>(bytes[lane]), total / 3, 2.0 * kMiB) << lane;
  }
}

// --- Send queues

TEST_F(RelayPostActorTest, APieceOfManyMoreSlicesThanTheQueueIsDeep) {
  Make(4);
  Know(MakeRoute(0, "t"));
  LaneUser user = Claim(0, 500);
  user.Send("t", kBase, kSlotBytes);  // 128 slices
  Run();
  EXPECT_LE(nic().outstanding(1), 4u);
  EXPECT_THAT(FinishAll(1), SizeIs(1));
  ASSERT_THAT(nic().posted, SizeIs(128));
  for (size_t i = 0; i < 128; ++i) EXPECT_EQ(nic().posted[i].remote_address, kBase + i * kSlice);
  EXPECT_TRUE(actor_->Drained());
}

TEST_F(RelayPostActorTest, RoomForTheEndOfEveryBegunJobIsKeptBack) {
  Make(4);
  const TargetRoute& route = Know(MakeRoute(0, "t"));
  for (uint64_t i = 0; i < 10; ++i) world_->slice_out.Send(Slice(route, i, 5 * kSlice));
  Run();
  size_t ended = 0;
  for (int i = 0; i < 1000 && ended < 10; ++i) {
    nic().Complete(1, 1);
    ended += world_->PollNic(nic()).size();
    Run();
  }
  EXPECT_EQ(ended, 10u);
  EXPECT_THAT(nic().posted, SizeIs(50));
}

TEST_F(RelayPostActorTest, WithoutRoomAPieceStaysRevocable) {
  Make(4);
  Know(MakeRoute(0, "t"));
  LaneUser user = Claim(0, 500);
  for (int i = 0; i < 5; ++i) user.Send("t", kBase, 1);
  Run();
  EXPECT_LT(world_->posted.size(), 5u);
  EXPECT_EQ(ClaimOf(user, 5), ClaimWord(5, ClaimState::kOffered));
  hand_.clock().Advance(ToCycles(seconds(5)));
  Run();
  EXPECT_THAT(world_->refused, Contains(::testing::Field(&PieceRefused::sequence, 5u)));
  FinishAll(1);
  EXPECT_TRUE(actor_->Drained());
}

class RelayPostActorDepthTest : public RelayPostActorTest,
                                public ::testing::WithParamInterface<uint32_t> {};

TEST_P(RelayPostActorDepthTest, EveryQuarterOfTheQueueIsSignaled) {
  const uint32_t depth = GetParam();
  Make(depth);
  Know(MakeRoute(0, "t"));
  LaneUser user = Claim(0, 500);
  for (uint32_t slices = 1; slices <= 2 * depth; ++slices) {
    nic().posted.clear();
    user.Send("t", kBase, uint64_t{slices} * kSlice);
    Run();
    ASSERT_THAT(FinishAll(1), SizeIs(1));
    ASSERT_THAT(nic().posted, SizeIs(slices));
    EXPECT_TRUE(nic().posted.back().signaled);
    uint32_t silent = 0;
    for (const WorkRequest& request : nic().posted) {
      silent = request.signaled ? 0 : silent + 1;
      ASSERT_LT(silent, std::max(1u, depth / 4));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Depths, RelayPostActorDepthTest, ::testing::Values(2, 3, 4, 8, 16));

// --- Direct slices

TEST_F(RelayPostActorTest, DirectSlicesOfBothDirections) {
  Make();
  const TargetRoute& route = Know(MakeRoute(0, "t"));
  PostSlice slice = Slice(route, 1234, 100);
  slice.opcode = FabricOpcode::kRead;
  world_->slice_out.Send(slice);
  Run();
  ASSERT_THAT(world_->posted, SizeIs(1));
  EXPECT_EQ(world_->posted[0].lane, kDirectLane);
  EXPECT_EQ(world_->posted[0].token, 1234u);
  ASSERT_THAT(nic().posted, SizeIs(1));
  EXPECT_EQ(nic().posted[0].opcode, FabricOpcode::kRead);
  EXPECT_EQ(nic().posted[0].lkey, 3u);
  EXPECT_EQ(nic().posted[0].rkey, 9u);
  EXPECT_EQ(nic().posted[0].local, reinterpret_cast<void*>(0x5000));
}

TEST_F(RelayPostActorTest, ASliceGoesOverTheNewestConnection) {
  Make();
  const TargetRoute& old = Know(MakeRoute(0, "t"));
  TargetRoute anew = MakeRoute(0, "t");
  anew.version = 2;
  anew.endpoints[0] = 77;
  anew.buffers = {MakeBuffer(kBase, kMiB, 10)};
  Know(std::move(anew));
  world_->slice_out.Send(Slice(old, 1, 100));
  world_->slice_out.Send(Slice(old, 2, 100, kBase + kMiB));  // no longer registered
  Run();
  ASSERT_THAT(nic().posted, SizeIs(2));
  EXPECT_EQ(nic().posted[0].endpoint, 77u);
  EXPECT_EQ(nic().posted[0].rkey, 10u);
  EXPECT_EQ(nic().posted[1].endpoint, 77u);
  EXPECT_EQ(nic().posted[1].rkey, 9u);  // which the target refuses
  EXPECT_EQ(world_->posted[0].target_version, 2u);
}

TEST_F(RelayPostActorTest, SlicesWaitInTheEdgeWhenAllRecordsAreUsed) {
  Make(1024);
  const TargetRoute& route = Know(MakeRoute(0, "t"));
  for (uint64_t i = 0; i < kDirectJobs + 20; ++i) {
    world_->slice_out.Send(Slice(route, i, 1));
    if (i % 16 == 15) Run();
  }
  Run();
  EXPECT_THAT(world_->posted, SizeIs(kDirectJobs));
  FinishAll(1);
  EXPECT_THAT(world_->posted, SizeIs(kDirectJobs + 20));
  for (uint64_t i = 0; i < world_->posted.size(); ++i) EXPECT_EQ(world_->posted[i].token, i);
}

TEST_F(RelayPostActorTest, AStuckTargetHoldsUpNoOtherSlices) {
  Make(4096, 4 * kMiB);
  const TargetRoute& stuck = Know(MakeRoute(0, "stuck"));
  const TargetRoute& quick = Know(MakeRoute(1, "quick"));
  for (uint64_t i = 0; i < 8; ++i) world_->slice_out.Send(Slice(stuck, i, kMiB));
  Run();
  EXPECT_THAT(world_->posted, SizeIs(2));
  for (uint64_t i = 0; i < 6; ++i) {
    world_->slice_out.Send(Slice(quick, 100 + i, kMiB));
    Run();
    EXPECT_EQ(world_->posted.back().token, 100 + i);
    FinishAll(11);
  }
  FinishAll(1);
  EXPECT_THAT(world_->posted, SizeIs(14));
}

// --- Endpoints

TEST_F(RelayPostActorTest, AClosedEndpointGetsNothingMore) {
  Make(8);
  const TargetRoute& route = Know(MakeRoute(0, "t"));
  LaneUser user = Claim(0, 500);
  user.Send("t", kBase, 20 * kSlice);
  world_->slice_out.Send(Slice(route, 1, 100 * kSlice));
  Run();
  world_->close_out.Send({.endpoint = 1, .target = 0, .path = 0});
  Run();
  EXPECT_THAT(nic().disconnected, ElementsAre(1u));
  // Everything ends, with an error, and nothing was posted behind the disconnection.
  EXPECT_THAT(world_->PollNic(nic()), SizeIs(2));
  EXPECT_THAT(world_->cut, SizeIs(2));
  Run();
  EXPECT_TRUE(actor_->Drained());
  // Later ones fail without touching it.
  world_->slice_out.Send(Slice(route, 2, 10));
  user.Send("t", kBase, 10);
  Run();
  EXPECT_THAT(world_->PollNic(nic()), SizeIs(1));
  ASSERT_THAT(world_->refused, SizeIs(1));
  EXPECT_EQ(world_->refused[0].status, RelayStatus::kTransport);
}

TEST_F(RelayPostActorTest, ClosingAFormerEndpointDoesNotOpenTheNewOne) {
  Make();
  Know(MakeRoute(0, "t"));
  TargetRoute anew = MakeRoute(0, "t");
  anew.version = 2;
  anew.endpoints[0] = 77;
  const TargetRoute& route = Know(std::move(anew));
  world_->close_out.Send({.endpoint = 77, .target = 0, .path = 0});
  world_->close_out.Send({.endpoint = 1, .target = 0, .path = 0});
  Run();
  EXPECT_THAT(nic().disconnected, ElementsAre(77u, 1u));
  world_->slice_out.Send(Slice(route, 1, 10));
  Run();
  ASSERT_THAT(nic().posted, SizeIs(1));
  EXPECT_EQ(nic().posted[0].endpoint, 0u);
}

TEST_F(RelayPostActorTest, AnEndpointOnWhichNothingEndsIsReportedOnce) {
  Make();
  Know(MakeRoute(0, "t"));
  Know(MakeRoute(1, "u"));
  LaneUser user = Claim(0, 500);
  user.Send("t", kBase, 10);
  user.Send("t", kBase, 10);
  user.Send("u", kBase, 10);
  Run();
  hand_.clock().Advance(ToCycles(seconds(4)));
  Run();
  FinishAll(11);
  EXPECT_THAT(world_->errors, IsEmpty());
  for (int i = 0; i < 5; ++i) {
    hand_.clock().Advance(ToCycles(seconds(1)) + 1);
    Run();
  }
  ASSERT_THAT(world_->errors, SizeIs(1));
  EXPECT_EQ(world_->errors[0].target, 0u);
  EXPECT_EQ(world_->errors[0].target_version, 1u);
  EXPECT_EQ(world_->errors[0].status, FabricStatus::kTransport);
}

// A slow NIC: no job ends for long, but requests do.
TEST_F(RelayPostActorTest, AnEndpointOnWhichRequestsEndIsNotStuck) {
  Make();
  Know(MakeRoute(0, "t"));
  LaneUser user = Claim(0, 500);
  user.Send("t", kBase, kSlotBytes);
  Run();
  ASSERT_THAT(nic().posted, SizeIs(kSlotBytes / kSlice));
  for (size_t i = 0; i < kSlotBytes / kSlice / 16 - 1; ++i) {
    hand_.clock().Advance(ToCycles(seconds(3)));
    EXPECT_EQ(nic().Complete(1, 16), 16u);
    world_->PollNic(nic());
    Run();
  }
  EXPECT_THAT(world_->open, SizeIs(1));
  EXPECT_THAT(world_->errors, IsEmpty());
  for (int i = 0; i < 6; ++i) {
    hand_.clock().Advance(ToCycles(seconds(1)));
    Run();
  }
  EXPECT_THAT(world_->errors, SizeIs(1)) << "now it is";
}

// --- Stopping

TEST_F(RelayPostActorTest, AStopRefusesPiecesAndFinishesWhatWasPosted) {
  Make(256, kSlotBytes);
  const TargetRoute& route = Know(MakeRoute(0, "t"));
  LaneUser user = Claim(0, 500);
  user.Send("t", kBase, kSlotBytes);
  user.Send("t", kBase, kSlotBytes);
  user.Send("unknown", kBase, 1);
  Run();
  actor_->OnStop();
  world_->slice_out.Send(Slice(route, 1, 10));  // was on the way
  user.Send("t", kBase, 1);
  Run();
  EXPECT_THAT(world_->refused, SizeIs(3));
  for (const PieceRefused& refused : world_->refused) {
    EXPECT_EQ(refused.status, RelayStatus::kStopping);
  }
  EXPECT_FALSE(actor_->Drained());
  FinishAll(1);
  EXPECT_THAT(world_->posted, SizeIs(2));
  EXPECT_TRUE(actor_->Drained());
}

TEST_F(RelayPostActorTest, AFlushEndsEverythingWithinAFewPasses) {
  Make(8, kSlotBytes);
  const TargetRoute& route = Know(MakeRoute(0, "t"));
  LaneUser user = Claim(0, 500);
  user.Send("t", kBase, kSlotBytes);
  user.Send("t", kBase, kSlotBytes);
  for (uint64_t i = 0; i < 50; ++i) world_->slice_out.Send(Slice(route, i, kMiB));
  for (int i = 0; i < 5; ++i) Run();
  actor_->OnStop();
  actor_->OnFlush();
  for (int i = 0; i < 40 && !actor_->Drained(); ++i) {
    Run();
    world_->PollNic(nic());
    Run();
  }
  EXPECT_TRUE(actor_->Drained());
  EXPECT_TRUE(world_->open.empty());
}

// --- Parking

TEST_F(RelayPostActorTest, ADoorbellRungWhileParkingIsFound) {
  Make();
  Know(MakeRoute(0, "t"));
  LaneUser user = Claim(0, 500);
  Run();
  actor_->OnPark();
  FullFence();
  EXPECT_EQ(memory_.side->file().parked[0].parked, 1u);
  user.Send("t", kBase, 10);  // between the announcement and the second look
  EXPECT_NE(reactor_->RunPass(), 0u);
  EXPECT_THAT(nic().posted, SizeIs(1));
  actor_->OnUnpark();
  EXPECT_EQ(memory_.side->file().parked[0].parked, 0u);
}

TEST_F(RelayPostActorTest, ADoorbellRungWhileParkedWakesTheReactor) {
  Make();
  Know(MakeRoute(0, "t"));
  LaneUser user = Claim(0, 500);
  const PeerSide peer = memory_.OpenAsPeer();
  actor_->OnPark();
  FullFence();
  EXPECT_EQ(reactor_->RunPass(), 0u);
  EXPECT_EQ(reactor_->loop().RunReady(), 0);
  user.Send("t", kBase, 10);
  FullFence();
  peer.Wake(WakeRole::kRelay);
  EXPECT_EQ(reactor_->loop().RunReady(), 1);
  actor_->OnUnpark();
  EXPECT_NE(reactor_->RunPass(), 0u);
  // Awake, it costs the sender nothing; parked again, it is woken again.
  peer.Wake(WakeRole::kRelay);
  EXPECT_EQ(reactor_->loop().RunReady(), 0);
  actor_->OnPark();
  peer.Wake(WakeRole::kRelay);
  EXPECT_EQ(reactor_->loop().RunReady(), 1);
}

TEST_F(RelayPostActorTest, QuietLanesNeedNoTimer) {
  Make();
  Know(MakeRoute(0, "t"));
  Claim(0, 500);
  const uint64_t now = hand_.clock().now();
  EXPECT_EQ(actor_->NextPoll(now), Poller::kNever);
}

TEST_F(RelayPostActorTest, AnAnnouncedDoorbellIsWaitedForBriefly) {
  Make();
  Know(MakeRoute(0, "t"));
  LaneUser user = Claim(0, 500);
  const PlanEntry entry{kBase, 10};
  StoreRelease(user.control().header.head, user.Write("t", {&entry, 1}));
  Run();
  const uint64_t now = hand_.clock().now();
  EXPECT_EQ(actor_->NextPoll(now), now + ToCycles(microseconds(50)));
  StoreRelease(user.control().header.doorbell, 1);
  Run();
  FinishAll(1);
  EXPECT_EQ(actor_->NextPoll(now), Poller::kNever);
}

TEST_F(RelayPostActorTest, ALaneOfAnOldSenderIsPolledMoreAndMoreRarely) {
  Make();
  Know(MakeRoute(0, "t"));
  LaneUser user = Claim(0, 500, /*version_one=*/true);
  uint64_t interval = ToCycles(microseconds(50));
  const auto expect_doubling = [&](int times) {
    for (int i = 0; i < times; ++i) {
      const uint64_t now = hand_.clock().now();
      EXPECT_EQ(actor_->NextPoll(now), now + interval);
      // Woken early by something else, it keeps to the time it had set itself.
      hand_.clock().Advance(interval / 2);
      EXPECT_EQ(actor_->NextPoll(hand_.clock().now()), now + interval);
      hand_.clock().Advance(interval - interval / 2);
      interval = std::min(2 * interval, ToCycles(milliseconds(5)));
    }
  };
  expect_doubling(10);
  EXPECT_EQ(interval, ToCycles(milliseconds(5)));
  user.Send("t", kBase, 10);
  Run();
  FinishAll(1);
  interval = ToCycles(microseconds(50));
  expect_doubling(2);
}

TEST_F(RelayPostActorTest, AWaitingPieceIsLookedAtByItsDeadline) {
  Make();
  LaneUser user = Claim(0, 500);
  user.Send("t", kBase, 10);
  const uint64_t now = hand_.clock().now();
  Run();
  EXPECT_EQ(actor_->NextPoll(now), now + ToCycles(seconds(5)));
}

}  // namespace
}  // namespace railhop
