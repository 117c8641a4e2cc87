// Metadata that a test has in a map.
#pragma once

#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "transport/engine/metadata.h"

namespace railhop {

class FakeMetadata final : public Metadata {
 public:
  absl::StatusOr<SegmentDescriptor> Fetch(const std::string& name,
                                          const Patience& patience) override {
    ++fetches;
    last_patience = patience;
    if (mute) std::this_thread::sleep_until(patience.until);
    const auto found = segments.find(name);
    if (found == segments.end()) return absl::UnavailableError("nobody listens at " + name);
    return found->second;
  }
  absl::StatusOr<HostPort> Locate(const std::string& name) override { return ParseHostPort(name); }
  absl::Status Notify(const std::string& name, const Notification& notification) override {
    sent.emplace_back(name, notification.message);
    return absl::OkStatus();
  }
  absl::Status Probe(const std::string& name) override {
    return segments.contains(name) ? absl::OkStatus() : absl::UnavailableError("no answer");
  }
  absl::StatusOr<std::string> Exchange(const std::string& name, const std::string&) override {
    return absl::UnavailableError("nobody listens at " + name);
  }

  absl::Status Publish() override {
    ++publications;
    return service;
  }
  absl::Status Withdraw() override {
    if (withdrawn != nullptr) *withdrawn = true;
    return absl::OkStatus();
  }

  absl::Status service;
  int publications = 0;
  bool* withdrawn = nullptr;
  std::map<std::string, SegmentDescriptor> segments;
  std::vector<std::pair<std::string, std::string>> sent;
  int fetches = 0;
  Patience last_patience;
  bool mute = false;  // nobody answers until the caller's patience ends
};

}  // namespace railhop
