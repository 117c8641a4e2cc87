#include "transport/fabric/rdma/queue_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/fabric/rdma/verbs.h"

namespace railhop {
namespace {

// What a peer's requests may do; the memory's own keys say the rest.
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr uint8_t kHopLimit = 16;  // as Mooncake has it (mooncake-compat (e))

absl::Status Failed(const RdmaDevice& device, const char* what, int error) {
  return absl::FailedPreconditionError(fmt::format("RDMA device {} (GID index {}): {}: {}",
                                                   device.name(), device.gid().index, what,
                                                   strerror(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<QueuePair>> QueuePair::Create(std::shared_ptr<RdmaDevice> device,
                                                             ibv_cq* completions, uint32_t depth,
                                                             ibv_pd* domain) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = completions;
  attributes.recv_cq = completions;
  // No inline data, as the rule is for memory of GPUs, which a driver would have the CPU read.
  attributes.cap = {.max_send_wr = depth,
                    .max_recv_wr = 1,  // nobody sends messages; some drivers refuse 0
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = 0};
  attributes.qp_type = IBV_QPT_RC;
  ibv_qp* const made = device->verbs().create_qp(
      domain == nullptr ? device->protection_domain() : domain, &attributes);
  if (made == nullptr) {
    return absl::ResourceExhaustedError(
        fmt::format("RDMA device {} has no queue pair of depth {} left: {}", device->name(), depth,
                    strerror(errno)));
  }
  std::unique_ptr<QueuePair> queue_pair(new QueuePair(std::move(device), made));
  if (absl::Status status = queue_pair->Initialize(); !status.ok()) return status;
  return queue_pair;
}

QueuePair::~QueuePair() {
  device_->verbs().destroy_qp(queue_pair_);
}

uint32_t QueuePair::number() const {
  return queue_pair_->qp_num;
}

absl::Status QueuePair::Initialize() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = device_->options().pkey_index;
  attributes.port_num = device_->port();
  attributes.qp_access_flags = kAccess;
  const int error = device_->verbs().modify_qp(
      queue_pair_, &attributes,
      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return error == 0 ? absl::OkStatus() : Failed(*device_, "a queue pair cannot be prepared", error);
}

absl::Status QueuePair::Connect(const Peer& peer, const RdmaRetry& retry) {
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = static_cast<ibv_mtu>(device_->path_mtu());
  receive.dest_qp_num = peer.number;
  receive.max_dest_rd_atomic = static_cast<uint8_t>(device_->max_reads());
  receive.min_rnr_timer = 12;  // 0.64 ms; nobody sends messages
  receive.ah_attr.is_global = 1;
  std::copy(peer.gid.begin(), peer.gid.end(), receive.ah_attr.grh.dgid.raw);
  receive.ah_attr.grh.sgid_index = static_cast<uint8_t>(device_->gid().index);
  receive.ah_attr.grh.hop_limit = kHopLimit;
  receive.ah_attr.grh.traffic_class = device_->options().traffic_class;
  receive.ah_attr.sl = device_->options().service_level;
  receive.ah_attr.dlid = peer.lid;
  receive.ah_attr.port_num = device_->port();
  int error = device_->verbs().modify_qp(queue_pair_, &receive,
                                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                             IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) {
    return Failed(*device_, fmt::format("no way to GID {}", FormatGid(peer.gid)).c_str(), error);
  }
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = retry.timeout;
  send.retry_cnt = retry.count;
  send.rnr_retry = 7;  // for ever; nobody sends messages
  send.max_rd_atomic = static_cast<uint8_t>(device_->max_reads());
  error =
      device_->verbs().modify_qp(queue_pair_, &send,
                                 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return error == 0 ? absl::OkStatus() : Failed(*device_, "a queue pair cannot send", error);
}

void QueuePair::Fail() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  device_->verbs().modify_qp(queue_pair_, &attributes, IBV_QP_STATE);
}

}  // namespace railhop
