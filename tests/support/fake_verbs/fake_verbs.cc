#include "tests/support/fake_verbs/fake_verbs.h"

// What this library exports are the functions that the header declares.
#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
#pragma GCC visibility pop
#undef ibv_query_port
#undef ibv_reg_mr

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "tests/support/fake_cuda/fake_cuda.h"

namespace railhop {
namespace {

constexpr int kDevices = 2;

struct Mr {
  ibv_mr mr{};
  FakeVerbs::Registration said;
};
struct Cq {
  ibv_cq cq{};
  std::deque<ibv_wc> ended;
  bool armed = false;
};
struct Qp {
  ibv_qp qp{};
  uint32_t peer = 0;
};

class Fake final : public FakeVerbs {
 public:
  Fake() {
    for (int i = 0; i < kDevices; ++i) {
      std::snprintf(devices[i].name, sizeof(devices[i].name), "fake%d", i);
      list[i] = &devices[i];
    }
  }

  void Reset() override {
    const std::lock_guard lock(mutex);
    gpu = nullptr;
    peer_memory = false;
    max_mr_size = UINT64_MAX;
    thread_domains = true;
    fail.clear();
    before_destroy_qp = nullptr;
    calls.clear();
    inline_room = 0;
    posted_inline = 0;
    overflows = 0;
    in_thread_domains = 0;
  }

  std::vector<Registration> Registrations() override {
    const std::lock_guard lock(mutex);
    std::vector<Registration> all;
    for (const auto& [lkey, mr] : mrs) all.push_back(mr->said);
    std::sort(all.begin(), all.end(),
              [](const Registration& a, const Registration& b) { return a.address < b.address; });
    return all;
  }

  // False, with errno: the call fails.
  bool Enter(const char* name) {
    ++calls[name];
    const auto failing = fail.find(name);
    if (failing == fail.end() || failing->second.after-- > 0) return true;
    errno = failing->second.error;
    fail.erase(failing);
    return false;
  }

  ibv_mr* Register(ibv_pd* pd, Registration said) {
    auto made = std::make_unique<Mr>();
    const uint32_t key = ++keys;
    said.lkey = 0x100 + key;
    said.rkey = 0x80000 + key;
    made->said = said;
    made->mr = {.context = pd->context,
                .pd = pd,
                .addr = reinterpret_cast<void*>(said.address),  // NOLINT
                .length = said.length,
                .handle = key,
                .lkey = said.lkey,
                .rkey = said.rkey};
    ++objects;
    return &mrs.emplace(said.lkey, std::move(made)).first->second->mr;
  }

  // Whether all of it lies in that registration.
  static bool Covers(const Registration& said, uint64_t address, uint64_t length) {
    return address >= said.address && length <= said.length &&
           address - said.address <= said.length - length;
  }
  bool IsLocal(uint32_t lkey, uint64_t address, uint64_t length) const {
    const auto found = mrs.find(lkey);
    return found != mrs.end() && Covers(found->second->said, address, length);
  }
  bool IsRemote(uint32_t rkey, uint64_t address, uint64_t length) const {
    return std::any_of(mrs.begin(), mrs.end(), [&](const auto& each) {
      return each.second->said.rkey == rkey && Covers(each.second->said, address, length);
    });
  }

  std::vector<std::byte> Load(uint64_t address, size_t bytes) const {
    if (gpu != nullptr && gpu->Owns(address)) return gpu->Read(address, bytes);
    const auto* const from = reinterpret_cast<const std::byte*>(address);  // NOLINT
    return {from, from + bytes};
  }
  void Store(uint64_t address, const std::vector<std::byte>& bytes) const {
    if (gpu != nullptr && gpu->Owns(address)) return gpu->Write(address, bytes);
    std::memcpy(reinterpret_cast<void*>(address), bytes.data(), bytes.size());  // NOLINT
  }

