#include "transport/fabric/tcp/tcp_endpoint.h"

#include <algorithm>
#include <utility>

namespace railhop {
namespace {

// Below it a second connection costs more than it brings.
constexpr uint64_t kSmallestPart = 1 << 20;
constexpr uint64_t kPartAlignment = 4096;

}  // namespace

TcpEndpoint::TcpEndpoint(TcpConnection::Peer peer, uint32_t connections, size_t depth,
                         KeyTable* keys, const TcpBounces* bounces)
    : peer_(std::move(peer)),
      keys_(*keys),
      bounces_(bounces),
      drainer_(&peer_, this, TcpOperation::kDrain, 1),
      requests_(depth) {
  Owner* const owner = this;
  for (uint32_t i = 0; i < connections; ++i) {
    // A request has one part at most on each.
    connections_.push_back(
        std::make_unique<TcpConnection>(&peer_, owner, TcpOperation::kJoin, depth));
  }
}

TcpEndpoint::~TcpEndpoint() {
  for (; head_ != tail_; ++head_) LetGo(At(head_));
}

// --- Requests

void TcpEndpoint::Post(const WorkRequest& work, uint64_t now) {
  const uint64_t sequence = tail_++;
  Request& request = At(sequence);
  request = {.work = work, .local = nullptr, .parts_left = 0, .exposed = false};
  if (limit_ != UINT64_MAX) return;
  request.local = keys_.Acquire(work.lkey, reinterpret_cast<uint64_t>(work.local), work.length);
  if (request.local == nullptr) return PartFailed(sequence, FabricStatus::kLocalProtection);
  QueueParts(sequence, now);
}

size_t TcpEndpoint::LeastBusy() const {
  size_t best = 0;
  for (size_t i = 1; i < connections_.size(); ++i) {
    if (connections_[i]->backlog() < connections_[best]->backlog()) best = i;
  }
  return best;
}

void TcpEndpoint::QueueParts(uint64_t sequence, uint64_t now) {
  Request& request = At(sequence);
  const WorkRequest& work = request.work;
  const uint64_t share = (work.length + connections_.size() - 1) / connections_.size();
  const uint64_t piece =
      (std::max(share, kSmallestPart) + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  const uint32_t device = request.local->memory;
  TcpBounce* const bounce = device == KeyTable::kNoMemory ? nullptr : bounces_->Of(device);
  size_t connection = LeastBusy();
  for (uint64_t offset = 0; offset < work.length; offset += piece) {
    ++request.parts_left;
    connections_[connection]->Queue(
        {.opcode = work.opcode,
         .length = static_cast<uint32_t>(std::min(piece, work.length - offset)),
         .sequence = sequence,
         .local = static_cast<std::byte*>(work.local) + offset,
         .remote_address = work.remote_address + offset,
         .bounce = bounce},
        now);
    connection = (connection + 1) % connections_.size();
  }
}

void TcpEndpoint::PartDone(uint64_t sequence) {
  --At(sequence).parts_left;
}

void TcpEndpoint::PartFailed(uint64_t sequence, FabricStatus status) {
  if (sequence >= limit_) return;
  limit_ = sequence;
  error_ = status;
  if (phase_ == Phase::kLive) phase_ = Phase::kEnding;
  for (const auto& connection : connections_) connection->Cut(limit_);
}

void TcpEndpoint::PartExposed(uint64_t sequence) {
  At(sequence).exposed = true;
}

void TcpEndpoint::Abort() {
  PartFailed(head_, FabricStatus::kFlushed);
}

void TcpEndpoint::LetGo(Request& request) {
  if (request.local != nullptr) KeyTable::Release(std::exchange(request.local, nullptr));
}

// --- Polling

bool TcpEndpoint::Runnable() const {
  if (phase_ == Phase::kQuiet) return false;
  if (phase_ == Phase::kDraining) return drainer_.Runnable();
  return std::any_of(connections_.begin(), connections_.end(),
                     [](const auto& connection) { return connection->Runnable(); });
}

uint64_t TcpEndpoint::Deadline() const {
  if (phase_ == Phase::kQuiet) return kNever;
  if (phase_ == Phase::kDraining) {
    const bool waits = drainer_.state() == TcpConnection::State::kEnded;
    return std::min(waits ? drain_again_ : drain_until_, drainer_.Deadline());
  }
  uint64_t deadline = kNever;
  for (const auto& connection : connections_) {
    deadline = std::min(deadline, connection->Deadline());
  }
  return deadline;
}

void TcpEndpoint::Run(uint64_t now) {
  if (phase_ == Phase::kLive || phase_ == Phase::kEnding) {
    for (const auto& connection : connections_) {
      if (connection->Runnable() || now >= connection->Deadline()) connection->Run(now);
    }
  }
  if (phase_ == Phase::kEnding) RunEnding(now);
  if (phase_ == Phase::kDraining) RunDraining(now);
  more_ = Runnable();
}

void TcpEndpoint::RunEnding(uint64_t now) {
  bool ended = true;
  bool untouched = true;
  for (const auto& connection : connections_) {
    const TcpConnection::State state = connection->state();
    const bool copying = connection->copying();
    ended = ended && state == TcpConnection::State::kEnded && !copying;
    untouched = untouched && state >= TcpConnection::State::kFinishing && !copying;
    unconfirmed_ = unconfirmed_ || connection->unconfirmed();
  }
  if (untouched) {
    // Nobody, and no GPU, touches their local ranges any more, however long the target takes.
    for (uint64_t sequence = std::max(head_, limit_); sequence < tail_; ++sequence) {
      LetGo(At(sequence));
    }
  }
  if (!ended) return;
  if (!unconfirmed_ || !peer_.drains) {
    phase_ = Phase::kQuiet;
    return;
  }
  phase_ = Phase::kDraining;
  drain_until_ = now + peer_.finish_timeout;
  drainer_.Open(now);
}

// Asks until it is confirmed, or nobody is there to land anything, or the time is up.
void TcpEndpoint::RunDraining(uint64_t now) {
  if (drainer_.Runnable() || now >= drainer_.Deadline()) drainer_.Run(now);
  if (drainer_.state() == TcpConnection::State::kOpen || drainer_.refused()) {
    unconfirmed_ = false;
  } else if (now < drain_until_) {
    if (drainer_.state() != TcpConnection::State::kEnded) return;
    if (drain_again_ == 0) {
      drain_again_ = now + peer_.connect_timeout / 8;
    } else if (now >= drain_again_) {
      drain_again_ = 0;
      drainer_.Open(now);
    }
    return;
  }
  drainer_.Abandon();
  phase_ = Phase::kQuiet;
}

bool TcpEndpoint::NextCompletion(NicCompletion* completion, uint32_t* requests) {
  while (head_ != tail_) {
    Request& request = At(head_);
    FabricStatus status = FabricStatus::kOk;
    if (head_ < limit_) {
      if (request.parts_left != 0) return false;
    } else {
      if (phase_ != Phase::kQuiet) return false;
      const bool may_land = unconfirmed_ && request.exposed;
      status = head_ == limit_ ? error_ : FabricStatus::kFlushed;
      if (may_land) {
        ++exposed_;
        status = FabricStatus::kExposed;
      }
    }
    LetGo(request);
    ++head_;
    ++silent_;
    const bool done = status == FabricStatus::kOk;
    if (done && !request.work.signaled) continue;
    *completion = {.user_data = request.work.user_data,
                   .status = status,
                   .bytes = done ? request.work.length : 0};
    *requests = std::exchange(silent_, 0);
    return true;
  }
  return false;
}

bool TcpEndpoint::Drained(uint32_t* requests) const {
  *requests = silent_;
  return phase_ == Phase::kQuiet && head_ == tail_;
}

}  // namespace railhop
