// What the tests of PeerActor share: a rank that consists of its group membership, its PeerActor,
// and stand-ins for the data actors, in this process or in a child.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/group_member.h"
#include "actors/peer_actor.h"
#include "runtime/actor_system.h"
#include "tests/support/flag.h"
#include "tests/transport/ring/ring_test_support.h"
#include "transport/ring/relay_lane.h"

#if defined(__SANITIZE_THREAD__)
// Children are forked while a worker thread of this process may be at work; they start threads.
extern "C" inline const char* __tsan_default_options() {
  return "die_after_fork=0";
}
#endif

namespace railhop::testing {

// Submit, copy or CQ poll, as far as lanes are concerned.
class LaneUser : public Actor {
 public:
  using Actor::Actor;
  bool OnLaneReady(const LaneReady& message) {
    if (!accept) return false;
    ready.push_back(message);
    return true;
  }
  bool OnCloseLane(const CloseLane& message) {
    closed.push_back(message);
    if (answer) closed_out.Send({message.lane});
    return true;
  }
  bool OnSenderSide(const SenderSide& message) {
    sides.push_back(message);
    if (answer) taken_out.Send({message.sender_epoch, message.lane});
    return true;
  }
  void Answer() {
    for (const CloseLane& message : closed) closed_out.Send({message.lane});
  }

  bool accept = true;
  bool answer = true;
  std::vector<LaneReady> ready;
  std::vector<CloseLane> closed;
  std::vector<SenderSide> sides;
  OutPort<LaneClosed> closed_out;
  OutPort<SenderSideTaken> taken_out;  // of CQ poll
  OutPort<WantRail> want_out;          // of submit
};

// Relay post and poll: answers every piece of admitted senders with an error.
class LaneRelay : public Actor, public Poller {
 public:
  explicit LaneRelay(Registration& self) : Actor("relay") {
    for (uint32_t i = 0; i < kLaneCount; ++i) {
      LaneControl& lane = self.block().lanes[i];
      readers.emplace_back(lane, self.side().file().lanes[i], self.epoch());
      writers_.emplace_back(lane);
    }
    AddPoller(this);
  }
  bool OnAdmitted(const SenderAdmitted& message) {
    admitted.push_back(message);
    readers[message.lane].Admit(message.sender_epoch);
    return true;
  }
  bool OnLost(const SenderLost& message) {
    lost.push_back(message);
    readers[message.lane].Dismiss();
    if (answer_lost) drained_out.Send({message.sender_epoch, message.lane});
    return true;
  }
  size_t Poll(uint64_t) override {
    size_t work = 0;
    for (uint32_t i = 0; i < kLaneCount; ++i) {
      if (!answering || !readers[i].HasWork()) continue;
      LanePiece piece;
      switch (readers[i].Poll(*copy_, piece)) {
        case LanePoll::kUnknownSender:
          if (std::exchange(seen_[i], readers[i].sender_epoch()) != readers[i].sender_epoch()) {
            seen_out.Send({readers[i].sender_epoch(), i});
          }
          break;
        case LanePoll::kPiece:
        case LanePoll::kBadPiece:
          writers_[i].Complete(piece, RelayStatus::kBadDescriptor);
          ++answered;
          ++work;
          break;
        default:
          break;
      }
    }
    return work;
  }
  uint64_t NextPoll(uint64_t now) override { return now + ToCycles(std::chrono::milliseconds(1)); }

  std::atomic<bool> answering{true};
  bool answer_lost = true;
  int answered = 0;
  std::vector<RelayLaneReader> readers;
  std::vector<SenderAdmitted> admitted;
  std::vector<SenderLost> lost;
  OutPort<SenderSeen> seen_out;
  OutPort<SenderDrained> drained_out;

 private:
  std::vector<RelayLaneWriter> writers_;
  std::array<uint64_t, kLaneCount> seen_{};
  std::unique_ptr<DescriptorCopy> copy_ = std::make_unique<DescriptorCopy>();
};

class TestRank {
 public:
  // Quick enough for tests, far beyond what a loaded machine delays a living process by.
  static PeerActor::Options QuickOptions() {
    return {.heartbeat = std::chrono::milliseconds(20),
            .heartbeat_timeout = std::chrono::milliseconds(3000),
            .probe_timeout = std::chrono::milliseconds(2000),
            .lane_grace = std::chrono::milliseconds(50)};
  }

  TestRank(const RegistryOptions& registry, std::vector<std::string> rails,
           PeerActor::Options options = QuickOptions(), bool relay_on_own_reactor = false,
           std::shared_ptr<Staging> staging = std::make_shared<HostStaging>()) {
    auto joined = GroupMember::Join({.registry = registry,
                                     .rails = std::move(rails),
                                     .nics = {},
                                     .staging = std::move(staging)});
    if (!joined.ok()) {
      ADD_FAILURE() << joined.status();
      std::abort();
    }
    member = *std::move(joined);
    options.member = member.get();
    control = system.AddReactor({.name = "control", .idle = IdlePolicy::kEvent});
    Reactor* data = control;
    if (relay_on_own_reactor) {
      data = system.AddReactor({.name = "data", .idle = IdlePolicy::kEvent});
    }
    submit = &system.AddActor<LaneUser>(*data, "submit");
    copy = &system.AddActor<LaneUser>(*data, "copy");
    cq_poll = &system.AddActor<LaneUser>(*data, "cq_poll");
    relay = &system.AddActor<LaneRelay>(*data, member->self());
    peer = &system.AddActor<PeerActor>(*control, "peer", options);
    Connect();
  }