  ibv_wc_status CarryOut(const Qp& qp, const ibv_send_wr& work) const {
    if (qp.qp.state != IBV_QPS_RTS) return IBV_WC_WR_FLUSH_ERR;
    const ibv_sge span = work.num_sge == 0 ? ibv_sge{} : work.sg_list[0];
    if (work.num_sge != 0 && !IsLocal(span.lkey, span.addr, span.length)) {
      return IBV_WC_LOC_PROT_ERR;
    }
    const auto peer = qps.find(qp.peer);
    if (peer == qps.end() || peer->second->qp.state == IBV_QPS_ERR) return IBV_WC_RETRY_EXC_ERR;
    if (work.num_sge == 0) return IBV_WC_SUCCESS;
    const uint64_t remote = work.wr.rdma.remote_addr;
    if (!IsRemote(work.wr.rdma.rkey, remote, span.length)) return IBV_WC_REM_ACCESS_ERR;
    if (work.opcode == IBV_WR_RDMA_WRITE) {
      Store(remote, Load(span.addr, span.length));
    } else {
      Store(span.addr, Load(remote, span.length));
    }
    return IBV_WC_SUCCESS;
  }

  std::recursive_mutex mutex;
  std::array<ibv_device, kDevices> devices{};
  std::array<ibv_device*, kDevices + 1> list{};
  std::map<uint32_t, std::unique_ptr<Mr>> mrs;  // by lkey
  std::map<uint32_t, std::unique_ptr<Qp>> qps;  // by number
  uint32_t keys = 0;
  uint32_t numbers = 16;
};

Fake& TheFake() {
  static Fake& fake = *new Fake;
  return fake;
}

#define ENTER(name, failed)               \
  Fake& fake = TheFake();                 \
  const std::lock_guard lock(fake.mutex); \
  if (!fake.Enter(name)) return failed

int PostSend(ibv_qp* of, ibv_send_wr* work, ibv_send_wr** bad) {
  *bad = work;
  ENTER("ibv_post_send", errno);
  Qp& qp = *fake.qps.at(of->qp_num);
  auto* const queue = reinterpret_cast<Cq*>(of->send_cq);
  for (; work != nullptr; work = work->next) {
    if ((work->send_flags & IBV_SEND_INLINE) != 0) ++fake.posted_inline;
    const ibv_wc_status status = fake.CarryOut(qp, *work);
    if (status != IBV_WC_SUCCESS) qp.qp.state = IBV_QPS_ERR;
    if (status == IBV_WC_SUCCESS && (work->send_flags & IBV_SEND_SIGNALED) == 0) continue;
    ibv_wc ended{};
    ended.wr_id = work->wr_id;
    ended.status = status;
    ended.qp_num = of->qp_num;
    if (queue->ended.size() == static_cast<size_t>(queue->cq.cqe)) ++fake.overflows;
    queue->ended.push_back(ended);
    if (std::exchange(queue->armed, false)) eventfd_write(queue->cq.channel->fd, 1);
  }
  return 0;
}

int PollCq(ibv_cq* of, int count, ibv_wc* completions) {
  ENTER("ibv_poll_cq", -1);
  auto* const queue = reinterpret_cast<Cq*>(of);
  int taken = 0;
  for (; taken < count && !queue->ended.empty(); ++taken) {
    completions[taken] = queue->ended.front();
    queue->ended.pop_front();
  }
  return taken;
}

int RequestNotify(ibv_cq* of, int) {
  ENTER("ibv_req_notify_cq", errno);
  reinterpret_cast<Cq*>(of)->armed = true;
  return 0;
}

ibv_td* AllocTd(ibv_context* context, ibv_td_init_attr*) {
  ENTER("ibv_alloc_td", nullptr);
  if (!fake.thread_domains) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  ++fake.objects;
  return new ibv_td{.context = context};
}
int DeallocTd(ibv_td* domain) {
  ENTER("ibv_dealloc_td", errno);
  --fake.objects;
  delete domain;
  return 0;
}
ibv_pd* AllocParentDomain(ibv_context* context, ibv_parent_domain_init_attr* attributes) {
  ENTER("ibv_alloc_parent_domain", nullptr);
  if (attributes->pd == nullptr) {
    errno = EINVAL;
    return nullptr;
  }
  ++fake.objects;
  return new ibv_pd{.context = context, .handle = 1};
}

}  // namespace

FakeVerbs& FakeVerbs::Get() {
  return TheFake();
}

}  // namespace railhop

