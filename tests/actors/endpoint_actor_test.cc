#include "actors/endpoint_actor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "actors/resolver_pool.h"
#include "runtime/actor_system.h"
#include "runtime/cycle_clock.h"
#include "runtime/log.h"

namespace railhop {

class EndpointActorPeer {
 public:
  // Who has asked for a target since its metadata began to be read. On the reactor's thread.
  static size_t Later(const EndpointActor& actor, const std::string& name) {
    return actor.readings_.at(name).later.size();
  }
};

namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Connects to whatever it is told to, and keeps count.
class FakeNic : public Nic {
 public:
  explicit FakeNic(std::string name) : name_(std::move(name)) {}
  std::string_view kind() const override { return "sim"; }
  std::string_view name() const override { return name_; }
  uint32_t send_queue_depth() const override { return 16; }
  absl::StatusOr<MemoryKey> Register(void*, size_t) override { return MemoryKey{1, 1}; }
  absl::Status Deregister(const MemoryKey&) override { return absl::OkStatus(); }
  absl::StatusOr<EndpointId> Connect(const TargetInfo& target, size_t remote_nic) override {
    ++attempts;
    if (!refuse.ok()) return refuse;
    if (const auto found = refused.find(target.nics[remote_nic].name); found != refused.end()) {
      return found->second;
    }
    open[++last_] = target.nics[remote_nic].connection;
    return last_;
  }
  void Disconnect(EndpointId endpoint) override { open.erase(endpoint); }
  std::string Describe(EndpointId endpoint) const override {
    const auto found = open.find(endpoint);
    return name_ + " -> " + (found == open.end() ? "nothing" : found->second);
  }
  bool Prepare(const WorkRequest&) override { return false; }
  void Submit() override {}
  size_t SendRoom(EndpointId) const override { return 0; }
  size_t Peek(std::span<NicCompletion>) override { return 0; }
  void Advance(size_t) override {}
  uint64_t PrepareToPark() override { return kNoDeadline; }
  void FinishPark() override {}
  int fd() const override { return -1; }

  absl::Status refuse;
  std::map<std::string, absl::Status> refused;  // by the target's NIC
  int attempts = 0;
  std::map<EndpointId, std::string> open;  // -> connection

 private:
  const std::string name_;
  EndpointId last_ = 0;
};

// SubmitActor or RelayPostActor, as the endpoint actor sees them.
class DataActor : public Actor {
 public:
  using Actor::Actor;
  bool OnReady(const TargetReady& message) {
    if (!accept) return false;
    ready.push_back(message);
    return true;
  }
  bool OnFailed(const TargetFailed& message) {
    if (!accept) return false;
    failed.push_back(message);
    return true;
  }
  bool OnClose(const CloseEndpoint& message) {
    nics[OwnNic(message.path)]->Disconnect(message.endpoint);
    return true;
  }
  bool accept = true;
  std::vector<FakeNic*> nics;
  std::vector<TargetReady> ready;
  std::vector<TargetFailed> failed;
  OutPort<ResolveTarget> resolve;
  OutPort<EndpointError> error;
};

TargetInfo Info(const std::string& name, const std::string& connection) {
  return {.name = name,
          .kind = "sim",
          .buffers = {{0x1000, 0x1000, {7}, {"nic1"}}},
          .nics = {{name, connection}}};
}

// Answers at once as the directory has it; of a target that is mute, when the test lets it.
class PlayedResolver final : public TargetResolver {
 public:
  void Resolve(const std::string& name, Answer answer) override {
    ++lookups;
    if (mute.contains(name)) {
      EXPECT_TRUE(waiting.emplace(name, std::move(answer)).second) << "one at a time";
    } else {
      answer(Read(name));
    }
  }
  void Abandon() override { abandoned = true; }
  void LetAnswer(const std::string& name) { waiting.extract(name).mapped()(Read(name)); }

  std::map<std::string, TargetInfo> directory;
  std::set<std::string> mute;
  std::map<std::string, Answer> waiting;
  int lookups = 0;
  bool abandoned = false;

