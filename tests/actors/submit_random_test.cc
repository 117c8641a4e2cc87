// SubmitActor in a world that does everything in any order: a model beside it keeps the account of
// every byte. What must hold after each step:
//   - a batch in a last state has nothing that can still land or is still read;
//   - no byte is under way twice, or again after it has landed;
//   - a batch's status tells exactly the bytes that have landed, and by which way.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "actors/submit_actor.h"
#include "tests/actors/sender_harness.h"
#include "tests/support/scale.h"
#include "transport/ring/completion.h"

namespace railhop {
namespace {

class RandomWorld {
 public:
  explicit RandomWorld(uint32_t seed)
      : random_(seed), sender_({.nics = 2, .slice_attempts = 3, .batches = 24}) {
    for (uint32_t target = 0; target < kTargets; ++target) Connect(target);
    for (uint32_t lane = 0; lane < kLanes; ++lane) Open(lane);
    for (uint64_t i = 0; i < kRegions; ++i) {
      sender_.AddRegion(kSource + (i + 2) * kRegionBytes, kRegionBytes, i != 0);
    }
  }

  void Run(uint64_t steps) {
    for (uint64_t step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      Step();
      if (random_() % 3 != 0) Pass();
      Check();
    }
  }

  // Everything that is left comes to an end.
  void Finish() {
    for (int i = 0; i < 100'000 && !Quiet() && !::testing::Test::HasFailure(); ++i) {
      Pass();
      if (!copies_.empty()) EndCopy(0, CopyOutcome::kRung);
      if (!pieces_.empty()) AnswerPiece(pieces_.begin()->first, 0);
      if (!posts_.empty()) EndPost(0, TransferError::kNone);
      MendTargets();
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        if (lanes_[lane].mute || lanes_[lane].stale) Close(lane, LaneEnd::kPeerDead);
      }
      Check();
    }
    EXPECT_TRUE(Quiet());
    for (const auto& [id, batch] : batches_) {
      EXPECT_TRUE(IsQuiescent(sender_.State({id}))) << "batch " << id << " never ended";
    }
    sender_.ExpectIdle();
  }

  std::map<BatchState, int> ended() const { return ended_; }
  const SubmitStats& stats() const { return sender_.submit.stats(); }

 private:
  static constexpr uint32_t kTargets = 5;
  static constexpr uint32_t kLanes = 4;  // 0 and 1 to relay 0, 2 to relay 1, 3 of version 1
  static constexpr uint64_t kRegions = 3;
  static constexpr uint64_t kRegionBytes = uint64_t{1} << 36;

  struct BatchModel {
    uint64_t total = 0;      // bytes of its requests
    uint64_t landed = 0;     // bytes that are at the target
    uint64_t relayed = 0;    // of those
    uint64_t under_way = 0;  // bytes posted, or in pieces that can still land
    uint64_t reading = 0;    // bytes of pieces that are being copied
  };
  struct Piece {
    std::map<uint64_t, uint64_t> bytes;  // by batch id
    bool offered = false;                // CopyActor has taken it up
    bool copied = false;
    bool revoked = false;   // the actor took it back
    bool lost = false;      // its relay is dead, or CopyActor refused it: it can never land
    bool answered = false;  // by the relay
  };
  struct LaneModel {
    bool open = false;
    bool stale = false;
    bool mute = false;  // it answers nothing more
    bool version1 = false;
  };
  using PieceKey = std::pair<uint32_t, uint64_t>;  // lane, sequence

  uint64_t Random(uint64_t below) { return random_() % below; }
  bool Chance(uint64_t percent) { return Random(100) < percent; }

