// What an RDMA device tells by itself, sorted by who is concerned.
//
// Pure; any thread.
#pragma once

#include <cstdint>

struct ibv_async_event;
struct ibv_cq;

namespace railhop {

struct RdmaEvent {
  enum class Kind {
    kPort,             // its state or one of its addresses has changed: to be read anew
    kDevice,           // broken for good
    kQueuePair,        // in error
    kCompletionQueue,  // in error, and with it all that completes there
    kOther,            // nothing that anybody here would act on
  };
  Kind kind = Kind::kOther;
  uint32_t queue_pair = 0;              // its number; kQueuePair
  const ibv_cq* completions = nullptr;  // kCompletionQueue
  const char* text = "";                // "port error", ...
};

// Before the event is acknowledged, since it points to things that may go afterwards.
RdmaEvent ReadEvent(const ibv_async_event& event);

}  // namespace railhop
