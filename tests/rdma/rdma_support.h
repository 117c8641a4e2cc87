// What the tests on the rails of the virtual machine share (tools/rdma-vm: rail N is the device
// rxeN on the interface railN, and a cable leads from there to portN).
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <stdio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/wait_until.h"
#include "transport/fabric/rdma/rdma_nic.h"
#include "transport/fabric/rdma/rdma_target.h"

namespace railhop {

// Gives up on a silent peer after some 30 ms instead of half a second.
inline constexpr RdmaRetry kQuickRetry{.timeout = 8, .count = 2};

// The kernel may take its time to see that a cable is in again.
inline std::shared_ptr<RdmaDevice> OpenRail(int rail) {
  absl::StatusOr<std::shared_ptr<RdmaDevice>> device;
  EXPECT_TRUE(WaitUntil([&] {
    device = RdmaDevice::Open({.name = "rxe" + std::to_string(rail)});
    return !absl::IsUnavailable(device.status());
  }));
  EXPECT_TRUE(device.ok()) << device.status();
  return device.ok() ? *std::move(device) : nullptr;
}

// The cable of a rail; in again when the object goes.
class PulledCable {
 public:
  explicit PulledCable(int rail) : port_("port" + std::to_string(rail)) { Set("down"); }
  ~PulledCable() { Set("up"); }
  PulledCable(const PulledCable&) = delete;
  PulledCable& operator=(const PulledCable&) = delete;

 private:
  void Set(const char* state) {
    EXPECT_EQ(std::system(("ip link set " + port_ + " " + state).c_str()), 0);
  }
  const std::string port_;
};

// A rail that sends 1 MB/s while the object lives, so that much is under way for long.
class SlowRail {
 public:
  // Requests for it: longer ones are acknowledged too late for the default RdmaRetry.
  static constexpr uint32_t kSliceSize = 16384;

  explicit SlowRail(int rail) : queue_("dev rail" + std::to_string(rail) + " root") {
    Set("replace " + queue_ + " tbf rate 8mbit burst 64kb limit 8mb");
  }
  ~SlowRail() { Set("delete " + queue_); }
  SlowRail(const SlowRail&) = delete;
  SlowRail& operator=(const SlowRail&) = delete;

 private:
  static void Set(const std::string& what) {
    EXPECT_EQ(std::system(("tc qdisc " + what).c_str()), 0);
  }
  const std::string queue_;
};

// Packets that the rail's device has sent so far.
inline uint64_t PacketsSent(int rail) {
  std::ifstream file("/sys/class/infiniband/rxe" + std::to_string(rail) +
                     "/ports/1/hw_counters/sent_pkts");
  uint64_t packets = 0;
  EXPECT_TRUE(file >> packets);
  return packets;
}

// What the kernel counts for all devices: "0: rxe0: pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0 srq 0", ...
inline std::string KernelResources() {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen("rdma resource", "r"), pclose);
  std::string text;
  char line[256];
  while (fgets(line, sizeof line, pipe.get()) != nullptr) text += line;
  EXPECT_TRUE(text.find("rxe0: pd ") != std::string::npos) << text;
  return text;
}

// Polls until there are `count` completions, and consumes them.
inline std::vector<NicCompletion> Await(Nic& nic, size_t count) {
  std::vector<NicCompletion> taken;
  EXPECT_TRUE(WaitUntil([&] {
    std::vector<NicCompletion> shown(count - taken.size());
    shown.resize(nic.Peek(shown));
    nic.Advance(shown.size());
    taken.insert(taken.end(), shown.begin(), shown.end());
    return taken.size() == count;
  }));
  return taken;
}

inline std::vector<FabricStatus> StatusesOf(const std::vector<NicCompletion>& completions) {
  std::vector<FabricStatus> statuses;
  for (const NicCompletion& completion : completions) statuses.push_back(completion.status);
  return statuses;
}

// A NIC on rail 0 and a target on rail 1, both of this process, with memory at each end.
class RdmaRails : public testing::Test {
 protected:
  static constexpr size_t kBytes = 1 << 20;
  static constexpr uint32_t kDepth = 16;