  void Connect(uint32_t target) {
    static const std::vector<std::vector<std::string>> rails = {
        {"rail1"}, {"rail1"}, {"rail2"}, {"rail1", "rail2"}, {"rail0"}};
    // Two adjacent registrations, cut anew each time the target is connected.
    const uint64_t cut = (Random(1024) + 1) * kMiB;
    sender_.AddTarget(target,
                      {{.address = kTarget, .length = cut, .rails = rails[target]},
                       {.address = kTarget + cut,
                        .length = (uint64_t{1} << 40) - cut,
                        .rails = rails[target],
                        .own_nics = {1}}},
                      ++versions_[target]);
  }
  void Open(uint32_t lane) {
    lanes_[lane] = {.open = true, .version1 = lane == 3};
    sender_.OpenLane(lane, lane == 2 ? 1 : 0, 2 + Random(40), lane == 3);
  }

  // --- One step
  void Step() {
    switch (Random(16)) {
      case 0:
      case 1:
        return Submit();
      case 2:
      case 3:
      case 4:
        if (!copies_.empty())
          EndCopy(RandomCopy(), Chance(1) ? CopyOutcome::kRefused : CopyOutcome::kRung);
        return;
      case 5:
      case 6:
      case 7:
      case 8:
        if (!pieces_.empty()) RelayStep();
        return;
      case 9:
      case 10:
      case 11:
        if (!posts_.empty()) {
          const TransferError error =
              Chance(70) ? TransferError::kTransport : TransferError::kRemoteAccess;
          EndPost(Random(posts_.size()), Chance(3) ? error : TransferError::kNone);
        }
        return;
      case 12:
        return ApplicationStep();
      case 13:
        return TimeStep();
      case 14:
        if (Chance(20)) LaneStep();
        return;
      default:
        if (Chance(10)) TargetStep();
        if (Chance(60)) MendTargets();
        return;
    }
  }

  void Submit() {
    const BatchId id = sender_.table.Allocate();
    if (!id.valid()) return;
    BatchModel& model = batches_[id.value];
    std::vector<TransferRequest> requests;
    const uint64_t count = Chance(5) ? 0 : 1 + Random(Chance(5) ? 1500 : 20);
    const uint64_t region = Random(kRegions + 1);  // 0: the harness's own
    const uint64_t base = region == 0 ? 0 : (region + 1) * kRegionBytes;
    const auto target = static_cast<SegmentId>(1 + Random(kTargets));
    uint64_t source = Random(1024) * kMiB, destination = Random(2048) * kMiB;
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t length = 1 + Random(count > 100 ? 5000 : 300'000);
      if (Chance(5)) length = 0;
      if (count < 10 && Chance(10)) length = Random(30 * kMiB);
      TransferRequest request = Write(base + source, destination, length, target);
      if (Chance(5)) request.opcode = Opcode::kRead;
      if (Chance(1)) request.target = 1 + static_cast<SegmentId>(Random(2 * kTargets));
      if (Chance(1)) request.source = SourceAt(uint64_t{1} << 41);
      requests.push_back(request);
      model.total += length;
      source += length + (Chance(50) ? Random(5000) : 0);
      destination += length + (Chance(50) ? Random(5000) : 0);
    }
    Batch& batch = *sender_.table.Find(id);
    batch.SetRequests(requests);
    batch.deadline = SenderHarness::kFar;
    ASSERT_TRUE(sender_.submit.OnBatchCommand({BatchCommand::kSubmit, id}));
  }

  void ApplicationStep() {
    if (batches_.empty()) return;
    auto at = batches_.begin();
    std::advance(at, static_cast<ptrdiff_t>(Random(batches_.size())));
    const BatchId id{at->first};
    if (IsQuiescent(sender_.State(id))) {
      EXPECT_EQ(sender_.table.Free(id), FreeResult::kOk);
      batches_.erase(at);
      return;
    }
    EXPECT_EQ(sender_.table.Free(id), FreeResult::kBusy);
    if (Chance(15)) sender_.Cancel(id);
    if (Chance(15)) sender_.Expire(id);
    if (Chance(10)) {
      Region& region = *sender_.regions[1 + Random(kRegions)];
      const bool in_use = region.in_flight != 0;
      // Nor is it removed while a batch has yet to send from there, which only the actor knows.
      const bool removed = sender_.TellRegion(BatchCommand::kRemoveRegion, region);
      EXPECT_FALSE(removed && in_use);
      if (removed) {
        EXPECT_TRUE(sender_.TellRegion(BatchCommand::kAddRegion, region));
      }
      Collect();
    }
  }

