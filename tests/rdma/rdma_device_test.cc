// Devices by name, their ports and GIDs, and registration, on the rails of the virtual machine.
#include "transport/fabric/rdma/rdma_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/rdma/rdma_support.h"
#include "tests/transport/staging/child_process.h"
#include "transport/fabric/rdma/neighbor.h"

namespace railhop {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

TEST(RdmaDeviceTest, ListsTheDevicesByName) {
  const auto names = ListRdmaDevices();
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names, IsSupersetOf({"rxe0", "rxe1", "rxe2", "rxe3"}));
}

TEST(RdmaDeviceTest, TakesTheGidOfItsIpv4Address) {
  const auto device = RdmaDevice::Open({.name = "rxe2"});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(FormatGid((*device)->gid().gid), "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:03");
  EXPECT_EQ((*device)->gid().index, 1u);
  EXPECT_EQ((*device)->gid().type, GidType::kRoceV2);
}

TEST(RdmaDeviceTest, TakesTheGidIndexThatIsAskedFor) {
  const auto device = RdmaDevice::Open({.name = "rxe2", .gid_index = 0});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_THAT(FormatGid((*device)->gid().gid), testing::StartsWith("fe:80:"));
  const auto missing = RdmaDevice::Open({.name = "rxe2", .gid_index = 77});
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()),
              AllOf(HasSubstr("rxe2 port 1"), HasSubstr("77"), HasSubstr("1 = 00:")));
}

TEST(RdmaDeviceTest, AnUnknownNameIsAnErrorThatListsTheOthers) {
  const auto device = RdmaDevice::Open({.name = "mlx5_7"});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(device.status().message()),
              AllOf(HasSubstr("mlx5_7"), HasSubstr("rxe0")));
}

TEST(RdmaDeviceTest, APortThatTheDeviceLacksIsAnError) {
  const auto device = RdmaDevice::Open({.name = "rxe0", .port = 9});
  EXPECT_THAT(std::string(device.status().message()), HasSubstr("rxe0 port 9"));
}

TEST(RdmaDeviceTest, ADeviceThatIsDownLeavesTheOthersUsable) {
  {
    const PulledCable pulled(3);
    const auto device = RdmaDevice::Open({.name = "rxe3"});
    EXPECT_EQ(device.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(device.status().message()),
                AllOf(HasSubstr("rxe3"), HasSubstr("down")));
    EXPECT_NE(OpenRail(2), nullptr);
  }
  EXPECT_NE(OpenRail(3), nullptr);
}

TEST(RdmaDeviceTest, KeysEndWithTheirRegistration) {
  const auto device = OpenRail(0);
  std::vector<std::byte> memory(10'000);
  const auto key = device->Register(memory.data(), memory.size());
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_NE(key->lkey, 0u);
  EXPECT_NE(key->rkey, 0u);
  EXPECT_TRUE(device->Deregister(*key).ok());
  EXPECT_EQ(device->Deregister(*key).code(), absl::StatusCode::kNotFound);
}

// Field fault T1: overlapping ranges have keys of their own.
TEST(RdmaDeviceTest, ARangeIsRegisteredOnceHoweverOftenItIsAskedFor) {
  const auto device = OpenRail(0);
  std::vector<std::byte> memory(10'000);
  const auto first = device->Register(memory.data(), memory.size());
  const auto second = device->Register(memory.data(), memory.size());
  const auto part = device->Register(memory.data(), memory.size() / 2);
  ASSERT_TRUE(first.ok() && second.ok() && part.ok());
  EXPECT_EQ(first->lkey, second->lkey);
  EXPECT_EQ(first->rkey, second->rkey);
  EXPECT_NE(part->lkey, first->lkey);
  EXPECT_TRUE(device->Deregister(*first).ok());
  EXPECT_EQ(device->Register(memory.data(), memory.size())->rkey, first->rkey);
  EXPECT_TRUE(device->Deregister(*first).ok());
  EXPECT_TRUE(device->Deregister(*first).ok());
  EXPECT_FALSE(device->Deregister(*first).ok());
  EXPECT_TRUE(device->Deregister(*part).ok());
}

TEST(RdmaDeviceTest, MemoryThatIsNotMappedIsRefused) {
  const auto device = OpenRail(0);
  const auto key = device->Register(reinterpret_cast<void*>(0x10000), 4096);
  EXPECT_EQ(key.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(key.status().message()), AllOf(HasSubstr("0x10000"), HasSubstr("rxe0")));
}

// Field fault T3. The limit is not for root.
TEST(RdmaDeviceTest, TheLimitOfLockedMemoryIsNamed) {
  ASSERT_EQ(std::system("chmod 666 /dev/infiniband/uverbs0"), 0);
  ChildProcess child([](Channel&) {
    constexpr rlim_t kLimit = 64 << 10;
    const rlimit limit{.rlim_cur = kLimit, .rlim_max = kLimit};
    constexpr uid_t kNobody = 65534;
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setuid(kNobody) != 0) return 1;
    const auto device = RdmaDevice::Open({.name = "rxe0"});
    if (!device.ok()) return 2;
    std::vector<std::byte> memory(1 << 20);
    const absl::Status status = (*device)->Register(memory.data(), memory.size()).status();
    const std::string text(status.message());
    if (status.code() != absl::StatusCode::kResourceExhausted) return 3;
    return text.find("64 KiB") != text.npos && text.find("ulimit -l") != text.npos ? 0 : 4;
  });
  EXPECT_EQ(child.Wait(), 0);
}

// How the kernel knows the address of rail 1 on rail 0: "10.77.0.2 lladdr ... REACHABLE".
std::string KnownNeighbor() {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      popen("ip neigh show to 10.77.0.2 dev rail0", "r"), pclose);
  char line[256] = "";
  return fgets(line, sizeof line, pipe.get()) == nullptr ? "" : line;
}

TEST(RdmaNeighborTest, APeersLinkAddressIsKnownBeforeAQueuePairNeedsIt) {
  const auto near = OpenRail(0), far = OpenRail(1);
  ASSERT_TRUE(near != nullptr && far != nullptr);
  ASSERT_EQ(std::system("ip neigh flush all"), 0);
  ASSERT_THAT(KnownNeighbor(), Not(HasSubstr("lladdr")));
  FindNeighbor(near->gid().interface, near->gid().gid, far->gid().gid);
  EXPECT_THAT(KnownNeighbor(), HasSubstr("lladdr"));
}

TEST(RdmaNeighborTest, ADeadLinkIsLeftToTheQueuePair) {
  const auto near = OpenRail(0), far = OpenRail(1);
  ASSERT_TRUE(near != nullptr && far != nullptr);
  const PulledCable pulled(1);
  ASSERT_EQ(std::system("ip neigh flush all"), 0);
  FindNeighbor(near->gid().interface, near->gid().gid, far->gid().gid);
  EXPECT_THAT(KnownNeighbor(), Not(HasSubstr("lladdr")));
}

}  // namespace
}  // namespace railhop
