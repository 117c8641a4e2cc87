// One thread of a TCP server with the connections it serves, and, in one shard of each server, the
// listening sockets.
//
// Threads: Adopt from any thread; everything else of a session happens on the shard's own. While
// requests follow each other closely it looks for the next one for a moment before it sleeps
// (adaptive_spin.h); while no session waits for the rest of something, it sleeps without a timer.
// Sessions that wait for what no socket tells of are asked all the time in their first millisecond,
// and then once in each.
#pragma once

#include <sys/epoll.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/adaptive_spin.h"
#include "transport/fabric/tcp/tcp_session.h"
#include "transport/ring/guarded_fd.h"

namespace railhop {

class TcpShard {
 public:
  // Accepts what waits at a listener. False: it cannot now; asked again after a while.
  using Accept = std::function<bool(int listener)>;

  // ResourceExhausted: no descriptor or no thread is left. `connections` counts those of all
  // shards.
  static absl::StatusOr<std::unique_ptr<TcpShard>> Start(TcpSession::Shared* shared,
                                                         std::atomic<size_t>* connections);
  // Ends the thread, then all its connections.
  ~TcpShard();
  TcpShard(const TcpShard&) = delete;
  TcpShard& operator=(const TcpShard&) = delete;

  // Before the first connection can come, once: this shard's thread calls `accept` whenever one of
  // the listeners has a connection.
  void Listen(std::vector<int> listeners, Accept accept);
  // Takes over a connected, non-blocking socket, counted in `connections` already.
  void Adopt(int fd);

 private:
  using TimePoint = TcpSession::TimePoint;

  struct Place {
    std::unique_ptr<TcpSession> session;
    uint32_t interest = 0;
    bool listed = false;  // in waiting_
  };

  TcpShard(TcpSession::Shared* shared, std::atomic<size_t>* connections);

  void Run();
  int Wait(std::span<epoll_event> events, TimePoint* now);
  int WaitMilliseconds(TimePoint now) const;
  void TakeAdopted();
  void AcceptSome(TimePoint now);
  void WatchListeners(bool on);
  void Serve(size_t fd, TimePoint now);
  void ServeWaiting(TimePoint now);
  void End(size_t fd);
  void Sweep(TimePoint now);
  void Wake();

  TcpSession::Shared& shared_;
  std::atomic<size_t>& connections_;
  const GuardedFd epoll_;
  const GuardedFd wake_;  // eventfd
  const std::chrono::nanoseconds sweep_interval_;
  const pid_t owner_pid_;
  std::atomic<bool> stop_{false};

  std::mutex mutex_;
  std::vector<int> adopted_;  // under the lock: not yet taken by the thread

  // Set before they are watched, then the thread's.
  std::vector<int> listeners_;
  Accept accept_;
  TimePoint accept_again_ = TimePoint::max();  // the listeners are not watched until then

  std::vector<Place> places_;  // by descriptor
  size_t pending_ = 0;         // sessions with a deadline
  TimePoint sweep_at_{};
  AdaptiveSpin spin_;
  std::vector<size_t> waiting_;  // descriptors of sessions that wait, or did when they were listed
  std::vector<size_t> served_;   // those of the last round
  TimePoint eager_until_{};      // until then those are asked again and again
  std::thread thread_;
};

}  // namespace railhop
