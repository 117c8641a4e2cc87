// Publishing, finding and recognising simulated targets.
#include "transport/fabric/sim/sim_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/transport/fabric/sim/sim_fixture.h"
#include "tests/transport/staging/child_process.h"
#include "transport/fabric/sim/sim_remote.h"

namespace railhop {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Text(const absl::Status& status) {
  return std::string(status.message());
}

class SimTargetTest : public testing::Test {
 protected:
  std::unique_ptr<SimTarget> Make(const std::string& name) {
    auto target = SimTarget::Create(directory_.path(), name);
    EXPECT_TRUE(target.ok()) << target.status();
    return target.ok() ? *std::move(target) : nullptr;
  }
  absl::Status Load(const std::string& name) {
    return LoadSimTarget(directory_.path(), name).status();
  }
  std::string Path(const std::string& name) { return *SegmentPath(directory_.path(), name); }
  void WriteFile(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  size_t FileCount() const {
    const std::filesystem::directory_iterator files(directory_.path());
    return static_cast<size_t>(std::distance(begin(files), end(files)));
  }

  TemporaryDirectory directory_;
};

TEST_F(SimTargetTest, PublishedTargetIsFoundWithItsBuffers) {
  auto target = Make("10.0.0.1:12345/a b");
  auto memory = target->AllocateMemory(8192);
  ASSERT_TRUE(memory.ok());
  auto low = target->Register(memory->data(), 4096, {"nic0", "nic1"});
  auto high = target->Register(memory->data() + 4096, 4096, {});
  ASSERT_TRUE(low.ok() && high.ok());
  EXPECT_NE(low->rkeys[0], 0u);
  EXPECT_NE(low->rkeys[0], high->rkeys[0]);
  EXPECT_EQ(Load("10.0.0.1:12345/a b").code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(target->Publish().ok());

  auto found = LoadSimTarget(directory_.path(), "10.0.0.1:12345/a b");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->kind, "sim");
  ASSERT_EQ(found->buffers.size(), 2u);
  EXPECT_EQ(found->buffers[0].address, reinterpret_cast<uint64_t>(memory->data()));
  EXPECT_EQ(found->buffers[0].length, 4096u);
  EXPECT_EQ(found->buffers[0].rkeys[0], low->rkeys[0]);
  EXPECT_THAT(found->buffers[0].preferred_nics, ElementsAre("nic0", "nic1"));
  EXPECT_THAT(found->buffers[1].preferred_nics, ElementsAre());
  EXPECT_EQ(found->nics[0].connection, target->info().nics[0].connection);
}

TEST_F(SimTargetTest, RepublishingReplacesAndDestructionRemoves) {
  auto target = Make("t");
  ASSERT_TRUE(target->Publish().ok());
  char bytes[16];
  auto buffer = target->Register(bytes, sizeof(bytes), {});
  ASSERT_TRUE(buffer.ok());
  ASSERT_TRUE(target->Publish().ok());
  EXPECT_EQ(LoadSimTarget(directory_.path(), "t")->buffers.size(), 1u);
  ASSERT_TRUE(target->Deregister(buffer->rkeys[0]).ok());
  EXPECT_EQ(target->Deregister(buffer->rkeys[0]).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(target->Publish().ok());
  EXPECT_EQ(LoadSimTarget(directory_.path(), "t")->buffers.size(), 0u);
  EXPECT_EQ(FileCount(), 1u);
  struct stat found {};
  ASSERT_EQ(stat(Path("t").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  target.reset();
  EXPECT_EQ(FileCount(), 0u);
}

TEST_F(SimTargetTest, NameOfALiveTargetIsTaken) {
  auto first = Make("t"), second = Make("t");  // neither has published yet
  ASSERT_TRUE(first->Publish().ok());
  EXPECT_EQ(second->Publish().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(SimTarget::Create(directory_.path(), "t").status().code(),
            absl::StatusCode::kAlreadyExists);
  second.reset();
  EXPECT_TRUE(Load("t").ok());  // the loser removed nothing
  EXPECT_EQ(FileCount(), 1u);
}

TEST_F(SimTargetTest, DestructionLeavesASuccessorsFileAlone) {
  auto first = Make("t");
  ASSERT_TRUE(first->Publish().ok());
  std::filesystem::remove(Path("t"));
  auto second = Make("t");
  ASSERT_TRUE(second->Publish().ok());
  first.reset();
  EXPECT_TRUE(Load("t").ok());
}

TEST_F(SimTargetTest, FileOfADeadTargetIsRecognisedAndReplaced) {
  ChildProcess child([&](Channel& channel) {
    auto target = SimTarget::Create(directory_.path(), "t");
    if (!target.ok() || !(*target)->Publish().ok() || !channel.Send('p')) return 1;
    channel.WaitForEnd();
    return 0;
  });
  char published;
  ASSERT_TRUE(child.channel().Receive(&published));
  EXPECT_TRUE(Load("t").ok());
  child.Kill();
  const absl::Status status = Load("t");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(status),
              AllOf(HasSubstr("process " + std::to_string(child.pid())), HasSubstr("has ended")));
  auto successor = Make("t");
  ASSERT_TRUE(successor->Publish().ok());
  EXPECT_TRUE(Load("t").ok());
}

TEST_F(SimTargetTest, ForkedChildsCopyRemovesNothing) {
  auto target = Make("t");
  ASSERT_TRUE(target->Publish().ok());
  ChildProcess child([&](Channel&) {
    target.reset();
    return 0;
  });
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_TRUE(Load("t").ok());
}

TEST_F(SimTargetTest, MissingDirectoryOrSegmentIsSaid) {
  const std::string nowhere = directory_.path() + "/nowhere";
  absl::Status status = SimTarget::Create(nowhere, "t").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Text(status), HasSubstr(nowhere));
  status = Load("t");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Text(status), AllOf(HasSubstr("segment t"), HasSubstr(Path("t"))));
}

TEST_F(SimTargetTest, NamesBecomeFileNamesOneToOne) {
  EXPECT_EQ(Path("decode-0_A.b"), directory_.path() + "/decode-0_A.b.segment");
  EXPECT_EQ(Path("../x"), directory_.path() + "/%2E.%2Fx.segment");
  EXPECT_EQ(Path("a%2Fb"), directory_.path() + "/a%252Fb.segment");
  EXPECT_FALSE(SegmentPath("/d", "").ok());
  EXPECT_TRUE(SegmentPath("/d", std::string(247, 'x')).ok());
  EXPECT_FALSE(SegmentPath("/d", std::string(248, 'x')).ok());
}

// Every field missing, of another type, or out of range: an error that names the file, never a
// crash.
TEST_F(SimTargetTest, MalformedFilesAreRefused) {
  auto target = Make("t");
  char bytes[16];
  ASSERT_TRUE(target->AllocateMemory(4096).ok());
  ASSERT_TRUE(target->Register(bytes, sizeof(bytes), {"n"}).ok());
  const nlohmann::json good = nlohmann::json::parse(target->info().nics[0].connection);
  const auto expect_refused = [&](const std::string& text) {
    WriteFile(Path("t"), text);
    const absl::Status status = Load("t");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text << status;
    EXPECT_THAT(Text(status), HasSubstr(Path("t")));
  };
  WriteFile(Path("t"), good.dump());
  ASSERT_TRUE(Load("t").ok());
  expect_refused("");
  expect_refused("{");
  expect_refused("[]");
  expect_refused("null");
  expect_refused(std::string(100'000, '['));
  for (const auto& path : {"/kind",
                           "/version",
                           "/name",
                           "/owner",
                           "/owner/uid",
                           "/owner/pid",
                           "/owner/start_ticks",
                           "/key_table",
                           "/key_table/fd",
                           "/key_table/device",
                           "/key_table/inode",
                           "/key_table/size",
                           "/memories",
                           "/memories/0/address",
                           "/memories/0/size",
                           "/buffers",
                           "/buffers/0/address",
                           "/buffers/0/length",
                           "/buffers/0/rkey",
                           "/buffers/0/preferred_nics"}) {
    const nlohmann::json::json_pointer pointer(path);
    nlohmann::json bad = good;
    bad[pointer.parent_pointer()].erase(pointer.back());
    expect_refused(bad.dump());
    for (const nlohmann::json& value : {nlohmann::json(-1), nlohmann::json(1.5),
                                        nlohmann::json(true), nlohmann::json({{"a", 1}})}) {
      bad = good;
      bad[pointer] = value;
      expect_refused(bad.dump());
    }
  }
  nlohmann::json renamed = good;
  renamed["name"] = "other";
  expect_refused(renamed.dump());
}

TEST_F(SimTargetTest, MemoryOfAGpuIsPublishedByItsHandle) {
  auto target = Make("t");
  char bytes[64] = {};
  DeviceHandle handle{};
  for (size_t i = 0; i < handle.size(); ++i) handle[i] = static_cast<uint8_t>(255 - 3 * i);
  target->AddDeviceMemory(bytes, sizeof(bytes), handle);
  ASSERT_TRUE(target->Register(bytes + 8, 8, {"n"}).ok());
  const auto record = DecodeSegment(target->info().nics[0].connection);
  ASSERT_TRUE(record.ok()) << record.status();
  ASSERT_EQ(record->memories.size(), 1U);
  EXPECT_EQ(record->memories[0].address, reinterpret_cast<uint64_t>(bytes));
  EXPECT_EQ(record->memories[0].id.size, sizeof(bytes));
  EXPECT_EQ(record->memories[0].device, handle);
  nlohmann::json bad = nlohmann::json::parse(target->info().nics[0].connection);
  for (const std::string& text : {std::string(128, 'g'), std::string(126, '0'), std::string()}) {
    bad["memories"][0]["handle"] = text;
    EXPECT_FALSE(DecodeSegment(bad.dump()).ok()) << text;
  }
}

// A mover that imports by the first byte of the handle, and says what it was asked to do.
class SpyMover : public SimMover {
 public:
  absl::StatusOr<std::byte*> Import(const DeviceHandle& handle) override {
    if (handle[0] != 1) return absl::FailedPreconditionError("no such memory");
    ++open;
    return memory;
  }
  void Close(std::byte* closed) override {
    EXPECT_EQ(closed, memory);
    --open;
  }
  bool Copy(void* destination, const void* source, size_t length) override {
    if (fails) return false;
    std::memcpy(destination, source, length);
    return true;
  }
  std::byte memory[64] = {};
  int open = 0;
  bool fails = false;
};

TEST_F(SimTargetTest, AnotherProcessReachesMemoryOfAGpuByItsMover) {
  const DeviceHandle handle{1};
  const DeviceHandle unknown{2};
  char bytes[64] = {};
  ChildProcess child([&](Channel& channel) {
    auto target = Make("gpu");
    target->AddDeviceMemory(bytes, sizeof(bytes), handle);
    const auto buffer = target->Register(bytes + 16, 32, {"n"});
    auto other = Make("unknown");
    other->AddDeviceMemory(bytes, sizeof(bytes), unknown);
    if (!buffer.ok() || !target->Publish().ok() || !other->Publish().ok()) return 1;
    channel.Send(buffer->rkeys[0]);
    channel.WaitForEnd();
    return 0;
  });
  uint32_t rkey = 0;
  ASSERT_TRUE(child.channel().Receive(&rkey));
  SpyMover mover;
  const std::string connection = LoadSimTarget(directory_.path(), "gpu")->nics[0].connection;
  EXPECT_EQ(SimRemote::Open(connection, nullptr).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(
      SimRemote::Open(LoadSimTarget(directory_.path(), "unknown")->nics[0].connection, &mover)
          .ok());
  {
    auto remote = SimRemote::Open(connection, &mover);
    ASSERT_TRUE(remote.ok()) << remote.status();
    char text[] = "abcd";
    const auto address = reinterpret_cast<uint64_t>(bytes);
    EXPECT_EQ((*remote)->Move(FabricOpcode::kWrite, text, 4, address + 20, rkey),
              FabricStatus::kOk);
    EXPECT_EQ(std::memcmp(mover.memory + 20, "abcd", 4), 0);
    EXPECT_EQ((*remote)->Move(FabricOpcode::kWrite, text, 4, address + 46, rkey),
              FabricStatus::kRemoteAccess);
    mover.fails = true;
    EXPECT_EQ((*remote)->Move(FabricOpcode::kWrite, text, 4, address + 20, rkey),
              FabricStatus::kTransport);
    EXPECT_EQ(mover.open, 1);
  }
  EXPECT_EQ(mover.open, 0);
}

TEST_F(SimTargetTest, WhatIsNoRegularFileIsRefusedAtOnce) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(Load("pipe").code(), absl::StatusCode::kInvalidArgument);
  std::filesystem::create_directory(Path("folder"));
  EXPECT_EQ(Load("folder").code(), absl::StatusCode::kInvalidArgument);
  std::filesystem::create_symlink("/etc/passwd", Path("link"));
  EXPECT_EQ(Load("link").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SimTargetTest, EmptyRangesAreRefused) {
  auto target = Make("t");
  char byte;
  EXPECT_FALSE(target->Register(&byte, 0, {}).ok());
  EXPECT_FALSE(target->AllocateMemory(0).ok());
  EXPECT_EQ(target->Deregister(12345).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace railhop
