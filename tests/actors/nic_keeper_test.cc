#include "actors/nic_keeper.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

#include "runtime/actor_system.h"
#include "tests/actors/scripted_nic.h"
#include "tests/support/flag.h"
#include "tests/support/wait_until.h"

namespace railhop {
namespace {

// Asks to be tended once for each time that somebody asks it to.
class EventfulNic : public ScriptedNic {
 public:
  ~EventfulNic() override { close(fd_); }
  int event_fd() const override { return fd_; }
  void Tend(Time) override {
    uint64_t told = 0;
    if (read(fd_, &told, sizeof told) > 0) heard += told;
    ++tended;
  }
  void Settle() override {
    if (hold == nullptr) return;
    held.Set();
    EXPECT_TRUE(hold->Wait());
  }
  void Tell() {
    const uint64_t one = 1;
    ASSERT_EQ(write(fd_, &one, sizeof one), ssize_t{sizeof one});
  }

  std::atomic<uint64_t> heard{0};
  std::atomic<uint64_t> tended{0};
  Flag* hold = nullptr;  // Settle takes until this is set
  Flag held;

 private:
  const int fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
};

class NicKeeperTest : public testing::Test {
 protected:
  void Start() {
    Reactor& control = *system_.AddReactor({.name = "control", .idle = IdlePolicy::kEvent});
    system_.AddActor<NicKeeper>(control, "nics", std::vector<Nic*>{&other_, &nic_});
    ASSERT_TRUE(system_.Start().ok());
  }
  void TearDown() override { system_.Stop(std::chrono::seconds(5)); }

  Flag go_;  // outlives what waits for it
  EventfulNic other_, nic_;
  ActorSystem system_{{}};
};

TEST_F(NicKeeperTest, ANicThatHasNewsIsTended) {
  Start();
  for (uint64_t round = 1; round <= 3; ++round) {
    nic_.Tell();
    EXPECT_TRUE(WaitUntil([&] { return nic_.heard == round; }));
  }
  EXPECT_EQ(other_.heard, 0u);
}

TEST_F(NicKeeperTest, ANicWithoutNewsIsTendedNowAndThen) {
  Start();
  EXPECT_TRUE(WaitUntil([&] { return nic_.tended >= 2 && other_.tended >= 2; }));
  EXPECT_EQ(nic_.heard, 0u);
}

// A device may take seconds to let go of a connection whose link is dead.
TEST_F(NicKeeperTest, ANicThatSettlesSlowlyHoldsUpNoNews) {
  nic_.hold = &go_;
  Start();
  ASSERT_TRUE(nic_.held.Wait());
  nic_.Tell();
  EXPECT_TRUE(WaitUntil([&] { return nic_.heard == 1; }));
  go_.Set();
}

}  // namespace
}  // namespace railhop
