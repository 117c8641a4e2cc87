#include "transport/engine/tcp_segment.h"

#include <utility>

namespace railhop {

absl::StatusOr<std::unique_ptr<TcpSegment>> TcpSegment::Start(const std::string& host,
                                                              const std::string& name,
                                                              const EngineEnvironment& environment,
                                                              std::shared_ptr<TcpBounces> bounces) {
  TcpServerOptions options;
  options.address = !environment.tcp_bind_address.empty() ? environment.tcp_bind_address
                    : environment.use_ipv6                ? "::"
                                                          : "0.0.0.0";
  options.lowest_port = static_cast<uint16_t>(environment.min_rpc_port);
  options.highest_port = static_cast<uint16_t>(environment.max_rpc_port);
  options.local = environment.tcp_local;
  options.bounces = std::move(bounces);
  absl::StatusOr<std::unique_ptr<TcpServer>> data = TcpServer::Start(std::move(options));
  if (!data.ok()) return data.status();
  SegmentDescriptor descriptor;
  descriptor.name = name;
  descriptor.tcp_data_port = (*data)->port();
  descriptor.tcp_proto_version = 2;
  descriptor.railhop_drain = 1;
  descriptor.railhop_local = (*data)->local_name();
  auto listener = SegmentListener::Start(host, std::move(descriptor), environment);
  if (!listener.ok()) return listener.status();
  return std::unique_ptr<TcpSegment>(new TcpSegment(*std::move(data), *std::move(listener)));
}

absl::Status TcpSegment::Add(void* address, size_t length, std::string_view) {
  const auto first = reinterpret_cast<uint64_t>(address);
  if (absl::Status status = data_->AddRegion(first, length); !status.ok()) return status;
  // TCP names a buffer after its segment; the location matters to RDMA only.
  listener_->AddBuffer(
      {.name = name(), .address = first, .length = length, .rkeys = {}, .lkeys = {}});
  return absl::OkStatus();
}

// Taken out of the descriptor first, so that nobody learns of it any more.
absl::Status TcpSegment::Remove(void* address) {
  const auto first = reinterpret_cast<uint64_t>(address);
  listener_->RemoveBuffer(first);
  return data_->RemoveRegion(first);
}

}  // namespace railhop
