// What the Transfer Engine API answers. The numbers are those of Mooncake Transfer Engine
// (common/base/status.h and error.h at 3b5a594), because callers compare them: its C API returns
// them as they are from transfers and negated from registrations.
#pragma once

#include <cstdint>

namespace railhop {

enum class EngineError : int32_t {
  kOk = 0,
  kInvalidArgument = 1,
  kTooManyRequests = 2,  // the batch's capacity, or all batches, are in use
  kAddressNotRegistered = 3,
  kBatchBusy = 4,  // not every task was seen to have ended
  kDeviceNotFound = 6,
  kAddressOverlapped = 7,
  kNotSupportedTransport = 8,
  kDns = 101,
  kSocket = 102,
  kMalformedJson = 103,
  kRejectHandshake = 104,
  kMetadata = 200,
  kEndpoint = 201,
  kContext = 202,
  kMemory = 302,
  kNotImplemented = 303,
};

}  // namespace railhop