 private:
  absl::StatusOr<TargetInfo> Read(const std::string& name) const {
    const auto found = directory.find(name);
    if (found == directory.end()) return absl::NotFoundError("no segment " + name);
    return found->second;
  }
};

class EndpointActorTest : public testing::Test {
 protected:
  EndpointActorTest()
      : system_({.stamp_every = 64, .clock = CycleClock(&now_)}),
        data_(*system_.AddReactor({.name = "data"})),
        control_(*system_.AddReactor({.name = "control", .idle = IdlePolicy::kEvent})),
        submit_(system_.AddActor<DataActor>(data_, "submit")),
        relay_(system_.AddActor<DataActor>(data_, "relay")),
        endpoint_(system_.AddActor<EndpointActor>(
            control_, "endpoint", std::unique_ptr<TargetResolver>(resolver_), MakeOptions())) {
    system_.Connect<&EndpointActor::OnResolve>(relay_, relay_.resolve, endpoint_);
    system_.Connect<&EndpointActor::OnEndpointError>(relay_, relay_.error, endpoint_);
    const EdgeOptions small = OrderedPorts<TargetReady, TargetFailed>::kEdge;
    system_.Connect<&DataActor::OnReady>(endpoint_, endpoint_.ready_to_submit, submit_, small);
    system_.Connect<&DataActor::OnReady>(endpoint_, endpoint_.ready_to_relay, relay_, small);
    system_.Connect<&DataActor::OnFailed>(endpoint_, endpoint_.failed_to_submit, submit_, small);
    system_.Connect<&DataActor::OnFailed>(endpoint_, endpoint_.failed_to_relay, relay_, small);
    system_.Connect<&DataActor::OnClose>(endpoint_, endpoint_.close_to_relay, relay_, small);
    relay_.nics = {&nics_[0], &nics_[1]};
    data_.StartActors();
    control_.StartActors();
    previous_sink_ = SetLogSink([this](LogLevel level, std::string_view text) {
      if (level == LogLevel::kWarning) warnings_.emplace_back(text);
    });
  }
  ~EndpointActorTest() override { SetLogSink(previous_sink_); }

  EndpointActor::Options MakeOptions() {
    return {.nics = {&nics_[0], &nics_[1]},
            .routes = {.own_rails = {"rail0", "rail1"},
                       .rail_map = {{"nic0", "rail0"}, {"nic1", "rail1"}}}};
  }

  void Pass(int times = 3) {
    for (int i = 0; i < times; ++i) {
      while (system_.RunAll() != 0) {
      }
    }
  }
  void Advance(milliseconds time) {
    now_ += ToCycles(time);
    Pass();
  }
  // Open blocks until the actor has answered, so it runs on a thread of its own while this one
  // drives the reactors.
  absl::StatusOr<uint32_t> Open(const std::string& name) { return Finish(BeginOpen(name)); }
  using Opening = std::future<absl::StatusOr<uint32_t>>;
  Opening BeginOpen(const std::string& name) {
    return std::async(std::launch::async, [this, name] { return endpoint_.Open(name); });
  }
  absl::StatusOr<uint32_t> Finish(Opening opening) {
    while (opening.wait_for(milliseconds(0)) != std::future_status::ready) Pass(1);
    return opening.get();
  }
  // Two who open a target: before its metadata is read, and meanwhile. The reading waits for the
  // resolver's LetAnswer.
  std::pair<Opening, Opening> OpenBeforeAndWhileRead(const std::string& name) {
    resolver_->mute = {name};
    Opening first = BeginOpen(name);
    while (resolver_->waiting.empty()) Pass(1);
    Opening second = BeginOpen(name);
    while (EndpointActorPeer::Later(endpoint_, name) == 0) Pass(1);
    return {std::move(first), std::move(second)};
  }
  void Resolve(const char* name, uint32_t token) {
    relay_.resolve.Send({name, static_cast<uint32_t>(std::string(name).size()), token});
    Pass();
  }
  void Break(uint32_t nic, FabricStatus status, uint32_t version = 1, uint32_t target = 0) {
    relay_.error.Send({target, version, MakePath(nic), status});
    Pass();
  }
  const TargetRoute& Route() const { return *submit_.ready.back().route; }

