// The rails that this rank can reach through peers at the moment, for threads that want to know or
// to wait. PeerActor writes; any thread reads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/ring/registry.h"

namespace railhop {

struct AttachedPeer {
  int32_t pid = 0;
  uint32_t lane = 0;  // outbound
  std::vector<std::string> rails;
  std::shared_ptr<const PeerMapping> relay = nullptr;
  uint32_t relay_lane = 0;  // of the relay's control block
};

class AttachedRails {
 public:
  void Add(AttachedPeer peer);
  void Remove(uint32_t lane);
  // Nothing will be added any more; whoever waits is told no.
  void Close();

  // True as soon as a peer on `rail` is attached, false after `timeout` or Close.
  bool WaitFor(const std::string& rail, std::chrono::nanoseconds timeout) const;
  std::vector<AttachedPeer> Snapshot() const;

 private:
  bool Has(const std::string& rail) const;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<AttachedPeer> peers_;
  bool closed_ = false;
};

}  // namespace railhop
