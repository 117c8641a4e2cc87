#include "runtime/actor.h"

#include <utility>

#include "runtime/reactor.h"

namespace railhop {

bool Actor::Post(ControlMessage message) {
  message.actor = index_;
  return reactor_->PostControl(message);
}

void Actor::AddPort(std::unique_ptr<InPort> port, bool control) {
  if (control) {
    ports_.insert(ports_.begin() + static_cast<std::ptrdiff_t>(control_ports_++), std::move(port));
  } else {
    ports_.push_back(std::move(port));
  }
}

size_t Actor::Run(uint64_t now) {
  size_t messages = 0;
  for (const auto& port : ports_) messages += port->Drain(now, &metrics_.queue_wait);
  size_t polled = 0;
  for (Poller* poller : pollers_) polled += poller->Poll(now);
  if (messages != 0) {
    metrics_.messages.store(metrics_.messages.load(std::memory_order_relaxed) + messages,
                            std::memory_order_relaxed);
  }
  return messages + polled;
}

bool Actor::MailboxEmpty() const {
  for (const auto& port : ports_) {
    if (!port->Empty()) return false;
  }
  return true;
}

void Actor::PublishCredit() {
  for (const auto& port : ports_) port->PublishCredit();
}

}  // namespace railhop
