// PeerActor: this rank's dealings with the other processes of its group. It finds the peers whose
// rails are wanted, attaches to their lanes, watches that they live, and admits who claims a lane
// here.
//
//   WantRail -> scan -> attach, probe (OutboundPeer) -> LaneReady to submit, copy, CQ poll
//   peer dead, silent or stopping -> CloseLane -> three times LaneClosed -> unmapped, forgotten
//   sender seen in an own lane (InboundWatch) -> SenderSide to CQ poll -> SenderAdmitted to relay
//
// It also writes the slot log, if there is one.
//
// Lives on the control reactor, which it never holds up for longer than one step of an attachment
// takes: a few milliseconds. Locks that others hold are tried again later. WaitForRail and Attached
// are for any thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "actors/attached_rails.h"
#include "actors/group_member.h"
#include "actors/inbound_watch.h"
#include "actors/messages.h"
#include "actors/ordered_ports.h"
#include "actors/outbound_peer.h"
#include "actors/slot_log.h"
#include "runtime/actor.h"
#include "runtime/background_worker.h"
#include "runtime/edge.h"

namespace railhop {

class PeerActor : public Actor, public Poller {
 public:
  struct Options {
    GroupMember* member = nullptr;  // outlives the actor
    bool preattach = false;         // to every peer that owns a rail which is not our own
    std::chrono::milliseconds heartbeat{500};
    std::chrono::milliseconds heartbeat_timeout{3000};
    std::chrono::milliseconds probe_timeout{100};
    std::chrono::milliseconds lane_grace{200};
    std::chrono::milliseconds fabric_drain{10};
    std::chrono::milliseconds slot_log_every{0};  // 0: no slot log
    // With a slot log: the slots of the attached lanes.
    std::function<std::vector<LaneSlots>()> read_slots = nullptr;
  };
  static constexpr std::chrono::milliseconds kFirstScan{50};   // then twice the time before, up to
  static constexpr std::chrono::milliseconds kLastScan{1000};  // while a rail is missing
  static constexpr std::chrono::milliseconds kPreattachScan{5000};  // in case somebody joins
  static constexpr std::chrono::seconds kWantedFor{10};             // since it was last asked for
  // After it has left the group: how long it waits for senders to let go of its lanes.
  static constexpr std::chrono::milliseconds kFarewell{1000};

  PeerActor(std::string name, Options options);

  // Any thread, while the system runs. Asks for a peer on `rail` and waits until it is attached and
  // SubmitActor knows of it (true), `timeout` has passed, or the rank stops (false).
  bool WaitForRail(const std::string& rail, std::chrono::nanoseconds timeout);
  std::vector<AttachedPeer> Attached() const { return attached_.Snapshot(); }

  bool OnWantRail(const WantRail& message);
  bool OnSubmitClosedLane(const LaneClosed& message) { return OnLaneClosed(kSubmit, message); }
  bool OnCopyClosedLane(const LaneClosed& message) { return OnLaneClosed(kCopy, message); }
  bool OnCqPollClosedLane(const LaneClosed& message) { return OnLaneClosed(kCqPoll, message); }
  bool OnSenderSeen(const SenderSeen& message);
  bool OnSenderSideTaken(const SenderSideTaken& message);
  bool OnSenderDrained(const SenderDrained& message);

  // All to be connected with OrderedPorts::kEdge.
  OutPort<LaneReady> ready_to_submit, ready_to_copy, ready_to_cq_poll;
  OutPort<CloseLane> close_to_submit, close_to_copy, close_to_cq_poll;
  OutPort<SenderSide> side_to_cq_poll;
  OutPort<SenderAdmitted> admitted_to_relay;
  OutPort<SenderLost> lost_to_relay;

  void OnStart() override;
  void OnControl(const ControlMessage&) override { Wake(); }
  void OnStop() override;
  bool Drained() const override;
  void OnFlush() override;
  size_t Poll(uint64_t now) override;
  uint64_t NextPoll(uint64_t now) override;

 private:
  enum User : uint32_t { kSubmit, kCopy, kCqPoll, kUsers };  // of an outbound lane
  using LanePorts = OrderedPorts<LaneReady, CloseLane>;

  struct Peer {
    std::unique_ptr<OutboundPeer> outbound;
    uint32_t lane = kLaneCount;  // the outbound lane that leads to it; kLaneCount: none
    bool used = false;           // its lane was open since it was claimed
    bool gone = false;           // to be forgotten
  };
  struct Lane {
    enum class State : uint8_t { kFree, kOpening, kOpen, kClosing };
    State state = State::kFree;
    LaneEnd end = LaneEnd::kStale;  // kClosing: as announced last
    uint32_t users = 0;             // that were told of it, as bits
    uint32_t closed = 0;            // those of them that have answered a CloseLane
    bool told = false;              // a pass ago all users had handled what was announced
  };

  bool OnLaneClosed(uint32_t user, const LaneClosed& message);
  void Wake() { awake_ = true; }
  size_t FlushPorts();
  bool Delivered();

  // peer_actor.cc: lanes
  size_t Drive(Peer& peer, uint64_t now);
  void DriveUnopened(Peer& peer);
  void OpenLane(Peer& peer);
  void Tell(Peer& peer, uint32_t user);
  size_t DriveLane(Peer& peer);
  void Announce(Peer& peer, LaneEnd end);
  size_t FinishClosing(Peer& peer);

  // peer_search.cc: which peers to attach to
  void TakeWaitedFor(uint64_t now);
  void Want(const std::string& rail, uint64_t until);
  void Search(uint64_t now);
  bool Scan();
  bool IsServed(const std::string& rail) const;
  std::vector<std::string> MissingRails(uint64_t now);
  void AttachFor(const std::string& rail, uint64_t now);

  size_t DriveStop(uint64_t now);

  const Options options_;
  GroupMember& member_;
  std::array<LanePorts, kUsers> users_{{LanePorts(ready_to_submit, close_to_submit),
                                        LanePorts(ready_to_copy, close_to_copy),
                                        LanePorts(ready_to_cq_poll, close_to_cq_poll)}};
  InboundWatch::CqPollPorts cq_poll_{side_to_cq_poll};
  InboundWatch::RelayPorts relay_{admitted_to_relay, lost_to_relay};
  BackgroundWorker worker_;
  InboundWatch inbound_;

  std::vector<Peer> peers_;  // of the group, as of the last scan or still attached
  std::array<Lane, kLaneCount> lanes_;
  uint32_t next_lane_ = 0;  // a number is used again as late as possible
  AttachedRails attached_;
  SlotLog slot_log_;

  bool awake_ = true;  // something happened: look at everything
  uint64_t due_ = 0;   // cycles: look at everything then
  uint64_t heartbeat_at_ = 0;

  std::map<std::string, uint64_t> wanted_;  // rail -> until when (cycles)
  uint64_t scanned_at_ = 0;                 // 0: never
  uint64_t scan_at_ = 0;
  std::chrono::milliseconds scan_interval_ = kFirstScan;

  std::mutex mutex_;
  std::vector<std::pair<std::string, std::chrono::steady_clock::time_point>>
      waited_for_;                           // under mutex_: by WaitForRail, until when
  std::atomic<bool> has_waited_for_{false};  // it is not empty

  bool stopping_ = false;
  bool left_ = false;      // the group
  bool farewell_ = false;  // all senders have let go, or had time enough
  bool flushed_ = false;
  uint64_t farewell_until_ = 0;
  uint64_t stop_at_ = kNever;  // DriveStop is due
};

}  // namespace railhop