  uint64_t now_ = 1'000'000'000;
  FakeNic nics_[2] = {FakeNic("nic0"), FakeNic("nic1")};
  PlayedResolver* const resolver_ = new PlayedResolver;  // the actor's
  std::map<std::string, TargetInfo>& directory_ = resolver_->directory;
  int& lookups_ = resolver_->lookups;
  std::vector<std::string> warnings_;
  LogSink previous_sink_;
  ActorSystem system_;
  Reactor& data_;
  Reactor& control_;
  DataActor& submit_;
  DataActor& relay_;
  EndpointActor& endpoint_;
};

TEST_F(EndpointActorTest, OpenGivesAnIndexAndTellsBothDataActors) {
  directory_["a"] = Info("a", "x");
  directory_["b"] = Info("b", "y");
  const auto a = Open("a");
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(*a, 0u);
  EXPECT_EQ(*Open("b"), 1u);
  EXPECT_EQ(*Open("a"), 0u);
  Pass();
  ASSERT_THAT(submit_.ready, SizeIs(2));
  ASSERT_THAT(relay_.ready, SizeIs(2));
  EXPECT_EQ(submit_.ready[0].token, kNoToken);
  const TargetRoute& route = *submit_.ready[0].route;
  EXPECT_EQ(relay_.ready[0].route, &route);
  EXPECT_EQ(route.name, "a");
  EXPECT_EQ(route.index, 0u);
  EXPECT_EQ(route.version, 1u);
  ASSERT_THAT(route.endpoints, SizeIs(PathCount(2)));
  EXPECT_EQ(nics_[0].open[route.endpoints[MakePath(0)]], "x");
  EXPECT_EQ(nics_[1].open[route.endpoints[MakePath(1)]], "x");
  ASSERT_THAT(route.buffers, SizeIs(1));
  EXPECT_THAT(route.buffers[0].rails, ElementsAre("rail1"));
  EXPECT_THAT(route.buffers[0].paths, ElementsAre(MakePath(1)));
  EXPECT_EQ(endpoint_.NextPoll(now_), Poller::kNever);
}

TEST_F(EndpointActorTest, NamesAreChecked) {
  EXPECT_EQ(endpoint_.Open("").status().code(), absl::StatusCode::kInvalidArgument);
  const auto long_name = endpoint_.Open(std::string(257, 'x'));
  EXPECT_EQ(long_name.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(long_name.status().message()), HasSubstr("257"));
  directory_[std::string(256, 'x')] = Info("", "x");
  EXPECT_TRUE(Open(std::string(256, 'x')).ok());
  Resolve("", 3);
  ASSERT_THAT(relay_.failed, SizeIs(1));
  EXPECT_EQ(relay_.failed[0].token, 3u);
  EXPECT_EQ(relay_.failed[0].target, kMaxTargets);
}

TEST_F(EndpointActorTest, AnUnknownTargetIsAnErrorAndTakesNoIndex) {
  const auto missing = Open("missing");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  directory_["bad"] = Info("bad", "x");
  nics_[0].refuse = nics_[1].refuse = absl::PermissionDeniedError("may not");
  const auto refused = Open("bad");
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("nic1"));
  nics_[0].refuse = nics_[1].refuse = absl::OkStatus();
  directory_["good"] = Info("good", "x");
  EXPECT_EQ(*Open("good"), 0u);
}

