#include "transport/fabric/tcp/tcp_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/fabric/tcp/local_socket.h"

namespace railhop {
namespace {

// One call of the kernel copies at most this much, and a turn has at most that many calls in each
// direction: the other connections of the thread wait for about half a millisecond. Calls of a
// quarter move a large request a third slower, since each wakes the receiver for less.
constexpr size_t kLargestCall = 1 << 20;
constexpr int kCallsInTurn = 2;
constexpr size_t kPartsInCall = 32;
// A copy that takes long is asked after less and less often, down to a millisecond.
constexpr uint64_t kLongestCopyPoll = 500;  // x Peer::copy_poll
// What a part costs besides its bytes, for choosing a connection.
constexpr uint64_t kPartCost = 4096;

bool HungUp(int error) {
  return error == 0 || error == ECONNRESET || error == EPIPE;
}

bool IsBouncedRead(const TcpPart& part) {
  return part.bounce != nullptr && part.opcode == FabricOpcode::kRead;
}

}  // namespace

// --- State

void TcpConnection::Queue(const TcpPart& part, uint64_t now) {
  if (done_ == queued_) since_ = now;
  At(queued_++) = part;
  if (IsBouncedRead(part)) ++bounced_reads_;
  backlog_ += part.length + kPartCost;
}

void TcpConnection::Open(uint64_t now) {
  address_ = first_address_;
  refused_ = true;
  TryConnect(now);
}

void TcpConnection::CloseSocket() {
  if (fd_.valid()) {
    // A forked child may hold a copy, which would keep the registration alive.
    epoll_ctl(peer_.epoll, EPOLL_CTL_DEL, fd_.get(), nullptr);
    fd_.Reset();
  }
  readable_ = writable_ = ending_ = send_failed_ = false;
  sent_bytes_ = answer_bytes_ = 0;
}

void TcpConnection::Close(State state) {
  CloseSocket();
  state_ = state;
  done_ = sent_ = queued_;
  bounced_reads_ = backlog_ = 0;
}

void TcpConnection::Notice(uint32_t events) {
  constexpr uint32_t kEnding = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
  if ((events & kEnding) != 0) ending_ = true;
  if ((events & (EPOLLIN | kEnding)) != 0) readable_ = true;
  if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) writable_ = true;
}

bool TcpConnection::HasToSend() const {
  if (state_ == State::kGreeting) return sent_bytes_ < kTcpHeaderBytes;
  return state_ == State::kOpen && sent_ != queued_ && !IsCut(sent_);
}

bool TcpConnection::Runnable() const {
  if (state_ == State::kEnded) return false;
  const bool given_up = limit_ != UINT64_MAX && (done_ == queued_ || IsCut(done_));
  if (given_up && state_ != State::kFinishing) return true;
  if (state_ == State::kClosed) return done_ != queued_;
  if (state_ == State::kConnecting) return writable_;
  return !Suspended() && (readable_ || (writable_ && HasToSend()));
}

uint64_t TcpConnection::Deadline() const {
  return std::min(StateDeadline(), look_at_);
}

uint64_t TcpConnection::StateDeadline() const {
  switch (state_) {
    case State::kClosed:
    case State::kEnded:
      return kNever;
    case State::kConnecting:
      return since_ + peer_.connect_timeout;
    case State::kFinishing:
      return since_ + peer_.finish_timeout;
    case State::kGreeting:
      // Long before the endpoint counts as stuck, so that there is time left for the next address.
      return since_ + (IsLocal() ? peer_.connect_timeout / 8 : peer_.status_timeout);
    case State::kOpen:
      return done_ == queued_ ? kNever : since_ + peer_.status_timeout;
  }
  return kNever;
}

void TcpConnection::Run(uint64_t now) {
  if (now >= look_at_) LookAtCopy(now);
  if (state_ == State::kClosed && done_ != queued_ && !IsCut(done_)) Open(now);
  if (state_ == State::kConnecting && writable_) FinishConnect(now);
  // First: a target that has hung up since the last part is connected to anew.
  if (readable_ && state_ >= State::kGreeting && !Suspended()) Receive(now);
  if (writable_ && HasToSend() && !Suspended()) Send(now);
  if (!bounce_.copying()) bounce_.GiveBack();  // now it is the socket that waits
  if (now >= StateDeadline()) Expire(now);
  if (limit_ != UINT64_MAX && state_ < State::kFinishing && (done_ == queued_ || IsCut(done_))) {
    Finish(now);
  }
}

