#include "actors/bootstrap_staging.h"

#include <algorithm>
#include <string>
#include <utility>

#include "transport/copy/cuda_copy_engine.h"
#include "transport/copy/cuda_fences.h"
#include "transport/copy/host_copy_engine.h"
#include "transport/fabric/rdma/cuda_read_flush.h"
#include "transport/fabric/sim/cuda_mover.h"
#include "transport/ring/control_block.h"
#include "transport/staging/cuda_staging.h"
#include "transport/staging/host_staging.h"

namespace railhop {
namespace {

RankStaging HostParts(std::shared_ptr<Staging> staging) {
  return {.staging = std::move(staging),
          .copy_engine = std::make_unique<HostCopyEngine>(kLaneCount, kSlotsPerLane)};
}

absl::StatusOr<RankStaging> CudaParts(RankConfig& config) {
  const absl::StatusOr<const CudaDriver*> driver = CudaDriver::Get();
  if (!driver.ok()) return driver.status();
  auto opened = CudaDevice::Open(**driver, config.gpu);
  if (!opened.ok()) return opened.status();
  const std::shared_ptr<const CudaDevice> device = *std::move(opened);
  RankStaging parts = HostParts(std::make_shared<CudaStaging>(device));
  parts.fences = std::make_unique<CudaFences>(device, config.max_batches);
  parts.make_mover = [device]() -> absl::StatusOr<std::shared_ptr<SimMover>> {
    return CudaMover::Create(device);
  };
  parts.bounces = std::make_shared<TcpBounces>(device);
  if (std::any_of(config.nics.begin(), config.nics.end(),
                  [](const NicConfig& nic) { return nic.kind == NicKind::kRdma; })) {
    parts.read_flush = std::make_unique<CudaReadFlush>(**driver);
  }
  if (!config.pxn.enable) return parts;  // nothing is copied
  CudaCopyOptions copy{.streams = kLaneCount,
                       .queue_depth = kSlotsPerLane,
                       .doorbell = config.copy.doorbell,
                       .way = config.copy.way,
                       .costs = config.copy.costs,
                       .book = std::make_shared<CopyCostBook>(),
                       .priority = config.copy.stream_priority,
                       .gather_max_blocks = config.copy.gather_max_blocks};
  auto engine = CudaCopyEngine::Create(device, copy);
  if (!engine.ok()) return engine.status();
  parts.copy_engine = *std::move(engine);
  if (copy.way.has_value() || copy.costs.has_value()) return parts;  // nothing to choose
  auto calibrator = CopyCalibrator::Create(device, copy);
  if (!calibrator.ok()) {
    config.warnings.push_back("pieces are copied span by span, for want of what to measure with: " +
                              std::string(calibrator.status().message()));
    return parts;
  }
  parts.staging = std::make_shared<CudaStaging>(device, *std::move(calibrator), copy.book);
  return parts;
}

}  // namespace

RankStaging MakeStaging(RankConfig* config) {
  if (config->staging == StagingKind::kHost) return HostParts(std::make_shared<HostStaging>());
  absl::StatusOr<RankStaging> parts = CudaParts(*config);
  if (parts.ok()) return *std::move(parts);
  const std::string why(parts.status().message());
  if (!config->pxn.enable) {
    config->warnings.push_back("GPU memory cannot be used: " + why);
  } else if (config->pxn.off_reason.empty()) {
    config->pxn.off_reason = why;
  }
  return HostParts(std::make_shared<HostStaging>(why));
}

}  // namespace railhop
