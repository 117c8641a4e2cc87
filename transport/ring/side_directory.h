// The directory of side files: `<root>/railhop-<euid>-<group_id>`. One side file for each process
// of the group that is not of version 1, and beside it one named pipe per reactor of the owner that
// polls shared memory.
//
// Set-up is control path, under the group lock of the registry. Park, Unpark, DrainWake and Wake
// are what reactors call around blocking; they never block, and make a system call only when a
// byte has to move.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/ring/guarded_fd.h"
#include "transport/ring/registry_entry.h"
#include "transport/ring/shared_file.h"
#include "transport/ring/side_file.h"

namespace railhop {

// The owner's end.
class LocalSide {
 public:
  SideFile& file() const { return *static_cast<SideFile*>(mapping_.data()); }

  // Readable when a peer woke this role. For the reactor's event loop.
  int wake_fd(WakeRole role) const { return pipes_[static_cast<size_t>(role)].get(); }

  // Announces that the role's reactor is about to block: call it, then a full fence, then look once
  // more at everything shared, then block.
  void Park(WakeRole role) { StoreRelease(Word(role), 1); }
  void Unpark(WakeRole role) { StoreRelease(Word(role), 0); }
  // Takes the bytes out of the pipe, so that the next one is an event again.
  void DrainWake(WakeRole role);

 private:
  friend class SideDirectory;
  uint32_t& Word(WakeRole role) const { return file().parked[static_cast<size_t>(role)].parked; }

  GuardedFd fd_;  // holds the owner's mark
  SharedMapping mapping_;
  std::array<GuardedFd, kWakeRoles> pipes_;
};

// A peer's end. Its rails, capabilities and identity were checked when it was opened and are kept
// apart from the mapping, which the peer goes on writing.
class PeerSide {
 public:
  SideFile& file() const { return *static_cast<SideFile*>(mapping_.data()); }
  const std::vector<std::string>& rails() const { return rails_; }
  uint64_t capabilities() const { return capabilities_; }

  // Wakes the role's reactor if it is parked; false: it seems awake. That is a promise that it will
  // see what the caller has stored only if there was a full fence in between (docs/ring.md). A pipe
  // that is full wakes just as well.
  bool Wake(WakeRole role) const;

 private:
  friend class SideDirectory;
  SharedMapping mapping_;
  std::array<GuardedFd, kWakeRoles> pipes_;
  std::vector<std::string> rails_;
  uint64_t capabilities_ = 0;
};

class SideDirectory {
 public:
  static absl::StatusOr<SideDirectory> Open(const std::string& root, const std::string& group_id);

  const std::string& path() const { return path_; }

  // Makes side file and pipes; nothing is left behind on an error.
  absl::StatusOr<LocalSide> Create(const ProcessIdentity& owner, uint64_t epoch,
                                   std::span<const std::string> rails);

  // NOT_FOUND: the peer is of version 1. FAILED_PRECONDITION: there is one, but it is not sound;
  // the caller warns and treats the peer as one of version 1.
  absl::StatusOr<PeerSide> OpenPeer(const EntryKey& key);

  // The rails alone, without mapping anything. Errors as OpenPeer.
  absl::StatusOr<std::vector<std::string>> ReadRails(const EntryKey& key);

  // Unlinks side file and pipes, whatever of them is there.
  void Remove(const EntryKey& key);

  // Unlinks what owners left that are dead, whose mark is gone, and that have no registry entry
  // any more.
  void RemoveStale(std::span<const EntryKey> registered);

 private:
  absl::StatusOr<SideHeader> ReadHeader(int fd, const EntryKey& key);
  absl::StatusOr<GuardedFd> OpenPipe(const EntryKey& key, WakeRole role);

  std::string path_;
  GuardedFd fd_;
};

// The names in a directory, without "." and "..", sorted.
absl::StatusOr<std::vector<std::string>> ListDirectory(int directory, const std::string& path);

}  // namespace railhop
