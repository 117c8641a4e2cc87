#include "transport/fabric/rdma/thread_domain.h"

#include "transport/fabric/rdma/verbs.h"

namespace railhop {

// The calls about threads' domains are inline functions of the header, which ask the driver.
std::unique_ptr<ThreadDomain> ThreadDomain::Create(const std::shared_ptr<RdmaDevice>& device) {
  ibv_td_init_attr none{};
  ibv_td* const thread = ibv_alloc_td(device->context(), &none);
  if (thread == nullptr) return nullptr;
  std::unique_ptr<ThreadDomain> made(new ThreadDomain(device, thread));
  ibv_parent_domain_init_attr attributes{};
  attributes.pd = device->protection_domain();
  attributes.td = thread;
  made->domain_ = ibv_alloc_parent_domain(device->context(), &attributes);
  return made->domain_ == nullptr ? nullptr : std::move(made);
}

ThreadDomain::~ThreadDomain() {
  if (domain_ != nullptr) device_->verbs().dealloc_pd(domain_);
  ibv_dealloc_td(thread_);
}

}  // namespace railhop
