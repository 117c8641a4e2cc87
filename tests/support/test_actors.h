// Actors that do what a test tells them, and write down what happens to them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/actor.h"

namespace railhop {

// What happened, one line each, on one thread.
using Journal = std::vector<std::string>;

inline size_t CountOf(const std::string& prefix, const Journal& journal) {
  return static_cast<size_t>(
      std::count_if(journal.begin(), journal.end(),
                    [&](const std::string& line) { return line.starts_with(prefix); }));
}

struct Item {
  uint64_t value = 0;
};
struct Urgent {
  uint64_t value = 0;
};

class Source : public Actor {
 public:
  explicit Source(std::string name = "source") : Actor(std::move(name)) {}

  // Sends 0, 1, ... until the edge is full.
  size_t FillItems() {
    size_t sent = 0;
    while (items.TrySend({sent})) ++sent;
    return sent;
  }

  OutPort<Item> items;
  OutPort<Urgent> urgent;
};

class Sink : public Actor {
 public:
  explicit Sink(Journal* journal, std::string name = "sink")
      : Actor(std::move(name)), journal_(journal) {}

  bool OnItem(const Item& item) { return Take("item", item.value); }
  bool OnOther(const Item& item) { return Take("other", item.value); }
  bool OnThird(const Item& item) { return Take("third", item.value); }
  bool OnUrgent(const Urgent& urgent) { return Take("urgent", urgent.value); }

  void OnStart() override { Note("start"); }
  void OnControl(const ControlMessage& message) override {
    Note(fmt::format("control {} {}", message.kind, message.arguments[5]));
    on_control();
  }
  void OnStop() override { Note("stop"); }
  void OnFlush() override {
    Note("flush");
    in_flight = 0;
    allowance = SIZE_MAX;
  }
  bool Drained() const override { return in_flight == 0; }

  size_t allowance = SIZE_MAX;  // how many more messages it can take
  int in_flight = 0;
  std::function<void()> on_message = [] {};
  std::function<void()> on_control = [] {};

 private:
  bool Take(const char* what, uint64_t value) {
    if (allowance == 0) return false;
    --allowance;
    Note(fmt::format("{} {}", what, value));
    on_message();
    return true;
  }
  void Note(const std::string& what) { journal_->push_back(name() + " " + what); }

  Journal* const journal_;
};

// Has no state of its own: a poller of the test is asked on its reactor.
class Polling : public Actor {
 public:
  explicit Polling(Poller* poller) : Actor("polling") { AddPoller(poller); }
};

}  // namespace railhop
