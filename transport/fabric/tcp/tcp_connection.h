// One connection of a TCP NIC: sends the parts of requests that its endpoint queues, in order and
// without waiting for the answers of those before, and matches the answers, which come in the same
// order.
//
//              queued                 sent, answer to come           done
//   Queue -> [ part part part ]  ->  [ part part part part ]  ->  Owner::PartDone
//
//   kClosed -> kConnecting -> kGreeting -> kOpen -> kFinishing -> kEnded
//
// Small parts go out together, headers and payloads in one call. Payload goes from and to the local
// range directly; a small buffer takes the statuses, and with them the beginnings of what follows.
// Payload of a GPU's memory goes through a bounce buffer (tcp_bounce.h): loaded before it is sent,
// stored when it is received, and statuses are then read without what follows. While the GPU
// copies, or all buffers are in use, the socket waits; Deadline() says when to look.
//
// Ending. Cut(limit) says that the endpoint failed at a request: parts from there on are given up,
// those before still run to their end. A connection that then has none left ends. If it has sent
// bytes of a write that was not answered, those of version 1 included, which are done once they are
// sent, these may still land at the target, so:
//   the target hung up, reset it or
//   sent the code of a refusal          it reads no more: nothing can land
//   a Railhop target                    unconfirmed(): the endpoint sends a drain request
//   any other target                    kFinishing: our side is shut, and what the target hangs up
//                                       after has been read; for `finish_timeout` at most
// From kFinishing on no local range is touched, but by a copy that is under way (copying()).
//
// Threads: the polling thread's. Nothing blocks or allocates after construction.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/fabric/fabric.h"
#include "transport/fabric/tcp/tcp_bounce.h"
#include "transport/fabric/tcp/tcp_protocol.h"
#include "transport/fabric/tcp/tcp_target.h"
#include "transport/ring/guarded_fd.h"

namespace railhop {

struct TcpPart {
  FabricOpcode opcode = FabricOpcode::kWrite;
  uint32_t length = 0;    // bytes, not 0
  uint64_t sequence = 0;  // of the request; parts are queued in its order
  std::byte* local = nullptr;
  uint64_t remote_address = 0;
  TcpBounce* bounce = nullptr;  // of the GPU that the local range lies on
};

class TcpConnection {
 public:
  class Owner {
   public:
    virtual void PartDone(uint64_t sequence) = 0;
    // The oldest part not done failed: parts of that request and later ones are lost. The owner
    // cuts all its connections.
    virtual void PartFailed(uint64_t sequence, FabricStatus status) = 0;
    // Some of its bytes were sent, and whether they can land is not known: it is given up, or done
    // without an answer.
    virtual void PartExposed(uint64_t sequence) = 0;

   protected:
    ~Owner() = default;
  };

  // What all connections of an endpoint share; outlives them. Times in cycles.
  struct Peer {
    std::vector<TcpAddress> addresses;  // tried in turn
    bool acknowledged = true;           // version 2
    bool drains = false;                // a Railhop target
    uint64_t token = 0;                 // of the endpoint, if so
    int epoll = -1;
    uint64_t connect_timeout = 0;
    uint64_t status_timeout = 0;
    uint64_t finish_timeout = 0;
    uint64_t copy_poll = 0;  // from the start of a GPU's copy to the first look
  };

  enum class State : uint8_t { kClosed, kConnecting, kGreeting, kOpen, kFinishing, kEnded };
  static constexpr uint64_t kNever = UINT64_MAX;

  // `greeting`, kJoin or kDrain, is sent first to a target that drains. `capacity`: parts, a power
  // of two.
  TcpConnection(const Peer* peer, Owner* owner, TcpOperation greeting, size_t capacity)
      : peer_(*peer), owner_(*owner), greeting_(greeting), parts_(capacity) {}
  ~TcpConnection() { Close(State::kEnded); }
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;

  // The owner keeps the parts of one connection within its capacity.
  void Queue(const TcpPart& part, uint64_t now);
  void Cut(uint64_t limit) { limit_ = limit < limit_ ? limit : limit_; }
  // Connects without a part to send.
  void Open(uint64_t now);
  // Goes on as far as the socket lets it and its turn lasts. `now` in cycles.
  void Run(uint64_t now);
  // Closes whatever it is doing, and forgets its parts.
  void Abandon() { Close(State::kEnded); }