// --- Connecting

void TcpConnection::TryConnect(uint64_t now) {
  const TcpAddress& address = peer_.addresses[address_];
  state_ = State::kConnecting;
  since_ = now;
  used_ = false;
  fd_ = GuardedFd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd_.valid()) return ConnectFailed(errno, now);
  const int on = 1;
  if (!IsLocal()) setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.ptr = this}};
  if (connect(fd_.get(), address.get(), address.length) != 0 && errno != EINPROGRESS) {
    return ConnectFailed(errno, now);
  }
  // Only now: a socket that is not connecting yet counts as hung up.
  if (epoll_ctl(peer_.epoll, EPOLL_CTL_ADD, fd_.get(), &event) != 0) ConnectFailed(errno, now);
}

void TcpConnection::FinishConnect(uint64_t now) {
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error == 0 && IsLocal() && !PeerIsSameUser(fd_.get())) error = EACCES;
  if (error != 0) return ConnectFailed(error, now);
  since_ = now;
  refused_ = false;
  state_ = peer_.drains ? State::kGreeting : State::kOpen;
}

// Whoever listens there is not the target, or does not trust us; the next address is the target's.
void TcpConnection::LeaveLocal(int error, uint64_t now) {
  first_address_ = address_ + 1;
  ConnectFailed(error, now);
}

void TcpConnection::ConnectFailed(int error, uint64_t now) {
  CloseSocket();
  refused_ = refused_ && error == ECONNREFUSED;
  if (++address_ < peer_.addresses.size()) return TryConnect(now);
  const uint64_t sequence = done_ == queued_ ? UINT64_MAX : At(done_).sequence;
  Close(State::kEnded);
  if (sequence == UINT64_MAX) return;
  owner_.PartFailed(sequence, refused_ ? FabricStatus::kTargetDead : FabricStatus::kTransport);
}

// --- Copies of a GPU

void TcpConnection::LookLater(uint64_t now) {
  look_at_ =
      now + std::clamp((now - since_) / 16, peer_.copy_poll, kLongestCopyPoll * peer_.copy_poll);
}

void TcpConnection::LookAtCopy(uint64_t now) {
  look_at_ = kNever;
  if (!bounce_.copying()) return;  // a buffer was wanting: whoever needs one asks again
  const bool loading = bounce_.loading();
  const TcpBounceBuffer::Copy copy = bounce_.Ask();
  if (copy == TcpBounceBuffer::Copy::kPending) return LookLater(now);
  const uint64_t position = loading ? sent_ : done_;
  const bool wanted = state_ == State::kOpen && position != queued_ && !IsCut(position);
  if (!wanted) return;
  if (copy == TcpBounceBuffer::Copy::kFailed) {
    return owner_.PartFailed(At(position).sequence, FabricStatus::kDevice);
  }
  since_ = now;
  if (!loading && answer_bytes_ == AnswerBytes(At(done_))) EndPart();
}

// What is at hand of the payload of the part at sent_, from `offset` on. Nothing: a GPU must bring
// it first, or has failed to.
std::span<std::byte> TcpConnection::Payload(const TcpPart& part, uint64_t offset, uint64_t now) {
  if (part.bounce == nullptr) {
    return {part.local + offset, std::min<size_t>(part.length - offset, kLargestCall)};
  }
  const uint64_t address = reinterpret_cast<uint64_t>(part.local) + offset;
  const std::span<std::byte> loaded = bounce_.Loaded(address);
  if (!loaded.empty()) return loaded;
  const size_t length = std::min<size_t>(part.length - offset, TcpBounce::kBufferBytes);
  if (!bounce_.Take(part.bounce) || bounce_.Load(address, length)) {
    LookLater(now);
  } else {
    owner_.PartFailed(part.sequence, FabricStatus::kDevice);
  }
  return {};
}

// Whether there is a place for what comes next.
bool TcpConnection::CanReceive(uint64_t now) {
  if (bounced_reads_ == 0 || !InPayload() || At(done_).bounce == nullptr) return true;
  if (bounce_.held()) return false;  // with what is to be sent first
  if (bounce_.Take(At(done_).bounce)) return true;
  LookLater(now);
  return false;
}

// --- Sending

