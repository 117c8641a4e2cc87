// The demo's target: memory that simulated NICs write to, and a judge of what arrived.
#include <sstream>

#include "tools/demo/batches.h"
#include "tools/demo/child_process.h"
#include "tools/demo/demo.h"
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
    for (const std::string& names : options.preferred) {
      auto memory = target_->AllocateMemory(options.area_bytes);
      if (!memory.ok()) return memory.status();
      // Touched now, so that no transfer pays for the page faults.
      FillPattern(*memory, 0);
      auto buffer = target_->Register(memory->data(), memory->size(), SplitNames(names));
      if (!buffer.ok()) return buffer.status();
      areas_.push_back(*memory);
    }
    return target_->Publish();
  }

  json Handle(const json& request) {
    if (request["command"] == "areas") {
      json addresses = json::array();
      for (const auto area : areas_) addresses.push_back(reinterpret_cast<uint64_t>(area.data()));
      return {{"addresses", addresses}};
    }
    const auto area = areas_.at(request["area"].get<size_t>());
    const int64_t wrong =
        FindMismatch(area.first(request["bytes"].get<size_t>()), request["seed"].get<uint64_t>());
    return {{"mismatch", wrong}};
  }

 private:
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