  // Events of the descriptor, as epoll has them.
  void Notice(uint32_t events);
  // Whether Run would get on now.
  bool Runnable() const;
  // When Run must be called at the latest, in cycles.
  uint64_t Deadline() const;

  State state() const { return state_; }
  // A GPU may be at work on a local range.
  bool copying() const { return bounce_.copying(); }
  // kEnded with bytes of a write on the way that a drain request must confirm, or nothing can.
  bool unconfirmed() const { return unconfirmed_; }
  bool refused() const { return state_ == State::kEnded && refused_; }  // nobody listens there
  // How much there is ahead of the next part: bytes, and a part's own cost in bytes.
  uint64_t backlog() const { return backlog_; }

 private:
  static constexpr size_t kBufferBytes = 4096;

  TcpPart& At(uint64_t position) { return parts_[position & (parts_.size() - 1)]; }
  const TcpPart& At(uint64_t position) const { return parts_[position & (parts_.size() - 1)]; }
  bool IsCut(uint64_t position) const { return At(position).sequence >= limit_; }
  bool HasToSend() const;
  bool IsLocal() const { return peer_.addresses[address_].storage.ss_family == AF_UNIX; }
  bool InLocalGreeting() const { return state_ == State::kGreeting && IsLocal(); }
  bool Suspended() const { return look_at_ != kNever; }
  uint64_t StateDeadline() const;
  uint64_t AnswerBytes(const TcpPart& part) const;
  size_t StatusBytes() const { return peer_.acknowledged ? kTcpStatusBytes : 0; }
  bool InPayload() const;

  void TryConnect(uint64_t now);
  void FinishConnect(uint64_t now);
  void LeaveLocal(int error, uint64_t now);
  void ConnectFailed(int error, uint64_t now);
  void LookLater(uint64_t now);
  void LookAtCopy(uint64_t now);
  std::span<std::byte> Payload(const TcpPart& part, uint64_t offset, uint64_t now);
  bool CanReceive(uint64_t now);
  void Send(uint64_t now);
  ssize_t SendParts(uint64_t now);
  void CountSent(size_t bytes);
  void EndSilentWrites();
  void Receive(uint64_t now);
  ssize_t ReceiveSome(uint64_t now);
  void EndReceive(size_t bytes, uint64_t now);
  void NoteReceived(ssize_t got, size_t wanted);
  bool Take(std::span<const std::byte> bytes);
  bool TakeStatus();
  void EndPart();
  void Fail(FabricStatus status);
  void Lost(int error, uint64_t now);
  void Expire(uint64_t now);
  void Finish(uint64_t now);
  bool ExposeWrites();
  void CloseSocket();
  void Close(State state);

  const Peer& peer_;
  Owner& owner_;
  const TcpOperation greeting_;
  GuardedFd fd_;
  State state_ = State::kClosed;
  bool readable_ = false;
  bool writable_ = false;
  bool ending_ = false;       // an event has told of an end, to be read until it is met
  bool send_failed_ = false;  // what can still be read tells why
  bool hung_up_ = false;      // it refused, and by the protocol reads no more
  bool unread_ = false;       // the last part done was not answered: the target may read it yet
  bool unconfirmed_ = false;
  bool refused_ = false;         // by all addresses tried so far
  bool used_ = false;            // since it was connected: a part was sent
  size_t address_ = 0;           // into peer_.addresses
  size_t first_address_ = 0;     // to try
  uint64_t since_ = 0;           // of the last progress, or of the state; cycles
  uint64_t limit_ = UINT64_MAX;  // parts of this request and later ones are given up

  // Ring of parts: [done_, sent_) wait for answers, the one at sent_ is being sent.
  std::vector<TcpPart> parts_;
  uint64_t done_ = 0;
  uint64_t sent_ = 0;
  uint64_t queued_ = 0;
  uint64_t sent_bytes_ = 0;    // of the part at sent_, or of the greeting; header included
  uint64_t answer_bytes_ = 0;  // received of the part at done_, or of the greeting; status included
  uint64_t backlog_ = 0;

  TcpBounceBuffer bounce_;      // between two calls of Run held only while copying
  uint64_t bounced_reads_ = 0;  // parts not done
  uint64_t look_at_ = kNever;   // when to ask after a copy, or for a buffer
  std::array<std::byte, kTcpStatusBytes> status_;
  std::array<std::byte, kBufferBytes> buffer_;
};

}  // namespace railhop
