#include "transport/fabric/rdma/verbs.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace railhop {
namespace {

template <class Function>
void Bind(void* handle, const char* name, Function*& function, const char** missing) {
  function = reinterpret_cast<Function*>(dlsym(handle, name));
  if (function == nullptr && *missing == nullptr) *missing = name;
}

// The name of the first function that the library lacks; nullptr: it has all.
const char* BindAll(void* handle, Verbs* verbs) {
  const char* missing = nullptr;
  Bind(handle, "ibv_fork_init", verbs->fork_init, &missing);
  Bind(handle, "ibv_get_device_list", verbs->get_device_list, &missing);
  Bind(handle, "ibv_free_device_list", verbs->free_device_list, &missing);
  Bind(handle, "ibv_get_device_name", verbs->get_device_name, &missing);
  Bind(handle, "ibv_open_device", verbs->open_device, &missing);
  Bind(handle, "ibv_close_device", verbs->close_device, &missing);
  Bind(handle, "ibv_get_async_event", verbs->get_async_event, &missing);
  Bind(handle, "ibv_ack_async_event", verbs->ack_async_event, &missing);
  Bind(handle, "ibv_query_device", verbs->query_device, &missing);
  Bind(handle, "ibv_query_port", verbs->query_port, &missing);
  Bind(handle, "_ibv_query_gid_table", verbs->query_gid_table, &missing);
  Bind(handle, "ibv_alloc_pd", verbs->alloc_pd, &missing);
  Bind(handle, "ibv_dealloc_pd", verbs->dealloc_pd, &missing);
  Bind(handle, "ibv_reg_mr", verbs->reg_mr, &missing);
  Bind(handle, "ibv_dereg_mr", verbs->dereg_mr, &missing);
  Bind(handle, "ibv_create_comp_channel", verbs->create_comp_channel, &missing);
  Bind(handle, "ibv_destroy_comp_channel", verbs->destroy_comp_channel, &missing);
  Bind(handle, "ibv_create_cq", verbs->create_cq, &missing);
  Bind(handle, "ibv_resize_cq", verbs->resize_cq, &missing);
  Bind(handle, "ibv_destroy_cq", verbs->destroy_cq, &missing);
  Bind(handle, "ibv_get_cq_event", verbs->get_cq_event, &missing);
  Bind(handle, "ibv_ack_cq_events", verbs->ack_cq_events, &missing);
  Bind(handle, "ibv_create_qp", verbs->create_qp, &missing);
  Bind(handle, "ibv_modify_qp", verbs->modify_qp, &missing);
  Bind(handle, "ibv_destroy_qp", verbs->destroy_qp, &missing);
  Bind(handle, "ibv_wc_status_str", verbs->wc_status_str, &missing);
  const char* allowed = nullptr;
  Bind(handle, "ibv_reg_mr_iova2", verbs->reg_mr_iova2, &allowed);
  Bind(handle, "ibv_reg_dmabuf_mr", verbs->reg_dmabuf_mr, &allowed);
  return missing;
}

}  // namespace

absl::StatusOr<const Verbs*> Verbs::Get() {
  static const auto& verbs = *new absl::StatusOr<const Verbs*>(Load(kLibrary));
  return verbs;
}

absl::StatusOr<const Verbs*> Verbs::Load(const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return absl::NotFoundError(
        fmt::format("no RDMA library: {}; install rdma-core's libibverbs (Debian: libibverbs1 and "
                    "ibverbs-providers)",
                    why == nullptr ? library : why));
  }
  auto verbs = std::make_unique<Verbs>();
  if (const char* missing = BindAll(handle, verbs.get()); missing != nullptr) {
    return absl::FailedPreconditionError(fmt::format(
        "the RDMA library {} has no {}; update it to rdma-core 32 or newer", library, missing));
  }
  // Registered pages must stay the parent's after a fork. It fails where the kernel cannot, and
  // there nothing can be done about it.
  verbs->fork_init();
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::unique_ptr<const Verbs>>;
  const std::lock_guard lock(mutex);
  return kept.emplace_back(std::move(verbs)).get();
}

}  // namespace railhop
