#include "actors/bootstrap_rdma.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace railhop {
namespace {

NicConfig Applied(NicConfig nic, const std::map<std::string, std::string>& variables) {
  ApplyRdmaEnvironment(ReadEngineEnvironment([&](const char* name) -> const char* {
                         const auto found = variables.find(name);
                         return found == variables.end() ? nullptr : found->second.c_str();
                       }),
                       &nic);
  return nic;
}

TEST(ApplyRdmaEnvironmentTest, WithoutVariablesTheConfigCounts) {
  NicConfig nic;
  nic.port = 2;
  nic.gid_index = 3;
  nic.queue_depth = 64;
  nic.max_endpoints = 10;
  nic.evict_oldest = true;
  nic.queue_pairs = 4;
  const NicConfig applied = Applied(nic, {});
  EXPECT_EQ(applied.port, 2);
  EXPECT_EQ(applied.gid_index, 3);
  EXPECT_EQ(applied.queue_depth, 64u);
  EXPECT_EQ(applied.max_endpoints, 10u);
  EXPECT_TRUE(applied.evict_oldest);
  EXPECT_EQ(applied.queue_pairs, 4u);
  EXPECT_EQ(applied.max_mtu, 4096u);
  EXPECT_EQ(applied.traffic_class, 0);
  EXPECT_TRUE(applied.relaxed_ordering);
}

TEST(ApplyRdmaEnvironmentTest, VariablesWin) {
  NicConfig nic;
  nic.evict_oldest = true;
  nic.max_endpoints = 10;
  const NicConfig applied = Applied(nic, {{"MC_IB_PORT", "2"},
                                          {"MC_GID_INDEX", "0"},
                                          {"MC_PKEY_INDEX", "7"},
                                          {"MC_MTU", "1024"},
                                          {"MC_IB_TC", "106"},
                                          {"MC_IB_SL", "3"},
                                          {"MC_IB_PCI_RELAXED_ORDERING", "0"},
                                          {"MC_MAX_EP_PER_CTX", "65536"},
                                          {"MC_ENDPOINT_STORE_TYPE", "SIEVE"},
                                          {"MC_NUM_QP_PER_EP", "1"},
                                          {"MC_MAX_WR", "512"}});
  EXPECT_EQ(applied.port, 2);
  EXPECT_EQ(applied.gid_index, 0);
  EXPECT_EQ(applied.pkey_index, 7);
  EXPECT_EQ(applied.max_mtu, 1024u);
  EXPECT_EQ(applied.traffic_class, 106);
  EXPECT_EQ(applied.service_level, 3);
  EXPECT_FALSE(applied.relaxed_ordering);
  EXPECT_EQ(applied.max_endpoints, 65536u) << "the default, but given";
  EXPECT_FALSE(applied.evict_oldest);
  EXPECT_EQ(applied.queue_pairs, 1u);
  EXPECT_EQ(applied.queue_depth, 512u);
}

TEST(ApplyRdmaEnvironmentTest, WhatIsNotValidCountsAsNotGiven) {
  NicConfig nic;
  nic.gid_index = 3;
  nic.queue_pairs = 4;
  const NicConfig applied = Applied(nic, {{"MC_GID_INDEX", "256"}, {"MC_NUM_QP_PER_EP", "0"}});
  EXPECT_EQ(applied.gid_index, 3);
  EXPECT_EQ(applied.queue_pairs, 4u);
}

}  // namespace
}  // namespace railhop
