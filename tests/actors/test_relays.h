// TestRelays: two relays, each an entry that a forked process published in a private registry root,
// so that lanes are mappings of the real thing. The processes only hold their entries; what a relay
// does to a lane, the test does.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/transport/ring/ring_test_support.h"
#include "transport/ring/lane.h"

namespace railhop {

// Made once per test binary. Relay 0 is on "rail1", relay 1 on "rail2".
class TestRelays {
 public:
  static constexpr uint64_t kSenderEpoch = 77;

  static TestRelays& Get() {
    static TestRelays relays;
    return relays;
  }

  // Lane `index` of a relay, freshly claimed by a sender of kSenderEpoch. `version1`: as a sender
  // sees it if the relay (number 0) has no side file.
  std::unique_ptr<LaneMapping> Map(uint32_t relay, uint32_t index, bool version1 = false) {
    const PeerMapping& mapping = *relays_.at(relay);
    LaneControl& lane = mapping.block().lanes[index];
    std::memset(&lane, 0, sizeof(lane));
    StoreRelease(lane.header.sender_epoch, kSenderEpoch);
    StoreLaneState(lane.header, LaneState::kReady);
    SideLane& words = mapping.side()->file().lanes[index];
    for (uint64_t& claim : words.claims) StoreRelease(claim, 0);
    StoreRelease(words.sender_epoch, kSenderEpoch);
    StoreRelease(words.claim_count, words.claim_count + 1);
    return std::make_unique<LaneMapping>(version1 ? old_ : relays_[relay], LaneClaim{.lane = index},
                                         arena_);
  }
  SideLane& Words(uint32_t relay, uint32_t index) const {
    return relays_.at(relay)->side()->file().lanes[index];
  }
  // Of a lane that is not of version 1.
  static SideLane& Words(const LaneMapping& lane) {
    return lane.relay().side()->file().lanes[lane.claim().lane];
  }

  // The relay's reactor goes to sleep, or not.
  void SetParked(uint32_t relay, bool parked) const {
    constexpr auto kRole = static_cast<size_t>(WakeRole::kRelay);
    StoreRelease(relays_.at(relay)->side()->file().parked[kRole].parked, parked ? 1 : 0);
  }
  // How often it was woken since the last time.
  size_t TakeWakes(uint32_t relay) const {
    std::array<char, 256> bytes;
    const ssize_t count = read(wake_fds_.at(relay), bytes.data(), bytes.size());
    return count < 0 ? 0 : static_cast<size_t>(count);
  }

 private:
  TestRelays() {
    for (const char* rail : {"rail1", "rail2"}) {
      members_.push_back(testing::MakeMember(root_.Options(), rail));
      if (members_.back().Await() == 0) std::abort();
    }
    auto registry = Registry::Open(root_.Options());
    auto peers = (*registry)->Discover();
    std::sort(peers->begin(), peers->end(),
              [](const PeerInfo& a, const PeerInfo& b) { return a.rails < b.rails; });
    for (const PeerInfo& peer : *peers) {
      relays_.push_back(*(*registry)->MapPeer(peer));
      wake_fds_.push_back(OpenWakePipe(peer.owner.pid));
    }
    for (const std::string& name : testing::PrivateRoot::List(root_.Side())) {
      std::filesystem::remove(root_.Side() + "/" + name);
    }
    old_ = *(*registry)->MapPeer(peers->front());
    if (old_->side() != nullptr || relays_.size() != 2) std::abort();
    // Address space for all slots; pages come when something is copied there.
    void* const arena = mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED) std::abort();
    arena_ = static_cast<std::byte*>(arena);
  }
  ~TestRelays() {
    for (const int fd : wake_fds_) close(fd);
    munmap(arena_, kArenaBytes);
  }

  int OpenWakePipe(pid_t owner) const {
    for (const std::string& name : testing::PrivateRoot::List(root_.Side())) {
      if (!name.starts_with(std::to_string(owner) + ".") || !name.ends_with(".wake0")) continue;
      return open((root_.Side() + "/" + name).c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    }
    std::abort();
  }

  testing::PrivateRoot root_;
  std::vector<testing::Child> members_;
  std::vector<std::shared_ptr<const PeerMapping>> relays_;
  std::vector<int> wake_fds_;
  std::shared_ptr<const PeerMapping> old_;
  std::byte* arena_ = nullptr;
};

}  // namespace railhop
