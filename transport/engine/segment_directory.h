// The segments that an engine has opened: handle, name, and the descriptor as it was last read.
//
// Find, and what it gives, take no lock: they are on the way of every submission. Open and Refresh
// read metadata and may block for as long as that takes, within the caller's patience, but never
// while others are kept waiting for a segment that is known.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "transport/engine/metadata.h"
#include "transport/engine/transfer_engine.h"
#include "transport/fabric/fabric.h"

namespace railhop {

// How the engine that has the directory reaches segments: only those of its own protocol.
struct SegmentAccess {
  SegmentProtocol protocol = SegmentProtocol::kTcp;
  int tcp_version = 2;    // the newest version of the TCP data protocol to use (MC_TCP_PROTO)
  bool tcp_local = true;  // use local sockets of this host (RAILHOP_TCP_LOCAL)
  std::string sim_directory = {};  // where simulated targets of this host publish their segments
  bool cached = true;  // false: descriptors are read anew at each submission (MC_DISABLE_METACACHE)
};

// A descriptor made ready for look-ups. Immutable.
class SegmentView {
 public:
  SegmentView(SegmentDescriptor descriptor, std::chrono::steady_clock::time_point read_at);
  const SegmentDescriptor& descriptor() const { return descriptor_; }
  std::chrono::steady_clock::time_point read_at() const { return read_at_; }
  // Whether the range lies in one buffer, or in adjacent ones.
  bool Covers(uint64_t address, uint64_t length) const;

 private:
  struct Range {
    uint64_t first;
    uint64_t end;
  };
  SegmentDescriptor descriptor_;
  std::chrono::steady_clock::time_point read_at_;
  std::vector<Range> ranges_;  // sorted, disjoint, adjacent ones merged
};

class SegmentDirectory {
 public:
  static constexpr size_t kMaxSegments = 1024;  // as many targets as a rank knows

  struct Segment {
    std::string name;
    std::atomic<SegmentId> id{0};  // of the data path; 0: not opened there yet
    std::shared_ptr<const SegmentView> view() const {
      return std::atomic_load_explicit(&view_, std::memory_order_acquire);
    }
    // The view that the data path got by Resolve; until then as view().
    std::shared_ptr<const SegmentView> resolved() const {
      auto resolved = std::atomic_load_explicit(&resolved_, std::memory_order_acquire);
      return resolved != nullptr ? resolved : view();
    }

   private:
    friend class SegmentDirectory;
    std::shared_ptr<const SegmentView> view_;
    std::shared_ptr<const SegmentView> resolved_;
    std::atomic<std::chrono::steady_clock::time_point> in_vain_{};  // when Look last was
  };

  SegmentDirectory(std::string own_name, std::unique_ptr<Metadata> metadata,
                   SegmentAccess access = {});

  Metadata& metadata() { return *metadata_; }
  bool cached() const { return access_.cached; }
  const std::string& own_name() const { return own_name_; }

  // Handle of the segment; read if it is not known yet. A '/' in front of the name is dropped. The
  // own name gives kLocalSegment.
  absl::StatusOr<SegmentHandle> Open(std::string name, const Patience& patience = {});
  // nullptr: no such handle. Lives as long as the directory.
  Segment* Find(SegmentHandle handle);
  size_t size() const { return count_.load(std::memory_order_acquire); }
  // Reads it anew, unless that was done less than `max_age` ago.
  absl::Status Refresh(Segment& segment, std::chrono::milliseconds max_age,
                       const Patience& patience = {});
  // For a range that the data path does not know: reads the view anew if it does not cover it
  // either, unless that was in vain just now (an application that asks for what is not there must
  // not flood the peer). True: it is covered now.
  bool Look(Segment& segment, uint64_t address, uint64_t length, const Patience& patience = {});
  // What a NIC connects to. Reads anew what is older than kFresh, so that a restarted engine is
  // found, and gives up after kResolve.
  absl::StatusOr<TargetInfo> Resolve(const std::string& name, std::stop_token stop = {});

 private:
  static constexpr std::chrono::milliseconds kFresh{200};
  static constexpr std::chrono::milliseconds kInVain{100};
  // Less than EndpointActor::Options::open_timeout: who opens a target hears what was met.
  static constexpr std::chrono::milliseconds kResolve{4000};

  absl::StatusOr<std::shared_ptr<const SegmentView>> Read(const std::string& name,
                                                          const Patience& patience);
  Segment* FindByName(const std::string& name);

  const std::string own_name_;
  const std::unique_ptr<Metadata> metadata_;
  const SegmentAccess access_;
  std::array<std::unique_ptr<Segment>, kMaxSegments> segments_;  // by handle; 0 is the own one
  std::atomic<size_t> count_{1};
  std::mutex mutex_;  // by_name_, and who adds
  std::map<std::string, SegmentHandle> by_name_;
};

}  // namespace railhop
