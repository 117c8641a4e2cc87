#include "actors/group_member.h"

#include <fmt/format.h>

#include <mutex>
#include <thread>
#include <utility>

#include "runtime/log.h"

namespace railhop {
namespace {

using Clock = std::chrono::steady_clock;

const absl::Status& StatusOf(const absl::Status& status) {
  return status;
}
template <class T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

// The locks of the group are held for microseconds; only a stopped holder keeps one longer.
template <class Call>
auto UntilUnlocked(Clock::time_point deadline, Call call) {
  auto result = call();
  while (absl::IsDeadlineExceeded(StatusOf(result)) && Clock::now() < deadline) {
    std::this_thread::sleep_for(GroupMember::kLockWait);
    result = call();
  }
  return result;
}

void KeepUntilExit(std::unique_ptr<Arena> arena) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::unique_ptr<Arena>>;  // never destroyed
  std::lock_guard lock(mutex);
  kept.push_back(std::move(arena));
}

}  // namespace

absl::StatusOr<std::unique_ptr<GroupMember>> GroupMember::Join(const Options& options) {
  const auto deadline = Clock::now() + options.registry.lock_timeout;
  RegistryOptions registry_options = options.registry;
  registry_options.lock_timeout = kLockWait;
  std::unique_ptr<GroupMember> member(new GroupMember);
  member->rails_ = options.rails;
  member->staging_ = options.staging;

  absl::StatusOr<std::unique_ptr<Registry>> registry = Registry::Open(registry_options);
  if (!registry.ok()) return registry.status();
  member->registry_ = *std::move(registry);

  absl::StatusOr<std::unique_ptr<Arena>> arena = member->staging_->MakeArena();
  if (!arena.ok()) return arena.status();
  member->arena_ = *std::move(arena);
  for (Nic* nic : options.nics) {
    const absl::StatusOr<MemoryKey> key =
        nic->Register(member->arena_->base(), member->arena_->size());
    if (!key.ok()) {
      return absl::Status(
          key.status().code(),
          fmt::format("the staging arena cannot be registered with NIC {}: {}",
                      std::string(nic->name()), std::string(key.status().message())));
    }
    member->nics_.push_back(nic);
    member->keys_.push_back(*key);
    member->lkeys_.push_back(key->lkey);
  }

  auto self = UntilUnlocked(deadline, [&] {
    return member->registry_->CreateLocal(options.rails, member->arena_->handle());
  });
  if (!self.ok()) return self.status();
  member->self_ = *std::move(self);
  absl::Status published = UntilUnlocked(deadline, [&] { return member->self_->Publish(); });
  if (!published.ok()) return published;
  return member;
}

GroupMember::~GroupMember() {
  const uint32_t held = self_ == nullptr ? 0 : HeldLanes();
  if (self_ != nullptr) {
    const auto deadline = Clock::now() + std::chrono::milliseconds(100);
    (void)UntilUnlocked(deadline, [&] { return self_->Unpublish(); });
  }
  for (size_t i = 0; i < keys_.size(); ++i) {
    const absl::Status status = nics_[i]->Deregister(keys_[i]);
    if (status.ok()) continue;
    Log(LogLevel::kWarning,
        fmt::format("the staging arena stays registered with NIC {}: {}",
                    std::string(nics_[i]->name()), std::string(status.message())));
  }
  if (held != 0) {
    // Freed by the end of the process: a copy that is under way must not hit other memory.
    Log(LogLevel::kWarning,
        fmt::format("the staging arena is kept until this process ends: {} of its lanes are still "
                    "held by living senders",
                    held));
    KeepUntilExit(std::move(arena_));
  }
}

uint32_t GroupMember::HeldLanes() const {
  uint32_t held = 0;
  for (const LaneControl& lane : self_->block().lanes) {
    const std::optional<LaneSender> holder = ReadSender(lane.header);
    if (holder.has_value() && *holder != sender() && !IsDead(holder->identity)) ++held;
  }
  return held;
}

}  // namespace railhop
