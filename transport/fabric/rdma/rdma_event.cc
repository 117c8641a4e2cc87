#include "transport/fabric/rdma/rdma_event.h"

#include <infiniband/verbs.h>

namespace railhop {
namespace {

using Kind = RdmaEvent::Kind;

RdmaEvent OfQueuePair(const ibv_async_event& event, const char* text) {
  return {.kind = Kind::kQueuePair, .queue_pair = event.element.qp->qp_num, .text = text};
}

}  // namespace

RdmaEvent ReadEvent(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_PORT_ACTIVE:
      return {.kind = Kind::kPort, .text = "port active"};
    case IBV_EVENT_PORT_ERR:
      return {.kind = Kind::kPort, .text = "port error"};
    case IBV_EVENT_LID_CHANGE:
      return {.kind = Kind::kPort, .text = "LID change"};
    case IBV_EVENT_GID_CHANGE:
      return {.kind = Kind::kPort, .text = "GID change"};
    case IBV_EVENT_DEVICE_FATAL:
      return {.kind = Kind::kDevice, .text = "fatal device error"};
    case IBV_EVENT_QP_FATAL:
      return OfQueuePair(event, "fatal error of its queue pair");
    case IBV_EVENT_QP_REQ_ERR:
      return OfQueuePair(event, "invalid request at its queue pair");
    case IBV_EVENT_QP_ACCESS_ERR:
      return OfQueuePair(event, "access error at its queue pair");
    case IBV_EVENT_CQ_ERR:
      return {.kind = Kind::kCompletionQueue,
              .completions = event.element.cq,
              .text = "error of its completion queue"};
    default:
      return {};
  }
}

}  // namespace railhop
