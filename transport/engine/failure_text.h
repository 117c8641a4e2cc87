// What a user is told of a transfer that failed: what happened, to what, and what to do.
#pragma once

#include <string>
#include <string_view>

#include "transport/engine/data_path.h"

namespace railhop {

// `target`: the name of the request's segment, if it is known. `trouble`: why a target of the batch
// could not be opened; empty: each could.
std::string FailureText(TransferError error, const TransferRequest& request,
                        std::string_view target, std::string_view trouble);

}  // namespace railhop
