// What a rank stages pieces with, as its config asks for.
//
// Set-up call of the thread that builds the rank. Loads the CUDA driver only if it is asked for.
#pragma once

#include <functional>
#include <memory>

#include "actors/bootstrap_config.h"
#include "transport/copy/copy_engine.h"
#include "transport/copy/fence.h"
#include "transport/fabric/read_flush.h"
#include "transport/fabric/sim/sim_mover.h"
#include "transport/fabric/tcp/tcp_bounce.h"
#include "transport/staging/staging.h"

namespace railhop {

struct RankStaging {
  std::shared_ptr<Staging> staging;
  // A stream per lane, each with room for kSlotsPerLane jobs.
  std::unique_ptr<CopyEngine> copy_engine;
  // Of as many batches as the rank has; nullptr: it uses no GPU.
  std::unique_ptr<Fences> fences = nullptr;
  // For a simulated NIC; empty: memcpy will do.
  std::function<absl::StatusOr<std::shared_ptr<SimMover>>()> make_mover = {};
  // For TCP, on both sides; nullptr: the rank uses no GPU.
  std::shared_ptr<TcpBounces> bounces = nullptr;
  // For RDMA; nullptr: the rank has none of it, or uses no GPU.
  std::unique_ptr<ReadFlush> read_flush = nullptr;
};

// Always something that works: if the GPU cannot be used, PXN is off with the reason (or, where it
// was not asked for, that is a warning in `config`), and host memory goes direct.
RankStaging MakeStaging(RankConfig* config);

}  // namespace railhop
