// Pieces carried over a real lane: between two processes that park and wake each other, with
// everything a lane's life has in it, and between two threads of one process on one mapping, where
// the thread sanitizer sees the orders.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/fence.h"
#include "tests/transport/ring/ring_test_support.h"
#include "transport/ring/lane.h"
#include "transport/ring/relay_lane.h"

namespace railhop {
namespace {

using ::railhop::testing::Child;
using ::railhop::testing::Join;
using ::railhop::testing::Member;
using ::railhop::testing::PrivateRoot;

constexpr uint64_t kPieceBytes = 4096;  // of a slot's 8 MiB; more would only take longer

// An arena in anonymous shared memory: inherited by the child, backed only where it is touched.
class TestArena {
 public:
  TestArena()
      : base_(static_cast<std::byte*>(mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  ~TestArena() { munmap(base_, kArenaBytes); }
  std::byte* base() const { return base_; }

 private:
  std::byte* base_;
};

// The words of a piece, and what its plan says: both follow from its sequence, so that a slot read
// too early or too late, or a plan of another piece, shows.
uint64_t WordOf(uint64_t sequence, uint64_t index) {
  return sequence * 1'000'003 + index;
}
std::vector<PlanEntry> PlanOf(uint64_t sequence) {
  std::vector<PlanEntry> plan(1 + sequence % 7, {sequence << 20, 8});
  plan.back().length = kPieceBytes - 8 * (plan.size() - 1);
  return plan;
}

// Blocks until a peer wakes `role`, unless `idle` finds something after all. False: nobody did for
// a minute, which is a lost wake-up.
template <typename Idle>
bool ParkUnless(LocalSide& side, WakeRole role, Idle idle) {
  side.Park(role);
  FullFence();
  bool woken = true;
  if (idle()) {
    pollfd entry{.fd = side.wake_fd(role), .events = POLLIN, .revents = 0};
    woken = poll(&entry, 1, 60'000) == 1;
  }
  side.Unpark(role);
  side.DrainWake(role);
  return woken;
}

// The sender's side: publishes `count` pieces and checks that each is answered as CheckPiece says.
// A piece whose sequence is a multiple of 13 is answered with an error.
bool SendPieces(const LaneMapping& lane, LocalSide& side, uint64_t first, uint64_t count) {
  RingCredit credit(first);
  CompletionReader completions(first);
  auto writer = std::make_unique<DescriptorWriter>();
  uint64_t published = first - 1, reaped = 0;
  while (reaped < count) {
    if (published < first + count - 1 && credit.Available()) {
      published = credit.Take();
      const std::string session = "target-" + std::to_string(published % 3);
      if (writer->Prepare(lane.descriptor(published), SlotIndex(published), lane.relay_epoch(),
                          session, PlanOf(published)) != DescriptorError::kNone) {
        return false;
      }
      lane.Offer(published);
      DescriptorWriter::Commit(lane.descriptor(published), published);
      auto* words = reinterpret_cast<uint64_t*>(lane.slot(published));
      for (uint64_t i = 0; i < kPieceBytes / 8; ++i) words[i] = WordOf(published, i);
      lane.RingDoorbell(published);
      lane.PublishHead(published);
      FullFence();
      lane.WakeRelay();
    }
    SentCompletion found = completions.Poll(lane.control());
    if (found.state == CompletionState::kPending) {
      if (published < first + count - 1 && credit.Available()) continue;
      const bool woken = ParkUnless(side, WakeRole::kCompletion, [&] {
        found = completions.Poll(lane.control());
        return found.state == CompletionState::kPending;
      });
      if (!woken) return false;
      if (found.state == CompletionState::kPending) continue;
    }
    if (found.state == CompletionState::kMalformed) return false;
    if ((found.status != 0) != (found.sequence % 13 == 0)) return false;
    credit.Return(found.sequence);
    ++reaped;
  }
  return true;
}

// The relay's side, both of its actors on one thread: takes `count` pieces from `lane`, the probe
// not counted, checks plan and bytes, and answers them out of order.
::testing::AssertionResult RelayPieces(const Member& relay, const std::byte* arena, uint32_t lane,
                                       uint64_t count) {
  Registration& self = *relay.self;
  std::shared_ptr<PeerMapping> sender_mapping;
  const auto wake_sender = [&] {
    FullFence();
    sender_mapping->side()->Wake(WakeRole::kCompletion);
  };
  RelayLaneReader reader(self.block().lanes[lane], self.side().file().lanes[lane], self.epoch());
  RelayLaneWriter writer(self.block().lanes[lane]);
  auto copy = std::make_unique<DescriptorCopy>();
  std::mt19937 random(3);
  std::vector<LanePiece> posted;
  uint64_t good = 0, expected = 1;
  while (good < count || !posted.empty()) {
    LanePiece piece;
    switch (good < count ? reader.Poll(*copy, piece) : LanePoll::kIdle) {
      case LanePoll::kUnknownSender: {
        const std::optional<LaneSender> sender = ReadSender(self.block().lanes[lane].header);
        if (!sender.has_value() || !IsAlive(sender->identity)) {
          return ::testing::AssertionFailure() << "the sender is not to be seen";
        }
        const std::vector<PeerInfo> peers = relay.registry->Discover().value();
        for (const PeerInfo& info : peers) {
          if (info.epoch == sender->epoch) sender_mapping = relay.registry->MapPeer(info).value();
        }
        reader.Admit(sender->epoch);
        break;
      }
      case LanePoll::kBadPiece:
        if (piece.sequence != 1 || piece.error != DescriptorError::kEpoch) {
          return ::testing::AssertionFailure()
                 << "bad descriptor " << piece.sequence << ": " << DescriptorErrorName(piece.error);
        }
        ++expected;
        writer.Complete(piece, RelayStatus::kBadDescriptor);
        wake_sender();
        break;
      case LanePoll::kPiece: {
        ++good;
        if (piece.sequence != expected++) {
          return ::testing::AssertionFailure() << "sequence " << piece.sequence;
        }
        const std::vector<PlanEntry> plan = PlanOf(piece.sequence);
        if (!std::equal(plan.begin(), plan.end(), copy->plan().begin(), copy->plan().end()) ||
            copy->session_name() != "target-" + std::to_string(piece.sequence % 3)) {
          return ::testing::AssertionFailure() << "plan of piece " << piece.sequence;
        }
        if (TakePiece(self.side().file().lanes[lane], piece.sender_epoch, piece.sequence) !=
            TakeResult::kTaken) {
          return ::testing::AssertionFailure() << "claim word of piece " << piece.sequence;
        }
        reader.BeginPost(piece);
        posted.push_back(piece);
        break;
      }
      case LanePoll::kNotReady:
      case LanePoll::kIdle:
      case LanePoll::kChanged:
        if (posted.empty() &&
            !ParkUnless(self.side(), WakeRole::kRelay, [&reader] { return !reader.HasWork(); })) {
          return ::testing::AssertionFailure() << "nobody woke the relay at piece " << expected;
        }
        break;
      case LanePoll::kSlotBusy:
      case LanePoll::kQuarantined:
        return ::testing::AssertionFailure() << "lane unusable at piece " << expected;
    }
    // "Sends" a random piece: reads its bytes as late as it may.
    if (posted.empty() || (random() % 3 != 0 && good < count)) continue;
    std::swap(posted[random() % posted.size()], posted.back());
    const LanePiece done = posted.back();
    posted.pop_back();
    const auto* words = reinterpret_cast<const uint64_t*>(arena + SlotOffset(lane, done.slot()));
    for (uint64_t i = 0; i < kPieceBytes / 8; ++i) {
      if (words[i] != WordOf(done.sequence, i)) {
        return ::testing::AssertionFailure() << "byte " << i * 8 << " of piece " << done.sequence;
      }
    }
    if (!writer.Complete(done,
                         done.sequence % 13 == 0 ? RelayStatus::kTransport : RelayStatus::kOk)) {
      return ::testing::AssertionFailure() << "completion of piece " << done.sequence;
    }
    wake_sender();
    reader.EndPost(done);
  }
  return ::testing::AssertionSuccess();
}

// The whole life of a lane: claim, probe, pieces, release; then once more.
TEST(LaneExchangeTest, TwoProcessesCarryPiecesOverALane) {
  constexpr uint64_t kPieces = 4'000;
  const PrivateRoot root;
  const TestArena arena;
  const Member relay = Join(root.Options(), "relay").value();
  Child sender([&](const Child::Link& link) {
    Member self = Join(root.Options(), "sender").value();
    const std::vector<PeerInfo> peers = self.registry->Discover().value();
    const auto peer = self.registry->MapPeer(peers.at(0)).value();
    const LaneSender me{self.self->owner(), self.self->epoch()};
    for (int round = 0; round < 2; ++round) {
      const LaneClaim claim = ClaimLane(*peer, me).value();
      if (claim.lane != 0 || claim.reused || !MarkAttached(*peer, me, 0, true).ok()) return false;
      const LaneMapping lane(peer, claim, arena.base());
      DescriptorWriter writer;
      RingCredit credit(claim.first_sequence);
      CompletionReader completions(claim.first_sequence);
      SendProbe(lane, writer, credit);
      FullFence();
      lane.WakeRelay();
      SentCompletion answer;
      while (answer.state == CompletionState::kPending) {
        std::this_thread::yield();
        answer = completions.Poll(lane.control());
      }
      if (!IsProbeAnswer(answer)) return false;
      if (!SendPieces(lane, self.self->side(), 2, kPieces / 2)) return false;
      // Away and back under the same epoch: it goes on where it was.
      const LaneClaim again = ClaimLane(*peer, me).value();
      if (!again.reused || again.first_sequence != 2 + kPieces / 2) return false;
      if (!SendPieces(LaneMapping(peer, again, arena.base()), self.self->side(),
                      again.first_sequence, kPieces / 2)) {
        return false;
      }
      if (!ReleaseLane(*peer, me, 0).ok()) return false;
      link.Tell();
      if (link.Await() == 0) return false;
    }
    return true;
  });
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(RelayPieces(relay, arena.base(), 0, kPieces));
    ASSERT_EQ(sender.Await(), '.');
    EXPECT_EQ(LoadLaneState(relay.self->block().lanes[0].header), LaneState::kFree);
    sender.Tell();
  }
  EXPECT_TRUE(sender.Join());
}

// The sender dies in the middle; the relay keeps its lane until it is drained, and the next sender
// gets a clean one.
TEST(LaneExchangeTest, LaneOfAKilledSenderIsDrainedAndGivenAway) {
  const PrivateRoot root;
  const TestArena arena;
  const Member relay = Join(root.Options(), "relay").value();
  LaneControl& lane = relay.self->block().lanes[0];
  Child sender([&](const Child::Link& link) {
    Member self = Join(root.Options(), "sender").value();
    const auto peer = self.registry->MapPeer(self.registry->Discover().value().at(0)).value();
    const LaneSender me{self.self->owner(), self.self->epoch()};
    const LaneMapping mine(peer, ClaimLane(*peer, me).value(), arena.base());
    link.Tell();
    SendPieces(mine, self.self->side(), 1, 1'000'000);  // never answered
    return false;
  });
  ASSERT_EQ(sender.Await(), '.');
  const LaneSender who = *ReadSender(lane.header);
  ProcessWatch watch(who.identity);
  RelayLaneReader reader(lane, relay.self->side().file().lanes[0], relay.self->epoch());
  RelayLaneWriter writer(lane);
  auto copy = std::make_unique<DescriptorCopy>();
  reader.Admit(who.epoch);
  LanePiece piece;
  while (reader.Poll(*copy, piece) != LanePoll::kPiece) std::this_thread::yield();
  reader.BeginPost(piece);

  sender.Kill();
  ASSERT_TRUE(watch.Ended());
  reader.Dismiss();
  ASSERT_TRUE(TakeOverLane(*relay.self, 0, who).ok());
  LanePiece late;
  EXPECT_EQ(reader.Poll(*copy, late), LanePoll::kNotReady);
  EXPECT_FALSE(writer.Complete(piece, RelayStatus::kOk)) << "there is nobody to tell";
  reader.EndPost(piece);
  EXPECT_EQ(reader.in_flight(), 0u);
  ASSERT_TRUE(FreeTakenLane(*relay.self, 0).ok());
  EXPECT_EQ(reader.Poll(*copy, late), LanePoll::kNotReady);

  Child next([&](const Child::Link& link) {
    Member self = Join(root.Options(), "next").value();
    const auto peer = self.registry->MapPeer(self.registry->Discover().value().at(0)).value();
    const LaneSender me{self.self->owner(), self.self->epoch()};
    const LaneMapping mine(peer, ClaimLane(*peer, me).value(), arena.base());
    return mine.claim().lane == 0 && SendPieces(mine, self.self->side(), 1, 500) && link.Tell();
  });
  ASSERT_TRUE(RelayPieces(relay, arena.base(), 0, 500));
  EXPECT_TRUE(next.Join());
}

// Sender and relay as threads on ONE mapping of the block: what the thread sanitizer can follow.
// The relay here is mapped by nobody, so the sender writes through the owner's own mapping.
TEST(LaneExchangeTest, TwoThreadsAgreeOnTheMemoryOrders) {
  constexpr uint64_t kPieces = 2'000;
  const PrivateRoot root;
  const Member relay = Join(root.Options(), "relay").value();
  ControlBlock& block = relay.self->block();
  LaneControl& lane = block.lanes[0];
  SideLane& side = relay.self->side().file().lanes[0];
  std::vector<uint64_t> slots(kSlotsPerLane * kPieceBytes / 8);
  const auto slot = [&](uint64_t sequence) {
    return std::span(slots).subspan(SlotIndex(sequence) * kPieceBytes / 8, kPieceBytes / 8);
  };
  lane.header.sender = relay.self->owner();
  lane.header.sender_epoch = 7;
  side.sender_epoch = 7;
  StoreLaneState(lane.header, LaneState::kReady);

  std::thread sender([&] {
    DescriptorWriter writer;
    RingCredit credit(1);
    CompletionReader completions(1);
    for (uint64_t reaped = 0, published = 0; reaped < kPieces;) {
      if (published < kPieces && credit.Available()) {
        published = credit.Take();
        Descriptor& descriptor = lane.descriptors[SlotIndex(published)];
        writer.Prepare(descriptor, SlotIndex(published), relay.self->epoch(), "t",
                       PlanOf(published));
        OfferPiece(side, published);
        DescriptorWriter::Commit(descriptor, published);
        for (uint64_t i = 0; i < kPieceBytes / 8; ++i) slot(published)[i] = WordOf(published, i);
        StoreRelease(lane.header.doorbell, published);
        StoreRelease(lane.header.head, published);
      }
      const SentCompletion found = completions.Poll(lane);
      if (found.state == CompletionState::kPending) {
        std::this_thread::yield();
        continue;
      }
      EXPECT_EQ(found.state, CompletionState::kReady);
      EXPECT_EQ(found.status, 0);
      credit.Return(found.sequence);
      ++reaped;
    }
  });

  RelayLaneReader reader(lane, side, relay.self->epoch());
  RelayLaneWriter writer(lane);
  auto copy = std::make_unique<DescriptorCopy>();
  reader.Admit(7);
  std::mt19937 random(5);
  std::vector<LanePiece> posted;
  uint64_t read = 0;
  while (read < kPieces || !posted.empty()) {
    LanePiece piece;
    const LanePoll polled = read < kPieces ? reader.Poll(*copy, piece) : LanePoll::kIdle;
    if (polled == LanePoll::kPiece) {
      ++read;
      EXPECT_EQ(copy->plan().size(), PlanOf(piece.sequence).size());
      EXPECT_EQ(TakePiece(side, 7, piece.sequence), TakeResult::kTaken);
      posted.push_back(piece);
    } else {
      EXPECT_EQ(polled, LanePoll::kIdle);
    }
    if (posted.empty() || (random() % 3 != 0 && read < kPieces)) continue;
    std::swap(posted[random() % posted.size()], posted.back());
    const LanePiece done = posted.back();
    posted.pop_back();
    for (uint64_t i = 0; i < kPieceBytes / 8; ++i) {
      EXPECT_EQ(slot(done.sequence)[i], WordOf(done.sequence, i));
    }
    EXPECT_TRUE(writer.Complete(done, RelayStatus::kOk));
  }
  sender.join();
  EXPECT_EQ(lane.header.completed, kPieces);
}

// A reader polls while claims come and go under it, each with pieces of its own: what it accepts is
// whole, and of the claim that it says.
TEST(LaneExchangeTest, Rule1ReadOrderNeverMixesTwoClaims) {
  constexpr uint64_t kClaims = 40;
  const PrivateRoot root;
  const Member relay = Join(root.Options(), "relay").value();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> seen_epoch{0};
  std::thread claimer([&] {
    LaneControl& lane = relay.self->block().lanes[0];
    SideLane& side = relay.self->side().file().lanes[0];
    for (uint64_t epoch = 1; epoch <= kClaims; ++epoch) {
      // As a claimer of version 1 does: clears whatever is there, its own or a dead sender's. Here
      // with the stores of FreeTakenLane, the relay being the sender.
      StoreRelease(lane.header.sender_epoch, relay.self->epoch());
      StoreRelease(lane.header.sender.uid, relay.self->owner().uid);
      StoreRelease(lane.header.sender.pid, relay.self->owner().pid);
      StoreRelease(lane.header.sender.start_ticks, relay.self->owner().start_ticks);
      StoreLaneState(lane.header, LaneState::kReady);
      ASSERT_TRUE(FreeTakenLane(*relay.self, 0).ok());
      StoreRelease(side.claim_count, epoch);
      StoreRelease(lane.header.sender_epoch, epoch << 32);
      StoreLaneState(lane.header, LaneState::kReady);
      for (uint64_t sequence = 1; sequence <= 18; ++sequence) {
        Descriptor& descriptor = lane.descriptors[SlotIndex(sequence)];
        // Atomic stores: the reader may be copying just this descriptor for the claim before.
        StoreRelaxed(descriptor.epoch, relay.self->epoch());
        StoreRelaxed(descriptor.piece_length, static_cast<uint32_t>(epoch * 2));
        StoreRelaxed(descriptor.plan_count, 2);
        StoreRelaxed(descriptor.session_length, 1);
        StoreRelaxed(descriptor.session[0], 's');
        for (int i = 0; i < 2; ++i) {
          StoreRelaxed(descriptor.plans[i].final_destination, epoch << 32 | sequence);
          StoreRelaxed(descriptor.plans[i].length, epoch);
        }
        StoreRelease(descriptor.commit_sequence, sequence);
        StoreRelease(lane.header.doorbell, sequence);
        // Half of the pieces in the reader's own time, the others and the next claim right on top.
        while (sequence == 9 && seen_epoch.load(std::memory_order_acquire) != epoch << 32) {
          std::this_thread::yield();
        }
      }
    }
    stop.store(true, std::memory_order_release);
  });

  RelayLaneReader reader(relay.self->block().lanes[0], relay.self->side().file().lanes[0],
                         relay.self->epoch());
  auto copy = std::make_unique<DescriptorCopy>();
  LanePiece piece;
  uint64_t pieces = 0;
  while (!stop.load(std::memory_order_acquire)) {
    const LanePoll polled = reader.Poll(*copy, piece);
    EXPECT_NE(polled, LanePoll::kBadPiece) << DescriptorErrorName(piece.error);
    EXPECT_NE(polled, LanePoll::kQuarantined);
    if (polled == LanePoll::kUnknownSender) reader.Admit(reader.sender_epoch());
    if (polled != LanePoll::kPiece) continue;
    ++pieces;
    seen_epoch.store(piece.sender_epoch, std::memory_order_release);
    EXPECT_EQ(copy->plan()[0].final_destination, piece.sender_epoch | piece.sequence);
    EXPECT_EQ(copy->plan()[1].length, piece.sender_epoch >> 32);
  }
  claimer.join();
  EXPECT_GE(pieces, kClaims);
}

}  // namespace
}  // namespace railhop