// --- The library's entry points.

using railhop::Cq;
using railhop::Fake;
using railhop::FakeDmaBuf;
using railhop::FakeVerbs;
using railhop::Qp;
using railhop::TheFake;

#pragma GCC visibility push(default)
extern "C" {

int ibv_fork_init() {
  return 0;
}
ibv_device** ibv_get_device_list(int* count) {
  *count = railhop::kDevices;
  return TheFake().list.data();
}
void ibv_free_device_list(ibv_device**) {}
const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}

ibv_context* ibv_open_device(ibv_device* device) {
  ENTER("ibv_open_device", nullptr);
  auto* const made = new verbs_context{};
  made->sz = sizeof(verbs_context);
  made->alloc_td = railhop::AllocTd;
  made->dealloc_td = railhop::DeallocTd;
  made->alloc_parent_domain = railhop::AllocParentDomain;
  ibv_context& context = made->context;
  context.device = device;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  context.async_fd = eventfd(0, EFD_CLOEXEC);  // of which nothing is told
  context.ops.post_send = railhop::PostSend;
  context.ops.poll_cq = railhop::PollCq;
  context.ops.req_notify_cq = railhop::RequestNotify;
  ++fake.objects;
  return &context;
}
int ibv_close_device(ibv_context* context) {
  ENTER("ibv_close_device", errno);
  --fake.objects;
  close(context->async_fd);
  delete verbs_get_ctx(context);
  return 0;
}
int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
  ENTER("ibv_query_device", errno);
  *attributes = {};
  attributes->max_mr_size = fake.max_mr_size;
  attributes->max_qp_rd_atom = attributes->max_qp_init_rd_atom = 16;
  attributes->max_cqe = fake.max_cqe;
  attributes->max_qp = 1 << 16;
  return 0;
}
int ibv_query_port(ibv_context*, uint8_t, _compat_ibv_port_attr* result) {
  ENTER("ibv_query_port", errno);
  auto* const port = reinterpret_cast<ibv_port_attr*>(result);
  port->state = IBV_PORT_ACTIVE;
  port->active_mtu = IBV_MTU_4096;
  port->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}
ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t, uint32_t,
                             size_t) {
  entries[0] = {};
  entries[0].port_num = 1;
  entries[0].gid_type = IBV_GID_TYPE_ROCE_V2;
  entries[0].gid.raw[10] = entries[0].gid.raw[11] = 0xff;
  entries[0].gid.raw[12] = 127;
  entries[0].gid.raw[15] = static_cast<uint8_t>(1 + (context->device - TheFake().devices.data()));
  return 1;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  ENTER("ibv_alloc_pd", nullptr);
  ++fake.objects;
  return new ibv_pd{.context = context, .handle = 0};
}
int ibv_dealloc_pd(ibv_pd* pd) {
  ENTER("ibv_dealloc_pd", errno);
  --fake.objects;
  delete pd;
  return 0;
}

