#include "tests/bench/pipeline/pump.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "transport/fabric/sim/sim_target.h"

namespace railhop {
namespace {

constexpr std::chrono::seconds kSetUp{30};
constexpr std::chrono::seconds kCreditTimeout{1};
constexpr SliceSize kSlice{.bytes = 64 * 1024};

}  // namespace

absl::StatusOr<std::unique_ptr<Pump>> Pump::Create(const PipelineSite& site, const char* nic,
                                                   size_t per_lane) {
  std::unique_ptr<Pump> pump(new Pump(site, nic, per_lane));
  SimNicOptions options;
  options.name = nic;
  options.mode = site.move ? SimMode::kMove : SimMode::kModel;
  options.line_rate = 1e15;
  options.base_delay = std::chrono::nanoseconds(0);
  auto made = SimNic::Create(std::move(options));
  if (!made.ok()) return made.status();
  pump->nic_ = *std::move(made);
  auto member =
      GroupMember::Join({.registry = {.root = site.directory, .group_id = site.name + ".host"},
                         .rails = {nic},
                         .nics = {pump->nic_.get()}});
  if (!member.ok()) return member.status();
  pump->member_ = *std::move(member);
  if (absl::Status connected = pump->Connect(); !connected.ok()) return connected;
  return pump;
}

absl::Status Pump::Connect() {
  const auto info = LoadSimTarget(site_.directory, site_.target);
  if (!info.ok()) return info.status();
  const auto endpoint = nic_->Connect(*info, 0);
  if (!endpoint.ok()) return endpoint.status();
  const RemoteBuffer& buffer = info->buffers[0];
  TargetRoute& route = routes_[site_.target];
  route.name = site_.target;
  route.endpoints = {*endpoint};
  TargetBuffer& target = route.buffers.emplace_back();
  target.address = buffer.address;
  target.length = buffer.length;
  target.rkeys[0] = buffer.rkeys[0];
  tasks_.AddSource(source_.data(), kPipelineBytes, "cpu:0");
  target_ = tasks_.AddTarget(*info);
  target_address_ = buffer.address;
  Registration& self = member_->self();
  for (uint32_t lane = 0; lane < kLaneCount; ++lane) {
    LaneControl& control = self.block().lanes[lane];
    inbound_[lane].reader =
        std::make_unique<RelayLaneReader>(control, self.side().file().lanes[lane], self.epoch());
    inbound_[lane].writer = std::make_unique<RelayLaneWriter>(control);
  }
  return absl::OkStatus();
}

absl::Status Pump::AttachToRelay() {
  const auto until = std::chrono::steady_clock::now() + kSetUp;
  while (outbound_.relay == nullptr) {
    const auto peers = member_->registry().Discover();
    if (!peers.ok()) return peers.status();
    for (const PeerInfo& peer : *peers) {
      const auto relay = member_->registry().MapPeer(peer);
      if (!relay.ok()) return relay.status();
      outbound_.relay = *relay;
    }
    if (std::chrono::steady_clock::now() > until) return absl::DeadlineExceededError("no relay");
  }
  const auto claim = ClaimLane(*outbound_.relay, member_->sender());
  if (!claim.ok()) return claim.status();
  outbound_.claim = *claim;
  const PeerInfo& info = outbound_.relay->info();
  auto arena = ImportedHostArena::Open(info.arena_handle, info.owner);
  if (!arena.ok()) return arena.status();
  outbound_.arena = *std::move(arena);
  if (absl::Status kept = outbound_.arena->ReserveLane(claim->lane); !kept.ok()) return kept;
  outbound_.mapping =
      std::make_unique<LaneMapping>(outbound_.relay, *claim, outbound_.arena->base());
  outbound_.credit = std::make_unique<RingCredit>(claim->first_sequence);
  outbound_.completions = std::make_unique<CompletionReader>(claim->first_sequence);
  tasks_.AddLane(kRelayNic, claim->lane);
  return MarkAttached(*outbound_.relay, member_->sender(), claim->lane, true);
}

Pump::~Pump() {
  if (outbound_.mapping == nullptr) return;
  MarkAttached(*outbound_.relay, member_->sender(), outbound_.claim.lane, false).IgnoreError();
  ReleaseLane(*outbound_.relay, member_->sender(), outbound_.claim.lane).IgnoreError();
}

bool Pump::Submit(uint32_t slot, uint64_t) {
  batches_[slot] = tasks_.Allocate(1);
  const TransferRequest request{.opcode = Opcode::kWrite,
                                .source = source_.of_slot(slot),
                                .target = target_,
                                .target_address = target_address_ + slot * kRequestBytes,
                                .length = kRequestBytes};
  const bool relayed =
      tasks_.Submit(*batches_[slot], {&request, 1}, [this](uint32_t, PumpSubmission submission) {
        if (!submission.IsSound()) ++astray_;
        submission.enqueued = std::chrono::steady_clock::now();
        const std::lock_guard lock(queue_mutex_);
        queue_.push_back(std::move(submission));
      });
  if (!relayed) ++astray_;
  submitted_.notify_one();
  return relayed;
}

// Without credit for too long it would go direct, which this benchmark has no way for.
bool Pump::TakeQueued(PumpSubmission* submission) {
  const std::lock_guard lock(queue_mutex_);
  if (queue_.empty()) return false;
  if (!outbound_.credit->Available()) {
    if (std::chrono::steady_clock::now() - queue_.front().enqueued > kCreditTimeout) ++astray_;
    return false;
  }
  *submission = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void Pump::Sleep(std::chrono::microseconds time) {
  std::unique_lock lock(queue_mutex_);
  submitted_.wait_for(lock, time);
}

bool Pump::IsDone(uint32_t slot) {
  const BatchState state = PumpTasks::StateOf(*batches_[slot], 0);
  if (state == BatchState::kPending) return false;
  if (state != BatchState::kCompleted) ++astray_;
  tasks_.Free(std::move(batches_[slot]));
  return true;
}

size_t Pump::TakeInbound() {
  size_t work = 0;
  for (uint32_t lane = 0; lane < kLaneCount; ++lane) {
    for (size_t i = 0; i < per_lane_ && TakePiece(lane); ++i) ++work;
  }
  if (work != 0) nic_->Submit();
  return work;
}

bool Pump::TakePiece(uint32_t lane) {
  InboundLane& inbound = inbound_[lane];
  if (inbound.posted.size() == kSlotsPerLane || !inbound.reader->HasWork()) return false;
  LanePiece piece;
  switch (inbound.reader->Poll(*descriptor_, piece)) {
    case LanePoll::kPiece:
      if (!Post(lane, piece)) inbound.writer->Complete(piece, RelayStatus::kUnknownTarget);
      return true;
    case LanePoll::kBadPiece:
      inbound.writer->Complete(piece, RelayStatus::kBadDescriptor);
      return true;
    case LanePoll::kUnknownSender:
      inbound.reader->Admit(inbound.reader->sender_epoch());
      return true;
    default:
      return false;
  }
}

const TargetRoute* Pump::ResolveRoute() const {
  const auto found = routes_.find(std::string(descriptor_->session_name()));
  return found == routes_.end() ? nullptr : &found->second;
}

// Twice over the piece, as such an engine does: how many slices it needs, then each of them.
bool Pump::Post(uint32_t lane, const LanePiece& piece) {
  InboundLane& inbound = inbound_[lane];
  const TargetRoute* const route = ResolveRoute();
  if (route == nullptr) return false;
  std::byte* const bytes = member_->arena().base() + SlotOffset(lane, piece.slot());
  uint32_t count = 0;
  RequestCutter counter(*route, bytes, descriptor_->plan(), kSlice);
  do ++count;
  while (!counter.Next().last);
  if (count > free_relay_slices_.size() || count > nic_->SendRoom(route->endpoints[0])) {
    return false;  // 18 pieces of one slice: not in this benchmark
  }
  RelayTransfer& transfer = inbound.transfers[piece.slot()];
  transfer.piece = piece;
  transfer.remaining.store(count, std::memory_order_relaxed);
  transfer.failed.store(false, std::memory_order_relaxed);
  inbound.reader->BeginPost(piece);
  inbound.posted.push_back(&transfer);
  RequestCutter cutter(*route, bytes, descriptor_->plan(), kSlice);
  for (bool last = false; !last;) {
    RelaySlice* const slice = free_relay_slices_.back();
    free_relay_slices_.pop_back();
    *slice = {.source = bytes, .request = cutter.Next(), .transfer = &transfer};
    last = slice->request.last;
    nic_->Prepare({.endpoint = route->endpoints[0],
                   .local = slice->request.local,
                   .lkey = member_->arena_lkeys()[0],
                   .length = slice->request.length,
                   .remote_address = slice->request.remote_address,
                   .rkey = slice->request.rkey,
                   .user_data = reinterpret_cast<uint64_t>(slice)});
  }
  return true;
}

size_t Pump::PollNic() {
  std::array<NicCompletion, 16> completions;
  const size_t count = nic_->Peek(completions);
  for (size_t i = 0; i < count; ++i) {
    auto* const slice = reinterpret_cast<RelaySlice*>(completions[i].user_data);
    if (completions[i].status != FabricStatus::kOk) slice->transfer->failed.store(true);
    slice->transfer->remaining.fetch_sub(1);
    free_relay_slices_.push_back(slice);
  }
  nic_->Advance(count);
  size_t completed = 0;
  for (InboundLane& inbound : inbound_) completed += CompleteInbound(inbound);
  return count + completed;
}

// In order: what ended behind one that has not waits.
size_t Pump::CompleteInbound(InboundLane& inbound) {
  size_t completed = 0;
  for (; !inbound.posted.empty() && inbound.posted.front()->remaining.load() == 0; ++completed) {
    const RelayTransfer& transfer = *inbound.posted.front();
    inbound.posted.pop_front();
    inbound.reader->EndPost(transfer.piece);
    inbound.writer->Complete(transfer.piece,
                             transfer.failed ? RelayStatus::kTransport : RelayStatus::kOk);
  }
  return completed;
}

size_t Pump::ReapCompletions() {
  if (outbound_.mapping == nullptr) return 0;
  size_t work = 0;
  for (; work < per_lane_ && !outbound_.sent.empty(); ++work) {
    const SentCompletion found = outbound_.completions->Poll(outbound_.mapping->control());
    if (found.state != CompletionState::kReady) break;
    const PumpSubmission& submission = outbound_.sent.front().submission;
    for (PumpSlice* slice : submission.slices) {
      (found.status == 0 ? submission.succeeded : submission.failed)(slice);
    }
    outbound_.sent.pop_front();
    outbound_.credit->Return(found.sequence);
  }
  return work;
}

size_t Pump::SendQueued() {
  if (outbound_.mapping == nullptr) return 0;
  size_t work = 0;
  PumpSubmission submission;
  while (work < per_lane_ && TakeQueued(&submission)) {
    Publish(std::move(submission));
    ++work;
  }
  return work;
}

void Pump::Publish(PumpSubmission submission) {
  const LaneMapping& lane = *outbound_.mapping;
  const uint64_t sequence = outbound_.credit->Take();
  const uint32_t slot = SlotIndex(sequence);
  std::vector<CopySpan>& copies = outbound_.copies[slot];
  std::vector<PlanEntry> plans;
  copies.clear();
  for (const PumpSpan& span : submission.piece.spans) {
    plans.push_back({span.destination, span.length});
    copies.push_back({span.source, span.length});
  }
  Descriptor& descriptor = lane.descriptor(sequence);
  outbound_.writer.Prepare(descriptor, slot, lane.relay_epoch(), submission.session, plans);
  lane.Offer(sequence);
  DescriptorWriter::Commit(descriptor, sequence);
  engine_->Issue({.stream = 0,
                  .spans = copies,
                  .destination = lane.slot(sequence),
                  .doorbell = &lane.control().header.doorbell,
                  .sequence = sequence,
                  .user_data = sequence});
  engine_->Progress(submission.piece.length);
  std::array<CopyDone, 1> copied;
  while (engine_->Reap(copied) != 0) lane.PublishHead(copied[0].user_data);
  for (PumpSlice* slice : submission.slices) submission.posted(slice);
  outbound_.sent.push_back({sequence, std::move(submission)});
}

namespace {

// Drives the steps of one process.
class PumpSide : public PipelineSide {
 public:
  PumpSide(PumpKind kind, bool sender) : kind_(kind), sender_(sender) {}
  ~PumpSide() override { Pause(); }

  absl::Status Prepare(const PipelineSite& site) override {
    core_ = sender_ ? site.cores.first : site.cores.second;
    const size_t per_lane = kind_ == PumpKind::kOneThread ? 1 : 16;
    auto pump = Pump::Create(site, sender_ ? kSenderNic : kRelayNic, per_lane);
    if (!pump.ok()) return pump.status();
    pump_ = *std::move(pump);
    return sender_ ? pump_->AttachToRelay() : absl::OkStatus();
  }

  LoadResult Run(const LoadOrder& order) override {
    LoadGenerator generator(pump_.get());
    std::thread thread([&] {
      if (!PinThisThread(core_, PinPolicy::kRequired).ok()) return;
      generator.Start(order);
      while (generator.running()) Sweep(generator.Step());
    });
    thread.join();
    return pump_->astray() == 0 ? generator.Result() : LoadResult{};
  }

  void Serve() override {
    serving_.store(true);
    thread_ = std::thread([this] {
      if (!PinThisThread(core_, PinPolicy::kRequired).ok()) return;
      while (serving_.load(std::memory_order_relaxed)) Sweep(0);
    });
  }
  void Pause() override {
    serving_.store(false);
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Sweep(size_t work) {
    if (kind_ == PumpKind::kOneThread || !sender_) {
      work += pump_->TakeInbound();
      work += pump_->PollNic();
    }
    if (kind_ == PumpKind::kOneThread || sender_) {
      work += pump_->ReapCompletions();
      work += pump_->SendQueued();
    }
    if (work != 0) return;
    if (kind_ == PumpKind::kTwoThreads) {
      CpuRelax();
      return;
    }
    pump_->Sleep(std::chrono::microseconds(50));
  }

  const PumpKind kind_;
  const bool sender_;
  int core_ = -1;
  std::unique_ptr<Pump> pump_;
  std::thread thread_;
  std::atomic<bool> serving_{false};
};

}  // namespace

PipelineSides PumpSides(PumpKind kind) {
  return {.sender = [kind] { return std::make_unique<PumpSide>(kind, true); },
          .relay = [kind] { return std::make_unique<PumpSide>(kind, false); }};
}

}  // namespace railhop
