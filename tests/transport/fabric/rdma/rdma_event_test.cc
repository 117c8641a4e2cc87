#include "transport/fabric/rdma/rdma_event.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

namespace railhop {
namespace {

using Kind = RdmaEvent::Kind;

Kind KindOf(ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  return ReadEvent(event).kind;
}

TEST(RdmaEventTest, EventsOfThePortAskForAnotherLook) {
  for (const ibv_event_type type :
       {IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_LID_CHANGE, IBV_EVENT_GID_CHANGE}) {
    EXPECT_EQ(KindOf(type), Kind::kPort) << type;
  }
}

TEST(RdmaEventTest, AFatalErrorIsTheDevices) {
  EXPECT_EQ(KindOf(IBV_EVENT_DEVICE_FATAL), Kind::kDevice);
}

TEST(RdmaEventTest, ErrorsOfAQueuePairNameIt) {
  ibv_qp queue_pair{};
  queue_pair.qp_num = 4711;
  for (const ibv_event_type type :
       {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR}) {
    ibv_async_event event{};
    event.event_type = type;
    event.element.qp = &queue_pair;
    const RdmaEvent read = ReadEvent(event);
    EXPECT_EQ(read.kind, Kind::kQueuePair) << type;
    EXPECT_EQ(read.queue_pair, 4711u);
  }
}

TEST(RdmaEventTest, AnErrorOfACompletionQueueNamesIt) {
  ibv_cq queue{};
  ibv_async_event event{};
  event.event_type = IBV_EVENT_CQ_ERR;
  event.element.cq = &queue;
  EXPECT_EQ(ReadEvent(event).kind, Kind::kCompletionQueue);
  EXPECT_EQ(ReadEvent(event).completions, &queue);
}

TEST(RdmaEventTest, TheRestIsNobodysBusiness) {
  for (const ibv_event_type type :
       {IBV_EVENT_COMM_EST, IBV_EVENT_SQ_DRAINED, IBV_EVENT_CLIENT_REREGISTER}) {
    EXPECT_EQ(KindOf(type), Kind::kOther) << type;
  }
}

}  // namespace
}  // namespace railhop
