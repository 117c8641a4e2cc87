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
  first_data_port_ = control_ports_;
}

size_t Actor::DrainPorts(size_t first, size_t end, uint64_t now) {
  size_t messages = 0;
  for (size_t i = first; i < end; ++i) {
    if (ports_[i]->Ready()) messages += ports_[i]->Drain(now, &metrics_.queue_wait);
  }
  return messages;
}

size_t Actor::Run(uint64_t now) {
  const size_t control = DrainPorts(0, control_ports_, now);
  const size_t data = DrainPorts(first_data_port_, ports_.size(), now) +
                      DrainPorts(control_ports_, first_data_port_, now);
  if (data != 0 && ++first_data_port_ == ports_.size()) first_data_port_ = control_ports_;
  const size_t messages = control + data;
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
    if (!port->AllTaken()) return false;
  }
  return true;
}

void Actor::PublishCredit() {
  for (const auto& port : ports_) port->PublishCredit();
}

void Actor::CloseInboxes() {
  for (const auto& port : ports_) port->Close();
}

}  // namespace railhop
