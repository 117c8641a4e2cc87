// EndpointActor: turns the name of a target into a TargetRoute, connects this rank's NICs to those
// of the target, and connects anew what broke.
//
// Lives on the control reactor and never waits for a peer there: its resolver reads the metadata of
// targets beside it, each name once at a time, and the answers come back with the next pass. Open
// is for every other thread. Owns all routes, until it is destroyed: the data actors hold plain
// pointers. Every new version of a route goes to SubmitActor and RelayPostActor.
//
// A target has several paths (target_route.h). One that cannot be connected costs a warning; what
// is connected is used meanwhile, and TargetFailed comes only if nothing is. A target with a broken
// path is tried again after 10 ms, then after twice the time before, up to 1 s, and then, while it
// can be reached some other way, every 5 s.
// Targets that the application opened are looked for until they are back; those that only other
// ranks' pieces named, when the next piece asks.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/messages.h"
#include "actors/ordered_ports.h"
#include "actors/route_builder.h"
#include "actors/target_resolver.h"
#include "actors/target_route.h"
#include "runtime/actor.h"
#include "runtime/edge.h"

namespace railhop {

class EndpointActor : public Actor, public Poller {
 public:
  struct Options {
    std::vector<Nic*> nics;  // they outlive the actor
    RouteOptions routes;     // with the rails of the NICs, by position
    std::chrono::milliseconds open_timeout{5000};
  };
  static constexpr std::chrono::milliseconds kFirstRetry{10};
  static constexpr std::chrono::milliseconds kLastRetry{1000};
  static constexpr std::chrono::milliseconds kSpareRetry{5000};

  EndpointActor(std::string name, std::unique_ptr<TargetResolver> resolver, Options options);

  // Any thread but the reactor's, while the system runs: the index of the target, connected. The
  // same name gives the same index. Ends with an error when the rank stops.
  absl::StatusOr<uint32_t> Open(const std::string& target);

  bool OnResolve(const ResolveTarget& message);
  bool OnEndpointError(const EndpointError& message);

  // To be connected with OrderedPorts::kEdge.
  OutPort<TargetReady> ready_to_submit, ready_to_relay;
  OutPort<TargetFailed> failed_to_submit, failed_to_relay;
  OutPort<CloseEndpoint> close_to_relay;

  void OnStop() override;
  size_t Poll(uint64_t now) override;
  uint64_t NextPoll(uint64_t now) override;

 private:
  friend class EndpointActorPeer;  // of the tests: looks who waits

  struct OpenRequest {
    std::string target;
    bool answered = false;                // under mutex_
    absl::StatusOr<uint32_t> answer{0u};  // under mutex_
  };
  // Metadata that is being read, and who waits for it.
  struct Reading {
    std::vector<std::shared_ptr<OpenRequest>> opens;  // asked before it began
    std::vector<std::shared_ptr<OpenRequest>> later;  // asked since: their news may be newer
    std::vector<uint32_t> tokens;                     // of the relay's pieces
  };
  struct Answered {
    std::string name;
    absl::StatusOr<TargetInfo> info;
  };
  struct Target {
    TargetInfo info;                                         // what the newest route was made from
    std::vector<std::unique_ptr<const TargetRoute>> routes;  // by version - 1
    std::vector<bool> connected;  // by path: its endpoint of the newest route is not broken
    bool complete = false;        // all paths that are wanted first are connected
    bool opened = false;          // by the application
    TransferError failed = TransferError::kNone;  // what the data actors were told last
    uint64_t looked_at = 0;                       // cycles: when its metadata was last read
    uint64_t routed_at = 0;                       // when the newest route was made
    bool mending = false;                         // not yet mended since the last error
    uint64_t retry_at = kNever;                   // kNever: nothing to mend
    std::chrono::milliseconds backoff = kFirstRetry;
    std::chrono::nanoseconds rest{0};  // while it can be reached, the next try comes no sooner

    const TargetRoute& route() const { return *routes.back(); }
    bool AnyConnected() const;
    std::vector<EndpointId> Endpoints() const;  // by path; 0: not connected
  };
  // An endpoint that a newer route has replaced, while it may still carry something.
  struct Retired {
    PathId path;
    EndpointId endpoint;
    const Target* target;
    uint64_t close_at;  // cycles
  };
  Target* Find(const std::string& name) const;
  // Has the metadata read, unless it is being read already.
  Reading& Read(const std::string& name);
  void OnAnswer(Answered answered);
  void AnswerRelay(const std::string& name, uint32_t token);
  absl::Status Add(const std::string& name, TargetInfo info);
  // Connects what is not connected, by metadata that was read anew.
  absl::Status Mend(Target& target, absl::StatusOr<TargetInfo> info);
  absl::Status Connect(Target& target, TargetInfo info);
  void Publish(Target& target, std::unique_ptr<const TargetRoute> route);
  void Disconnect(Target& target);
  void Close(PathId path, EndpointId endpoint, const Target& target);
  void Fail(Target& target, TransferError error);
  // `last`: how long it waits once the back-off has come to its end.
  void Retry(Target& target, std::chrono::milliseconds last = kLastRetry);
  static void Warn(const Target& target, const std::string& what);
  static void WarnOfPath(const absl::Status& error);

  size_t TakeMail();
  void Answer();

  const Options options_;
  std::vector<std::unique_ptr<Target>> targets_;  // by index
  std::map<std::string, uint32_t> index_of_;
  std::map<std::string, Reading> readings_;
  std::vector<Retired> retired_;
  uint64_t next_due_ = kNever;  // no retry_at and no close_at is earlier
  bool stopping_ = false;

  OrderedPorts<TargetReady, TargetFailed> submit_{ready_to_submit, failed_to_submit};
  OrderedPorts<TargetReady, TargetFailed, CloseEndpoint> relay_{ready_to_relay, failed_to_relay,
                                                                close_to_relay};
  // Given once both actors know all that was said: whoever got an index may use it at once.
  std::vector<std::pair<std::shared_ptr<OpenRequest>, absl::StatusOr<uint32_t>>> answers_;

  std::mutex mutex_;
  std::condition_variable answered_;
  std::vector<std::shared_ptr<OpenRequest>> opens_;  // under mutex_
  std::vector<Answered> reads_;                      // under mutex_
  bool closed_ = false;                              // under mutex_
  std::atomic<bool> has_mail_{false};                // one of the two is not empty
  const std::unique_ptr<TargetResolver> resolver_;   // last: its answers use the others
};

}  // namespace railhop
