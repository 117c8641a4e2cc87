#include "transport/engine/data_path.h"

namespace railhop {

const char* TransferErrorName(TransferError error) {
  switch (error) {
    case TransferError::kNone:
      return "none";
    case TransferError::kInvalidRequest:
      return "invalid request";
    case TransferError::kNotRegistered:
      return "source is not in registered memory";
    case TransferError::kUnknownTarget:
      return "unknown target";
    case TransferError::kRemoteAccess:
      return "target address outside its registration, or wrong key";
    case TransferError::kTargetDead:
      return "target process ended";
    case TransferError::kTransport:
      return "transport error";
    case TransferError::kDeadline:
      return "deadline passed";
    case TransferError::kCanceled:
      return "canceled";
    case TransferError::kStopping:
      return "rank is stopping";
    case TransferError::kRelay:
      return "relay error";
    case TransferError::kExposed:
      return "given up; the target may still write what was sent";
    case TransferError::kHungUp:
      return "the target hung up, which is how one of version 1 refuses";
    case TransferError::kFence:
      return "the fence of the source has failed, so that it was not read";
    case TransferError::kDevice:
      return "the GPU of the local memory has not copied it, or not flushed what was read";
  }
  return "unknown";
}

}  // namespace railhop
