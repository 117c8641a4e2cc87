#include "tests/bench/pipeline/pump.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "actors/cut_requests.h"
#include "transport/fabric/sim/sim_target.h"

namespace railhop {
namespace {

constexpr std::chrono::seconds kSetUp{30};
constexpr uint32_t kSliceBytes = 64 * 1024;
constexpr uint32_t kSlotBits = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<Pump>> Pump::Create(const PipelineSite& site, const char* nic,
                                                   size_t per_lane) {
  std::unique_ptr<Pump> pump(new Pump(site, per_lane));
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
  const auto endpoint = nic_->Connect(*info);
  if (!endpoint.ok()) return endpoint.status();
  const RemoteBuffer& buffer = info->buffers[0];
  route_.name = site_.target;
  route_.endpoints = {*endpoint};
  TargetBuffer& target = route_.buffers.emplace_back();
  target.address = buffer.address;
  target.length = buffer.length;
  target.rkey = buffer.rkey;
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
  return MarkAttached(*outbound_.relay, member_->sender(), claim->lane, true);
}

Pump::~Pump() {
  if (outbound_.mapping == nullptr) return;
  MarkAttached(*outbound_.relay, member_->sender(), outbound_.claim.lane, false).IgnoreError();
  ReleaseLane(*outbound_.relay, member_->sender(), outbound_.claim.lane).IgnoreError();
}

bool Pump::Submit(uint32_t slot, uint64_t) {
  done_[slot].store(false, std::memory_order_relaxed);
  {
    const std::lock_guard lock(queue_mutex_);
    queue_.push_back(slot);
  }
  submitted_.notify_one();
  return true;
}

bool Pump::TakeQueued(uint32_t* request) {
  const std::lock_guard lock(queue_mutex_);
  if (queue_.empty()) return false;
  *request = queue_.front();
  queue_.pop_front();
  return true;
}

void Pump::Sleep(std::chrono::microseconds time) {
  std::unique_lock lock(queue_mutex_);
  submitted_.wait_for(lock, time);
}

bool Pump::IsDone(uint32_t slot) {
  return done_[slot].load(std::memory_order_acquire);
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
  if (!inbound.reader->HasWork() || nic_->SendRoom(route_.endpoints[0]) == 0) return false;
  LanePiece piece;
  switch (inbound.reader->Poll(*descriptor_, piece)) {
    case LanePoll::kPiece:
      Post(lane, piece);
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

void Pump::Post(uint32_t lane, const LanePiece& piece) {
  InboundLane& inbound = inbound_[lane];
  inbound.pieces[piece.slot()] = piece;
  inbound.reader->BeginPost(piece);
  std::byte* const bytes = member_->arena().base() + SlotOffset(lane, piece.slot());
  RequestCutter cutter(route_, bytes, descriptor_->plan(), {.bytes = kSliceBytes});
  for (bool last = false; !last;) {
    const CutRequest cut = cutter.Next();
    last = cut.last;
    nic_->Prepare({.signaled = last,
                   .endpoint = route_.endpoints[0],
                   .local = cut.local,
                   .lkey = member_->arena_lkeys()[0],
                   .length = cut.length,
                   .remote_address = cut.remote_address,
                   .rkey = cut.rkey,
                   .user_data = uint64_t{lane} << kSlotBits | piece.slot()});
  }
}

size_t Pump::PollNic() {
  std::array<NicCompletion, 16> completions;
  const size_t count = nic_->Peek(completions);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t word = completions[i].user_data;
    InboundLane& inbound = inbound_[word >> kSlotBits];
    const LanePiece& piece = inbound.pieces[word & ((1u << kSlotBits) - 1)];
    const bool ok = completions[i].status == FabricStatus::kOk;
    inbound.reader->EndPost(piece);
    inbound.writer->Complete(piece, ok ? RelayStatus::kOk : RelayStatus::kTransport);
  }
  nic_->Advance(count);
  return count;
}

size_t Pump::ReapCompletions() {
  if (outbound_.mapping == nullptr) return 0;
  size_t work = 0;
  for (; work < per_lane_; ++work) {
    const SentCompletion found = outbound_.completions->Poll(outbound_.mapping->control());
    if (found.state != CompletionState::kReady) break;
    if (found.status != 0) ++astray_;
    outbound_.credit->Return(found.sequence);
    done_[outbound_.request[SlotIndex(found.sequence)]].store(true, std::memory_order_release);
  }
  return work;
}

size_t Pump::SendQueued() {
  if (outbound_.mapping == nullptr) return 0;
  size_t work = 0;
  uint32_t request = 0;
  while (work < per_lane_ && outbound_.credit->Available() && TakeQueued(&request)) {
    const uint64_t sequence = outbound_.credit->Take();
    const uint32_t slot = SlotIndex(sequence);
    const LaneMapping& lane = *outbound_.mapping;
    const PlanEntry plan{route_.buffers[0].address + request * kRequestBytes, kRequestBytes};
    outbound_.request[slot] = request;
    outbound_.span[slot] = {source_.of_slot(request), kRequestBytes};
    Descriptor& descriptor = lane.descriptor(sequence);
    outbound_.writer.Prepare(descriptor, slot, lane.relay_epoch(), route_.name, {&plan, 1});
    lane.Offer(sequence);
    DescriptorWriter::Commit(descriptor, sequence);
    engine_->Issue({.stream = 0,
                    .spans = {&outbound_.span[slot], 1},
                    .destination = lane.slot(sequence),
                    .doorbell = &lane.control().header.doorbell,
                    .sequence = sequence,
                    .user_data = sequence});
    ++work;
    engine_->Progress(kRequestBytes);
    std::array<CopyDone, 1> copied;
    while (engine_->Reap(copied) != 0) lane.PublishHead(copied[0].user_data);
  }
  return work;
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