TEST_F(EndpointActorTest, OverlappingBuffersAreRefused) {
  directory_["a"] = Info("a", "x");
  directory_["a"].buffers.push_back({0x1800, 0x1000, {8}, {}});
  EXPECT_EQ(Open("a").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(nics_[0].attempts, 0);
}

TEST_F(EndpointActorTest, ResolveAnswersTheRelayWithItsToken) {
  directory_["a"] = Info("a", "x");
  Resolve("a", 11);
  ASSERT_THAT(relay_.ready, SizeIs(2));
  EXPECT_EQ(relay_.ready[1].token, 11u);
  ASSERT_THAT(submit_.ready, SizeIs(1));
  EXPECT_EQ(submit_.ready[0].token, kNoToken);
  Resolve("a", 12);
  EXPECT_EQ(relay_.ready.back().token, 12u);
  EXPECT_THAT(submit_.ready, SizeIs(1));  // nothing new for the others
  Resolve("missing", 13);
  ASSERT_THAT(relay_.failed, SizeIs(1));
  EXPECT_EQ(relay_.failed[0].token, 13u);
  EXPECT_EQ(relay_.failed[0].target, kMaxTargets);
  EXPECT_EQ(relay_.failed[0].error, TransferError::kUnknownTarget);
  EXPECT_THAT(submit_.failed, IsEmpty());
}

TEST_F(EndpointActorTest, NewMetadataBecomesANewVersionOverTheSameEndpoints) {
  directory_["a"] = Info("a", "x");
  ASSERT_TRUE(Open("a").ok());
  directory_["a"].buffers.push_back({0x8000, 0x1000, {9}, {}});
  Advance(milliseconds(20));
  EXPECT_EQ(*Open("a"), 0u);
  Pass();
  ASSERT_THAT(submit_.ready, SizeIs(2));
  EXPECT_EQ(Route().version, 2u);
  EXPECT_THAT(Route().buffers, SizeIs(2));
  EXPECT_EQ(Route().endpoints, submit_.ready[0].route->endpoints);
  EXPECT_EQ(nics_[0].attempts, 1);
}

TEST_F(EndpointActorTest, ABrokenEndpointIsConnectedAnew) {
  directory_["a"] = Info("a", "x");
  ASSERT_TRUE(Open("a").ok());
  Pass();
  const TargetRoute first = Route();
  Break(1, FabricStatus::kTransport);
  EXPECT_FALSE(nics_[1].open.contains(first.endpoints[MakePath(1)]));  // flushed at once
  EXPECT_EQ(nics_[1].attempts, 1);  // but not connected in the same breath
  EXPECT_EQ(endpoint_.NextPoll(now_), now_ + ToCycles(EndpointActor::kFirstRetry));
  Break(1, FabricStatus::kFlushed);  // the same news again
  Advance(milliseconds(11));
  EXPECT_EQ(Route().version, 2u);
  EXPECT_EQ(Route().endpoints[MakePath(0)], first.endpoints[MakePath(0)]);
  EXPECT_NE(Route().endpoints[MakePath(1)], first.endpoints[MakePath(1)]);
  EXPECT_TRUE(nics_[1].open.contains(Route().endpoints[MakePath(1)]));
  EXPECT_EQ(relay_.ready.back().route, &Route());
  EXPECT_THAT(submit_.failed, IsEmpty());
  EXPECT_EQ(endpoint_.NextPoll(now_), Poller::kNever);
  // Late news of what was replaced changes nothing.
  Break(1, FabricStatus::kFlushed, 1);
  EXPECT_EQ(endpoint_.NextPoll(now_), Poller::kNever);
  // The endpoint that version 2 took over from version 1 is still its own.
  Break(0, FabricStatus::kTransport, 1);
  Advance(milliseconds(1001));
  EXPECT_EQ(Route().version, 3u);
}

TEST_F(EndpointActorTest, ErrorsThatKeepComingAreMendedEverMoreRarely) {
  directory_["a"] = Info("a", "x");
  ASSERT_TRUE(Open("a").ok());
  Pass();
  std::vector<int64_t> waits;
  for (int i = 0; i < 10; ++i) {
    Break(0, FabricStatus::kTransport, Route().version);
    const uint64_t due = endpoint_.NextPoll(now_);
    ASSERT_NE(due, Poller::kNever);
    waits.push_back((ToNanoseconds(due - now_).count() + 500'000) / 1'000'000);
    now_ = due;
    Pass();
  }
  EXPECT_THAT(waits, ElementsAre(10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000));
  // After a quiet time it starts from the beginning.
  Advance(milliseconds(5000));
  Break(0, FabricStatus::kTransport, Route().version);
  EXPECT_EQ(endpoint_.NextPoll(now_), now_ + ToCycles(milliseconds(10)));
}

TEST_F(EndpointActorTest, APathThatBreaksAtEachAttemptIsSaidOnce) {
  directory_["flapping"] = Info("flapping", "x");
  ASSERT_TRUE(Open("flapping").ok());
  Pass();
  for (int attempt = 0; attempt < 9; ++attempt) {
    Break(0, FabricStatus::kTransport, Route().version);
    Advance(milliseconds(1001));
    ASSERT_EQ(Route().version, 2u + attempt) << "connected anew";
  }
  ASSERT_THAT(warnings_, SizeIs(1));
  EXPECT_THAT(warnings_[0], testing::HasSubstr("target flapping: "));
}

TEST_F(EndpointActorTest, ADeadTargetIsReportedAndFoundAgain) {
  directory_["a"] = Info("a", "x");
  ASSERT_TRUE(Open("a").ok());
  Pass();
  directory_.clear();
  Break(0, FabricStatus::kTargetDead);
  ASSERT_THAT(submit_.failed, SizeIs(1));
  ASSERT_THAT(relay_.failed, SizeIs(1));
  EXPECT_EQ(submit_.failed[0].target, 0u);
  EXPECT_EQ(submit_.failed[0].token, kNoToken);
  EXPECT_EQ(submit_.failed[0].version, 1u);
  EXPECT_EQ(submit_.failed[0].error, TransferError::kTargetDead);
  EXPECT_THAT(nics_[0].open, IsEmpty());
  EXPECT_THAT(nics_[1].open, IsEmpty());  // the other NIC's as well
  const int lookups = lookups_;
  for (int i = 0; i < 100; ++i) Advance(milliseconds(100));
  EXPECT_GE(lookups_ - lookups, 10);
  EXPECT_LE(lookups_ - lookups, 18);       // 10 s: 7 on the way to once a second
  EXPECT_THAT(submit_.failed, SizeIs(1));  // said once
  EXPECT_THAT(warnings_, SizeIs(1));
  EXPECT_EQ(Open("a").status().code(), absl::StatusCode::kNotFound);

  directory_["a"] = Info("a", "restarted");
  Advance(milliseconds(1001));
  EXPECT_EQ(Route().version, 2u);
  EXPECT_EQ(Route().index, 0u);
  EXPECT_EQ(nics_[1].open[Route().endpoints[MakePath(1)]], "restarted");
  EXPECT_EQ(*Open("a"), 0u);
}

TEST_F(EndpointActorTest, ATargetThatOnlyPiecesNamedIsNotLookedForByItself) {
  directory_["a"] = Info("a", "x");
  Resolve("a", 1);
  directory_.clear();
  Break(0, FabricStatus::kTargetDead);
  Advance(milliseconds(2000));
  const int lookups = lookups_;
  for (int i = 0; i < 20; ++i) Advance(milliseconds(1000));
  EXPECT_EQ(lookups_, lookups);
  EXPECT_EQ(endpoint_.NextPoll(now_), Poller::kNever);
  Resolve("a", 2);
  EXPECT_EQ(relay_.failed.back().token, 2u);
  EXPECT_EQ(relay_.failed.back().target, 0u);
  EXPECT_EQ(relay_.failed.back().error, TransferError::kTargetDead);
  directory_["a"] = Info("a", "y");
  Advance(milliseconds(20));
  Resolve("a", 3);
  EXPECT_EQ(relay_.ready.back().token, 3u);
  EXPECT_EQ(relay_.ready.back().route->version, 2u);
}

TEST_F(EndpointActorTest, ARestartedTargetLeavesNoEndpointOfItsPredecessor) {
  directory_["a"] = Info("a", "old");
  ASSERT_TRUE(Open("a").ok());
  Pass();
  directory_["a"] = Info("a", "new");
  Advance(milliseconds(20));
  ASSERT_TRUE(Open("a").ok());
  Pass();
  EXPECT_EQ(Route().version, 2u);
  // What was posted to the old ones may still complete.
  EXPECT_THAT(nics_[0].open, SizeIs(2));
  Break(1, FabricStatus::kTargetDead, 1);
  EXPECT_THAT(nics_[1].open, SizeIs(1));
  EXPECT_THAT(submit_.failed, IsEmpty());
  Advance(milliseconds(5001));
  EXPECT_THAT(nics_[0].open, ElementsAre(testing::Pair(Route().endpoints[MakePath(0)], "new")));
  EXPECT_THAT(nics_[1].open, ElementsAre(testing::Pair(Route().endpoints[MakePath(1)], "new")));
  EXPECT_EQ(endpoint_.NextPoll(now_), Poller::kNever);
}

TEST_F(EndpointActorTest, ATargetIsFailedAfterSeveralTriesNotAfterOne) {
  directory_["a"] = Info("a", "x");
  ASSERT_TRUE(Open("a").ok());
  Pass();
  nics_[0].refuse = nics_[1].refuse = absl::InternalError("no link");
  Break(0, FabricStatus::kTransport);
  Break(1, FabricStatus::kTransport);
  const int attempts = nics_[0].attempts;
  for (int tries = 0; tries < 3;) {
    Advance(milliseconds(10));
    tries = nics_[0].attempts - attempts;
    ASSERT_THAT(submit_.failed, IsEmpty()) << tries;
  }
  for (int i = 0; i < 200; ++i) Advance(milliseconds(10));
  ASSERT_THAT(submit_.failed, SizeIs(1));
  EXPECT_EQ(submit_.failed[0].error, TransferError::kTransport);
  nics_[0].refuse = nics_[1].refuse = absl::OkStatus();
  Advance(milliseconds(1001));
  EXPECT_EQ(Route().version, 2u);
}

TEST_F(EndpointActorTest, WithOneNicLeftATargetIsNotFailed) {
  directory_["a"] = Info("a", "x");
  ASSERT_TRUE(Open("a").ok());
  Pass();
  nics_[0].refuse = absl::InternalError("no link");
  Break(0, FabricStatus::kTransport);
  for (int i = 0; i < 50; ++i) Advance(milliseconds(100));
  EXPECT_THAT(submit_.failed, IsEmpty());
  EXPECT_LE(nics_[0].attempts, 1 + 7 + 5);
  EXPECT_EQ(*Open("a"), 0u);
  nics_[1].refuse = absl::InternalError("no link");
  Break(1, FabricStatus::kTransport);
  Advance(milliseconds(1001));
  ASSERT_THAT(submit_.failed, SizeIs(1));
  EXPECT_EQ(submit_.failed[0].error, TransferError::kTransport);
  EXPECT_FALSE(Open("a").ok());
  nics_[0].refuse = nics_[1].refuse = absl::OkStatus();
  Advance(milliseconds(1001));
  EXPECT_EQ(Route().version, 2u);
}

// --- Several paths

// With a NIC on each rail, and a buffer near both.
TargetInfo TwoNics(const std::string& where = "") {
  return {.name = "a",
          .kind = "sim",
          .buffers = {{0x1000, 0x1000, {7, 8}, {"nic0", "nic1"}}},
          .nics = {{"nic0", "zero" + where}, {"nic1", "one" + where}}};
}

TEST_F(EndpointActorTest, EachNicIsConnectedToTheOneOnItsRail) {
  directory_["a"] = TwoNics();
  ASSERT_TRUE(Open("a").ok());
  Pass();
  EXPECT_THAT(nics_[0].open, ElementsAre(testing::Pair(Route().endpoints[MakePath(0, 0)], "zero")));
  EXPECT_THAT(nics_[1].open, ElementsAre(testing::Pair(Route().endpoints[MakePath(1, 1)], "one")));
  EXPECT_EQ(Route().endpoints[MakePath(0, 1)], 0u);
  EXPECT_THAT(Route().buffers[0].paths, ElementsAre(MakePath(0, 0), MakePath(1, 1)));
  EXPECT_EQ(Route().buffers[0].rkeys[1], 8u);
}

TEST_F(EndpointActorTest, ANicThatCannotConnectIsDoneWithoutAndComesLater) {
  directory_["a"] = TwoNics();
  nics_[1].refuse = absl::FailedPreconditionError("nic1 has no link");
  ASSERT_TRUE(Open("a").ok());
  Pass();
  EXPECT_NE(Route().endpoints[MakePath(0, 0)], 0u);
  ASSERT_THAT(warnings_, testing::Not(IsEmpty()));
  EXPECT_THAT(warnings_[0], testing::AllOf(HasSubstr("target a"), HasSubstr("nic1 has no link")));
  nics_[1].refuse = absl::OkStatus();
  Advance(milliseconds(11));
  EXPECT_EQ(Route().version, 2u);
  EXPECT_NE(Route().endpoints[MakePath(1, 1)], 0u);
  EXPECT_EQ(endpoint_.NextPoll(now_), Poller::kNever);
}

TEST_F(EndpointActorTest, WhenItsPathIsGoneANicIsConnectedToAnotherOfTheTargets) {
  directory_["a"] = TwoNics();
  ASSERT_TRUE(Open("a").ok());
  Pass();
  nics_[1].refused["nic1"] = absl::FailedPreconditionError("no link");
  relay_.error.Send({0, 1, MakePath(1, 1), FabricStatus::kTransport});
  Pass();
  ASSERT_THAT(warnings_, SizeIs(1));
  EXPECT_THAT(warnings_[0], HasSubstr("nic1 -> one")) << "names both ends";
  Advance(milliseconds(11));
  EXPECT_EQ(Route().version, 2u);
  EXPECT_EQ(Route().endpoints[MakePath(1, 1)], 0u);
  EXPECT_NE(Route().endpoints[MakePath(1, 0)], 0u);
  // The one that is wanted comes back, and its stand-in stays.
  nics_[1].refused.clear();
  for (int i = 0; i < 60; ++i) Advance(milliseconds(100));
  EXPECT_NE(Route().endpoints[MakePath(1, 1)], 0u);
  EXPECT_NE(Route().endpoints[MakePath(1, 0)], 0u);
  EXPECT_EQ(endpoint_.NextPoll(now_), Poller::kNever);
  EXPECT_THAT(submit_.failed, IsEmpty());
}

TEST_F(EndpointActorTest, ABrokenSpareIsLookedForRarely) {
  directory_["a"] = TwoNics();
  ASSERT_TRUE(Open("a").ok());
  nics_[1].refuse = absl::FailedPreconditionError("no link");
  relay_.error.Send({0, 1, MakePath(1, 1), FabricStatus::kTransport});
  const int lookups = lookups_;
  for (int i = 0; i < 600; ++i) Advance(milliseconds(100));
  EXPECT_LE(lookups_ - lookups, 7 + 12) << "on the way to every 5 s";
  // But at once when nothing else is left.
  nics_[1].refuse = absl::OkStatus();
  const uint32_t version = Route().version;
  relay_.error.Send({0, version, MakePath(0, 0), FabricStatus::kTransport});
  Advance(milliseconds(1001));
  Advance(milliseconds(1));
  EXPECT_NE(Route().endpoints[MakePath(0, 0)], 0u);
  EXPECT_NE(Route().endpoints[MakePath(1, 1)], 0u);
}

TEST_F(EndpointActorTest, PathsToANicThatTheTargetHasNoMoreAreClosed) {
  directory_["a"] = TwoNics();
  ASSERT_TRUE(Open("a").ok());
  Pass();
  directory_["a"].nics.pop_back();
  Advance(milliseconds(20));
  ASSERT_TRUE(Open("a").ok());
  Pass();
  EXPECT_EQ(Route().endpoints[MakePath(1, 1)], 0u);
  EXPECT_NE(Route().endpoints[MakePath(1, 0)], 0u);
  EXPECT_THAT(nics_[1].open, SizeIs(2)) << "what was posted may still complete";
  Advance(milliseconds(5001));
  EXPECT_THAT(nics_[1].open, SizeIs(1));
}

TEST_F(EndpointActorTest, FullEdgesLoseNothingAndOpenWaitsForThem) {
  relay_.accept = false;
  for (int i = 0; i < 8; ++i) {
    const std::string name = "t" + std::to_string(i);
    directory_[name] = Info(name, "x");
  }
  std::vector<std::thread> callers;
  std::atomic<int> opened{0};
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&, i] {
      if (endpoint_.Open("t" + std::to_string(i)).ok()) ++opened;
    });
  }
  // Until the actor has looked all of them up and cannot tell the relay.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(4);
  while (lookups_ < 8 && std::chrono::steady_clock::now() < limit) Pass();
  Pass(10);
  EXPECT_LT(opened, 8);
  relay_.accept = true;
  while (opened < 8 && std::chrono::steady_clock::now() < limit) Pass();
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(opened, 8);
  Pass(10);
  std::set<uint32_t> indices;
  for (const TargetReady& ready : relay_.ready) indices.insert(ready.route->index);
  EXPECT_THAT(indices, SizeIs(8));
}

