// The degrade table, the rows that switch PXN off for a whole rank: whatever is wrong, the rank
// runs, everything goes direct, and one warning says why. The other rows: docs/degrade.md.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>

#include "actors/bootstrap_settings.h"
#include "tests/actors/warned_rank.h"

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class DegradeTest : public WarnedRankTest {
 protected:
  std::string GroupDirectory() const {
    return fmt::format("{}/mooncake-pxn-{}-test.host", folder_, geteuid());
  }
  std::string SideDirectoryPath() const {
    return fmt::format("{}/railhop-{}-test.host", folder_, geteuid());
  }
};

TEST_F(DegradeTest, PxnNotAskedForIsNoNews) {
  const Target target = MakeTarget("decode", 64, "sim1");
  std::vector<std::byte> memory = Pattern(64, 1);
  const auto rank = Make(Config(0, kFast));
  Register(*rank, memory);
  const BatchStatus status =
      Run(*rank, {{Opcode::kWrite, memory.data(), Open(*rank, "decode"),
                   reinterpret_cast<uint64_t>(target.memory.data()), memory.size()}});
  EXPECT_EQ(status.state, BatchState::kCompleted);
  EXPECT_EQ(status.relayed_bytes, 0U);
  EXPECT_THAT(warnings_, ElementsAre());
}

// --- bad configuration: each variable

class BadVariableTest : public DegradeTest, public testing::WithParamInterface<PxnSetting> {
 protected:
  ~BadVariableTest() override { unsetenv(GetParam().environment); }
  static const char* BadValue(PxnSetting::Type type) {
    switch (type) {
      case PxnSetting::Type::kBool:
        return "perhaps";
      case PxnSetting::Type::kNumber:
        return "-1";
      case PxnSetting::Type::kGroupId:
        return "a/b";
      case PxnSetting::Type::kRailMap:
        break;
    }
    return "[\"sim0\"]";
  }
};

TEST_P(BadVariableTest, SwitchesPxnOff) {
  ASSERT_EQ(setenv(GetParam().environment, BadValue(GetParam().type), 1), 0);
  ExpectDirectWithOneWarning(Relaying(0, kFast), HasSubstr(GetParam().environment));
}

std::vector<PxnSetting> Variables() {
  std::vector<PxnSetting> variables;
  for (const PxnSetting& setting : PxnSettings()) {
    if (setting.environment != nullptr) variables.push_back(setting);
  }
  return variables;
}
INSTANTIATE_TEST_SUITE_P(EachVariable, BadVariableTest, testing::ValuesIn(Variables()),
                         [](const auto& tested) { return std::string(tested.param.environment); });

TEST_F(DegradeTest, ABadVariableOfTheEngineIsSaidOncePerProcess) {
  ASSERT_EQ(setenv("MC_SLICE_SIZE", "eleven", 1), 0);
  const auto rank = Make(Relaying(0, kFast));
  const auto direct = Make(Config(2, kFast));
  unsetenv("MC_SLICE_SIZE");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("MC_SLICE_SIZE = \"eleven\"")));
}

// --- rails

TEST_F(DegradeTest, OneRailNameTwice) {
  ExpectDirectWithOneWarning(Relaying(0, kFast, "nics { name: \"sim7\" rail: \"sim0\" sim {} }"),
                             HasSubstr("sim0"));
}

TEST_F(DegradeTest, ZeroRails) {
  const auto rank = Make(fmt::format(
      "name: \"r\" registry_root: \"{}\" pxn {{ enable: true group_id: \"test\" }}", folder_));
  ASSERT_NE(rank, nullptr);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("PXN is off")));
  EXPECT_NE(rank->pxn_off_reason(), "");
}

// --- registry, lock, side directory, arena

TEST_F(DegradeTest, RegistryRootThatIsNotThere) {
  ExpectDirectWithOneWarning(
      fmt::format(
          "{} registry_root: \"/nowhere\"\n",
          fmt::format("name: \"r\" sim_directory: \"{}\" nics {{ name: \"sim0\" sim {{}} }} "
                      "pxn {{ enable: true group_id: \"test\" }}",
                      folder_)),
      HasSubstr("/nowhere"));
}

TEST_F(DegradeTest, RegistryDirectoryThatOthersMayEnter) {
  ASSERT_EQ(mkdir(GroupDirectory().c_str(), 0755), 0);
  ASSERT_EQ(chmod(GroupDirectory().c_str(), 0755), 0);  // whatever the umask
  ExpectDirectWithOneWarning(Relaying(0, kFast), HasSubstr(GroupDirectory()));
}

TEST_F(DegradeTest, LockThatIsALink) {
  ASSERT_EQ(mkdir(GroupDirectory().c_str(), 0700), 0);
  ASSERT_EQ(symlink("/dev/null", (GroupDirectory() + "/.lock").c_str()), 0);
  ExpectDirectWithOneWarning(Relaying(0, kFast), HasSubstr(".lock"));
}

TEST_F(DegradeTest, SideDirectoryThatIsAFile) {
  std::ofstream(SideDirectoryPath()) << "x";
  ExpectDirectWithOneWarning(Relaying(0, kFast), HasSubstr(SideDirectoryPath()));
}

TEST_F(DegradeTest, NoMemoryForTheArena) {
  // The arena is a file of 1008 MiB, as far as limits are concerned; nothing else is that large.
  const auto previous = signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{.rlim_cur = rlim_t{256} << 20, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  ExpectDirectWithOneWarning(Relaying(0, kFast), HasSubstr("arena"));
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, previous);
}

TEST_F(DegradeTest, ASecondEngineInOneProcess) {
  const auto first = Make(Relaying(0, kFast));
  ASSERT_EQ(first->pxn_off_reason(), "");
  ExpectDirectWithOneWarning(Relaying(2, kFast), HasSubstr("process"));
}

}  // namespace
}  // namespace railhop
