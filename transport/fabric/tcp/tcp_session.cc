#include "transport/fabric/tcp/tcp_session.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace railhop {
namespace {

using std::chrono::nanoseconds;

// System calls of one turn, and bytes of one call: with ordinary copying about a millisecond, after
// which the thread's other sessions have theirs.
constexpr int kStepsInTurn = 16;
constexpr size_t kLargestCall = 1 << 20;

// A client may take this long for each byte beyond the timeout: it moves 10 MB/s at least.
constexpr nanoseconds kSlowestByte{100};
constexpr uint64_t kMostBytes = uint64_t{1} << 50;  // the sum must not wrap
constexpr std::chrono::seconds kLinger{1};

std::byte* AsPointer(uint64_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr): a peer's word
}

}  // namespace

TcpSession::~TcpSession() {
  if (bounce_.copying()) {
    bounce_.Finish();
    Leave();
  }
  close(fd_);
  if (group_ != nullptr) shared_.groups.Leave(group_);
}

uint32_t TcpSession::interest() const {
  if (waits_) return 0;
  const bool reads = state_ != State::kReply && RoomForAnswer();
  const bool writes = state_ == State::kReply || answer_bytes_ != 0;
  return (reads ? uint32_t{EPOLLIN} : 0) | (writes ? uint32_t{EPOLLOUT} : 0);
}

bool TcpSession::Run(TimePoint now) {
  Result result = Result::kGoOn;
  drained_ = false;
  do {
    for (int i = 0; result == Result::kGoOn && GoesOn(i); ++i) result = Step(now);
    const bool copying = bounce_.copying();
    if (!copying) bounce_.GiveBack();  // now it is the socket that waits
    if (result != Result::kEnded && state_ != State::kReply) {
      // The end of a connection is met again when the GPU is done.
      if (FlushAnswers() == Result::kEnded && !copying) return false;
    }
    // Now there may be room for the answers of what waits in the buffer.
  } while (result == Result::kGoOn && HasBufferedWork());
  const bool idle = state_ == State::kHeader && buffered() == 0 && answer_bytes_ == 0;
  if (idle) {
    deadline_ = TimePoint::max();
  } else if (deadline_ == TimePoint::max()) {
    deadline_ = now + shared_.request_timeout;
  }
  return result != Result::kEnded;
}

// Whether there is something to do that no event of the socket will tell of.
bool TcpSession::HasBufferedWork() const {
  if (state_ == State::kPayload) return buffered() != 0;
  return state_ == State::kHeader && buffered() >= kTcpHeaderBytes && RoomForAnswer();
}

// A socket that had less than was asked for is not asked again: epoll will tell of more.
bool TcpSession::GoesOn(int step) const {
  if (HasBufferedWork()) return true;
  const bool receives = state_ == State::kHeader || state_ == State::kPayload;
  return step < kStepsInTurn && !(drained_ && receives);
}

TcpSession::Result TcpSession::Step(TimePoint now) {
  if (bounce_.copying()) return EndCopy(now);
  switch (state_) {
    case State::kHeader:
      if (!RoomForAnswer()) {
        const Result flushed = FlushAnswers();
        if (flushed != Result::kGoOn) return flushed;
      }
      return buffered() >= kTcpHeaderBytes ? TakeHeader(now) : ReceiveHeader();
    case State::kPayload:
      return StorePayload(now);
    case State::kReply:
      return SendReply(now);
    case State::kRefused:
      return Discard();
    case State::kDrain:
      return EndDrain(now);
  }
  return Result::kEnded;
}

TcpSession::Result TcpSession::AfterCall(int64_t bytes) {
  if (bytes > 0 || (bytes < 0 && errno == EINTR)) return Result::kGoOn;
  return bytes < 0 && errno == EAGAIN ? Result::kBlocked : Result::kEnded;
}

TcpSession::Result TcpSession::ReceiveHeader() {
  memmove(buffer_.data(), buffer_.data() + begin_, buffered());
  end_ = static_cast<uint16_t>(buffered());
  begin_ = 0;
  const size_t wanted = buffer_.size() - end_;
  const ssize_t got = recv(fd_, buffer_.data() + end_, wanted, 0);
  if (got <= 0) return AfterCall(got);
  end_ = static_cast<uint16_t>(end_ + got);
  NoteReceived(static_cast<size_t>(got), wanted);
  return Result::kGoOn;
}