void TcpConnection::Send(uint64_t now) {
  for (int i = 0; i < kCallsInTurn && HasToSend(); ++i) {
    const ssize_t sent = SendParts(now);
    if (sent == 0) return;  // nothing is at hand
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      writable_ = false;
      if (errno == EAGAIN) return;
      // A refusal may lie in the socket: read it before giving up.
      send_failed_ = ending_ = readable_ = true;
      return;
    }
    since_ = now;
    used_ = used_ || state_ == State::kOpen;
    CountSent(static_cast<size_t>(sent));
  }
}

// The headers of parts that were sent in part are made again: nothing is kept between calls but a
// count.
ssize_t TcpConnection::SendParts(uint64_t now) {
  std::array<std::array<std::byte, kTcpHeaderBytes>, kPartsInCall> headers;
  std::array<iovec, 2 * kPartsInCall> pieces;
  size_t count = 0;
  if (state_ == State::kGreeting) {
    EncodeTcpHeader({.size = 0, .address = peer_.token, .operation = greeting_}, headers[0]);
    pieces[count++] = {.iov_base = headers[0].data() + sent_bytes_,
                       .iov_len = kTcpHeaderBytes - sent_bytes_};
  } else {
    uint64_t skip = sent_bytes_;
    size_t bytes = 0;
    for (size_t i = 0; i < kPartsInCall && bytes < kLargestCall; ++i) {
      const uint64_t position = sent_ + i;
      if (position == queued_ || IsCut(position)) break;
      const TcpPart& part = At(position);
      const bool write = part.opcode == FabricOpcode::kWrite;
      const uint64_t offset = skip < kTcpHeaderBytes ? 0 : skip - kTcpHeaderBytes;
      std::span<std::byte> payload;
      if (write) {
        if (part.bounce != nullptr && i != 0) break;  // there is one buffer, for the first
        payload = Payload(part, offset, now);
        if (payload.empty()) break;
      }
      if (skip < kTcpHeaderBytes) {
        EncodeTcpHeader({.size = part.length,
                         .address = part.remote_address,
                         .operation = write ? TcpOperation::kWrite : TcpOperation::kRead,
                         .acknowledged = peer_.acknowledged},
                        headers[i]);
        pieces[count++] = {.iov_base = headers[i].data() + skip, .iov_len = kTcpHeaderBytes - skip};
        bytes += kTcpHeaderBytes - skip;
      }
      if (write) {
        pieces[count++] = {.iov_base = payload.data(), .iov_len = payload.size()};
        bytes += payload.size();
        if (offset + payload.size() != part.length) break;
      }
      skip = 0;
    }
  }
  if (count == 0) return 0;
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  return sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
}

void TcpConnection::CountSent(size_t bytes) {
  sent_bytes_ += bytes;
  if (state_ == State::kGreeting) return;
  while (sent_ != queued_) {
    const TcpPart& part = At(sent_);
    const uint64_t length =
        kTcpHeaderBytes + (part.opcode == FabricOpcode::kWrite ? part.length : 0);
    if (sent_bytes_ < length) break;
    sent_bytes_ -= length;
    ++sent_;
    if (part.bounce != nullptr) bounce_.GiveBack();
  }
  EndSilentWrites();
}

void TcpConnection::EndSilentWrites() {
  if (done_ != sent_ && AnswerBytes(At(done_)) == 0) EndPart();
}

// --- Receiving

uint64_t TcpConnection::AnswerBytes(const TcpPart& part) const {
  return StatusBytes() + (part.opcode == FabricOpcode::kRead ? part.length : 0);
}

bool TcpConnection::InPayload() const {
  return state_ == State::kOpen && done_ != sent_ && !IsCut(done_) &&
         answer_bytes_ >= StatusBytes();
}

void TcpConnection::Receive(uint64_t now) {
  for (int i = 0; i < kCallsInTurn && CanReceive(now); ++i) {
    const ssize_t got = ReceiveSome(now);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      readable_ = false;
      if (send_failed_) Lost(ECONNRESET, now);
      return;
    }
    if (got <= 0) return Lost(got < 0 ? errno : 0, now);
    if (state_ == State::kFinishing) continue;  // thrown away
    since_ = now;
    if (!readable_ || Suspended()) return;  // what came has ended the connection, or is stored
  }
}

// A socket that had less than was asked for has no more: the next event will tell of that. Unless
// an end was seen already, of which there is no further event.
void TcpConnection::NoteReceived(ssize_t got, size_t wanted) {
  if (got > 0 && static_cast<size_t>(got) < wanted && !ending_) readable_ = false;
}

