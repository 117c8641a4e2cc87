// Writing and reading the completion of a piece. The relay's poll side alone writes; the sender's
// poll side reads. Data path; guarantee: who sees kReady sees everything the relay did before it
// committed.
#pragma once

#include <cstdint>

#include "runtime/fault_point.h"
#include "transport/ring/control_block.h"

namespace railhop {

// What a relay answers. Other implementations use numbers of their own: for a sender 0 is success
// and any negative number a failure after which it goes direct.
enum class RelayStatus : int32_t {
  kOk = 0,
  kBadDescriptor = -1,  // refused; nothing was posted
  kUnknownTarget = -2,  // the session could not be resolved; nothing was posted
  kRemoteAccess = -3,   // a destination outside the target's registrations
  kTransport = -4,      // the NIC reported an error
  kRevoked = -5,        // the sender had revoked it; nothing was posted
  kDeadline = -6,       // waited for work requests until its deadline; nothing was posted
  kStopping = -7,       // the relay stops; nothing was posted
};

enum class CompletionState : uint8_t {
  kPending,
  kReady,
  kMalformed,  // the right sequence with anything that is no answer: quarantine the lane
};

inline void CommitCompletion(Completion& completion, uint64_t sequence, int32_t status) {
  StoreRelaxed(completion.status, status);
  StoreRelaxed(completion.reserved, 0);
  RAILHOP_FAULT_POINT("relay.status_written");
  StoreRelease(completion.commit_sequence, sequence);
}

// Fills *status if kReady: 0 or negative.
inline CompletionState TryLoadCompletion(const Completion& completion, uint64_t sequence,
                                         int32_t* status) {
  if (LoadAcquire(completion.commit_sequence) != sequence) return CompletionState::kPending;
  const int32_t value = LoadRelaxed(completion.status);
  if (LoadRelaxed(completion.reserved) != 0 || value > 0) return CompletionState::kMalformed;
  *status = value;
  return CompletionState::kReady;
}

}  // namespace railhop
