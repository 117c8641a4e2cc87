#include "tests/bench/pipeline/pump_tasks.h"

#include <algorithm>
#include <utility>

#include "transport/ring/control_block.h"

namespace railhop {
namespace {

// The device that the target's metadata prefers for the buffer of that address.
const std::string* SelectDevice(const TargetInfo& target, uint64_t address, uint64_t length) {
  for (const RemoteBuffer& buffer : target.buffers) {
    if (address < buffer.address || address + length > buffer.address + buffer.length) continue;
    return buffer.preferred_nics.empty() ? nullptr : &buffer.preferred_nics.front();
  }
  return nullptr;
}

void MarkPosted(PumpSlice* slice) {
  slice->status = PumpSlice::Status::kPosted;
}

void MarkDone(PumpSlice* slice) {
  slice->status = PumpSlice::Status::kDone;
  slice->task->moved_bytes.fetch_add(slice->length);
  slice->task->done.fetch_add(1);
}

void MarkFailed(PumpSlice* slice) {
  slice->status = PumpSlice::Status::kFailed;
  slice->task->failed.fetch_add(1);
}

}  // namespace

bool PumpSubmission::IsSound() const {
  return std::equal(slices.begin(), slices.end(), piece.spans.begin(), piece.spans.end(),
                    [](const PumpSlice* slice, const PumpSpan& span) {
                      return slice->length == span.length && slice->source == span.source;
                    });
}

void PumpTasks::AddSource(const std::byte* address, uint64_t length, std::string location) {
  sources_.push_back({address, length, std::move(location)});
}

SegmentId PumpTasks::AddTarget(TargetInfo target) {
  const auto id = static_cast<SegmentId>(targets_.size() + 1);
  targets_.emplace(id, std::make_shared<const TargetInfo>(std::move(target)));
  return id;
}

// The checks of a request, in the order in which they are described.
std::optional<uint32_t> PumpTasks::SelectLane(const TransferRequest& request) const {
  if (request.opcode != Opcode::kWrite || request.length == 0) return std::nullopt;
  const auto* const source = static_cast<const std::byte*>(request.source);
  const auto holds = [&](const Source& segment) {
    return segment.location.starts_with("cpu") && source >= segment.address &&
           source + request.length <= segment.address + segment.length;
  };
  if (std::none_of(sources_.begin(), sources_.end(), holds)) return std::nullopt;
  const auto found = targets_.find(request.target);
  if (found == targets_.end()) return std::nullopt;
  const std::shared_ptr<const TargetInfo> target = found->second;
  if (target->name.empty() || target->name.size() > kMaxSessionBytes) return std::nullopt;
  const std::string* const device = SelectDevice(*target, request.target_address, request.length);
  if (device == nullptr) return std::nullopt;
  const auto mapped = rail_map_.find(*device);
  const std::string& rail = mapped == rail_map_.end() ? *device : mapped->second;
  if (rail == own_rail_) return std::nullopt;
  const auto lane = lane_of_rail_.find(rail);
  return lane == lane_of_rail_.end() ? std::nullopt : std::optional(lane->second);
}

bool PumpTasks::Submit(PumpBatch& batch, std::span<const TransferRequest> requests,
                       const Enqueue& enqueue) {
  std::vector<Group> groups;
  for (size_t i = 0; i < requests.size(); ++i) {
    const TransferRequest& request = requests[i];
    const std::optional<uint32_t> lane = SelectLane(request);
    if (!lane) return false;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& other) {
      return other.target == request.target && other.lane == *lane;
    });
    if (group == groups.end()) group = groups.insert(group, {request.target, *lane, {}});
    group->spans.push_back(
        {static_cast<const std::byte*>(request.source), request.target_address, request.length, i});
  }
  for (const Group& group : groups) {
    for (PumpPiece& piece : BuildPieces(group.spans)) {
      enqueue(group.lane, MakeSubmission(batch, std::move(piece), targets_.at(group.target)->name));
    }
  }
  return true;
}

PumpSubmission PumpTasks::MakeSubmission(PumpBatch& batch, PumpPiece piece,
                                         const std::string& session) {
  PumpSubmission submission{.piece = std::move(piece),
                            .session = session,
                            .slices = {},
                            .posted = MarkPosted,
                            .succeeded = MarkDone,
                            .failed = MarkFailed,
                            .enqueued = {}};
  for (const PumpSpan& span : submission.piece.spans) {
    PumpTask& task = batch.tasks[span.request];
    PumpSlice* const slice = TakeSlice();
    *slice = {span.source, span.destination, span.length, &task, PumpSlice::Status::kPending};
    task.slices.push_back(slice);
    task.total_bytes += span.length;
    submission.slices.push_back(slice);
  }
  return submission;
}

PumpSlice* PumpTasks::TakeSlice() {
  if (free_slices_.empty()) return &slices_.emplace_back();
  PumpSlice* const slice = free_slices_.back();
  free_slices_.pop_back();
  return slice;
}

BatchState PumpTasks::StateOf(const PumpBatch& batch, size_t index) {
  const PumpTask& task = batch.tasks[index];
  const uint32_t done = task.done.load();
  const uint32_t failed = task.failed.load();
  if (done + failed != task.slices.size()) return BatchState::kPending;
  return failed == 0 ? BatchState::kCompleted : BatchState::kFailed;
}

void PumpTasks::Free(std::unique_ptr<PumpBatch> batch) {
  for (const PumpTask& task : batch->tasks) {
    free_slices_.insert(free_slices_.end(), task.slices.begin(), task.slices.end());
  }
}

std::vector<PumpPiece> BuildPieces(std::span<const PumpSpan> spans) {
  std::vector<PumpPiece> pieces;
  for (PumpSpan span : spans) {
    while (span.length != 0) {
      if (pieces.empty() || pieces.back().length == kSlotBytes ||
          pieces.back().spans.size() == kMaxPlanEntries) {
        pieces.emplace_back();
      }
      PumpPiece& piece = pieces.back();
      PumpSpan part = span;
      part.length = std::min(span.length, kSlotBytes - piece.length);
      piece.spans.push_back(part);
      piece.length += part.length;
      span.source += part.length;
      span.destination += part.length;
      span.length -= part.length;
    }
  }
  return pieces;
}

}  // namespace railhop
