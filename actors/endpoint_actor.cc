#include "actors/endpoint_actor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "actors/path_round.h"
#include "runtime/cycle_clock.h"
#include "runtime/log.h"
#include "runtime/reactor.h"
#include "transport/ring/control_block.h"

namespace railhop {
namespace {

// A replaced endpoint whose target lives stays open for as long as pieces posted to it may take.
constexpr std::chrono::seconds kRetireAfter{5};

// A round of connecting that does not reach all may have held up the control thread: the next one
// comes no sooner than after so many times as long.
constexpr int kRestAfterRound = 10;

// The target, or all that is known of it, is gone; anything else may be a hiccup of ours.
bool IsGone(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsUnavailable(status);
}

absl::Status ValidateName(const std::string& name) {
  if (!name.empty() && name.size() <= kMaxSessionBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "a target's name must have 1 to {} bytes, this one has {}", kMaxSessionBytes, name.size()));
}

absl::Status StoppingError(const std::string& target) {
  return absl::CancelledError(
      fmt::format("target {} is not opened: this rank is being stopped", target));
}

}  // namespace

bool EndpointActor::Target::AnyConnected() const {
  return std::find(connected.begin(), connected.end(), true) != connected.end();
}

std::vector<EndpointId> EndpointActor::Target::Endpoints() const {
  std::vector<EndpointId> endpoints(connected.size());
  for (size_t path = 0; path < connected.size(); ++path) {
    if (connected[path]) endpoints[path] = route().endpoints[path];
  }
  return endpoints;
}

EndpointActor::EndpointActor(std::string name, std::unique_ptr<TargetResolver> resolver,
                             Options options)
    : Actor(std::move(name)), options_(std::move(options)), resolver_(std::move(resolver)) {
  assert(options_.nics.size() == options_.routes.own_rails.size());
  AddPoller(this);
}

// --- Application threads

absl::StatusOr<uint32_t> EndpointActor::Open(const std::string& target) {
  if (absl::Status status = ValidateName(target); !status.ok()) return status;
  auto request = std::make_shared<OpenRequest>();
  request->target = target;
  std::unique_lock lock(mutex_);
  if (closed_) return StoppingError(target);
  opens_.push_back(request);
  has_mail_.store(true, std::memory_order_release);
  lock.unlock();
  // The message only wakes the reactor. If its lane is full, it is awake.
  Post({.kind = ControlMessage::kFirstUserKind});
  lock.lock();
  if (answered_.wait_for(lock, options_.open_timeout, [&] { return request->answered; })) {
    return request->answer;
  }
  return absl::DeadlineExceededError(fmt::format(
      "target {} was not opened within {} ms: its metadata is still being read, or the control "
      "thread of this rank is not running; check that the target answers, that the rank is started "
      "and that its core is not overloaded",
      target, options_.open_timeout.count()));
}

// --- Messages

bool EndpointActor::OnResolve(const ResolveTarget& message) {
  const std::string name(message.session, message.length);
  const Target* const known = Find(name);
  const bool fresh = known != nullptr && reactor().now() - known->looked_at < ToCycles(kFirstRetry);
  if (fresh || stopping_ || !ValidateName(name).ok()) {
    AnswerRelay(name, message.token);
  } else {
    Read(name).tokens.push_back(message.token);
  }
  return true;
}

bool EndpointActor::OnEndpointError(const EndpointError& message) {
  Target& target = *targets_[message.target];
  const EndpointId endpoint = target.routes[message.target_version - 1]->endpoints[message.path];
  if (endpoint != target.route().endpoints[message.path]) {
    // Of a former route. What is not on the list was closed before.
    const auto is_it = [&](const Retired& old) {
      return old.path == message.path && old.endpoint == endpoint;
    };
    if (std::erase_if(retired_, is_it) != 0) Close(message.path, endpoint, target);
    return true;
  }
  if (!target.connected[message.path]) return true;  // the same news again
  Warn(target, fmt::format("{} on NIC {}", FabricStatusName(message.status),
                           options_.nics[OwnNic(message.path)]->Describe(endpoint)));
  Close(message.path, endpoint, target);
  target.connected[message.path] = false;
  target.complete = false;
  Retry(target);
  if (message.status == FabricStatus::kTargetDead) Fail(target, TransferError::kTargetDead);
  return true;
}

