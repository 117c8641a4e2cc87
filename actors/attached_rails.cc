#include "actors/attached_rails.h"

#include <algorithm>
#include <utility>

namespace railhop {

void AttachedRails::Add(AttachedPeer peer) {
  std::lock_guard lock(mutex_);
  peers_.push_back(std::move(peer));
  changed_.notify_all();
}

void AttachedRails::Remove(uint32_t lane) {
  std::lock_guard lock(mutex_);
  std::erase_if(peers_, [lane](const AttachedPeer& peer) { return peer.lane == lane; });
}

void AttachedRails::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  peers_.clear();
  changed_.notify_all();
}

bool AttachedRails::Has(const std::string& rail) const {
  return std::any_of(peers_.begin(), peers_.end(), [&](const AttachedPeer& peer) {
    return std::find(peer.rails.begin(), peer.rails.end(), rail) != peer.rails.end();
  });
}

bool AttachedRails::WaitFor(const std::string& rail, std::chrono::nanoseconds timeout) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return closed_ || Has(rail); });
  return Has(rail);
}

std::vector<AttachedPeer> AttachedRails::Snapshot() const {
  std::lock_guard lock(mutex_);
  return peers_;
}

}  // namespace railhop
