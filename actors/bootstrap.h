// One rank of the actor system, built from a config text: the embedding point.
//
//   std::string error;
//   auto rank = Rank::Create(config_text, "rank0.textproto", &error);
//   rank->RegisterMemory(buffer, size, "cpu:0", &error);
//   SegmentId target = rank->OpenSegment("decode-7", &error);
//   rank->Submit(requests, std::chrono::milliseconds(0), &batch); rank->Wait(batch, ...);
//
// A rank owns its reactors (threads), its NICs, its staging arena and its entry in the registry of
// the host's PXN group. Destroying it stops everything (see Stop).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "actors/piece_record.h"
#include "transport/engine/data_path.h"
#include "transport/engine/transfer_engine.h"

namespace railhop {

struct LatencySummary {
  uint64_t count = 0;
  double p50_us = 0, p99_us = 0, max_us = 0;
};

struct ActorStats {
  std::string actor;    // "submit", "copy", "relay_post", "cq_poll", "peer", "watchdog", "endpoint"
  std::string reactor;  // the thread it lives on
  int core = -1;        // -1: not pinned
  double busy = 0;      // share of the time since start that the actor worked, 0..1
  double busy_s = 0;    // that time, in seconds
  uint64_t messages = 0;
  LatencySummary queue_wait;  // sent -> handled
  LatencySummary service;     // time in the handler
};

// The 18 ring slots of one outbound lane, by how far their pieces are at the moment.
struct LaneSlots {
  uint32_t lane = 0;
  int32_t relay_pid = 0;
  std::vector<std::string> rails;  // of the relay
  uint32_t free = 0;
  uint32_t copying = 0;    // taken for a piece, whose doorbell is not rung yet
  uint32_t rung = 0;       // the relay has not taken it yet; with a version-1 relay: has not
                           // completed it
  uint32_t posted = 0;     // the relay has taken it
  uint32_t completed = 0;  // the relay has answered; the slot is not given back yet
};

struct RankStats {
  std::vector<ActorStats> actors;
  std::vector<LaneSlots> lanes;                  // those that are open
  uint64_t bytes_direct = 0, bytes_relayed = 0;  // finished as a sender
  uint64_t bytes_relayed_for_others = 0;         // finished as a relay
  uint64_t pieces_relayed = 0, slices_direct = 0;
  std::vector<std::pair<std::string, uint64_t>> fallbacks;  // reason -> pieces that went direct
};

class Rank : public DataPath {
 public:
  // nullptr and `error` when the rank cannot run at all. What only switches PXN off (rule: never an
  // error for the application) is logged once and shown by pxn_off_reason().
  // `config_name` names the text in messages ("FILE:LINE: ..."). MC_PXN_* variables of the
  // environment override the config's pxn block.
  static std::unique_ptr<Rank> Create(std::string_view config_text, std::string_view config_name,
                                      std::string* error);

  // Empty when this rank takes part in relaying.
  virtual std::string pxn_off_reason() const = 0;
  // True once a ready lane leads to a peer that owns `rail`; false after `timeout`.
  virtual bool WaitForRelay(std::string_view rail, std::chrono::milliseconds timeout) = 0;
  virtual RankStats Stats() const = 0;
  // What was recorded of relayed pieces since the last call, here as sender and as relay; times are
  // nanoseconds of CLOCK_MONOTONIC. One thread at a time. JoinPieces (piece_trace.h) puts the
  // records of several ranks of a host together.
  virtual PieceTrace TakePieceTrace() = 0;
  // Refuses new work, drains until `deadline` has passed, then fails what is left, and joins.
  // From any thread, in any state, any number of times; the destructor calls it. In a forked child
  // both do nothing.
  virtual void Stop(std::chrono::milliseconds deadline) = 0;
};

// An engine whose data path is a rank of its own.
struct EngineOptions {
  // With P2PHANDSHAKE how peers reach this host, a name or an address; a port in it counts for
  // nothing. With a metadata service the name that peers find the engine by; if it has no address
  // they are told that of an interface.
  std::string host = {};
  // "P2PHANDSHAKE", or a service (transport/engine/metadata_store.h): "http://host:port/path",
  // "etcd://host:port[;host:port]".
  std::string metadata = "P2PHANDSHAKE";
  // "tcp"; "rdma": the RDMA devices of the config, or else all of this machine; TCP, with a
  // warning, if none can be used; "sim": the simulated NICs of the config, with relaying if its pxn
  // block says so, among the ranks of this host. MC_FORCE_TCP makes any of them TCP.
  std::string protocol = "tcp";
  // With "rdma": the devices to be used, "mlx5_0,mlx5_1"; empty: all of them.
  std::string device_names = {};
  // A RankConfig without name, and with NICs for "sim" and "rdma" only; empty: the file that
  // RAILHOP_CONFIG names, if it is set, or the defaults.
  std::string config_text = {};
};
// nullptr and `error`: what, to what, what to do. The MC_* variables (`railhop env`) are read here.
std::unique_ptr<TransferEngine> MakeTransferEngine(const EngineOptions& options,
                                                   std::string* error);

}  // namespace railhop
