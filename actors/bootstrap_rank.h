// A rank from a loaded config, for Rank::Create and MakeTransferEngine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/bootstrap.h"
#include "actors/bootstrap_config.h"
#include "actors/bootstrap_layout.h"
#include "actors/bootstrap_staging.h"
#include "actors/resolver_pool.h"

namespace railhop {

// Started. nullptr and `error` when it cannot run at all. `layout`: that of `config`. `staging`:
// what MakeStaging made for it. `read`: resolver_pool.h. `nics`: those of the config, by position;
// without them they are made from it.
std::unique_ptr<Rank> MakeRank(RankConfig config, const ResolvedLayout& layout, RankStaging staging,
                               ReadTarget read, std::vector<std::unique_ptr<Nic>> nics,
                               std::string* error);

}  // namespace railhop