void EndpointActor::OnStop() {
  stopping_ = true;
  resolver_->Abandon();
  std::lock_guard lock(mutex_);
  closed_ = true;
  for (const auto& [request, answer] : answers_) opens_.push_back(request);
  answers_.clear();
  for (const auto& [name, reading] : readings_) {
    opens_.insert(opens_.end(), reading.opens.begin(), reading.opens.end());
    opens_.insert(opens_.end(), reading.later.begin(), reading.later.end());
  }
  readings_.clear();
  for (const auto& request : opens_) {
    request->answer = StoppingError(request->target);
    request->answered = true;
  }
  opens_.clear();
  answered_.notify_all();
}

// --- Passes

size_t EndpointActor::Poll(uint64_t now) {
  size_t work = submit_.Flush() + relay_.Flush() + TakeMail();
  if (now >= next_due_) {
    next_due_ = kNever;
    for (const auto& target : targets_) {
      if (target->retry_at <= now) {
        target->retry_at = kNever;
        // One that is down, and that the application does not know, waits until it is asked for.
        const bool wanted = target->opened || target->failed == TransferError::kNone;
        if (wanted && !stopping_) Read(target->route().name);
        ++work;
      }
      next_due_ = std::min(next_due_, target->retry_at);
    }
    std::erase_if(retired_, [&](const Retired& old) {
      if (old.close_at > now) {
        next_due_ = std::min(next_due_, old.close_at);
        return false;
      }
      Close(old.path, old.endpoint, *old.target);
      ++work;
      return true;
    });
  }
  Answer();
  return work;
}

uint64_t EndpointActor::NextPoll(uint64_t now) {
  (void)now;
  return next_due_;
}

size_t EndpointActor::TakeMail() {
  if (!has_mail_.load(std::memory_order_acquire)) return 0;
  std::vector<std::shared_ptr<OpenRequest>> opens;
  std::vector<Answered> reads;
  {
    std::lock_guard lock(mutex_);
    opens.swap(opens_);
    reads.swap(reads_);
    has_mail_.store(false, std::memory_order_relaxed);
  }
  for (auto& request : opens) {
    const auto under_way = readings_.find(request->target);
    if (under_way != readings_.end()) under_way->second.later.push_back(std::move(request));
  }
  for (auto& request : opens) {
    if (request != nullptr) Read(request->target).opens.push_back(std::move(request));
  }
  for (Answered& answered : reads) OnAnswer(std::move(answered));
  return opens.size() + reads.size();
}

void EndpointActor::Answer() {
  if (answers_.empty() || !submit_.Delivered() || !relay_.Delivered()) return;
  std::lock_guard lock(mutex_);
  for (auto& [request, answer] : answers_) {
    request->answer = std::move(answer);
    request->answered = true;
  }
  answers_.clear();
  answered_.notify_all();
}

// --- Targets

EndpointActor::Target* EndpointActor::Find(const std::string& name) const {
  const auto known = index_of_.find(name);
  return known == index_of_.end() ? nullptr : targets_[known->second].get();
}

EndpointActor::Reading& EndpointActor::Read(const std::string& name) {
  const auto [reading, begins] = readings_.try_emplace(name);
  if (!begins) return reading->second;
  resolver_->Resolve(name, [this, name](absl::StatusOr<TargetInfo> info) {
    {
      std::lock_guard lock(mutex_);
      reads_.push_back({name, std::move(info)});
      has_mail_.store(true, std::memory_order_release);
    }
    Post({.kind = ControlMessage::kFirstUserKind});  // wakes, as in Open
  });
  return reading->second;
}

