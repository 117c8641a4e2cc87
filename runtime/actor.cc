#include "runtime/actor.h"

#include <bit>
#include <cassert>
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
  assert(ports_.size() <= kMaxPorts);
  first_data_port_ = control_ports_;
  awaited_.clear();
  for (const auto& each : ports_) awaited_.push_back(each->Awaited());
}

// The ports with a message, as bits.
uint64_t Actor::ReadyPorts() const {
  uint64_t ready = 0;
  for (size_t i = 0; i < awaited_.size(); ++i) {
    if (awaited_[i].IsSet()) [[unlikely]]
      ready |= uint64_t{1} << i;
  }
  return ready;
}

size_t Actor::DrainPorts(uint64_t ports) {
  size_t messages = 0;
  for (; ports != 0; ports &= ports - 1) {
    const auto i = static_cast<size_t>(std::countr_zero(ports));
    messages += ports_[i]->Drain(&metrics_.queue_wait);
    awaited_[i] = ports_[i]->Awaited();
  }
  return messages;
}

size_t Actor::DrainReady(uint64_t ready) {
  const auto below = [](size_t port) { return (uint64_t{1} << port) - 1; };
  const uint64_t control = ready & below(control_ports_);
  const uint64_t data = ready & ~control;
  const size_t first = DrainPorts(control);
  const size_t taken =
      DrainPorts(data & ~below(first_data_port_)) + DrainPorts(data & below(first_data_port_));
  if (taken != 0 && ++first_data_port_ == ports_.size()) first_data_port_ = control_ports_;
  return first + taken;
}

size_t Actor::Run(uint64_t now) {
  running_ = true;
  const uint64_t ready = ReadyPorts();
  const size_t messages = ready == 0 ? 0 : DrainReady(ready);
  size_t polled = 0;
  for (Poller* poller : pollers_) polled += poller->Poll(now);
  if (messages != 0) CountMessages(messages);
  running_ = false;
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
