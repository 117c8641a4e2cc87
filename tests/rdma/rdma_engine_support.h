// What the tests of whole engines on the rails of the virtual machine share.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/bootstrap.h"
#include "tests/rdma/rdma_support.h"
#include "tests/transport/staging/child_process.h"

namespace railhop {

inline constexpr size_t kBytes = 1 << 20;

inline std::unique_ptr<TransferEngine> MakeEngine(const std::string& config_text) {
  std::string error;
  auto engine = MakeTransferEngine(
      {.host = "127.0.0.1", .protocol = "rdma", .config_text = config_text}, &error);
  EXPECT_NE(engine, nullptr) << error;
  return engine;
}

inline uint64_t SumOf(const std::vector<std::byte>& bytes) {
  uint64_t sum = 0;
  for (const std::byte byte : bytes) sum = sum * 31 + static_cast<uint8_t>(byte);
  return sum;
}

// The target process: answers each byte from its parent with the sum of its memory. Two with one
// port have one name.
class Target {
 public:
  // Forks: before this process has an engine.
  explicit Target(const char* port = nullptr,
                  const std::string& config = "nics { name: 'rxe1' rdma {} }",
                  size_t bytes = kBytes)
      : child_([=](Channel& channel) { return Serve(port, config, bytes, channel); }) {}

  void Begin() { EXPECT_TRUE(child_.channel().Send('b') && child_.channel().Receive(&offer_)); }
  std::string name() const { return offer_.name.data(); }
  uint64_t address() const { return offer_.address; }
  void Kill() { child_.Kill(); }
  void Signal(int signal) { EXPECT_EQ(kill(child_.pid(), signal), 0); }
  uint64_t Sum() {
    uint64_t sum = 0;
    EXPECT_TRUE(child_.channel().Send('s') && child_.channel().Receive(&sum));
    return sum;
  }

 private:
  struct Offer {
    std::array<char, 64> name{};
    uint64_t address = 0;
  };

  static int Serve(const char* port, const std::string& config, size_t bytes, Channel& channel) {
    char asked;
    if (!channel.Receive(&asked)) return 0;
    if (port != nullptr) {
      setenv("MC_MIN_RPC_PORT", port, 1);
      setenv("MC_MAX_RPC_PORT", port, 1);
    }
    const auto engine = MakeEngine(config);
    if (engine == nullptr) return 1;
    std::vector<std::byte> memory(bytes, std::byte{3});
    if (engine->RegisterMemory(memory.data(), bytes, "cpu:0") != EngineError::kOk) return 2;
    Offer offer{.name = {}, .address = reinterpret_cast<uint64_t>(memory.data())};
    engine->name().copy(offer.name.data(), offer.name.size() - 1);
    if (!channel.Send(offer)) return 3;
    while (channel.Receive(&asked)) {
      if (!channel.Send(SumOf(memory))) return 4;
    }
    return 0;
  }

  ChildProcess child_;
  Offer offer_;
};

class EngineOnRails : public testing::Test {
 protected:
  void Start(const std::string& config_text = "nics { name: 'rxe0' rdma {} }",
             size_t bytes = kBytes) {
    engine_ = MakeEngine(config_text);
    ASSERT_NE(engine_, nullptr);
    here_.resize(bytes);
    Fill(31);
    ASSERT_EQ(engine_->RegisterMemory(here_.data(), bytes, "cpu:0"), EngineError::kOk)
        << TransferEngine::last_error();
  }
  void Fill(size_t seed) {
    for (size_t i = 0; i < here_.size(); ++i) here_[i] = static_cast<std::byte>(i * seed >> 3);
  }
  SegmentHandle Open(Target& target) {
    target.Begin();
    const SegmentHandle peer = engine_->OpenSegment(target.name());
    EXPECT_NE(peer, kNoSegment) << TransferEngine::last_error();
    return peer;
  }
  // `deadline`: of the batch; 0: the engine's own.
  BatchHandle Begin(const std::vector<TransferTask>& tasks,
                    std::chrono::milliseconds deadline = std::chrono::milliseconds(0)) {
    const BatchHandle batch = engine_->AllocateBatch(tasks.size());
    EXPECT_EQ(engine_->Submit(batch, tasks, deadline), EngineError::kOk)
        << TransferEngine::last_error();
    return batch;
  }
  TransferState StateOf(BatchHandle batch) {
    TransferStatus status;
    EXPECT_EQ(engine_->BatchStatus(batch, &status), EngineError::kOk);
    return status.state;
  }
  // Begins a write of all of `here_`, and waits for its deadline, at which it must be neither ended
  // nor pending, and nothing of it be free. kNoBatch: it is not so.
  BatchHandle WriteUntilItsDeadline(SegmentHandle peer, const Target& target,
                                    const std::function<void()>& meanwhile) {
    const BatchHandle batch = Begin({{.opcode = Opcode::kWrite,
                                      .source = here_.data(),
                                      .target = peer,
                                      .target_address = target.address(),
                                      .length = here_.size()}},
                                    std::chrono::milliseconds(500));
    meanwhile();
    EXPECT_TRUE(
        engine_->Wait(batch, std::chrono::duration_cast<std::chrono::milliseconds>(kTestPatience)));
    const TransferState state = StateOf(batch);
    EXPECT_EQ(state, TransferState::kTimeout);
    if (state != TransferState::kTimeout) return kNoBatch;
    EXPECT_EQ(engine_->FreeBatch(batch), EngineError::kBatchBusy);
    EXPECT_EQ(engine_->UnregisterMemory(here_.data()), EngineError::kContext) << "it is read";
    return batch;
  }
  TransferState Finish(BatchHandle batch) {
    EXPECT_TRUE(
        engine_->Wait(batch, std::chrono::duration_cast<std::chrono::milliseconds>(kTestPatience)));
    TransferStatus status;
    EXPECT_EQ(engine_->BatchStatus(batch, &status), EngineError::kOk);
    EXPECT_EQ(engine_->FreeBatch(batch), EngineError::kOk);
    return status.state;
  }
  // From the start of `here_`.
  TransferState Move(Opcode opcode, SegmentHandle peer, uint64_t address, uint64_t length) {
    return Finish(Begin({{.opcode = opcode,
                          .source = here_.data(),
                          .target = peer,
                          .target_address = address,
                          .length = length}}));
  }
  TransferState Move(Opcode opcode, SegmentHandle peer, const Target& target) {
    return Move(opcode, peer, target.address(), here_.size());
  }
  // Whether all of `here_` gets there, sooner or later.
  bool WritesAgain(SegmentHandle peer, const Target& target) {
    return WaitUntil(
        [&] { return Move(Opcode::kWrite, peer, target) == TransferState::kCompleted; });
  }
  RankStats Stats() const { return dynamic_cast<Rank&>(engine_->data_path()).Stats(); }

  std::vector<std::byte> here_;
  std::unique_ptr<TransferEngine> engine_;
};

}  // namespace railhop
