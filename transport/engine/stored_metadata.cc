#include "transport/engine/stored_metadata.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "transport/json_text.h"

namespace railhop {
namespace {

using nlohmann::json;

std::string Prefix(const std::string& cluster) {
  if (cluster.empty()) return "mooncake/";
  return fmt::format("mooncake/{}{}", cluster, cluster.ends_with('/') ? "" : "/");
}

std::string EncodeListener(const HostPort& listener) {
  const json entry = {{"ip_or_host_name", listener.host}, {"rpc_port", listener.port}};
  return entry.dump(-1, ' ', true, json::error_handler_t::replace);
}

absl::StatusOr<HostPort> DecodeListener(const std::string& text) {
  json entry;
  if (absl::Status status = ParseJsonText(text, &entry); !status.ok()) return status;
  const auto bad = [](const char* what) { return absl::InvalidArgumentError(what); };
  if (!entry.is_object()) return bad("it is no object");
  const auto host = entry.find("ip_or_host_name");
  if (host == entry.end() || !host->is_string() || host->get_ref<const std::string&>().empty()) {
    return bad("ip_or_host_name: is no text, or empty");
  }
  const auto port = entry.find("rpc_port");
  if (port == entry.end() || !port->is_number_unsigned() || port->get<uint64_t>() == 0 ||
      port->get<uint64_t>() > UINT16_MAX) {
    return bad("rpc_port: is not an integer in 1..65535");
  }
  return HostPort{.host = host->get<std::string>(), .port = port->get<uint16_t>()};
}

absl::Status WithKey(const std::string& key, const absl::Status& status) {
  return absl::Status(status.code(),
                      fmt::format("metadata {}: {}", key, std::string(status.message())));
}

}  // namespace

StoredMetadata::StoredMetadata(std::unique_ptr<MetadataStore> store,
                               const EngineEnvironment& environment, OwnSegment own)
    : ListenerMetadata(environment),
      store_(std::move(store)),
      own_(std::move(own)),
      prefix_(Prefix(environment.metadata_cluster_id)) {}

std::string StoredMetadata::SegmentKey(const std::string& name) const {
  return prefix_ + (name.find('/') == std::string::npos ? "ram/" : "") + name;
}

absl::StatusOr<SegmentDescriptor> StoredMetadata::Fetch(const std::string& name, const Patience&) {
  const std::string key = SegmentKey(name);
  const absl::StatusOr<std::string> text = store_->Get(key);
  if (!text.ok()) return text.status();
  absl::StatusOr<SegmentDescriptor> descriptor = SegmentDescriptor::Decode(*text);
  if (!descriptor.ok()) return WithKey(key, descriptor.status());
  return descriptor;
}

absl::StatusOr<HostPort> StoredMetadata::Locate(const std::string& name) {
  const std::string key = ListenerKey(name);
  const absl::StatusOr<std::string> text = store_->Get(key);
  if (!text.ok()) return text.status();
  const absl::StatusOr<HostPort> listener = DecodeListener(*text);
  if (!listener.ok()) return WithKey(key, listener.status());
  return *listener;
}

absl::Status StoredMetadata::Publish() {
  std::unique_lock lock(mutex_);
  if (!idle_.wait_for(lock, MetadataStore::kTimeout, [this] { return !busy_; })) {
    return absl::FailedPreconditionError(
        fmt::format("segment {} is not published: another thread is at it, and the metadata "
                    "service is slow",
                    own_.name));
  }
  busy_ = true;
  lock.unlock();
  absl::Status status = PutAll();
  lock.lock();
  busy_ = false;
  idle_.notify_one();
  return status;
}

// The listener first: who finds the segment must find its engine, too.
absl::Status StoredMetadata::PutAll() {
  if (!listener_is_known_) {
    absl::Status status = store_->Put(ListenerKey(own_.name), EncodeListener(own_.listener));
    if (!status.ok()) return status;
    listener_is_known_ = true;
  }
  return store_->Put(SegmentKey(own_.name), own_.descriptor());
}

// The other way round, for the same reason.
absl::Status StoredMetadata::Withdraw() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return !busy_; });
  if (!std::exchange(listener_is_known_, false)) return absl::OkStatus();
  absl::Status status = store_->Remove(SegmentKey(own_.name));
  if (!status.ok()) return status;
  return store_->Remove(ListenerKey(own_.name));
}

}  // namespace railhop
