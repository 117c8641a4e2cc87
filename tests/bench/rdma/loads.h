// What the RDMA benchmark writes: sizes, and the batches of a KV cache, from one and from four
// threads. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace railhop {

// What is written at a time, and how.
struct RdmaLoad {
  uint64_t length = 0;  // bytes of each request
  int count = 1;        // requests of a batch, of each thread
  int threads = 1;
  std::string batch = {};  // of a KV cache, that it is: "kv_1k1k"
};
// "64k_b16_t4", "kv_1k1k_t4"
std::string LoadName(const RdmaLoad& load);

// 64 KiB, 512 KiB, a layer of a KV cache (2.3 MB) and 8 MiB.
std::vector<RdmaLoad> SizeLoads();
// The KV batches of tests/data, with all their requests, whose lengths are divided by kKvScale: a
// second and more each on the rails of a virtual machine. Four threads share the requests of one.
inline constexpr uint64_t kKvScale = 16;
std::vector<RdmaLoad> KvLoads();
std::vector<RdmaLoad> AllLoads();  // both

inline constexpr uint64_t kKvLayer = 2'359'296;  // bytes of a request of "1k1k/kv"

}  // namespace railhop
