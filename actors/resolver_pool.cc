#include "actors/resolver_pool.h"

#include <utility>

namespace railhop {

ResolverPool::ResolverPool(ReadTarget read, std::function<void()> settle)
    : read_(std::move(read)),
      settle_(std::move(settle)),
      worker_([] { /* the answer wakes who asked */ }, kThreads) {}

void ResolverPool::Resolve(const std::string& name, Answer answer) {
  worker_.Start([this, name, answer = std::move(answer)] {
    if (!stop_.stop_requested()) answer(read_(name, stop_.get_token()));
    if (settle_ && !stop_.stop_requested()) settle_();
    return absl::OkStatus();
  });
}

}  // namespace railhop
