#include "transport/fabric/rdma/path_breaker.h"

#include <fmt/format.h>

#include <algorithm>

namespace railhop {

absl::Status PathBreakers::Admit(const std::string& remote, Time now) {
  const auto found = paths_.find(remote);
  if (found == paths_.end() || found->second.failures < options_.failures) return absl::OkStatus();
  Path& path = found->second;
  const auto refuse = [&path](const std::string& when) {
    return absl::FailedPreconditionError(
        fmt::format("it failed {} times in a row and is left alone, {}; the last time: {}",
                    path.failures, when, path.reason));
  };
  if (path.probing) return refuse("it is being tried again just now");
  if (now < path.retry_at) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(path.retry_at - now);
    return refuse(fmt::format("it is tried again in {} ms", left.count()));
  }
  // Once it has connected it is open for all, until the next failure.
  path.probing = !path.connected;
  return absl::OkStatus();
}

void PathBreakers::Count(Path& path, Time now, const std::string& reason) {
  path.probing = false;
  path.connected = false;
  path.changed_at = now;
  path.reason = reason;
  if (++path.failures < options_.failures) return;
  path.pause = path.pause.count() == 0 ? options_.first_pause
                                       : std::min(2 * path.pause, options_.longest_pause);
  path.retry_at = now + path.pause;
}

void PathBreakers::Failed(const std::string& remote, Time now, const std::string& reason) {
  Count(paths_[remote], now, reason);
}

void PathBreakers::Connected(const std::string& remote, Time now) {
  const auto found = paths_.find(remote);
  if (found == paths_.end()) return;
  found->second.probing = false;
  found->second.changed_at = now;
  found->second.connected = true;
}

void PathBreakers::Withdraw(const std::string& remote) {
  const auto found = paths_.find(remote);
  if (found != paths_.end()) found->second.probing = false;
}

void PathBreakers::Broke(const std::string& remote, Time connected, Time now,
                         const std::string& reason) {
  if (now - connected > options_.early) {
    // It had lasted: a new story begins.
    paths_.erase(remote);
    return;
  }
  Count(paths_[remote], now, reason);
}

void PathBreakers::Prune(Time now) {
  std::erase_if(paths_, [&](const auto& entry) {
    const Path& path = entry.second;
    const auto patience = path.connected ? options_.early : 2 * options_.longest_pause;
    return !path.probing && now - path.changed_at > patience;
  });
}

}  // namespace railhop
