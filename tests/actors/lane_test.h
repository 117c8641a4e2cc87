// LaneTest: what the tests of SubmitActor's lanes share - batches of so many pieces, and pieces
// that are offered and rung. Every test ends with SenderHarness::ExpectIdle().
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "actors/submit_actor.h"
#include "tests/actors/sender_harness.h"
#include "transport/ring/completion.h"

namespace railhop {

// What every piece carries at most here, so that backlog does not change their number.
inline constexpr uint64_t kPiece = 256 * kKiB;
inline constexpr auto kTransport = static_cast<int32_t>(RelayStatus::kTransport);
inline constexpr auto kBadDescriptor = static_cast<int32_t>(RelayStatus::kBadDescriptor);
inline constexpr auto kRevoked = static_cast<int32_t>(RelayStatus::kRevoked);

class LaneTest : public ::testing::Test {
 protected:
  explicit LaneTest(const SenderHarness::Setup& setup = {.max_piece_bytes = kPiece})
      : sender_(setup) {
    for (uint32_t target = 0; target < 3; ++target) sender_.AddTarget(target);
  }
  void TearDown() override { sender_.ExpectIdle(); }

  // A batch of so many pieces, as one request.
  BatchId SubmitPieces(uint64_t pieces, SegmentId target = 1) {
    next_ += kMiB * 64;
    return sender_.Submit({Write(next_, next_, pieces * kPiece, target)});
  }
  // A batch of `count` tiny requests that never touch each other.
  static std::vector<TransferRequest> Tiny(size_t count, SegmentId target = 1) {
    std::vector<TransferRequest> requests;
    for (size_t i = 0; i < count; ++i) requests.push_back(Write(i * 4096, i * 4096, 64, target));
    return requests;
  }
  // A batch of one piece, offered and rung: sequence `sequence` of lane 0.
  BatchId OnePiece(uint64_t sequence, uint64_t bytes = 4096, SegmentId target = 1) {
    next_ += kMiB * 64;
    const BatchId batch = sender_.Submit({Write(next_, next_, bytes, target)});
    sender_.Pass();
    EXPECT_EQ(sender_.copies.size(), 1u);
    EXPECT_EQ(sender_.copies.back().sequence, sequence);
    sender_.CopyAll();
    sender_.rung.clear();
    return batch;
  }
  // Two batches in one piece, sequence 2 of lane 0, rung.
  std::pair<BatchId, BatchId> SharedPiece() {
    const BatchId one = sender_.Submit({Write(0, 0, 1000)});
    const BatchId two = sender_.Submit({Write(10'000, 10'000, 2000)});
    sender_.Pass();
    EXPECT_EQ(sender_.copies.size(), 1u);
    EXPECT_EQ(sender_.copies[0].content->spans.size(), 2u);
    sender_.CopyAll();
    sender_.rung.clear();
    return {one, two};
  }
  uint64_t ClaimOf(uint64_t sequence, uint32_t lane = 0) {
    return TestRelays::Words(*sender_.lanes[lane]).claims[SlotIndex(sequence)];
  }
  OutboundLane::Offer Offer(uint32_t lane = 0) {
    return SubmitActorPeer::Lane(sender_.submit, lane).offer();
  }
  void ExpectState(BatchId id, BatchState state, TransferError error = TransferError::kNone) {
    const BatchStatus status = sender_.Status(id);
    EXPECT_EQ(status.state, state);
    EXPECT_STREQ(TransferErrorName(status.error), TransferErrorName(error));
  }
  void ExpectCompleted(BatchId id, uint64_t bytes, uint64_t relayed) {
    ExpectState(id, BatchState::kCompleted);
    EXPECT_EQ(sender_.Status(id).bytes, bytes);
    EXPECT_EQ(sender_.Status(id).relayed_bytes, relayed);
  }

  SenderHarness sender_;
  uint64_t next_ = 0;
};

}  // namespace railhop
