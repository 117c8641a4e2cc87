#include "tests/bench/rdma/loads.h"

#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "fmt/format.h"

namespace railhop {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
constexpr int kThreads[] = {1, 4};

}  // namespace

std::string LoadName(const RdmaLoad& load) {
  const std::string size = load.length % kMiB == 0 ? fmt::format("{}m", load.length / kMiB)
                                                   : fmt::format("{}k", load.length / kKiB);
  return (load.batch.empty() ? fmt::format("{}_b{}", size, load.count) : load.batch) +
         (load.threads == 1 ? "" : fmt::format("_t{}", load.threads));
}

std::vector<RdmaLoad> SizeLoads() {
  std::vector<RdmaLoad> loads;
  for (const int threads : kThreads) {
    for (const auto& [length, count] : {std::pair{64 * kKiB, 16}, std::pair{512 * kKiB, 4},
                                        std::pair{kKvLayer, 1}, std::pair{8 * kMiB, 1}}) {
      loads.push_back({length, count, threads});
    }
  }
  return loads;
}

std::vector<RdmaLoad> KvLoads() {
  std::ifstream file(RAILHOP_SOURCE_DIR "/tests/data/kv_batches.json");
  const nlohmann::json batches = nlohmann::json::parse(file)["batches"];
  std::vector<RdmaLoad> loads;
  for (const int threads : kThreads) {
    for (const nlohmann::json& batch : batches) {
      const std::string name = batch["name"];
      const size_t slash = name.find("/kv");
      if (slash == std::string::npos) continue;
      const uint64_t length = batch["lengths"][0];  // of all of them
      const int count = batch["count"];
      loads.push_back({.length = length / kKvScale,
                       .count = (count + threads - 1) / threads,
                       .threads = threads,
                       .batch = "kv_" + name.substr(0, slash)});
    }
  }
  return loads;
}

std::vector<RdmaLoad> AllLoads() {
  std::vector<RdmaLoad> loads = SizeLoads();
  for (RdmaLoad& load : KvLoads()) loads.push_back(std::move(load));
  return loads;
}

}  // namespace railhop
