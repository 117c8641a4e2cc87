// Makes a RankStats of what the actors count. Any thread, while the system runs.
#pragma once

#include <chrono>

#include "actors/bootstrap.h"
#include "runtime/actor_system.h"

namespace railhop {

// One row per actor; `running` is the time since the system was started.
std::vector<ActorStats> SummariseActors(const ActorSystem& system,
                                        std::chrono::nanoseconds running);

}  // namespace railhop
