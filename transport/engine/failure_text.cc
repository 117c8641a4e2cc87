#include "transport/engine/failure_text.h"

#include <fmt/format.h>

namespace railhop {
namespace {

std::string OpcodeName(Opcode opcode) {
  if (opcode == Opcode::kWrite) return "WRITE";
  if (opcode == Opcode::kRead) return "READ";
  return fmt::format("opcode {}", static_cast<int>(opcode));
}

std::string Reason(TransferError error, std::string_view target) {
  switch (error) {
    case TransferError::kInvalidRequest:
      return "the opcode is unknown, or one of the two ranges wraps around the address space";
    case TransferError::kNotRegistered:
      return "the local range is not inside memory that this engine has registered: register all "
             "of "
             "it first";
    case TransferError::kUnknownTarget:
      return "the target could not be opened: open its segment again once its engine is there";
    case TransferError::kRemoteAccess:
      return fmt::format(
          "the remote range is not inside memory that {} has registered: check the address and the "
          "length, and that its owner has registered all of it, and still has",
          target);
    case TransferError::kTargetDead:
      return fmt::format("the engine of {} has ended, or cannot be reached: start it again",
                         target);
    case TransferError::kTransport:
      return fmt::format("{} cannot be reached on any path: check the network, and its engine",
                         target);
    case TransferError::kDeadline:
      return "its deadline has passed: use a longer one (MC_TRANSFER_TIMEOUT), or look for what "
             "holds it up";
    case TransferError::kStopping:
      return "this engine is being destroyed";
    case TransferError::kHungUp:
      return fmt::format(
          "{} hung up, which is how one of version 1 refuses: check that its owner has registered "
          "the remote range",
          target);
    default:
      return TransferErrorName(error);
  }
}

}  // namespace

std::string FailureText(TransferError error, const TransferRequest& request,
                        std::string_view target, std::string_view trouble) {
  const std::string_view name = target.empty() ? "the target" : target;
  return fmt::format("{} of {} bytes, local address {:#x}, remote address {:#x} of {}: {}",
                     OpcodeName(request.opcode), request.length,
                     reinterpret_cast<uint64_t>(request.source), request.target_address, name,
                     error == TransferError::kUnknownTarget && !trouble.empty()
                         ? std::string(trouble)
                         : Reason(error, name));
}

}  // namespace railhop
