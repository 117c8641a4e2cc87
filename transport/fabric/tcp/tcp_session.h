// One connection of a TCP server: takes requests one after the other, as its client pipelines them,
// and answers each in turn.
//
//             +--------------- status -----------------+
//             v                                        |
//         kHeader -- write --> kPayload -- all stored -+       refused, region gone
//             ^  \--- read --> kReply -- all sent -----+  -->  kRefused -- client hung up --> end
//              \---- drain --> kDrain -- group quiet --+
//
// Payload goes from the socket straight to its place, and from there straight to the socket; that
// of a GPU's memory through a bounce buffer (tcp_bounce.h). What follows a payload in the socket is
// read along with its end into a small buffer, so that a stream of small requests costs less than
// one call each. Answers are gathered until there is nothing to read.
//
// A region that is removed in the middle of a payload: no byte more is stored, the request is
// refused, and what follows is thrown away. After a refusal a short time is left for the answer to
// arrive: closing at once with bytes unread would reset the connection and could overtake it.
//
// waits(): for what no socket tells of, a copy of the GPU, a buffer to bounce through or the end of
// a group's calls. Then its thread calls Run again and again. A region's gate and its group's are
// held while the GPU copies.
//
// Threads: one, that of its shard. Nothing here blocks, but the destructor, for such a copy.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/fabric/tcp/tcp_memory.h"
#include "transport/fabric/tcp/tcp_protocol.h"

namespace railhop {

class TcpSession {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // What all sessions of a server share; outlives them.
  struct Shared {
    TcpMemory memory;
    TcpGroups groups;
    std::chrono::nanoseconds request_timeout{};
  };

  // Takes over a connected, non-blocking socket.
  TcpSession(int fd, Shared* shared) : fd_(fd), shared_(*shared) {}
  ~TcpSession();
  TcpSession(const TcpSession&) = delete;
  TcpSession& operator=(const TcpSession&) = delete;

  // Goes on until the socket has nothing more, its turn is over or it waits. False: it has ended.
  bool Run(TimePoint now);
  bool waits() const { return waits_; }
  TimePoint waits_since() const { return waits_since_; }
  // A GPU is at work on a region: not a moment to end it.
  bool copying() const { return bounce_.copying(); }

  int fd() const { return fd_; }
  // What to wait for, as epoll has it; 0 if it waits().
  uint32_t interest() const;
  // When it is to be ended even so; the end of time while it only waits for a next request.
  TimePoint deadline() const { return deadline_; }

 private:
  enum class State : uint8_t { kHeader, kPayload, kReply, kRefused, kDrain };
  enum class Result : uint8_t { kGoOn, kBlocked, kEnded };

  // The end of one payload and the header of the next come in one call, and so does a write of a
  // page. More than holds any number of small requests, and 10,000 idle connections fit into 50 MB.
  static constexpr size_t kBufferBytes = 4096 + 4 * kTcpHeaderBytes;
  static constexpr size_t kAnswerBytes = 64 * kTcpStatusBytes;

  size_t buffered() const { return end_ - begin_; }
  bool RoomForAnswer() const { return answer_bytes_ + kTcpStatusBytes <= kAnswerBytes; }

  bool HasBufferedWork() const;
  bool GoesOn(int step) const;
  Result Step(TimePoint now);
  Result TakeHeader(TimePoint now);
  Result ReceiveHeader();
  Result StorePayload(TimePoint now);
  Result TakePayload(std::span<std::byte> place, size_t* count);
  Result EndPayload(Result result);
  Result LoadReply(TimePoint now);
  Result FailReply(TimePoint now);
  Result SendReply(TimePoint now);
  Result EndCopy(TimePoint now);
  Result EndDrain(TimePoint now);
  Result Wait(TimePoint now);
  bool TakeBuffer(TimePoint now);
  Result Discard();
  Result FlushAnswers();
  void NoteReceived(size_t got, size_t wanted) { drained_ = got < wanted; }
  Result AfterCall(int64_t bytes);
  void Answer(TcpCode code);
  Result Refuse(TimePoint now);
  bool Enter();
  void Leave();

  const int fd_;
  Shared& shared_;
  std::shared_ptr<TcpGroups::Group> group_;  // nullptr: none joined
  std::shared_ptr<TcpGroups::Group> drained_group_;
  std::shared_ptr<TcpRegion> region_;  // of the request under way
  uint64_t address_ = 0;               // of the next byte to move
  uint64_t left_ = 0;                  // bytes to move
  TimePoint deadline_ = TimePoint::max();
  TimePoint waits_since_{};
  TcpBounceBuffer bounce_;  // between two calls of Run held only while copying
  State state_ = State::kHeader;
  bool acknowledged_ = false;
  bool shut_down_ = false;
  bool waits_ = false;
  bool unannounced_ = false;  // the status of the reply is to go ahead of its first byte
  bool drained_ = false;      // the last call has read all that there was
  uint16_t begin_ = 0;        // of what is in the buffer
  uint16_t end_ = 0;
  uint16_t answer_bytes_ = 0;
  std::array<std::byte, kAnswerBytes> answers_;
  std::array<std::byte, kBufferBytes> buffer_;
};

}  // namespace railhop
