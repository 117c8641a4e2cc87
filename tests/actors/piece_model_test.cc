// What the rule by which pieces are cut (slicer.h) makes of a few small requests that are sent over
// and over, in a model of the way through a GPU's copy engine: virtual time, no clock.
//
// The model's costs were measured on two H200 (docs/results/gpu-h200.md); its results are no
// figures of a machine. It shows what a test of the rule by examples does not: that no number of
// requests under way falls into a rhythm in which the stages wait for each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "actors/slicer.h"
#include "transport/copy/cuda_copy_engine.h"

namespace railhop {
namespace {

constexpr uint64_t kRequest = 64 * 1024;

// Microseconds.
struct Costs {
  // Of a piece: the calls for it, until its doorbell shows, and between two doorbells of a stream;
  // and what each further span adds to these.
  double issue = 3.6, show = 8.0, stream = 3.6;
  double issue_span = 0.35, show_span = 0.45, stream_span = 0.2;
  double hop = 0.25;          // a message from core to core
  double application = 0.45;  // sees that a request is over, and submits the next
  double cut = 0.25;
  double delay = 3;  // of the NIC, after the last byte
};

// Requests that are each sent again when they are over.
class Model {
 public:
  Model(uint32_t requests, double nic_gb_per_s, const Costs& costs)
      : costs_(costs), us_per_byte_(1e-3 / nic_gb_per_s) {
    for (uint32_t i = 0; i < requests; ++i) Submit(i);
  }

  // Of the NIC's rate.
  double Run() {
    constexpr double kEnd = 10'000;
    while (!events_.empty() && events_.begin()->first < kEnd) {
      const auto next = events_.extract(events_.begin());
      now_ = next.key();
      next.mapped()();
    }
    return static_cast<double>(sent_) * us_per_byte_ / kEnd;
  }

 private:
  using Ids = std::vector<uint32_t>;

  void At(double when, std::function<void()> what) { events_.emplace(when, std::move(what)); }

  void Submit(uint32_t id) {
    application_ = std::max(application_, now_) + costs_.application;
    At(application_ + costs_.hop, [this, id] {
      // Nobody's neighbour, as the pages of a KV cache are.
      const Span span{.source = reinterpret_cast<std::byte*>(uint64_t{2 * id + 1} * kRequest),
                      .length = kRequest,
                      .request = id};
      ASSERT_TRUE(pool_.Push(queue_, span));
      Cut();
    });
  }

  void Cut() {
    for (;;) {
      const uint64_t target = PieceTarget({.waiting = queue_.bytes,
                                           .at_relay = at_relay_,
                                           .under_way = under_way_,
                                           .copying = copying_},
                                          kSizes, kSlotBytes);
      PieceContent piece;
      if (target == 0 || !CutPiece(pool_, queue_, {target, kSizes.whole, kSlotBytes}, &piece)) {
        return;
      }
      Ids ids;
      for (const Span& span : piece.spans) ids.push_back(span.request);
      ++copying_;
      under_way_ += piece.length;
      submit_actor_ = std::max(submit_actor_, now_) + costs_.cut;
      At(submit_actor_ + costs_.hop, [this, ids] { Issue(ids); });
    }
  }

  void Issue(const Ids& ids) {
    const auto more = static_cast<double>(ids.size() - 1);
    const double begin = std::max(now_, copy_actor_);
    copy_actor_ = begin + costs_.issue + costs_.issue_span * more;
    doorbell_ = std::max(begin + costs_.show + costs_.show_span * more,
                         doorbell_ + costs_.stream + costs_.stream_span * more);
    const uint64_t bytes = ids.size() * kRequest;
    At(doorbell_ + costs_.hop, [this, bytes] {
      --copying_;
      at_relay_ += bytes;
      Cut();
    });
    At(doorbell_ + costs_.hop, [this, ids, bytes] {
      nic_ = std::max(nic_, now_) + static_cast<double>(bytes) * us_per_byte_;
      At(nic_ + costs_.delay + 2 * costs_.hop, [this, ids, bytes] {
        at_relay_ -= bytes;
        under_way_ -= bytes;
        sent_ += bytes;
        for (const uint32_t id : ids) Submit(id);
        Cut();
      });
    });
  }

  static constexpr JobSizes kSizes = CudaCopyEngine::kJobSizes;
  const Costs costs_;
  const double us_per_byte_;
  std::multimap<double, std::function<void()>> events_;
  SpanPool pool_{64};
  SpanQueue queue_;
  uint64_t at_relay_ = 0, under_way_ = 0, sent_ = 0;
  uint32_t copying_ = 0;
  double now_ = 0;
  // When each is free again.
  double application_ = 0, submit_actor_ = 0, copy_actor_ = 0, doorbell_ = 0, nic_ = 0;
};

// By how many are under way, the part of the NIC's rate that must be reached.
using Wanted = std::map<uint32_t, double>;

void ExpectAtLeast(double nic_gb_per_s, const Costs& costs, const Wanted& wanted) {
  for (const auto& [requests, part] : wanted) {
    EXPECT_GE(Model(requests, nic_gb_per_s, costs).Run(), part)
        << requests << " requests, " << nic_gb_per_s << " GB/s";
  }
}

TEST(PieceModelTest, AFewRequestsSpreadOverAllStages) {
  ExpectAtLeast(25, {}, {{2, 0.30}, {4, 0.60}, {6, 0.75}, {8, 0.95}, {10, 0.95}, {12, 0.97}});
  ExpectAtLeast(50, {}, {{4, 0.30}, {8, 0.60}, {12, 0.75}, {16, 0.90}, {24, 0.97}, {32, 0.97}});
}

// As with a doorbell that the device writes, for which the stream stands still.
TEST(PieceModelTest, ASlowStreamGetsLargerPieces) {
  const Costs slow{.stream = 5.2, .stream_span = 0.4};
  ExpectAtLeast(25, slow, {{4, 0.45}, {8, 0.90}, {12, 0.97}});
  ExpectAtLeast(50, slow, {{8, 0.45}, {12, 0.60}, {16, 0.80}, {24, 0.97}, {32, 0.97}});
}

// As by the gather kernel: spans cost next to nothing, a piece more.
TEST(PieceModelTest, AKernelsPiecesSpreadAsWell) {
  const Costs kernel{.issue = 4.4, .show = 10.5, .stream = 5.3, .issue_span = 0, .show_span = 0.15};
  ExpectAtLeast(25, kernel, {{4, 0.45}, {8, 0.90}, {12, 0.97}});
  ExpectAtLeast(50, kernel, {{8, 0.45}, {12, 0.65}, {16, 0.80}, {24, 0.97}, {32, 0.97}});
}

// No worse with one more than with one less, but for what a rhythm takes.
TEST(PieceModelTest, NoNumberOfRequestsFallsBehind) {
  for (const double rate : {25, 50}) {
    double best = 0;
    for (uint32_t requests = 1; requests <= 40; ++requests) {
      const double part = Model(requests, rate, {}).Run();
      EXPECT_GE(part, 0.85 * best) << requests << " requests, " << rate << " GB/s";
      best = std::max(best, part);
    }
  }
}

}  // namespace
}  // namespace railhop
