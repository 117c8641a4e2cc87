#include "transport/fabric/fabric.h"

namespace railhop {

const char* FabricStatusName(FabricStatus status) {
  switch (status) {
    case FabricStatus::kOk:
      return "ok";
    case FabricStatus::kLocalProtection:
      return "local protection error";
    case FabricStatus::kRemoteAccess:
      return "remote access error";
    case FabricStatus::kTargetDead:
      return "target dead";
    case FabricStatus::kTransport:
      return "transport error";
    case FabricStatus::kFlushed:
      return "flushed";
    case FabricStatus::kExposed:
      return "given up, may still land";
    case FabricStatus::kHungUp:
      return "the target hung up";
    case FabricStatus::kDevice:
      return "the GPU has not copied";
  }
  return "unknown";
}

std::string Nic::Describe(EndpointId) const {
  return std::string(name());
}

absl::StatusOr<std::vector<MemoryPart>> Nic::RegisterParts(void* address, size_t length) {
  const absl::StatusOr<MemoryKey> key = Register(address, length);
  if (!key.ok()) return key.status();
  return std::vector<MemoryPart>{{.length = length, .key = *key}};
}

}  // namespace railhop