TEST_F(EndpointActorTest, TheTableOfTargetsEnds) {
  for (uint32_t i = 0; i < kMaxTargets; ++i) {
    const std::string name = std::to_string(i);
    directory_[name] = Info(name, "x");
    Resolve(name.c_str(), i);
  }
  directory_["more"] = Info("more", "x");
  const auto more = Open("more");
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(more.status().message()), HasSubstr("1024"));
  EXPECT_TRUE(Open("1023").ok());
  Resolve("more", 5000);
  ASSERT_THAT(relay_.failed, SizeIs(1));
  EXPECT_EQ(relay_.failed[0].target, kMaxTargets);
}

TEST_F(EndpointActorTest, AStoppedActorAnswersAtOnce) {
  directory_["a"] = Info("a", "x");
  directory_["b"] = Info("b", "x");
  ASSERT_TRUE(Open("a").ok());
  relay_.accept = false;
  for (int i = 0; i < 8; ++i) Resolve("a", 1);  // fills the edge: no answer can be given
  std::thread caller(
      [&] { EXPECT_EQ(endpoint_.Open("b").status().code(), absl::StatusCode::kCancelled); });
  const int lookups = lookups_;
  while (lookups_ == lookups) Pass();
  endpoint_.Post({.kind = ControlMessage::kStop});
  Pass();
  caller.join();
  EXPECT_EQ(endpoint_.Open("a").status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(endpoint_.stopped());
  // Nothing is mended any more.
  Break(0, FabricStatus::kTransport);
  const int attempts = nics_[0].attempts;
  Advance(milliseconds(2000));
  EXPECT_EQ(nics_[0].attempts, attempts);
}

// --- A peer that does not answer

TEST_F(EndpointActorTest, WhileOneTargetIsMuteOthersAreOpenedAndMended) {
  directory_["healthy"] = Info("healthy", "x");
  ASSERT_EQ(*Open("healthy"), 0u);
  directory_["mute"] = Info("mute", "y");
  resolver_->mute = {"mute"};
  Opening opening = BeginOpen("mute");
  while (resolver_->waiting.empty()) Pass(1);

  directory_["new"] = Info("new", "z");
  EXPECT_EQ(*Open("new"), 1u);
  Break(0, FabricStatus::kTransport);
  Advance(milliseconds(11));
  EXPECT_EQ(Route().index, 0u);
  EXPECT_EQ(Route().version, 2u);
  Resolve("new", 5);
  EXPECT_EQ(relay_.ready.back().token, 5u);

  resolver_->LetAnswer("mute");
  EXPECT_EQ(*Finish(std::move(opening)), 2u);
}

TEST_F(EndpointActorTest, AMuteTargetIsAskedOnceUntilItAnswers) {
  directory_["a"] = Info("a", "x");
  ASSERT_TRUE(Open("a").ok());
  Pass();
  resolver_->mute = {"a"};
  Break(1, FabricStatus::kTransport);
  Advance(milliseconds(11));
  ASSERT_THAT(resolver_->waiting, SizeIs(1));
  const int lookups = lookups_;
  Break(0, FabricStatus::kTransport);  // another reason to ask, and a piece that does
  Resolve("a", 7);
  for (int i = 0; i < 20; ++i) Advance(milliseconds(1000));
  EXPECT_EQ(lookups_, lookups);
  EXPECT_THAT(submit_.ready, SizeIs(1));
  EXPECT_NE(relay_.ready.back().token, 7u);

  resolver_->LetAnswer("a");
  Pass();
  EXPECT_EQ(Route().version, 2u);
  EXPECT_THAT(nics_[0].open, SizeIs(1));
  EXPECT_THAT(nics_[1].open, SizeIs(1));
  EXPECT_EQ(relay_.ready.back().token, 7u);
  EXPECT_EQ(endpoint_.NextPoll(now_), Poller::kNever);
}

TEST_F(EndpointActorTest, WhoOpensWhileATargetIsReadGetsWhatIsReadAfterThat) {
  directory_["a"] = Info("a", "x");
  auto [first, second] = OpenBeforeAndWhileRead("a");
  resolver_->LetAnswer("a");
  EXPECT_EQ(*Finish(std::move(first)), 0u);
  Pass();
  ASSERT_THAT(resolver_->waiting, SizeIs(1)) << "it may know of news";
  directory_["a"].buffers.push_back({0x8000, 0x1000, {9}, {}});
  resolver_->LetAnswer("a");
  EXPECT_EQ(*Finish(std::move(second)), 0u);
  EXPECT_THAT(Route().buffers, SizeIs(2));
}

TEST_F(EndpointActorTest, WhatATargetThatDoesNotAnswerMetIsToldToAllWhoWait) {
  auto [first, second] = OpenBeforeAndWhileRead("a");
  resolver_->LetAnswer("a");
  EXPECT_TRUE(absl::IsNotFound(Finish(std::move(first)).status()));
  EXPECT_TRUE(absl::IsNotFound(Finish(std::move(second)).status()));
  EXPECT_THAT(resolver_->waiting, IsEmpty());
}

TEST_F(EndpointActorTest, AStopWaitsForNoTarget) {
  resolver_->mute = {"a"};
  Opening opening = BeginOpen("a");
  while (resolver_->waiting.empty()) Pass(1);
  endpoint_.Post({.kind = ControlMessage::kStop});
  Pass();
  EXPECT_TRUE(endpoint_.stopped());
  EXPECT_TRUE(resolver_->abandoned);
  EXPECT_TRUE(absl::IsCancelled(opening.get().status()));
  directory_["a"] = Info("a", "x");
  resolver_->LetAnswer("a");
  Pass();
  EXPECT_EQ(nics_[0].attempts, 0) << "nothing is connected any more";
}

TEST(EndpointActorThreadTest, OpensFromManyThreadsWhileTheReactorParks) {
  FakeNic nic("nic0");
  ActorSystem system;
  Reactor& data = *system.AddReactor({.name = "data", .idle = IdlePolicy::kEvent});
  Reactor& control = *system.AddReactor({.name = "control", .idle = IdlePolicy::kEvent});
  auto& submit = system.AddActor<DataActor>(data, "submit");
  auto& relay = system.AddActor<DataActor>(data, "relay");
  auto& endpoint = system.AddActor<EndpointActor>(
      control, "endpoint",
      std::make_unique<ResolverPool>([](const std::string& name, const std::stop_token&) {
        return absl::StatusOr<TargetInfo>(Info(name, "x"));
      }),
      EndpointActor::Options{
          .nics = {&nic}, .routes = {.own_rails = {"nic0"}}, .open_timeout = milliseconds(30000)});
  const EdgeOptions small = OrderedPorts<TargetReady, TargetFailed>::kEdge;
  system.Connect<&DataActor::OnReady>(endpoint, endpoint.ready_to_submit, submit, small);
  system.Connect<&DataActor::OnReady>(endpoint, endpoint.ready_to_relay, relay, small);
  system.Connect<&DataActor::OnFailed>(endpoint, endpoint.failed_to_submit, submit, small);
  system.Connect<&DataActor::OnFailed>(endpoint, endpoint.failed_to_relay, relay, small);
  system.Connect<&DataActor::OnClose>(endpoint, endpoint.close_to_relay, relay, small);
  ASSERT_TRUE(system.Start().ok());
  std::vector<std::thread> callers;
  for (int thread = 0; thread < 4; ++thread) {
    callers.emplace_back([&] {
      std::map<std::string, uint32_t> seen;
      for (int i = 0; i < 100; ++i) {
        const std::string name = std::to_string(i % 10);
        const auto index = endpoint.Open(name);
        ASSERT_TRUE(index.ok()) << index.status();
        EXPECT_EQ(seen.try_emplace(name, *index).first->second, *index);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  system.Stop(std::chrono::seconds(5));
  EXPECT_EQ(endpoint.Open("late").status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(submit.ready, SizeIs(10));
}

}  // namespace
}  // namespace railhop