ssize_t TcpConnection::ReceiveSome(uint64_t now) {
  if (state_ == State::kFinishing) return recv(fd_.get(), buffer_.data(), buffer_.size(), 0);
  iovec pieces[2];
  int count = 0;
  size_t direct = 0;
  size_t beyond = buffer_.size();
  // The rest of a read's data goes to its place.
  if (InPayload()) {
    const TcpPart& part = At(done_);
    const uint64_t left = AnswerBytes(part) - answer_bytes_;
    std::byte* place = part.local + (answer_bytes_ - StatusBytes());
    direct = std::min<uint64_t>(left, kLargestCall);
    if (part.bounce != nullptr) {
      place = bounce_.room().data();
      direct = std::min(direct, bounce_.room().size());
    }
    pieces[count++] = {.iov_base = place, .iov_len = direct};
    if (direct != left || bounced_reads_ != 0) {
      const ssize_t got = readv(fd_.get(), pieces, count);
      NoteReceived(got, direct);
      if (got > 0) EndReceive(static_cast<size_t>(got), now);
      return got;
    }
  } else if (bounced_reads_ != 0 && answer_bytes_ < kTcpStatusBytes) {
    beyond = kTcpStatusBytes - answer_bytes_;  // what follows may be a GPU's
  }
  pieces[count++] = {.iov_base = buffer_.data(), .iov_len = beyond};
  const ssize_t got = readv(fd_.get(), pieces, count);
  if (got <= 0) return got;
  NoteReceived(got, direct + beyond);
  const size_t placed = std::min(direct, static_cast<size_t>(got));
  if (placed != 0) {
    answer_bytes_ += placed;
    if (answer_bytes_ == AnswerBytes(At(done_))) EndPart();
  }
  Take({buffer_.data(), static_cast<size_t>(got) - placed});
  return got;
}

// So many bytes of the part at done_ are in its place, or in the buffer before it.
void TcpConnection::EndReceive(size_t bytes, uint64_t now) {
  const TcpPart& part = At(done_);
  const uint64_t address = reinterpret_cast<uint64_t>(part.local) + (answer_bytes_ - StatusBytes());
  answer_bytes_ += bytes;
  if (part.bounce == nullptr) {
    if (answer_bytes_ == AnswerBytes(part)) EndPart();
  } else if (bounce_.Store(address, bytes)) {
    LookLater(now);
  } else {
    owner_.PartFailed(part.sequence, FabricStatus::kDevice);
  }
}

// Bytes of answers, in order. False: they ended the connection.
bool TcpConnection::Take(std::span<const std::byte> bytes) {
  const size_t status_bytes = StatusBytes();
  while (!bytes.empty()) {
    const bool greeting = state_ == State::kGreeting;
    // The target may refuse a write of which not all is sent; else it has nothing to say.
    const bool expected = greeting || done_ != sent_ || (sent_ != queued_ && sent_bytes_ != 0);
    if (!expected) {
      Fail(FabricStatus::kTransport);
      return false;
    }
    if (!greeting && IsCut(done_)) return true;  // of a part that was given up
    size_t count;
    if (answer_bytes_ < kTcpStatusBytes && (greeting || status_bytes != 0)) {
      count = std::min<size_t>(kTcpStatusBytes - answer_bytes_, bytes.size());
      memcpy(status_.data() + answer_bytes_, bytes.data(), count);
      answer_bytes_ += count;
      if (answer_bytes_ == kTcpStatusBytes && !TakeStatus()) return false;
    } else if (done_ == sent_) {
      Fail(FabricStatus::kTransport);
      return false;
    } else {
      const TcpPart& part = At(done_);
      count = std::min<uint64_t>(AnswerBytes(part) - answer_bytes_, bytes.size());
      memcpy(part.local + (answer_bytes_ - status_bytes), bytes.data(), count);
      answer_bytes_ += count;
      if (answer_bytes_ == AnswerBytes(part)) EndPart();
    }
    bytes = bytes.subspan(count);
  }
  return true;
}

