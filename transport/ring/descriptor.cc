#include "transport/ring/descriptor.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace railhop {
namespace {

DescriptorError CheckSession(std::string_view session) {
  if (session.empty() || session.size() > kMaxSessionBytes) return DescriptorError::kSessionLength;
  if (std::memchr(session.data(), 0, session.size()) != nullptr) return DescriptorError::kSession;
  return DescriptorError::kNone;
}

// The sum of the lengths, if every entry is sound and it fits into a slot.
DescriptorError SumPlans(std::span<const PlanEntry> plans, uint64_t* sum) {
  if (plans.empty() || plans.size() > kMaxPlanEntries) return DescriptorError::kPlanCount;
  uint64_t total = 0;
  for (const PlanEntry& entry : plans) {
    if (entry.length == 0) return DescriptorError::kEntryLength;
    if (entry.length > std::numeric_limits<uint64_t>::max() - entry.final_destination) {
      return DescriptorError::kEntryWrap;
    }
    if (entry.length > kSlotBytes - total) return DescriptorError::kLengthSum;
    total += entry.length;
  }
  *sum = total;
  return DescriptorError::kNone;
}

}  // namespace

const char* DescriptorErrorName(DescriptorError error) {
  switch (error) {
    case DescriptorError::kNone:
      return "none";
    case DescriptorError::kSequence:
      return "sequence";
    case DescriptorError::kEpoch:
      return "epoch";
    case DescriptorError::kPieceLength:
      return "piece_length";
    case DescriptorError::kPlanCount:
      return "plan_count";
    case DescriptorError::kSessionLength:
      return "session_length";
    case DescriptorError::kReserved:
      return "reserved";
    case DescriptorError::kSession:
      return "session";
    case DescriptorError::kEntryLength:
      return "entry_length";
    case DescriptorError::kEntryWrap:
      return "entry_wrap";
    case DescriptorError::kLengthSum:
      return "length_sum";
  }
  return "unknown";
}

DescriptorError DescriptorWriter::Prepare(Descriptor& descriptor, uint32_t slot, uint64_t epoch,
                                          std::string_view session,
                                          std::span<const PlanEntry> plans) {
  if (epoch == 0) return DescriptorError::kEpoch;
  if (const DescriptorError error = CheckSession(session); error != DescriptorError::kNone) {
    return error;
  }
  uint64_t sum = 0;
  if (const DescriptorError error = SumPlans(plans, &sum); error != DescriptorError::kNone) {
    return error;
  }
  const auto plan_count = static_cast<uint32_t>(plans.size());
  const auto session_length = static_cast<uint32_t>(session.size());

  Leftover& left = leftovers_[slot];
  if (!left.known) {
    left = {.known = true, .plan_count = kMaxPlanEntries, .session_length = kMaxSessionBytes};
    std::memset(descriptor.padding, 0, sizeof(descriptor.padding));
  }
  if (left.session_length > session_length) {
    std::memset(descriptor.session + session_length, 0, left.session_length - session_length);
  }
  if (left.plan_count > plan_count) {
    std::memset(descriptor.plans + plan_count, 0,
                (left.plan_count - plan_count) * sizeof(PlanEntry));
  }
  left.plan_count = plan_count;
  left.session_length = session_length;

  descriptor.epoch = epoch;
  descriptor.piece_length = static_cast<uint32_t>(sum);
  descriptor.plan_count = plan_count;
  descriptor.session_length = session_length;
  descriptor.reserved = 0;
  std::memcpy(descriptor.session, session.data(), session_length);
  std::memcpy(descriptor.plans, plans.data(), plans.size_bytes());
  return DescriptorError::kNone;
}

void CopyDescriptor(const Descriptor& source, DescriptorCopy& copy) {
  copy.sequence = LoadAcquire(source.commit_sequence);
  copy.epoch = LoadAcquire(source.epoch);
  copy.piece_length = LoadAcquire(source.piece_length);
  copy.plan_count = LoadAcquire(source.plan_count);
  copy.session_length = LoadAcquire(source.session_length);
  copy.reserved = LoadAcquire(source.reserved);

  // Counts out of range are refused by Validate; until then they must not lead beyond the arrays.
  const uint32_t session_length = std::min(copy.session_length, kMaxSessionBytes);
  for (uint32_t i = 0; i < session_length; ++i) copy.session[i] = LoadAcquire(source.session[i]);
  const uint32_t plan_count = std::min(copy.plan_count, kMaxPlanEntries);
  for (uint32_t i = 0; i < plan_count; ++i) {
    copy.plans[i] = {LoadAcquire(source.plans[i].final_destination),
                     LoadAcquire(source.plans[i].length)};
  }
}

DescriptorError Validate(const DescriptorCopy& copy, uint64_t sequence, uint64_t epoch) {
  if (sequence == 0 || copy.sequence != sequence) return DescriptorError::kSequence;
  if (epoch == 0 || copy.epoch != epoch) return DescriptorError::kEpoch;
  if (copy.reserved != 0) return DescriptorError::kReserved;
  if (copy.piece_length == 0 || copy.piece_length > kSlotBytes) {
    return DescriptorError::kPieceLength;
  }
  if (copy.plan_count == 0 || copy.plan_count > kMaxPlanEntries) {
    return DescriptorError::kPlanCount;
  }
  if (copy.session_length == 0 || copy.session_length > kMaxSessionBytes) {
    return DescriptorError::kSessionLength;
  }
  if (const DescriptorError error = CheckSession(copy.session_name());
      error != DescriptorError::kNone) {
    return error;
  }
  uint64_t sum = 0;
  if (const DescriptorError error = SumPlans(copy.plan(), &sum); error != DescriptorError::kNone) {
    return error;
  }
  return sum == copy.piece_length ? DescriptorError::kNone : DescriptorError::kLengthSum;
}

}  // namespace railhop