static ibv_mr* RegisterPlain(Fake& fake, ibv_pd* pd, void* address, size_t length,
                             unsigned access) {
  const auto first = reinterpret_cast<uint64_t>(address);
  if (length > fake.max_mr_size) {
    errno = EINVAL;
    return nullptr;
  }
  if (fake.gpu != nullptr && !fake.peer_memory && fake.gpu->Owns(first)) {
    errno = EFAULT;
    return nullptr;
  }
  return fake.Register(pd, {.address = first, .length = length, .access = access});
}
ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
  ENTER("ibv_reg_mr", nullptr);
  return RegisterPlain(fake, pd, address, length, static_cast<unsigned>(access));
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access) {
  ENTER("ibv_reg_mr_iova2", nullptr);
  if (iova != reinterpret_cast<uint64_t>(address)) {
    errno = EINVAL;
    return nullptr;
  }
  return RegisterPlain(fake, pd, address, length, access);
}
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                          int access) {
  ENTER("ibv_reg_dmabuf_mr", nullptr);
  FakeDmaBuf file;
  errno = EINVAL;
  if (pread(fd, &file, sizeof(file), 0) != sizeof(file) || offset > file.bytes ||
      length > file.bytes - offset || iova != file.address + offset || length > fake.max_mr_size) {
    return nullptr;
  }
  return fake.Register(pd, {.address = iova,
                            .length = length,
                            .access = static_cast<unsigned>(access),
                            .by_file = true,
                            .offset = offset});
}
int ibv_dereg_mr(ibv_mr* mr) {
  ENTER("ibv_dereg_mr", errno);
  --fake.objects;
  fake.mrs.erase(mr->lkey);
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  ENTER("ibv_create_comp_channel", nullptr);
  ++fake.objects;
  return new ibv_comp_channel{
      .context = context, .fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC), .refcnt = 0};
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  ENTER("ibv_destroy_comp_channel", errno);
  --fake.objects;
  close(channel->fd);
  delete channel;
  return 0;
}
ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cq_context,
                      ibv_comp_channel* channel, int) {
  ENTER("ibv_create_cq", nullptr);
  ++fake.objects;
  auto* const queue = new Cq;
  queue->cq.context = context;
  queue->cq.channel = channel;
  queue->cq.cq_context = cq_context;
  queue->cq.cqe = entries;
  return &queue->cq;
}
int ibv_resize_cq(ibv_cq* queue, int entries) {
  ENTER("ibv_resize_cq", errno);
  queue->cqe = entries;
  return 0;
}
int ibv_destroy_cq(ibv_cq* queue) {
  ENTER("ibv_destroy_cq", errno);
  --fake.objects;
  delete reinterpret_cast<Cq*>(queue);
  return 0;
}
// Queues have their own channels here; the one that told is not passed on.
int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq**, void**) {
  eventfd_t one = 0;
  return eventfd_read(channel->fd, &one);
}
void ibv_ack_cq_events(ibv_cq*, unsigned) {}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  ENTER("ibv_create_qp", nullptr);
  ++fake.objects;
  fake.in_thread_domains += static_cast<int>(pd->handle);
  fake.inline_room = std::max(fake.inline_room, attributes->cap.max_inline_data);
  auto made = std::make_unique<Qp>();
  made->qp.context = pd->context;
  made->qp.pd = pd;
  made->qp.send_cq = attributes->send_cq;
  made->qp.recv_cq = attributes->recv_cq;
  made->qp.qp_num = ++fake.numbers;
  made->qp.state = IBV_QPS_RESET;
  return &fake.qps.emplace(made->qp.qp_num, std::move(made)).first->second->qp;
}
int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  const auto& looks_for_peer = FakeVerbs::Get().looks_for_peer;
  if ((mask & IBV_QP_DEST_QPN) != 0 && looks_for_peer) looks_for_peer(attributes->dest_qp_num);
  ENTER("ibv_modify_qp", errno);
  if ((mask & IBV_QP_STATE) != 0) qp->state = attributes->qp_state;
  if ((mask & IBV_QP_DEST_QPN) != 0) fake.qps.at(qp->qp_num)->peer = attributes->dest_qp_num;
  return 0;
}
int ibv_destroy_qp(ibv_qp* qp) {
  if (const auto wait = TheFake().before_destroy_qp) wait();
  ENTER("ibv_destroy_qp", errno);
  --fake.objects;
  auto& ended = reinterpret_cast<Cq*>(qp->send_cq)->ended;
  std::erase_if(ended, [qp](const ibv_wc& each) { return each.qp_num == qp->qp_num; });
  fake.qps.erase(qp->qp_num);
  return 0;
}
const char* ibv_wc_status_str(ibv_wc_status) {
  return "an error of the stand-in";
}

// Nothing happens to these devices by itself.
int ibv_get_async_event(ibv_context*, ibv_async_event*) {
  errno = EAGAIN;
  return -1;
}
void ibv_ack_async_event(ibv_async_event*) {}
const char* ibv_event_type_str(ibv_event_type) {
  return "an event of the stand-in";
}

}  // extern "C"
#pragma GCC visibility pop
