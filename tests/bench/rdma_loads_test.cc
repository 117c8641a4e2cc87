#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/bench/rdma/loads.h"

namespace railhop {
namespace {

TEST(RdmaLoadsTest, EverySizeAndEveryKvBatchFromOneAndFourThreads) {
  std::vector<std::string> names;
  for (const RdmaLoad& load : AllLoads()) names.push_back(LoadName(load));
  EXPECT_THAT(names, testing::UnorderedElementsAre("64k_b16", "512k_b4", "2304k_b1", "8m_b1",
                                                   "64k_b16_t4", "512k_b4_t4", "2304k_b1_t4",
                                                   "8m_b1_t4", "kv_1k1k", "kv_8k1k", "kv_64k1k",
                                                   "kv_1k1k_t4", "kv_8k1k_t4", "kv_64k1k_t4"));
}

// However many threads: all requests of the batch, and not many more.
TEST(RdmaLoadsTest, KvBatchesHaveTheirRequestsAndBytes) {
  std::ifstream file(RAILHOP_SOURCE_DIR "/tests/data/kv_batches.json");
  const nlohmann::json batches = nlohmann::json::parse(file)["batches"];
  for (const RdmaLoad& load : KvLoads()) {
    bool found = false;
    for (const nlohmann::json& batch : batches) {
      if ("kv_" + batch["name"].get<std::string>() != load.batch + "/kv") continue;
      found = true;
      const int requests = load.count * load.threads;
      EXPECT_GE(requests, batch["count"].get<int>()) << LoadName(load);
      EXPECT_LT(requests, batch["count"].get<int>() + load.threads) << LoadName(load);
      for (const uint64_t length : batch["lengths"]) {
        EXPECT_EQ(load.length, length / kKvScale) << LoadName(load);
      }
    }
    EXPECT_TRUE(found) << LoadName(load);
  }
}

}  // namespace
}  // namespace railhop
