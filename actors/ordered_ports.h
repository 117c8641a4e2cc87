// OrderedPorts: several edges from one control actor to one other actor, whose messages are handled
// in the order in which they were sent, whatever edge each of them takes.
//
//   OutPort<LaneReady> ready; OutPort<CloseLane> close;
//   OrderedPorts<LaneReady, CloseLane> to_submit{ready, close};
//   to_submit.Send(LaneReady{...});        // never refused
//   to_submit.Flush();                     // on every pass
//
// Edges alone keep no order among each other: a consumer may drain the second between two sends.
// So a message follows one of another edge only once that was handled, which the producer sees
// because edges of kCapacity return their room cell by cell. Connect all of them with kEdge.
// Thread: the producer's reactor; it allocates, so it is for control paths.
#pragma once

#include <cassert>
#include <cstddef>
#include <deque>
#include <tuple>
#include <utility>
#include <variant>

#include "runtime/actor_system.h"
#include "runtime/edge.h"

namespace railhop {

template <Message... T>
class OrderedPorts {
 public:
  static constexpr size_t kCapacity = 2;
  static constexpr EdgeOptions kEdge{.capacity = kCapacity, .control = true};

  // The ports outlive this object; they are usually members before it.
  explicit OrderedPorts(OutPort<T>&... ports) : ports_(ports...) {}
  OrderedPorts(const OrderedPorts&) = delete;
  OrderedPorts& operator=(const OrderedPorts&) = delete;

  template <Message M>
  void Send(const M& message) {
    waiting_.emplace_back(message);
    Flush();
  }

  // Sends what can be sent; returns how many left.
  size_t Flush() {
    size_t sent = 0;
    while (!waiting_.empty() &&
           std::visit([this](const auto& message) { return this->TrySend(message); },
                      waiting_.front())) {
      waiting_.pop_front();
      ++sent;
    }
    return sent;
  }

  // Every message sent so far was handled.
  bool Delivered() {
    return waiting_.empty() &&
           std::apply([](auto&... port) { return (IsEmpty(port) && ...); }, ports_);
  }

 private:
  template <Message M>
  static bool IsEmpty(OutPort<M>& port) {
    const size_t room = port.Room(kCapacity);
    assert(room <= kCapacity);  // else the edge was not connected with kEdge
    return room == kCapacity;
  }
  template <Message M>
  bool TrySend(const M& message) {
    const auto free = [](auto& port) {
      if constexpr (std::is_same_v<decltype(port), OutPort<M>&>)
        return true;
      else
        return IsEmpty(port);
    };
    return std::apply([&](auto&... port) { return (free(port) && ...); }, ports_) &&
           std::get<OutPort<M>&>(ports_).TrySend(message);
  }

  std::tuple<OutPort<T>&...> ports_;
  std::deque<std::variant<T...>> waiting_;
};

}  // namespace railhop