  void TimeStep() {
    sender_.Advance(Random(Chance(5) ? 6000 : 600));
    Collect();
    for (uint32_t lane = 0; lane < kLanes; ++lane) sender_.ExpireLane(lane);
    Collect();
  }

  void LaneStep() {
    const auto lane = static_cast<uint32_t>(Random(kLanes));
    LaneModel& model = lanes_[lane];
    if (!model.open) return Open(lane);
    if (model.stale || model.mute || Chance(50)) return Close(lane, LaneEnd::kPeerDead);
    Close(lane, LaneEnd::kStale);
  }

  void TargetStep() {
    const auto target = static_cast<uint32_t>(Random(kTargets));
    if (Chance(50)) return Connect(target);
    EXPECT_TRUE(sender_.submit.OnTargetFailed({.target = target,
                                               .token = kNoToken,
                                               .error = TransferError::kTargetDead,
                                               .version = versions_[target]}));
    failed_.push_back(target);
    if (failed_.size() > 2) {
      Connect(failed_.front());
      failed_.erase(failed_.begin());
    }
  }

  // A random piece makes progress at its relay.
  void RelayStep() {
    auto at = pieces_.begin();
    std::advance(at, static_cast<ptrdiff_t>(Random(pieces_.size())));
    const auto [lane, sequence] = at->first;
    if (lanes_[lane].mute || at->second.lost) return;
    if (!lanes_[lane].version1 && at->second.copied && Chance(50)) {
      sender_.Take(lane, sequence);
      return;
    }
    if (Chance(1)) {
      lanes_[lane].mute = true;
      sender_.Answer(lane, sequence, kMalformedCompletion);
      return;
    }
    AnswerPiece(at->first, Chance(10) ? -1 - static_cast<int32_t>(Random(7)) : 0);
  }

  // --- The world answers
  size_t RandomCopy() {
    // Copies of a lane end in order: the first one of a random lane.
    const uint32_t lane = copies_[Random(copies_.size())].lane;
    for (size_t i = 0;; ++i) {
      if (copies_[i].lane == lane) return i;
    }
  }

  void EndCopy(size_t index, CopyOutcome outcome) {
    const CopyPiece message = copies_[index];
    copies_.erase(copies_.begin() + static_cast<ptrdiff_t>(index));
    const PieceKey key{message.lane, message.sequence};
    Piece& piece = pieces_.at(key);
    for (const auto& [id, bytes] : piece.bytes) batches_.at(id).reading -= bytes;
    piece.copied = true;
    if (outcome == CopyOutcome::kRefused && !piece.answered && !piece.lost) {
      EndPiece(piece);
      piece.lost = true;
    } else {
      outcome = CopyOutcome::kRung;
      Offer(key, piece);
    }
    // Revoked or not is known only after the actor was told.
    EXPECT_TRUE(sender_.submit.OnPieceCopied({message.sequence, message.lane, outcome}));
    NoteRevoked();
    if (piece.lost || piece.answered) pieces_.erase(key);
  }

  // The relay's completion: success means that all of it has landed.
  void AnswerPiece(PieceKey key, int32_t status) {
    Piece& piece = pieces_.at(key);
    const auto [lane, sequence] = key;
    if (piece.lost || piece.answered || lanes_[lane].mute) return;
    Offer(key, piece);  // its doorbell may be rung before the actor hears of it
    if (piece.revoked) {
      status = static_cast<int32_t>(RelayStatus::kRevoked);
    } else if (!lanes_[lane].version1 && status == 0) {
      EXPECT_NE(sender_.Take(lane, sequence), TakeResult::kRevoked);
    }
    if (status == 0) {
      for (const auto& [id, bytes] : piece.bytes) {
        batches_.at(id).landed += bytes;
        batches_.at(id).relayed += bytes;
      }
    }
    if (!piece.revoked) EndPiece(piece);
    piece.answered = true;
    sender_.Answer(lane, sequence, status);
    if (piece.copied) pieces_.erase(key);
  }

