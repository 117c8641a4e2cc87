// Railhop's two sides of the TCP data protocol, for a peer of another language to play against.
//
//   tcp_player serve BYTES             prints PORT ADDRESS, serves until standard input ends
//   tcp_player play TARGET ADDRESS BYTES
//       writes a pattern to the target's memory in many requests, reads it back, then asks for what
//       is outside; prints one line a step
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/wait_until.h"
#include "transport/fabric/tcp/tcp_nic.h"
#include "transport/fabric/tcp/tcp_server.h"

namespace railhop {
namespace {

int Serve(uint64_t bytes) {
  std::vector<std::byte> memory(bytes);
  TcpServerOptions options;
  options.address = "127.0.0.1";
  auto server = TcpServer::Start(options);
  if (!server.ok()) return 1;
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  if (!(*server)->AddRegion(address, bytes).ok()) return 1;
  fmt::print("{} {}\n", (*server)->port(), address);
  fflush(stdout);
  while (getchar() != EOF) {
  }
  return 0;
}

class Player {
 public:
  Player(Nic* nic, EndpointId endpoint, uint64_t bytes)
      : nic_(*nic), endpoint_(endpoint), memory_(bytes) {
    key_ = nic_.Register(memory_.data(), memory_.size())->lkey;
  }

  // How the first request that failed ended, or kOk.
  FabricStatus Move(FabricOpcode opcode, uint64_t address, uint64_t bytes, uint32_t step) {
    FabricStatus first = FabricStatus::kOk;
    uint64_t posted = 0;
    uint64_t ended = 0;
    size_t outstanding = 0;
    const bool moved = WaitUntil([&] {
      while (posted != bytes) {
        const uint32_t length = static_cast<uint32_t>(std::min<uint64_t>(step, bytes - posted));
        if (!nic_.Prepare({.opcode = opcode,
                           .signaled = true,
                           .endpoint = endpoint_,
                           .local = memory_.data() + posted,
                           .lkey = key_,
                           .length = length,
                           .remote_address = address + posted,
                           .rkey = 0,
                           .user_data = length})) {
          break;
        }
        posted += length;
        ++outstanding;
        step = step * 5 / 3 % 500'000 + 1;
      }
      nic_.Submit();
      NicCompletion completions[16];
      const size_t shown = nic_.Peek(completions);
      for (size_t i = 0; i < shown; ++i) {
        ended += completions[i].user_data;
        if (first == FabricStatus::kOk) first = completions[i].status;
      }
      nic_.Advance(shown);
      outstanding -= shown;
      return ended == bytes && outstanding == 0;
    });
    return moved ? first : FabricStatus::kTransport;
  }

  void Fill() {
    for (size_t i = 0; i < memory_.size(); ++i) memory_[i] = At(i);
  }
  void Clear() { std::fill(memory_.begin(), memory_.end(), std::byte{0}); }
  bool Matches() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      if (memory_[i] != At(i)) return false;
    }
    return true;
  }

 private:
  static std::byte At(size_t i) { return static_cast<std::byte>(i * 7 + i / 256); }

  Nic& nic_;
  EndpointId endpoint_;
  std::vector<std::byte> memory_;
  uint32_t key_ = 0;
};

int Play(const std::string& target, uint64_t address, uint64_t bytes) {
  auto nic = TcpNic::Create({});
  if (!nic.ok()) return 1;
  const TargetInfo info{.name = target, .kind = "tcp", .buffers = {}, .nics = {{target, target}}};
  auto endpoint = (*nic)->Connect(info, 0);
  if (!endpoint.ok()) return 1;
  Player player(nic->get(), *endpoint, bytes);
  const auto say = [](std::string_view step, FabricStatus status) {
    fmt::print("{} {}\n", step, FabricStatusName(status));
    fflush(stdout);
  };
  player.Fill();
  say("write", player.Move(FabricOpcode::kWrite, address, bytes, 1));
  // A target that does not answer writes may still be storing them: the last read shows when.
  const bool arrived = WaitUntil([&] {
    player.Clear();
    const FabricStatus read = player.Move(FabricOpcode::kRead, address, bytes, 300);
    return read != FabricStatus::kOk || player.Matches();
  });
  say("read", arrived && player.Matches() ? FabricStatus::kOk : FabricStatus::kTransport);
  say("outside", player.Move(FabricOpcode::kRead, address + bytes, 16, 16));
  return 0;
}

}  // namespace
}  // namespace railhop

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "serve" && argc == 3) return railhop::Serve(strtoull(argv[2], nullptr, 0));
  if (mode == "play" && argc == 5) {
    return railhop::Play(argv[2], strtoull(argv[3], nullptr, 0), strtoull(argv[4], nullptr, 0));
  }
  fprintf(stderr, "usage: tcp_player serve BYTES | play TARGET ADDRESS BYTES\n");
  return 2;
}
