// What the tests of whole ranks share: a folder of their own, targets here and in other processes,
// and a rank made from a few lines of config.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "actors/bootstrap.h"
#include "fmt/format.h"
#include "transport/fabric/sim/sim_target.h"

namespace railhop {

inline constexpr std::chrono::milliseconds kForever{120'000};  // only a hang reaches it
inline constexpr uint64_t kFast = 50'000'000'000;

// Another process. `body` runs there, forked while this one has no threads of its own, and gets a
// descriptor that reads end of file when it should end.
class Child {
 public:
  explicit Child(const std::function<void(int)>& body) {
    if (pipe(ends_) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      close(ends_[1]);
      body(ends_[0]);
      _exit(0);
    }
    close(ends_[0]);
  }
  ~Child() { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(ends_[1]);
    pid_ = -1;
  }
  static void AwaitEnd(int descriptor) {
    char byte;
    while (read(descriptor, &byte, 1) < 0 && errno == EINTR) {
    }
  }

 private:
  int ends_[2];
  pid_t pid_ = -1;
};

class RankTest : public testing::Test {
 protected:
  RankTest() : folder_(testing::TempDir() + "/railhop-rank-test-XXXXXX") {
    if (mkdtemp(folder_.data()) == nullptr) std::abort();
  }
  ~RankTest() override { std::filesystem::remove_all(folder_); }

  std::string Config(int number, uint64_t rate, const std::string& more = "") const {
    return fmt::format(
        "name: \"rank{0}\" sim_directory: \"{1}\" registry_root: \"{1}\"\n"
        "nics {{ name: \"sim{0}\" sim {{ line_rate_bytes_per_s: {2} }} }}\n{3}\n",
        number, folder_, rate, more);
  }
  std::string Relaying(int number, uint64_t rate, const std::string& more = "") const {
    return Config(number, rate, "pxn { enable: true group_id: \"test\" preattach: true }\n" + more);
  }
  static std::unique_ptr<Rank> Make(const std::string& config) {
    std::string error;
    auto rank = Rank::Create(config, "test", &error);
    EXPECT_NE(rank, nullptr) << error;
    return rank;
  }

  struct Target {
    std::unique_ptr<SimTarget> target;
    std::span<std::byte> memory;
  };
  Target MakeTarget(const std::string& name, size_t bytes, const std::string& nic) const {
    Target made;
    auto target = SimTarget::Create(folder_, name);
    EXPECT_TRUE(target.ok()) << target.status();
    made.target = *std::move(target);
    made.memory = *made.target->AllocateMemory(bytes);
    EXPECT_TRUE(made.target->Register(made.memory.data(), bytes, {nic}).ok());
    EXPECT_TRUE(made.target->Publish().ok());
    return made;
  }
  // In the child: a target that lives until the test lets go of it.
  void ServeTarget(const std::string& name, size_t bytes, const std::string& nic, int end) const {
    const Target target = MakeTarget(name, bytes, nic);
    Child::AwaitEnd(end);
  }
  uint64_t AddressOf(const std::string& name) const {
    const auto until = std::chrono::steady_clock::now() + kForever;
    while (std::chrono::steady_clock::now() < until) {
      auto info = LoadSimTarget(folder_, name);
      if (info.ok() && !info->buffers.empty()) return info->buffers[0].address;
      std::this_thread::yield();
    }
    ADD_FAILURE() << "target " << name << " did not appear";
    return 0;
  }

  static SegmentId Open(Rank& rank, const std::string& name) {
    std::string error;
    const SegmentId id = rank.OpenSegment(name, &error);
    EXPECT_NE(id, 0U) << error;
    return id;
  }
  static std::vector<std::byte> Pattern(size_t bytes, int seed) {
    std::vector<std::byte> pattern(bytes);
    for (size_t i = 0; i < bytes; ++i) {
      pattern[i] = static_cast<std::byte>((i * 31 + i / 251 + static_cast<size_t>(seed)) & 0xFF);
    }
    return pattern;
  }
  static void Register(Rank& rank, std::vector<std::byte>& memory) {
    std::string error;
    ASSERT_TRUE(rank.RegisterMemory(memory.data(), memory.size(), "cpu:0", &error)) << error;
  }
  static BatchStatus Run(Rank& rank, const std::vector<TransferRequest>& requests,
                         std::chrono::milliseconds timeout = {}) {
    BatchId batch;
    EXPECT_EQ(rank.Submit(requests, timeout, &batch), SubmitResult::kOk);
    EXPECT_TRUE(rank.Wait(batch, kForever));
    const BatchStatus status = rank.Status(batch);
    if (status.state != BatchState::kTimeout) {
      EXPECT_EQ(rank.Free(batch), FreeResult::kOk);
    }
    return status;
  }

  std::string folder_;
};

}  // namespace railhop