  void SetUp() override {
    near_ = OpenRail(0);
    far_ = OpenRail(1);
    ASSERT_TRUE(near_ != nullptr && far_ != nullptr);
    target_ = MakeTarget();
    nic_ = MakeNic({.server_name = "here:1",
                    .exchange = AskTarget(),
                    .send_queue_depth = kDepth,
                    .max_endpoints = 4,
                    .retry = kQuickRetry});
    for (size_t i = 0; i < kBytes; ++i) local_[i] = static_cast<std::byte>(i * 31 >> 3);
    auto key = near_->Register(local_.data(), kBytes);
    auto remote_key = far_->Register(remote_.data(), kBytes);
    ASSERT_TRUE(key.ok() && remote_key.ok()) << key.status() << remote_key.status();
    key_ = *key;
    remote_key_ = *remote_key;
    endpoint_ = Connected();
  }

  std::unique_ptr<RdmaTarget> MakeTarget() {
    auto target = RdmaTarget::Create({far_}, {.max_endpoints = 8});
    EXPECT_TRUE(target.ok()) << target.status();
    return *std::move(target);
  }
  std::unique_ptr<RdmaNic> MakeNic(RdmaNicOptions options) {
    auto nic = RdmaNic::Create(near_, std::move(options));
    EXPECT_TRUE(nic.ok()) << nic.status();
    return *std::move(nic);
  }
  // In place of the handshake's sockets.
  RdmaExchange AskTarget() {
    return [this](const std::string&, const std::string& json) -> absl::StatusOr<std::string> {
      const std::optional<std::string> answer = target_->Answer(json);
      if (!answer.has_value()) return absl::UnavailableError("closed without answer");
      return *answer;
    };
  }

  static TargetInfo Info(std::string connection = "there:2@rxe1") {
    return {
        .name = "there", .kind = "rdma", .buffers = {}, .nics = {{"rxe1", std::move(connection)}}};
  }
  EndpointId Connected() {
    auto endpoint = nic_->Connect(Info(), 0);
    EXPECT_TRUE(endpoint.ok()) << endpoint.status();
    return endpoint.value_or(0);
  }

  // As the control reactor does: whenever the NIC's descriptor is readable, and once a second.
  void Tend(std::chrono::seconds later = std::chrono::seconds(0)) {
    nic_->Tend(std::chrono::steady_clock::now() + later);
    nic_->Settle();
  }
  template <class Condition>
  bool TendUntil(Condition condition) {
    return WaitUntil([&] {
      pollfd entry{.fd = nic_->event_fd(), .events = POLLIN, .revents = 0};
      if (poll(&entry, 1, 0) == 1) Tend();
      return condition();
    });
  }

  // The first `length` bytes from `offset` on, to the same place of the far end.
  WorkRequest Write(uint64_t offset, uint32_t length, bool signaled = true) {
    return {.opcode = FabricOpcode::kWrite,
            .signaled = signaled,
            .endpoint = endpoint_,
            .local = local_.data() + offset,
            .lkey = key_.lkey,
            .length = length,
            .remote_address = reinterpret_cast<uint64_t>(remote_.data()) + offset,
            .rkey = remote_key_.rkey,
            .user_data = offset};
  }
  FabricStatus Run(const WorkRequest& request) {
    EXPECT_TRUE(nic_->Prepare(request));
    nic_->Submit();
    const std::vector<NicCompletion> completions = Await(*nic_, 1);
    EXPECT_TRUE(completions.empty() || completions[0].user_data == request.user_data);
    return completions.empty() ? FabricStatus::kExposed : completions[0].status;
  }

  std::shared_ptr<RdmaDevice> near_, far_;
  std::vector<std::byte> local_{kBytes}, remote_{kBytes};
  MemoryKey key_, remote_key_;
  std::unique_ptr<RdmaTarget> target_;
  std::unique_ptr<RdmaNic> nic_;
  EndpointId endpoint_ = 0;
};

}  // namespace railhop