TcpSession::Result TcpSession::TakeHeader(TimePoint now) {
  const TcpHeader header = DecodeTcpHeader(
      std::span<const std::byte, kTcpHeaderBytes>(buffer_.data() + begin_, kTcpHeaderBytes));
  begin_ = static_cast<uint16_t>(begin_ + kTcpHeaderBytes);
  acknowledged_ = header.acknowledged;
  if (header.operation == TcpOperation::kJoin) {
    if (group_ != nullptr) return Refuse(now);
    group_ = shared_.groups.Join(header.address);
    Answer(TcpCode::kDone);
    return Result::kGoOn;
  }
  if (header.operation == TcpOperation::kDrain) {
    drained_group_ = shared_.groups.Close(header.address);
    state_ = State::kDrain;
    return EndDrain(now);
  }
  region_ = shared_.memory.Find(header.address, header.size);
  if (region_ == nullptr) return Refuse(now);
  address_ = header.address;
  left_ = header.size;
  deadline_ = now + shared_.request_timeout +
              kSlowestByte * static_cast<int64_t>(std::min(left_, kMostBytes));
  if (header.operation == TcpOperation::kWrite) {
    state_ = State::kPayload;
    return Result::kGoOn;
  }
  unannounced_ = acknowledged_;
  state_ = State::kReply;
  return Result::kGoOn;
}

// --- Writes

// May the region be touched now? If so, Leave must follow.
bool TcpSession::Enter() {
  if (!region_->gate.Enter()) return false;
  if (group_ == nullptr || group_->gate.Enter()) return true;
  region_->gate.Leave();
  return false;
}

void TcpSession::Leave() {
  if (group_ != nullptr) group_->gate.Leave();
  region_->gate.Leave();
}

TcpSession::Result TcpSession::StorePayload(TimePoint now) {
  const bool bounced = region_->bounce != nullptr;
  if (bounced && !TakeBuffer(now)) return Result::kBlocked;
  if (!Enter()) return Refuse(now);
  const std::span<std::byte> place =
      bounced ? bounce_.room() : std::span(AsPointer(address_), kLargestCall);
  size_t count = 0;
  const Result result = TakePayload(place.first(std::min(left_, place.size())), &count);
  address_ += count;
  left_ -= count;
  if (bounced && count != 0) {
    if (bounce_.Store(address_ - count, count)) return Wait(now);
    Leave();
    return Refuse(now);
  }
  Leave();
  return EndPayload(result);
}

// As much as there is, and what follows if it is the end. Not for a moment longer than one call.
TcpSession::Result TcpSession::TakePayload(std::span<std::byte> place, size_t* count) {
  if (buffered() != 0) {
    *count = std::min(place.size(), buffered());
    memcpy(place.data(), buffer_.data() + begin_, *count);
    begin_ = static_cast<uint16_t>(begin_ + *count);
    return Result::kGoOn;
  }
  begin_ = end_ = 0;
  iovec parts[2] = {{.iov_base = place.data(), .iov_len = place.size()},
                    {.iov_base = buffer_.data(), .iov_len = buffer_.size()}};
  const bool to_the_end = place.size() == left_;
  const ssize_t got = readv(fd_, parts, to_the_end ? 2 : 1);
  if (got <= 0) return AfterCall(got);
  NoteReceived(static_cast<size_t>(got), place.size() + (to_the_end ? buffer_.size() : 0));
  *count = std::min(place.size(), static_cast<size_t>(got));
  end_ = static_cast<uint16_t>(static_cast<size_t>(got) - *count);
  return Result::kGoOn;
}

TcpSession::Result TcpSession::EndPayload(Result result) {
  if (left_ != 0) return result;
  if (acknowledged_) Answer(TcpCode::kDone);
  region_.reset();
  state_ = State::kHeader;
  return result;
}

// --- Reads

TcpSession::Result TcpSession::LoadReply(TimePoint now) {
  if (!TakeBuffer(now)) return Result::kBlocked;
  if (!Enter()) return FailReply(now);
  if (bounce_.Load(address_, std::min(left_, TcpBounce::kBufferBytes))) return Wait(now);
  Leave();
  return FailReply(now);
}

