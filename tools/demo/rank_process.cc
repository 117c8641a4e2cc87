// One rank of the demo: a rank that relays, and beside it one that never does, on a NIC of the same
// kind; both send the same source.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <sstream>

#include "actors/bootstrap.h"
#include "tools/demo/batches.h"
#include "tools/demo/child_process.h"
#include "tools/demo/demo.h"
#include "tools/demo/device_memory.h"
#include "tools/demo/run_watch.h"

namespace railhop {
namespace {

using nlohmann::json;

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

const char* StateName(BatchState state) {
  constexpr const char* kNames[] = {"PENDING", "COMPLETED", "FAILED", "CANCELED", "TIMEOUT"};
  return kNames[static_cast<size_t>(state)];
}

json ToJson(const LatencySummary& latency) {
  return {{"count", latency.count},
          {"p50_us", latency.p50_us},
          {"p99_us", latency.p99_us},
          {"max_us", latency.max_us}};
}

json ToJson(const RankStats& stats) {
  json actors = json::array();
  for (const ActorStats& actor : stats.actors) {
    actors.push_back({{"actor", actor.actor},
                      {"reactor", actor.reactor},
                      {"core", actor.core},
                      {"busy", actor.busy},
                      {"messages", actor.messages},
                      {"queue_wait", ToJson(actor.queue_wait)},
                      {"service", ToJson(actor.service)}});
  }
  json fallbacks = json::object();
  for (const auto& [reason, count] : stats.fallbacks) fallbacks[reason] = count;
  return {{"actors", actors},
          {"bytes_direct", stats.bytes_direct},
          {"bytes_relayed", stats.bytes_relayed},
          {"bytes_relayed_for_others", stats.bytes_relayed_for_others},
          {"pieces_relayed", stats.pieces_relayed},
          {"slices_direct", stats.slices_direct},
          {"fallbacks", fallbacks}};
}

class DemoRank {
 public:
  // Empty, or what went wrong.
  std::string Create(const RankProcessOptions& options) {
    std::string error = MakeSource(options);
    if (!error.empty()) return error;
    const char* const location = device_source_ == nullptr ? "cpu:0" : "cuda:0";
    for (const auto& [file, side] : {std::pair{options.config_file, &relayed_},
                                     std::pair{options.direct_config_file, &direct_}}) {
      std::ostringstream text;
      text << std::ifstream(file).rdbuf();
      side->rank = Rank::Create(text.str(), file, &error);
      if (side->rank == nullptr) return error;
      if (!side->rank->RegisterMemory(source_.data(), source_.size(), location, &error))
        return error;
      side->target = side->rank->OpenSegment(options.target, &error);
      if (side->target == 0) return error;
    }
    watch_.emplace(relayed_.rank.get());
    wanted_rails_ = options.wanted_rails;
    return "";
  }

  json Handle(const json& request) {
    const auto command = request["command"].get<std::string>();
    if (command == "ready") return Ready();
    if (command == "attach")
      return Attach(std::chrono::seconds(request.value("timeout_s", int64_t{60})));
    if (command == "fill") {
      return Fill(request["bytes"].get<size_t>(), request["seed"].get<uint64_t>());
    }
    if (command == "trace") return watch_->Take();
    if (command == "stats") return ToJson(relayed_.rank->Stats());
    return Run(request["relayed"].get<bool>() ? relayed_ : direct_, request);
  }

 private:
  struct Side {
    std::unique_ptr<Rank> rank;
    SegmentId target = 0;
  };

  std::string MakeSource(const RankProcessOptions& options) {
    if (!options.gpu.empty()) {
      auto memory = DeviceMemory::Allocate(options.gpu, options.source_bytes);
      if (!memory.ok()) return std::string(memory.status().message());
      device_source_ = *std::move(memory);
      source_ = device_source_->bytes();
      return "";
    }
    void* memory = mmap(nullptr, options.source_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) return "no memory for the source of " + options.config_file;
    source_ = {static_cast<std::byte*>(memory), options.source_bytes};
    return "";
  }

  json Fill(size_t bytes, uint64_t seed) {
    if (device_source_ == nullptr) {
      FillPattern(source_.first(bytes), seed);
    } else if (absl::Status filled = device_source_->Fill(bytes, seed); !filled.ok()) {
      return {{"error", std::string(filled.message())}};
    }
    return json::object();
  }

  // Asked of all before any looks for another: it would wait for one that does not relay.
  json Ready() {
    const std::string reason = relayed_.rank->pxn_off_reason();
    return reason.empty() ? json::object() : json{{"error", "PXN is off: " + reason}};
  }

  json Attach(std::chrono::seconds timeout) {
    std::istringstream rails(wanted_rails_);
    for (std::string rail; std::getline(rails, rail, ',');) {
      if (!relayed_.rank->WaitForRelay(rail, timeout)) {
        return {{"error", fmt::format("no lane to the rank on rail {} within {} s; if this machine "
                                      "is busy, try again or with fewer --ranks",
                                      rail, timeout.count())}};
      }
    }
    return json::object();
  }

  json Run(Side& side, const json& request) {
    std::vector<TransferRequest> requests;
    auto address = request["address"].get<uint64_t>();
    const uint64_t gap = request.value("gap", uint64_t{0});  // left out at the target after each
    std::byte* source = source_.data();
    for (const json& entry : request["lengths"]) {
      const auto length = entry.get<uint64_t>();
      requests.push_back({Opcode::kWrite, source, side.target, address, length});
      source += length;
      address += length + gap;
    }
    const bool watched = side.rank == relayed_.rank;
    if (watched) watch_->Begin();
    const double cpu = CpuSeconds();
    const auto start = std::chrono::steady_clock::now();
    BatchId batch;
    const std::chrono::milliseconds timeout(request["timeout_ms"].get<int64_t>());
    const bool accepted = side.rank->Submit(requests, timeout, &batch) == SubmitResult::kOk;
    if (accepted) side.rank->Wait(batch, 2 * timeout);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const double cpu_seconds = CpuSeconds() - cpu;
    if (watched) watch_->End();
    if (!accepted) return {{"error", "a batch was not accepted"}};
    const BatchStatus status = side.rank->Status(batch);
    side.rank->Free(batch);
    return {{"seconds", seconds.count()},
            {"cpu_seconds", cpu_seconds},
            {"state", StateName(status.state)},
            {"reason", TransferErrorName(status.error)},
            {"bytes", status.bytes},
            {"relayed_bytes", status.relayed_bytes}};
  }

  std::unique_ptr<DeviceMemory> device_source_;  // nullptr: the source is in host memory
  std::span<std::byte> source_;
  Side relayed_;
  Side direct_;
  std::optional<RunWatch> watch_;  // of relayed_
  std::string wanted_rails_;
};

}  // namespace

int RunRankProcess(const RankProcessOptions& options) {
  DemoRank rank;
  const std::string error = rank.Create(options);
  return ServeRequests([&](const json& request) -> json {
    if (!error.empty()) return {{"error", error}};
    return rank.Handle(request);
  });
}

}  // namespace railhop
