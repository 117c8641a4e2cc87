// An endpoint of a TCP NIC: its requests in post order, cut into parts that travel over several
// connections, and its end when one of them fails.
//
//   Post -> requests [ head_ ... tail_ )      parts -> connection with the least ahead of it
//                                             large requests: one part for each connection
//   NextCompletion <- the head, when all its parts are done
//
// Failure at request L (the lowest that failed; Disconnect: the head): requests before L complete
// as ever; all others are given up. Their completions, L's first, are shown when every connection
// has ended and nothing of them can land any more: the target hung up, or confirmed a drain. Where
// neither came in time, the requests that may still land end as kTransport, not as kFlushed, and
// are counted.
//
// Threads: made by the control thread, then the polling thread's, until the control thread frees
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/fabric/fabric.h"
#include "transport/fabric/key_table.h"
#include "transport/fabric/tcp/tcp_connection.h"

namespace railhop {

class TcpEndpoint final : private TcpConnection::Owner {
 public:
  static constexpr uint64_t kNever = TcpConnection::kNever;

  // `depth`: requests, a power of two. `keys` and `bounces` (may be nullptr: no key names a GPU)
  // outlive it.
  TcpEndpoint(TcpConnection::Peer peer, uint32_t connections, size_t depth, KeyTable* keys,
              const TcpBounces* bounces);
  ~TcpEndpoint();

  // Its caller keeps at most `depth` posted and not taken by NextCompletion.
  void Post(const WorkRequest& work, uint64_t now);
  // Gives up everything that is not complete, for good.
  void Abort();
  void Run(uint64_t now);
  // Nothing is posted, and the last Run has left nothing: it need not be called before there is an
  // event of a socket.
  bool Idle() const { return phase_ == Phase::kLive && head_ == tail_ && !more_; }
  bool Runnable() const;
  uint64_t Deadline() const;

  // The oldest completion to show. `*requests`: how many requests end with it, those included that
  // succeeded before it and were not signaled.
  bool NextCompletion(NicCompletion* completion, uint32_t* requests);
  // Nothing is posted, nothing is on its way. `*requests`: ended and not yet told of.
  bool Drained(uint32_t* requests) const;

  // Writes that were given up without knowing whether they still land.
  uint64_t exposed() const { return exposed_; }

 private:
  struct Request {
    WorkRequest work;
    KeyTable::Entry* local = nullptr;  // held while the local range may be touched
    uint32_t parts_left = 0;
    bool exposed = false;
  };
  // kLive until a failure; kEnding while connections end; kDraining while the target is asked;
  // kQuiet: nothing of what was given up can land, or there is no knowing.
  enum class Phase : uint8_t { kLive, kEnding, kDraining, kQuiet };

  void PartDone(uint64_t sequence) override;
  void PartFailed(uint64_t sequence, FabricStatus status) override;
  void PartExposed(uint64_t sequence) override;

  Request& At(uint64_t sequence) { return requests_[sequence & (requests_.size() - 1)]; }
  size_t LeastBusy() const;
  void QueueParts(uint64_t sequence, uint64_t now);
  void RunEnding(uint64_t now);
  void RunDraining(uint64_t now);
  void LetGo(Request& request);

  const TcpConnection::Peer peer_;
  KeyTable& keys_;
  const TcpBounces* const bounces_;
  std::vector<std::unique_ptr<TcpConnection>> connections_;
  // Asks for the drain.
  TcpConnection drainer_;
  uint64_t drain_until_ = 0;  // cycles
  uint64_t drain_again_ = 0;

  std::vector<Request> requests_;  // ring by sequence
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
  uint32_t silent_ = 0;  // ended without a completion since the last one

  bool more_ = false;  // the last Run had its turn, but was not at its end
  Phase phase_ = Phase::kLive;
  uint64_t limit_ = UINT64_MAX;  // the request that failed
  FabricStatus error_ = FabricStatus::kOk;
  bool unconfirmed_ = false;
  uint64_t exposed_ = 0;
};

}  // namespace railhop