// What a status has announced cannot be refused any more: all that is left is to hang up.
TcpSession::Result TcpSession::FailReply(TimePoint now) {
  return std::exchange(unannounced_, false) ? Refuse(now) : Result::kEnded;
}

TcpSession::Result TcpSession::SendReply(TimePoint now) {
  std::span<std::byte> reply(AsPointer(address_), std::min(left_, kLargestCall));
  if (region_->bounce != nullptr) {
    reply = bounce_.Loaded(address_);
    if (reply.empty()) return LoadReply(now);
  }
  if (!Enter()) return FailReply(now);
  if (std::exchange(unannounced_, false)) Answer(TcpCode::kDone);
  iovec parts[2] = {{.iov_base = answers_.data(), .iov_len = answer_bytes_},
                    {.iov_base = reply.data(), .iov_len = reply.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
  Leave();
  if (sent <= 0) return AfterCall(sent);
  const size_t answered = std::min<size_t>(answer_bytes_, static_cast<size_t>(sent));
  answer_bytes_ = static_cast<uint16_t>(answer_bytes_ - answered);
  memmove(answers_.data(), answers_.data() + answered, answer_bytes_);
  address_ += static_cast<size_t>(sent) - answered;
  left_ -= static_cast<size_t>(sent) - answered;
  if (left_ == 0) {
    region_.reset();
    state_ = State::kHeader;
  }
  return Result::kGoOn;
}

// --- What no socket tells of

TcpSession::Result TcpSession::Wait(TimePoint now) {
  if (!waits_) waits_since_ = now;
  waits_ = true;
  return Result::kBlocked;
}

// False: it waits for one.
bool TcpSession::TakeBuffer(TimePoint now) {
  if (!bounce_.Take(region_->bounce)) {
    Wait(now);
    return false;
  }
  waits_ = false;
  return true;
}

TcpSession::Result TcpSession::EndCopy(TimePoint now) {
  const bool loading = bounce_.loading();
  const TcpBounceBuffer::Copy copy = bounce_.Ask();
  if (copy == TcpBounceBuffer::Copy::kPending) return Wait(now);
  Leave();
  waits_ = false;
  if (copy == TcpBounceBuffer::Copy::kFailed) return loading ? FailReply(now) : Refuse(now);
  if (loading) return Result::kGoOn;
  return EndPayload(Result::kGoOn);
}

TcpSession::Result TcpSession::EndDrain(TimePoint now) {
  if (drained_group_ != nullptr && !drained_group_->gate.Quiet()) return Wait(now);
  drained_group_.reset();
  waits_ = false;
  state_ = State::kHeader;
  Answer(TcpCode::kDone);
  return Result::kGoOn;
}

// --- Answers

void TcpSession::Answer(TcpCode code) {
  EncodeTcpStatus(code, std::span<std::byte, kTcpStatusBytes>(answers_.data() + answer_bytes_,
                                                              kTcpStatusBytes));
  answer_bytes_ = static_cast<uint16_t>(answer_bytes_ + kTcpStatusBytes);
}

TcpSession::Result TcpSession::FlushAnswers() {
  while (answer_bytes_ != 0) {
    const ssize_t sent = send(fd_, answers_.data(), answer_bytes_, MSG_NOSIGNAL);
    if (sent <= 0) {
      const Result result = AfterCall(sent);
      if (result == Result::kGoOn) continue;
      return result;
    }
    answer_bytes_ = static_cast<uint16_t>(answer_bytes_ - sent);
    memmove(answers_.data(), answers_.data() + sent, answer_bytes_);
  }
  return Result::kGoOn;
}

TcpSession::Result TcpSession::Refuse(TimePoint now) {
  if (acknowledged_) Answer(TcpCode::kRefused);
  region_.reset();
  state_ = State::kRefused;
  deadline_ = now + kLinger;
  return Result::kGoOn;
}

TcpSession::Result TcpSession::Discard() {
  const Result flushed = FlushAnswers();
  if (flushed != Result::kGoOn) return flushed;
  if (!shut_down_) {
    shut_down_ = true;
    shutdown(fd_, SHUT_WR);
  }
  return AfterCall(recv(fd_, buffer_.data(), buffer_.size(), 0));
}

}  // namespace railhop
