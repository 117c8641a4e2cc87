// What the tests of the TCP fabric share: a server of this process with one region on loopback, and
// a NIC connected to it.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/wait_until.h"
#include "transport/fabric/tcp/tcp_nic.h"
#include "transport/fabric/tcp/tcp_server.h"

namespace railhop {

// The ways to speak to a target, for INSTANTIATE_TEST_SUITE_P: "2+drain" is one of Railhop's, and
// "2+drain@" one whose local socket is used.
inline constexpr const char* kTcpVersions[] = {"1", "2", "2+drain", "2+drain@"};
inline std::string TcpVersionName(const testing::TestParamInfo<const char*>& param) {
  const std::string version = param.param;
  if (version == "2+drain@") return "RailhopOnThisHost";
  return version == "2+drain" ? "Railhop" : "Version" + version;
}

// What a target on loopback is called: "1", "2", "2+drain" or "2+drain@NAME".
inline TargetInfo TcpTargetInfo(uint16_t port, const std::string& version) {
  return {.name = "t",
          .kind = "tcp",
          .buffers = {},
          .nics = {{"target", "127.0.0.1:" + std::to_string(port) + ":" + version}}};
}

inline std::vector<std::byte> Pattern(size_t bytes, uint64_t seed) {
  std::vector<std::byte> pattern(bytes);
  uint64_t word = seed * 0x9E3779B97F4A7C15 + 1;
  for (std::byte& byte : pattern) {
    word = word * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<std::byte>(word >> 56);
  }
  return pattern;
}

inline NicCompletion Done(uint64_t user_data, uint32_t bytes) {
  return {.user_data = user_data, .status = FabricStatus::kOk, .bytes = bytes};
}
inline NicCompletion Failed(uint64_t user_data, FabricStatus status) {
  return {.user_data = user_data, .status = status, .bytes = 0};
}

// Polls until `count` completions were consumed, or patience ended.
inline std::vector<NicCompletion> Consume(Nic& nic, size_t count) {
  std::vector<NicCompletion> all;
  EXPECT_TRUE(WaitUntil([&] {
    NicCompletion some[16];
    const size_t n = nic.Peek({some, std::min<size_t>(16, count - all.size())});
    all.insert(all.end(), some, some + n);
    nic.Advance(n);
    return all.size() == count;
  })) << all.size()
      << " of " << count << " completions";
  return all;
}

class TcpFixture : public testing::Test {
 protected:
  static constexpr uint64_t kBytes = 4 << 20;

  static TcpServerOptions ServerOptions() {
    TcpServerOptions options;
    options.address = "127.0.0.1";
    return options;
  }
  static TcpNicOptions NicOptions() {
    TcpNicOptions options;
    options.name = "nic0";
    options.connections = 2;
    options.send_queue_depth = 16;
    options.max_endpoints = 3;
    return options;
  }

  void StartServer(const TcpServerOptions& options = ServerOptions()) {
    auto server = TcpServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    local_name_ = server_->local_name();
    memory_.assign(kBytes, std::byte{0});
    ASSERT_TRUE(server_->AddRegion(Address(memory_.data()), kBytes).ok());
  }

  void MakeNic(const TcpNicOptions& options = NicOptions()) {
    auto nic = TcpNic::Create(options);
    ASSERT_TRUE(nic.ok()) << nic.status();
    nic_ = *std::move(nic);
    local_ = Pattern(kBytes, 7);
    key_ = *nic_->Register(local_.data(), local_.size());
  }

  TargetInfo Target(std::string version, uint16_t port = 0) const {
    if (version.ends_with('@')) version += local_name_;
    return TcpTargetInfo(port == 0 ? server_->port() : port, version);
  }
  EndpointId Connect(const std::string& version, uint16_t port = 0) {
    auto endpoint = nic_->Connect(Target(version, port), 0);
    EXPECT_TRUE(endpoint.ok()) << endpoint.status();
    return endpoint.ok() ? *endpoint : 0;
  }

  static uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

  // A request of `length` bytes at `offset`, from or to the same offset of the target.
  WorkRequest Request(EndpointId endpoint, FabricOpcode opcode, uint64_t user_data, uint32_t length,
                      uint64_t offset = 0) {
    return {.opcode = opcode,
            .signaled = true,
            .endpoint = endpoint,
            .local = local_.data() + offset,
            .lkey = key_.lkey,
            .length = length,
            .remote_address = Address(memory_.data()) + offset,
            .rkey = 0,
            .user_data = user_data};
  }
  WorkRequest Write(EndpointId endpoint, uint64_t user_data, uint32_t length, uint64_t offset = 0) {
    return Request(endpoint, FabricOpcode::kWrite, user_data, length, offset);
  }
  WorkRequest Read(EndpointId endpoint, uint64_t user_data, uint32_t length, uint64_t offset = 0) {
    return Request(endpoint, FabricOpcode::kRead, user_data, length, offset);
  }
  void Post(const WorkRequest& request) {
    ASSERT_TRUE(nic_->Prepare(request));
    nic_->Submit();
  }

  std::vector<std::byte> memory_;  // outlives those who write it
  std::unique_ptr<TcpServer> server_;
  std::string local_name_;  // of the target's local socket
  std::vector<std::byte> local_;
  std::unique_ptr<TcpNic> nic_;
  MemoryKey key_;
};

inline bool operator==(const NicCompletion& a, const NicCompletion& b) {
  return a.user_data == b.user_data && a.status == b.status && a.bytes == b.bytes;
}
inline void PrintTo(const NicCompletion& completion, std::ostream* out) {
  *out << "{" << completion.user_data << ", " << FabricStatusName(completion.status) << ", "
       << completion.bytes << " bytes}";
}

}  // namespace railhop
