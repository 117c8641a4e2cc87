// TargetResolver: reads the metadata of targets beside the control reactor, because that may mean
// to wait for a peer.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "transport/fabric/fabric.h"

namespace railhop {

class TargetResolver {
 public:
  // NotFound or Unavailable: the target is not there (any more).
  using Answer = std::function<void(absl::StatusOr<TargetInfo> info)>;

  // Once it is over nobody is answered any more.
  virtual ~TargetResolver() = default;
  // Does not block. The answer is given once, on any thread, perhaps before this returns.
  virtual void Resolve(const std::string& name, Answer answer) = 0;
  // What is not answered yet need not be, and what waits for a peer ends.
  virtual void Abandon() = 0;
};

}  // namespace railhop