void EndpointActor::OnAnswer(Answered answered) {
  auto [name, info] = std::move(answered);
  const auto found = readings_.extract(name);
  if (found.empty()) return;  // stopped meanwhile
  Reading reading = std::move(found.mapped());
  Target* target = Find(name);
  absl::Status status = info.status();
  if (target != nullptr) {
    status = Mend(*target, std::move(info));
  } else if (status.ok()) {
    status = Add(name, *std::move(info));
    target = Find(name);
  }
  // An application opens a target again when it knows that there is news, and gets what was read
  // after that. A target that did not answer before is not asked once more for it.
  if (status.ok() && !reading.later.empty()) {
    Read(name).opens = std::move(reading.later);
  } else {
    reading.opens.insert(reading.opens.end(), reading.later.begin(), reading.later.end());
  }
  if (target != nullptr && !reading.opens.empty()) target->opened = true;
  // What was connected before stays good, even if the metadata cannot be read just now.
  const bool usable = target != nullptr && target->failed == TransferError::kNone;
  for (const auto& request : reading.opens) {
    if (usable) {
      answers_.emplace_back(request, target->route().index);
    } else {
      answers_.emplace_back(request, status);
    }
  }
  for (const uint32_t token : reading.tokens) AnswerRelay(name, token);
}

void EndpointActor::AnswerRelay(const std::string& name, uint32_t token) {
  const Target* const target = Find(name);
  if (target == nullptr) {
    relay_.Send(TargetFailed{
        .target = kMaxTargets, .token = token, .error = TransferError::kUnknownTarget});
  } else if (target->failed == TransferError::kNone) {
    relay_.Send(TargetReady{.route = &target->route(), .token = token});
  } else {
    relay_.Send(TargetFailed{.target = target->route().index,
                             .token = token,
                             .error = target->failed,
                             .version = target->route().version});
  }
}

absl::Status EndpointActor::Add(const std::string& name, TargetInfo info) {
  if (targets_.size() == kMaxTargets) {
    return absl::ResourceExhaustedError(fmt::format(
        "target {} is not opened: this rank knows {} targets already, which is the limit for its "
        "life; spread the targets over more ranks",
        name, kMaxTargets));
  }
  info.name = name;
  auto target = std::make_unique<Target>();
  target->looked_at = reactor().now();
  target->connected.assign(PathCount(options_.nics.size()), false);
  // The index is taken before the route that bears it is sent.
  const auto index = static_cast<uint32_t>(targets_.size());
  targets_.push_back(std::move(target));
  index_of_.emplace(name, index);
  absl::Status status = Connect(*targets_.back(), std::move(info));
  if (!status.ok()) {
    index_of_.erase(name);
    targets_.pop_back();
  } else if (!targets_.back()->complete) {
    Retry(*targets_.back());
  }
  return status;
}

absl::Status EndpointActor::Mend(Target& target, absl::StatusOr<TargetInfo> info) {
  target.looked_at = reactor().now();
  absl::Status status = info.status();
  if (status.ok()) status = Connect(target, *std::move(info));
  if (status.ok()) {
    target.retry_at = kNever;
    target.mending = !target.complete;
    if (!target.complete) Retry(target, kSpareRetry);
    return status;
  }
  Warn(target, std::string(status.message()));
  const bool gone = IsGone(status);
  if (gone || !target.complete) Retry(target);
  if (gone) {
    Fail(target, TransferError::kTargetDead);
  } else if (!target.AnyConnected() && target.backoff == kLastRetry) {
    // Not at the first try: what waits for the connection may have been about to get it.
    Fail(target, TransferError::kTransport);
  }
  return status;
}

absl::Status EndpointActor::Connect(Target& target, TargetInfo info) {
  const bool first = target.routes.empty();
  absl::StatusOr<TargetPlan> plan = PlanTarget(info, options_.routes);
  if (!plan.ok()) return plan.status();
  const std::vector<EndpointId> before = target.Endpoints();
  // What is connected stays, unless the target has another NIC there now.
  std::vector<EndpointId> endpoints = before;
  const auto paths = static_cast<PathId>(endpoints.size());
  for (PathId path = 0; path < paths; ++path) {
    const uint32_t remote = RemoteNicOf(path);
    const bool same =
        endpoints[path] == 0 || (info.kind == target.info.kind && remote < info.nics.size() &&
                                 info.nics[remote] == target.info.nics[remote]);
    if (!same) endpoints[path] = 0;
  }
  const PathRound round = ConnectPaths(options_.nics, info, plan->paths, &endpoints);
  const bool connected =
      std::any_of(endpoints.begin(), endpoints.end(), [](EndpointId id) { return id != 0; });
  if (!connected && !round.errors.empty()) return round.errors.front();
  for (const absl::Status& error : round.errors) WarnOfPath(error);
  target.complete = round.complete;
  target.rest = round.complete ? std::chrono::nanoseconds(0) : kRestAfterRound * round.took;
  if (!first && endpoints == before && target.route().buffers == plan->buffers) {
    return absl::OkStatus();
  }

  auto route = std::make_unique<TargetRoute>();
  route->index = first ? static_cast<uint32_t>(targets_.size() - 1) : target.route().index;
  route->version = first ? 1 : target.route().version + 1;
  route->name = first ? info.name : target.route().name;
  route->buffers = std::move(plan->buffers);
  route->endpoints = std::move(endpoints);
  target.info = std::move(info);
  Publish(target, std::move(route));
  return absl::OkStatus();
}

