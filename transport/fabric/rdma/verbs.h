// libibverbs, loaded when it is first wanted: one binary runs with and without it.
//
//   absl::StatusOr<const Verbs*> verbs = Verbs::Get();
//   ibv_device** list = (*verbs)->get_device_list(&count);
//
// Types and signatures are those of <infiniband/verbs.h>, which is there at build time only. What
// that header does inline (ibv_post_send, ibv_poll_cq, ibv_req_notify_cq) calls the device's driver
// by the context and needs no entry here; its other functions must not be called by their own
// names, since nothing is linked.
// Threads: Get and Load are set-up calls; the table does not change afterwards. The library is
// never unloaded.
#pragma once

#include <infiniband/verbs.h>

#include "absl/status/statusor.h"

namespace railhop {

struct Verbs {
  static constexpr const char* kLibrary = "libibverbs.so.1";

  // The machine's library, loaded once, and told that this process may fork. NotFound: there is
  // none; FailedPrecondition: it is older than rdma-core 32. The text says what to do.
  static absl::StatusOr<const Verbs*> Get();
  // Another library in its place, for tests. The result is never freed.
  static absl::StatusOr<const Verbs*> Load(const char* library);

  // The functions, named as the library names them without "ibv_".
  decltype(&::ibv_fork_init) fork_init = nullptr;
  decltype(&::ibv_get_device_list) get_device_list = nullptr;
  decltype(&::ibv_free_device_list) free_device_list = nullptr;
  decltype(&::ibv_get_device_name) get_device_name = nullptr;
  decltype(&::ibv_open_device) open_device = nullptr;
  decltype(&::ibv_close_device) close_device = nullptr;
  decltype(&::ibv_get_async_event) get_async_event = nullptr;
  decltype(&::ibv_ack_async_event) ack_async_event = nullptr;
  decltype(&::ibv_query_device) query_device = nullptr;
  // Fills the older, shorter part of ibv_port_attr.
  decltype(&::ibv_query_port) query_port = nullptr;
  decltype(&::_ibv_query_gid_table) query_gid_table = nullptr;
  decltype(&::ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&::ibv_dealloc_pd) dealloc_pd = nullptr;
  decltype(&::ibv_reg_mr) reg_mr = nullptr;
  // nullptr in a library that lacks it: then no registration is of relaxed ordering,
  decltype(&::ibv_reg_mr_iova2) reg_mr_iova2 = nullptr;
  // or by DMA-BUF.
  decltype(&::ibv_reg_dmabuf_mr) reg_dmabuf_mr = nullptr;
  decltype(&::ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&::ibv_create_comp_channel) create_comp_channel = nullptr;
  decltype(&::ibv_destroy_comp_channel) destroy_comp_channel = nullptr;
  decltype(&::ibv_create_cq) create_cq = nullptr;
  decltype(&::ibv_resize_cq) resize_cq = nullptr;
  decltype(&::ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&::ibv_get_cq_event) get_cq_event = nullptr;
  decltype(&::ibv_ack_cq_events) ack_cq_events = nullptr;
  decltype(&::ibv_create_qp) create_qp = nullptr;
  decltype(&::ibv_modify_qp) modify_qp = nullptr;
  decltype(&::ibv_destroy_qp) destroy_qp = nullptr;
  decltype(&::ibv_wc_status_str) wc_status_str = nullptr;
};

}  // namespace railhop