  void EndPost(size_t index, TransferError error) {
    const PostSlice slice = posts_[index].first;
    const uint64_t id = posts_[index].second;
    posts_.erase(posts_.begin() + static_cast<ptrdiff_t>(index));
    BatchModel& model = batches_.at(id);
    model.under_way -= slice.length;
    if (error == TransferError::kNone) model.landed += slice.length;
    if (error == TransferError::kTransport) broken_.insert(slice.target->index);
    sender_.PostDone(slice, error);
  }
  // As EndpointActor does after an error: those with a broken path are connected anew.
  void MendTargets() {
    for (const uint32_t target : broken_) Connect(target);
    broken_.clear();
  }

  void Close(uint32_t lane, LaneEnd end) {
    if (!lanes_[lane].open) return;
    if (end == LaneEnd::kPeerDead) {
      for (auto& [key, piece] : pieces_) {
        if (key.first != lane || piece.lost || piece.answered) continue;
        if (!piece.revoked) EndPiece(piece);
        piece.lost = true;
      }
      std::erase_if(pieces_, [lane](const auto& entry) {
        return entry.first.first == lane && entry.second.lost && entry.second.copied;
      });
    } else {
      lanes_[lane].stale = true;
    }
    EXPECT_TRUE(sender_.submit.OnCloseLane({.lane = lane, .end = end}));
    Collect();
  }

  void Pass() {
    sender_.Pass();
    Collect();
  }

  // What the actor has sent since the last look.
  void Collect() {
    NoteRevoked();
    for (const CopyPiece& message : sender_.copies) {
      copies_.push_back(message);
      Piece& piece = pieces_[{message.lane, message.sequence}];
      EXPECT_TRUE(piece.bytes.empty()) << "a sequence was given out twice";
      EXPECT_LE(message.content->length, kSlotBytes);
      EXPECT_LE(message.content->plans.size(), kMaxPlanEntries);
      for (const Span& span : message.content->spans) {
        piece.bytes[sender_.table.IdOf(span.batch).value] += span.length;
      }
      for (const auto& [id, bytes] : piece.bytes) {
        batches_.at(id).under_way += bytes;
        batches_.at(id).reading += bytes;
      }
      if (Chance(50)) Offer({message.lane, message.sequence}, piece);
    }
    sender_.copies.clear();
    for (const PostSlice& slice : sender_.posts) {
      EXPECT_LE(slice.length, kSlotBytes);
      // The actor's own book says whose it is.
      const uint64_t id = sender_.table.IdOf(SubmitActorPeer::BatchOf(sender_.submit, slice)).value;
      batches_.at(id).under_way += slice.length;
      posts_.emplace_back(slice, id);
    }
    sender_.posts.clear();
    for (const uint32_t lane : sender_.closed) {
      EXPECT_TRUE(lanes_[lane].open);
      lanes_[lane] = {};
      for (const auto& [key, piece] : pieces_) EXPECT_NE(key.first, lane) << "it is still in use";
    }
    sender_.closed.clear();
  }

  // Pieces that the actor has taken back: nothing of them can land any more.
  void NoteRevoked() {
    for (auto& [key, piece] : pieces_) {
      const auto [lane, sequence] = key;
      if (!piece.copied || piece.answered || piece.lost || piece.revoked) continue;
      if (lanes_[lane].version1) continue;
      const uint64_t word =
          LoadAcquire(TestRelays::Words(*sender_.lanes[lane]).claims[SlotIndex(sequence)]);
      if (word != ClaimWord(sequence, ClaimState::kRevoked)) continue;
      EndPiece(piece);
      piece.revoked = true;
    }
  }
  void Offer(PieceKey key, Piece& piece) {
    if (!std::exchange(piece.offered, true)) sender_.lanes[key.first]->Offer(key.second);
  }
  void EndPiece(Piece& piece) {
    for (const auto& [id, bytes] : piece.bytes) batches_.at(id).under_way -= bytes;
  }