bool TcpConnection::TakeStatus() {
  TcpCode code;
  const bool valid = DecodeTcpStatus(status_, &code);
  const bool refused = valid && code != TcpCode::kDone && state_ == State::kOpen;
  if (refused && code == TcpCode::kRefused) hung_up_ = true;
  if (!valid || code != TcpCode::kDone) {
    Fail(refused ? FabricStatus::kRemoteAccess : FabricStatus::kTransport);
    return false;
  }
  if (state_ == State::kGreeting) {
    state_ = State::kOpen;
    sent_bytes_ = answer_bytes_ = 0;
    return true;
  }
  if (done_ == sent_) {  // stored before it was sent
    Fail(FabricStatus::kTransport);
    return false;
  }
  if (answer_bytes_ == AnswerBytes(At(done_))) EndPart();
  return true;
}

// And the silent writes behind it: version 1 does not answer writes, they are done once they are
// sent and those before are done.
void TcpConnection::EndPart() {
  answer_bytes_ = 0;
  do {
    const TcpPart& part = At(done_);
    unread_ = AnswerBytes(part) == 0;
    if (unread_) owner_.PartExposed(part.sequence);
    backlog_ -= part.length + kPartCost;
    if (IsBouncedRead(part)) --bounced_reads_;
    ++done_;
    owner_.PartDone(part.sequence);
  } while (done_ != sent_ && AnswerBytes(At(done_)) == 0);
}

// --- Ending

// The target broke the protocol or refused: it is told nothing more.
void TcpConnection::Fail(FabricStatus status) {
  if (InLocalGreeting()) return LeaveLocal(EPROTO, since_);
  readable_ = false;
  if (done_ == queued_) {
    Close(greeting_ == TcpOperation::kDrain ? State::kEnded : State::kClosed);
    return;
  }
  const uint64_t sequence = At(done_).sequence;
  if (hung_up_) Close(State::kEnded);
  owner_.PartFailed(sequence, status);
}

// The connection is gone. Without a part begun that is no error: the next one connects anew. Once,
// so that a target that hangs up on each connection is not asked for ever.
void TcpConnection::Lost(int error, uint64_t now) {
  if (InLocalGreeting()) return LeaveLocal(error, now);
  if (state_ == State::kFinishing) {
    unconfirmed_ = unconfirmed_ || !HungUp(error);
    return Close(State::kEnded);
  }
  unconfirmed_ = unconfirmed_ || (unread_ && !HungUp(error));
  unread_ = false;
  if (done_ == queued_) {
    return Close(greeting_ == TcpOperation::kDrain ? State::kEnded : State::kClosed);
  }
  if (used_ && done_ == sent_ && sent_bytes_ == 0) {
    CloseSocket();
    return Open(now);
  }
  const uint64_t sequence = At(done_).sequence;
  const bool hung_up = HungUp(error);
  unconfirmed_ = unconfirmed_ || (!hung_up && ExposeWrites());
  Close(State::kEnded);
  const bool may_refuse = hung_up && !peer_.acknowledged;
  owner_.PartFailed(sequence, may_refuse ? FabricStatus::kHungUp : FabricStatus::kTransport);
}

void TcpConnection::Expire(uint64_t now) {
  if (state_ == State::kConnecting) return ConnectFailed(ETIMEDOUT, now);
  if (InLocalGreeting()) return LeaveLocal(ETIMEDOUT, now);
  if (state_ == State::kFinishing || done_ == queued_) {
    unconfirmed_ = unconfirmed_ || state_ == State::kFinishing;
    return Close(State::kEnded);
  }
  owner_.PartFailed(At(done_).sequence, FabricStatus::kTransport);
}

// Whether bytes of a write are on their way that the target may read yet.
bool TcpConnection::ExposeWrites() {
  bool any = unread_;
  if (state_ != State::kOpen) return any;
  for (uint64_t position = done_; position != queued_; ++position) {
    const bool begun = position < sent_ || (position == sent_ && sent_bytes_ != 0);
    if (!begun) break;
    if (At(position).opcode != FabricOpcode::kWrite) continue;
    owner_.PartExposed(At(position).sequence);
    any = true;
  }
  return any;
}

// All that is left of the parts is given up.
void TcpConnection::Finish(uint64_t now) {
  const bool exposed = ExposeWrites();
  if (!exposed || peer_.drains) {
    unconfirmed_ = unconfirmed_ || exposed;
    return Close(State::kEnded);
  }
  shutdown(fd_.get(), SHUT_WR);
  state_ = State::kFinishing;
  done_ = sent_ = queued_;
  bounced_reads_ = backlog_ = 0;
  since_ = now;
  readable_ = true;  // the target may have hung up already
}

}  // namespace railhop
