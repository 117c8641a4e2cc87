#include <cstdio>
#include <cstring>

#include "actors/bootstrap.h"

int main() {
  static char here[4096] = "hello", there[4096];
  std::string error;
  const auto engine = railhop::MakeTransferEngine({.host = "127.0.0.1"}, &error);
  const auto target = railhop::MakeTransferEngine({.host = "127.0.0.1"}, &error);
  if (engine == nullptr || target == nullptr) return std::puts(error.c_str());
  engine->RegisterMemory(here, sizeof here, "*");
  target->RegisterMemory(there, sizeof there, "*");
  const railhop::TransferTask write{.source = here,
                                    .target = engine->OpenSegment(target->name()),
                                    .target_address = reinterpret_cast<uint64_t>(there),
                                    .length = sizeof here};
  const railhop::BatchHandle batch = engine->AllocateBatch(1);
  engine->Submit(batch, {&write, 1});
  engine->Wait(batch, std::chrono::minutes(1));
  railhop::TransferStatus status;
  engine->BatchStatus(batch, &status);
  if (status.state == railhop::TransferState::kCompleted) return std::strcmp(there, "hello");
  return std::puts(railhop::TransferEngine::last_error().c_str());
}