  // By hand: starts the actors.
  void Start() {
    for (const auto& reactor : system.reactors()) reactor->StartActors();
  }
  // By hand: passes until `condition` holds. False when patience ended first.
  template <class Condition>
  [[nodiscard]] bool RunUntil(Condition condition) {
    const auto until = std::chrono::steady_clock::now() + kTestPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      system.RunAll();
    }
    return true;
  }
  // The same, asking for `rail` now and then, as SubmitActor does.
  template <class Condition>
  [[nodiscard]] bool RunWanting(const std::string& rail, Condition condition) {
    auto asked = std::chrono::steady_clock::time_point::min();
    return RunUntil([&] {
      if (condition()) return true;
      if (std::chrono::steady_clock::now() - std::chrono::seconds(1) > asked) {
        Want(rail);
        asked = std::chrono::steady_clock::now();
      }
      return false;
    });
  }
  // By hand: nothing happens any more, and the reactor may sleep.
  bool Sleeps() {
    for (int i = 0; i < 10; ++i) system.RunAll();
    return system.RunAll() == 0 && peer->NextPoll(control->now()) > control->now();
  }
  // By hand: as many passes as make sure that something would have happened.
  void RunFor(std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < until) system.RunAll();
  }
  void Want(const std::string& rail) {
    wanted_.push_back(std::make_unique<std::string>(rail));
    submit->want_out.Send({wanted_.back()->data(), static_cast<uint32_t>(rail.size())});
  }
  LaneHeader& Header(uint32_t lane) const { return member->self().block().lanes[lane].header; }
  std::array<LaneUser*, 3> users() const { return {submit, copy, cq_poll}; }
  void SetAnswer(bool answer) {
    for (LaneUser* user : users()) user->answer = answer;
  }

  std::unique_ptr<GroupMember> member;  // outlives the actors
  ActorSystem system;
  Reactor* control = nullptr;
  LaneUser* submit = nullptr;
  LaneUser* copy = nullptr;
  LaneUser* cq_poll = nullptr;
  LaneRelay* relay = nullptr;
  PeerActor* peer = nullptr;

 private:
  void Connect() {
    constexpr EdgeOptions kEdge = OrderedPorts<LaneReady, CloseLane>::kEdge;
    const std::array ready = {&peer->ready_to_submit, &peer->ready_to_copy,
                              &peer->ready_to_cq_poll};
    const std::array close = {&peer->close_to_submit, &peer->close_to_copy,
                              &peer->close_to_cq_poll};
    for (size_t i = 0; i < 3; ++i) {
      system.Connect<&LaneUser::OnLaneReady>(*peer, *ready[i], *users()[i], kEdge);
      system.Connect<&LaneUser::OnCloseLane>(*peer, *close[i], *users()[i], kEdge);
    }
    system.Connect<&LaneUser::OnSenderSide>(*peer, peer->side_to_cq_poll, *cq_poll, kEdge);
    system.Connect<&LaneRelay::OnAdmitted>(*peer, peer->admitted_to_relay, *relay, kEdge);
    system.Connect<&LaneRelay::OnLost>(*peer, peer->lost_to_relay, *relay, kEdge);
    system.Connect<&PeerActor::OnSubmitClosedLane>(*submit, submit->closed_out, *peer);
    system.Connect<&PeerActor::OnCopyClosedLane>(*copy, copy->closed_out, *peer);
    system.Connect<&PeerActor::OnCqPollClosedLane>(*cq_poll, cq_poll->closed_out, *peer);
    system.Connect<&PeerActor::OnSenderSideTaken>(*cq_poll, cq_poll->taken_out, *peer);
    system.Connect<&PeerActor::OnWantRail>(*submit, submit->want_out, *peer);
    system.Connect<&PeerActor::OnSenderSeen>(*relay, relay->seen_out, *peer);
    system.Connect<&PeerActor::OnSenderDrained>(*relay, relay->drained_out, *peer);
  }

  std::vector<std::unique_ptr<std::string>> wanted_;
};

// A rank in a process of its own, with threads. Says '.' once it runs, and obeys: 'a' answer
// probes, 'n' do not, 's' stop ('S' back if it ended by itself within patience, 'F' if it was
// flushed), 'w' + rail: attach to an owner of that rail, 'W' back once it is.
inline Child MakeRank(const RegistryOptions& registry, std::vector<std::string> rails,
                      const std::string& wait_for = "", bool answering = true) {
  return Child([=](const Child::Link& link) {
    TestRank rank(registry, rails, TestRank::QuickOptions(), true);
    rank.relay->answering = answering;
    if (!rank.system.Start().ok() || !link.Tell()) return false;
    while (true) {
      switch (link.Await()) {
        case 'a':
          rank.relay->answering = true;
          break;
        case 'w':
          if (!rank.peer->WaitForRail(wait_for, kTestPatience) || !link.Tell('W')) return false;
          break;
        case 's':
          rank.system.Stop(kTestPatience);
          if (!link.Tell(rank.member->HeldLanes() == 0 ? 'S' : 'F')) return false;
          break;
        case 'q':
          return true;
        default:
          return false;
      }
    }
  });
}

}  // namespace railhop::testing