void EndpointActor::Publish(Target& target, std::unique_ptr<const TargetRoute> route) {
  const uint64_t now = reactor().now();
  const auto paths = static_cast<PathId>(route->endpoints.size());
  for (PathId path = 0; path < paths; ++path) {
    if (target.connected[path] && route->endpoints[path] != target.route().endpoints[path]) {
      retired_.push_back({.path = path,
                          .endpoint = target.route().endpoints[path],
                          .target = &target,
                          .close_at = now + ToCycles(kRetireAfter)});
      next_due_ = std::min(next_due_, retired_.back().close_at);
    }
    target.connected[path] = route->endpoints[path] != 0;
  }
  if (!target.routes.empty()) {
    Log(LogLevel::kInfo,
        fmt::format("target {} is connected anew (version {})", route->name, route->version));
  }
  target.routed_at = now;
  target.failed = TransferError::kNone;
  target.routes.push_back(std::move(route));
  const TargetReady ready{.route = &target.route(), .token = kNoToken};
  submit_.Send(ready);
  relay_.Send(ready);
}

void EndpointActor::Disconnect(Target& target) {
  const auto paths = static_cast<PathId>(target.connected.size());
  for (PathId path = 0; path < paths; ++path) {
    if (target.connected[path]) Close(path, target.route().endpoints[path], target);
    target.connected[path] = false;
  }
  target.complete = false;
}

void EndpointActor::Close(PathId path, EndpointId endpoint, const Target& target) {
  relay_.Send(CloseEndpoint{.endpoint = endpoint, .target = target.route().index, .path = path});
}

void EndpointActor::Fail(Target& target, TransferError error) {
  Disconnect(target);
  if (target.failed == error) return;
  target.failed = error;
  const TargetFailed failed{.target = target.route().index,
                            .token = kNoToken,
                            .error = error,
                            .version = target.route().version};
  submit_.Send(failed);
  relay_.Send(failed);
}

void EndpointActor::Retry(Target& target, std::chrono::milliseconds last) {
  const uint64_t now = reactor().now();
  // An error that follows a mending closely does not start from the beginning.
  if (!target.mending && now - target.routed_at > ToCycles(kLastRetry)) {
    target.backoff = kFirstRetry;
  }
  std::chrono::nanoseconds wait = target.backoff == kLastRetry ? last : target.backoff;
  if (target.AnyConnected()) wait = std::max(wait, target.rest);
  const uint64_t at = now + ToCycles(wait);
  if (target.retry_at <= at) return;
  target.mending = true;
  target.retry_at = at;
  target.backoff = std::min(2 * target.backoff, kLastRetry);
  next_due_ = std::min(next_due_, target.retry_at);
}

void EndpointActor::Warn(const Target& target, const std::string& what) {
  if (target.failed != TransferError::kNone) return;  // said before
  const std::string message = fmt::format("target {}: {}; it is connected anew as soon as possible",
                                          target.route().name, what);
  LogRarely(LogLevel::kWarning, message, message);  // not at each attempt of a transfer
}

// Other paths are used meanwhile.
void EndpointActor::WarnOfPath(const absl::Status& error) {
  const std::string message =
      fmt::format("{}; its other paths are used meanwhile", std::string(error.message()));
  LogRarely(LogLevel::kWarning, message, message);
}

}  // namespace railhop
