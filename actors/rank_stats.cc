#include "actors/rank_stats.h"

#include "runtime/cycle_clock.h"

namespace railhop {
namespace {

double Microseconds(uint64_t cycles) {
  return static_cast<double>(cycles) / CyclesPerNanosecond() / 1000;
}

LatencySummary Summarise(const Histogram& histogram) {
  const HistogramSnapshot snapshot = histogram.Snapshot();
  return {.count = snapshot.Count(),
          .p50_us = Microseconds(snapshot.Percentile(50)),
          .p99_us = Microseconds(snapshot.Percentile(99)),
          .max_us = Microseconds(snapshot.Max())};
}

}  // namespace

std::vector<ActorStats> SummariseActors(const ActorSystem& system,
                                        std::chrono::nanoseconds running) {
  const double cycles = static_cast<double>(running.count()) * CyclesPerNanosecond();
  std::vector<ActorStats> rows;
  for (const ActorSystem::Placed& placed : system.actors()) {
    const ActorMetrics& metrics = placed.actor->metrics();
    const auto busy = static_cast<double>(metrics.busy_cycles.load(std::memory_order_relaxed));
    rows.push_back({.actor = placed.actor->name(),
                    .reactor = placed.reactor->options().name,
                    .core = placed.reactor->pinned_core(),
                    .busy = cycles > 0 ? busy / cycles : 0,
                    .busy_s = busy / CyclesPerNanosecond() * 1e-9,
                    .messages = metrics.messages.load(std::memory_order_relaxed),
                    .queue_wait = Summarise(metrics.queue_wait),
                    .service = Summarise(metrics.service)});
  }
  return rows;
}

}  // namespace railhop
