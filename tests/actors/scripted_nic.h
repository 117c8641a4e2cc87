// ScriptedNic: a NIC whose requests end when the test says so. Send queue room, post order per
// endpoint, unsignaled requests, flushing after an error and disconnection are as fabric.h has
// them. One thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "transport/fabric/fabric.h"

namespace railhop {

class ScriptedNic : public Nic {
 public:
  explicit ScriptedNic(uint32_t depth = 256)
      : depth_(depth), fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~ScriptedNic() override { close(fd_); }

  std::string_view kind() const override { return "scripted"; }
  std::string_view name() const override { return "scripted0"; }
  uint32_t send_queue_depth() const override { return depth_; }
  absl::StatusOr<MemoryKey> Register(void*, size_t) override { return MemoryKey{1, 1}; }
  absl::Status Deregister(const MemoryKey&) override { return absl::OkStatus(); }
  absl::StatusOr<EndpointId> Connect(const TargetInfo&, size_t) override { return EndpointId{1}; }
  void Disconnect(EndpointId endpoint) override {
    EXPECT_TRUE(prepared_.empty()) << "disconnected with requests that were not handed over";
    closed_.insert(endpoint);
    disconnected.push_back(endpoint);
    Flush(endpoint);
  }

  bool Prepare(const WorkRequest& request) override {
    EXPECT_EQ(closed_.count(request.endpoint), 0u) << "posted behind a disconnection";
    if (SendRoom(request.endpoint) == 0) return false;
    ++used_[request.endpoint];
    prepared_.push_back(request);
    posted.push_back(request);
    return true;
  }
  void Submit() override {
    ++submits;
    std::set<EndpointId> endpoints;
    for (const WorkRequest& request : prepared_) {
      queues_[request.endpoint].push_back(request);
      endpoints.insert(request.endpoint);
    }
    prepared_.clear();
    for (const EndpointId endpoint : endpoints) {
      if (endpoint == 0 || broken_.count(endpoint) != 0) Flush(endpoint);
    }
  }
  size_t SendRoom(EndpointId endpoint) const override {
    const auto used = used_.find(endpoint);
    return depth_ - (used == used_.end() ? 0 : used->second);
  }

  size_t Peek(std::span<NicCompletion> completions) override {
    const size_t count = std::min(completions.size(), ready_.size());
    for (size_t i = 0; i < count; ++i) completions[i] = ready_[i].completion;
    return count;
  }
  void Advance(size_t count) override {
    for (; count != 0; --count) {
      used_[ready_.front().endpoint] -= ready_.front().room;
      ready_.pop_front();
    }
  }
  uint64_t PrepareToPark() override {
    ++armed;
    return ready_.empty() ? park_until : 0;
  }
  void FinishPark() override { --armed; }
  int fd() const override { return fd_; }

  // Ends the next `count` requests of an endpoint well. Returns how many there were.
  size_t Complete(EndpointId endpoint, size_t count = SIZE_MAX) {
    size_t done = 0;
    for (; done < count && !queues_[endpoint].empty(); ++done) {
      End(endpoint, FabricStatus::kOk);
    }
    return done;
  }
  // Ends the next one with an error and flushes the others, later ones included.
  void Fail(EndpointId endpoint, FabricStatus status) {
    FailOne(endpoint, status);
    broken_.insert(endpoint);
    Flush(endpoint);
  }
  void FailOne(EndpointId endpoint, FabricStatus status) { End(endpoint, status); }
  // Makes fd() readable, as an armed NIC does.
  void WakePoller() const { eventfd_write(fd_, 1); }
  size_t outstanding(EndpointId endpoint) { return queues_[endpoint].size(); }

  std::vector<WorkRequest> posted;  // all of them
  std::vector<EndpointId> disconnected;
  size_t submits = 0;
  int armed = 0;
  uint64_t park_until = kNoDeadline;

 private:
  struct Ready {
    NicCompletion completion;
    EndpointId endpoint;
    uint32_t room;
  };
  void End(EndpointId endpoint, FabricStatus status) {
    const WorkRequest request = queues_[endpoint].front();
    queues_[endpoint].pop_front();
    ++silent_[endpoint];
    if (status == FabricStatus::kOk && !request.signaled) return;
    ready_.push_back({{request.user_data, status, request.length}, endpoint, silent_[endpoint]});
    silent_[endpoint] = 0;
  }
  void Flush(EndpointId endpoint) {
    while (!queues_[endpoint].empty()) End(endpoint, FabricStatus::kFlushed);
  }

  const uint32_t depth_;
  const int fd_;
  std::vector<WorkRequest> prepared_;
  std::map<EndpointId, std::deque<WorkRequest>> queues_;
  std::map<EndpointId, uint32_t> used_;
  std::map<EndpointId, uint32_t> silent_;  // ended, their room not yet given back
  std::set<EndpointId> broken_, closed_;
  std::deque<Ready> ready_;
};

}  // namespace railhop