  // --- What must hold
  void Check() {
    NoteRevoked();
    for (const auto& [id, model] : batches_) {
      const BatchStatus status = sender_.Status({id});
      ASSERT_LE(model.landed + model.under_way, model.total) << "a byte was sent twice";
      if (!IsQuiescent(status.state)) continue;
      ASSERT_EQ(model.under_way, 0u) << "over, and something can still land";
      ASSERT_EQ(model.reading, 0u) << "over, and its source is still read";
      ASSERT_EQ(status.bytes, model.landed);
      ASSERT_EQ(status.relayed_bytes, model.relayed);
      if (status.state == BatchState::kCompleted) {
        ASSERT_EQ(status.bytes, model.total);
        ASSERT_EQ(status.error, TransferError::kNone);
      } else {
        ASSERT_NE(status.error, TransferError::kNone);
      }
      if (counted_.insert(id).second) ++ended_[status.state];
    }
  }
  bool Quiet() {
    return sender_.Pass() == 0 && sender_.copies.empty() && sender_.posts.empty() &&
           sender_.closed.empty() && copies_.empty() && pieces_.empty() && posts_.empty() &&
           SubmitActorPeer::Batches(sender_.submit) == 0;
  }

  std::mt19937_64 random_;
  SenderHarness sender_;
  std::array<uint32_t, kTargets> versions_{};
  std::vector<uint32_t> failed_;
  std::set<uint32_t> broken_;  // targets on one of whose paths a slice has failed
  std::array<LaneModel, kLanes> lanes_{};
  std::map<uint64_t, BatchModel> batches_;  // not freed yet
  std::deque<CopyPiece> copies_;
  std::map<PieceKey, Piece> pieces_;  // until copied, and answered or lost
  std::vector<std::pair<PostSlice, uint64_t>> posts_;
  std::set<uint64_t> counted_;
  std::map<BatchState, int> ended_;
};

TEST(SubmitRandomTest, EveryByteEndsExactlyOnceWhateverHappens) {
  const uint64_t seeds = LongTests() ? 500 : 60;
  std::map<BatchState, int> ended;
  uint64_t relayed = 0, direct = 0, again = 0;
  std::array<uint64_t, static_cast<size_t>(DirectReason::kCount)> reasons{};
  for (uint32_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomWorld world(seed);
    world.Run(5000);
    if (!HasFailure()) world.Finish();
    for (const auto& [state, count] : world.ended()) ended[state] += count;
    relayed += world.stats().bytes_relayed;
    direct += world.stats().bytes_direct;
    again += world.stats().slices_again;
    for (size_t i = 0; i < reasons.size(); ++i) reasons[i] += world.stats().direct[i];
  }
  // That the world was as varied as it is meant to be.
  EXPECT_GT(ended[BatchState::kCompleted], 20);
  EXPECT_GT(ended[BatchState::kFailed], 20);
  EXPECT_GT(ended[BatchState::kCanceled], 5);
  EXPECT_GT(relayed, 0u);
  EXPECT_GT(direct, 0u);
  EXPECT_GT(again, 0u);
  for (const DirectReason reason :
       {DirectReason::kNotWrite, DirectReason::kNotStaging, DirectReason::kOwnRail,
        DirectReason::kNoPeer, DirectReason::kTargetSuspect, DirectReason::kCreditTimeout,
        DirectReason::kPieceDeadline, DirectReason::kPieceRevoked, DirectReason::kRelayError,
        DirectReason::kLaneLost}) {
    EXPECT_GT(reasons[static_cast<size_t>(reason)], 0u) << DirectReasonName(reason);
  }
}

}  // namespace
}  // namespace railhop
