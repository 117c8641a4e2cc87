// The demo's target: memory that simulated NICs write to, and a judge of what arrived.
#include <sstream>

#include "tools/demo/batches.h"
#include "tools/demo/child_process.h"
#include "tools/demo/demo.h"
#include "tools/demo/device_memory.h"
#include "transport/fabric/sim/sim_target.h"

namespace railhop {
namespace {

using nlohmann::json;

std::vector<std::string> SplitNames(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream stream(text);
  for (std::string name; std::getline(stream, name, ',');) names.push_back(name);
  return names;
}

class DemoTarget {
 public:
  absl::Status Create(const TargetOptions& options) {
    auto target = SimTarget::Create(options.directory, options.name);
    if (!target.ok()) return target.status();
    target_ = *std::move(target);
    for (size_t i = 0; i < options.preferred.size(); ++i) {
      auto area = options.gpus.empty() ? MakeHostArea(options.area_bytes)
                                       : MakeGpuArea(options.gpus.at(i), options.area_bytes);
      if (!area.ok()) return area.status();
      auto buffer = target_->Register(area->data(), area->size(), SplitNames(options.preferred[i]));
      if (!buffer.ok()) return buffer.status();
      areas_.push_back(*area);
    }
    return target_->Publish();
  }

  json Handle(const json& request) {
    if (request["command"] == "areas") {
      json addresses = json::array();
      for (const auto area : areas_) addresses.push_back(reinterpret_cast<uint64_t>(area.data()));
      return {{"addresses", addresses}};
    }
    const auto area = request["area"].get<size_t>();
    const auto bytes = request["bytes"].get<size_t>();
    const auto seed = request["seed"].get<uint64_t>();
    const absl::StatusOr<int64_t> wrong = on_gpus_.empty()
                                              ? FindMismatch(areas_.at(area).first(bytes), seed)
                                              : on_gpus_.at(area)->FindMismatch(bytes, seed);
    if (!wrong.ok()) return {{"error", std::string(wrong.status().message())}};
    return {{"mismatch", *wrong}};
  }

 private:
  absl::StatusOr<std::span<std::byte>> MakeHostArea(uint64_t bytes) {
    auto memory = target_->AllocateMemory(bytes);
    // Touched now, so that no transfer pays for the page faults.
    if (memory.ok()) FillPattern(*memory, 0);
    return memory;
  }
  absl::StatusOr<std::span<std::byte>> MakeGpuArea(const std::string& gpu, uint64_t bytes) {
    auto memory = DeviceMemory::Allocate(gpu, bytes);
    if (!memory.ok()) return memory.status();
    const auto handle = (*memory)->Export();
    if (!handle.ok()) return handle.status();
    const std::span<std::byte> area = (*memory)->bytes();
    target_->AddDeviceMemory(area.data(), area.size(), *handle);
    on_gpus_.push_back(*std::move(memory));
    return area;
  }

  std::vector<std::unique_ptr<DeviceMemory>> on_gpus_;  // the areas, if they are there
  std::unique_ptr<SimTarget> target_;
  std::vector<std::span<std::byte>> areas_;
};

}  // namespace

int RunTargetProcess(const TargetOptions& options) {
  DemoTarget target;
  const absl::Status created = target.Create(options);
  return ServeRequests([&](const json& request) -> json {
    if (!created.ok()) return {{"error", std::string(created.message())}};
    return target.Handle(request);
  });
}

}  // namespace railhop
