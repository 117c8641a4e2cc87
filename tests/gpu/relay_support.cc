#include "tests/gpu/relay_support.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "transport/fabric/sim/sim_target.h"

namespace railhop {
namespace {

constexpr std::chrono::seconds kAttachTimeout{30};

bool SendAll(int fd, const void* bytes, size_t size) {
  return send(fd, bytes, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}
bool ReceiveAll(int fd, void* bytes, size_t size) {
  return recv(fd, bytes, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

int Complain(const char* who, const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", who, what.c_str());
  return 1;
}

// Until the other end closes. Each byte asks for the trace: a number, and so many records.
int ServeRelay(int fd, const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  std::string error;
  const auto rank = Rank::Create(text.str(), file, &error);
  if (rank == nullptr) return Complain("relay", error);
  if (!rank->pxn_off_reason().empty()) return Complain("relay", rank->pxn_off_reason());
  char byte = 1;
  if (!SendAll(fd, &byte, 1)) return 1;
  while (ReceiveAll(fd, &byte, 1)) {
    const PieceTrace trace = rank->TakePieceTrace();
    const uint64_t count = trace.records.size();
    if (!SendAll(fd, &count, sizeof(count)) ||
        (count != 0 && !SendAll(fd, trace.records.data(), count * sizeof(PieceRecord)))) {
      break;
    }
  }
  rank->Stop(std::chrono::seconds(2));
  return 0;
}

// A question is a number of bytes: 0 clears the memory, others ask for the checksum of so many.
int ServeTarget(int fd, const std::string& folder, uint64_t bytes) {
  const auto device = TestDevice(1);
  const CudaDriver& driver = device->driver();
  GpuBuffer memory(device, bytes);
  cuda::IpcMemHandle handle{};
  {
    CudaScope scope(*device);
    const cuda::Result made =
        driver.ipc_get_mem_handle(&handle, reinterpret_cast<uintptr_t>(memory.data()));
    if (made != cuda::kSuccess) {
      return Complain("target", std::string(driver.ToStatus(made, "no handle").message()));
    }
  }
  auto target = SimTarget::Create(folder, RelaySite::kTarget);
  if (!target.ok()) return Complain("target", std::string(target.status().message()));
  (*target)->AddDeviceMemory(memory.data(), bytes, std::bit_cast<DeviceHandle>(handle));
  const auto buffer = (*target)->Register(memory.data(), bytes, {"sim1"});
  const absl::Status published = buffer.ok() ? (*target)->Publish() : buffer.status();
  if (!published.ok()) return Complain("target", std::string(published.message()));
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  if (!SendAll(fd, &address, sizeof(address))) return 1;
  const std::vector<std::byte> blank(bytes, std::byte{0xee});
  uint64_t question = 0;
  while (ReceiveAll(fd, &question, sizeof(question))) {
    uint64_t answer = 0;
    if (question == 0) {
      memory.Write(blank);
    } else {
      const auto sum = DeviceChecksum(*device, memory.data(), question / sizeof(uint64_t));
      if (!sum.ok()) return Complain("target", std::string(sum.status().message()));
      answer = *sum;
    }
    if (!SendAll(fd, &answer, sizeof(answer))) return 1;
  }
  return 0;
}

}  // namespace

RoleProcess::RoleProcess(const std::string& role, std::vector<std::string> arguments) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  arguments.insert(arguments.begin(), fmt::format("--{}={}", role, ends[1]));
  arguments.insert(arguments.begin(), role);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(ends[1]);
  fd_ = ends[0];
}

RoleProcess::~RoleProcess() {
  Kill();
  if (fd_ >= 0) close(fd_);
}

bool RoleProcess::Send(const void* bytes, size_t size) const {
  return SendAll(fd_, bytes, size);
}

bool RoleProcess::Receive(void* bytes, size_t size) const {
  return ReceiveAll(fd_, bytes, size);
}

void RoleProcess::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

bool RoleProcess::Leave() {
  close(fd_);
  fd_ = -1;
  int status = -1;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

RelaySite::RelaySite(const RelaySiteOptions& options)
    : options_(options), folder_("/dev/shm/railhop-gpu-test.XXXXXX") {
  if (mkdtemp(folder_.data()) == nullptr) std::abort();
  target_ = std::make_unique<RoleProcess>(
      "target", std::vector{folder_, std::to_string(options_.target_bytes)});
  EXPECT_TRUE(target_->Receive(&target_address_, sizeof(target_address_)));
  StartRelay();
}

RelaySite::~RelaySite() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void RelaySite::StartRelay() {
  const std::string file = folder_ + "/relay.textproto";
  std::ofstream(file) << Config(1, "relay", true);
  relay_ = std::make_unique<RoleProcess>("relay", std::vector{file});
  char ready = 0;
  EXPECT_TRUE(relay_->Receive(&ready, 1)) << "the relay did not start";
}

PieceTrace RelaySite::RelayTrace() const {
  PieceTrace trace;
  const char question = 1;
  uint64_t count = 0;
  EXPECT_TRUE(relay_->Send(&question, 1) && relay_->Receive(&count, sizeof(count)));
  trace.records.resize(count);
  if (count != 0) {
    EXPECT_TRUE(relay_->Receive(trace.records.data(), count * sizeof(PieceRecord)));
  }
  return trace;
}

std::string RelaySite::Config(int device, const std::string& name, bool relayed) const {
  return fmt::format(
      "name: \"{0}\" sim_directory: \"{1}\" registry_root: \"{1}\"\n"
      "staging: CUDA gpu: \"{2}\" copy {{ {3} }}\n"
      "nics {{ name: \"sim{4}\" sim {{ line_rate_bytes_per_s: {5} base_delay_ns: {6} mode: {7} }} "
      "}}\n"
      "tracing {{ sample_every: 8 }} ranks_on_host: 3 local_rank: {8} spin_us: 10000\n"
      "{9}\n",
      name, folder_, TestDevice(device)->pci(), options_.copy, device,
      static_cast<uint64_t>(options_.gb_per_s * 1e9), options_.base_delay_ns,
      options_.move ? "MOVE" : "MODEL", relayed ? device : 2,
      // With patience: under a sanitizer nothing goes direct for having waited.
      relayed ? fmt::format("pxn {{ enable: true group_id: \"gpu\" preattach: true "
                            "credit_timeout_ms: 60000 max_piece_bytes: {} }}",
                            options_.max_piece_bytes)
              : "");
}

std::unique_ptr<Rank> RelaySite::MakeSender(bool relayed) const {
  std::string error;
  const char* const name = relayed ? "sender" : "sender-direct";
  auto rank = Rank::Create(Config(0, name, relayed), name, &error);
  if (rank == nullptr) {
    Complain(name, error);
    return nullptr;
  }
  if (relayed && !rank->pxn_off_reason().empty()) {
    Complain(name, rank->pxn_off_reason());
    return nullptr;
  }
  if (relayed && !rank->WaitForRelay("sim1", kAttachTimeout)) {
    Complain(name, "no lane to the relay");
    return nullptr;
  }
  return rank;
}

void RelaySite::ClearTarget() const {
  uint64_t word = 0;
  EXPECT_TRUE(target_->Send(&word, sizeof(word)) && target_->Receive(&word, sizeof(word)));
}

uint64_t RelaySite::TargetChecksum(uint64_t bytes) const {
  uint64_t sum = 0;
  EXPECT_TRUE(target_->Send(&bytes, sizeof(bytes)) && target_->Receive(&sum, sizeof(sum)));
  return sum;
}

int RelayRoleMain(int argc, char** argv) {
  int fd = -1;
  std::string why;
  const bool has_role = argc > 1 && (std::string_view(argv[1]).starts_with("--target=") ||
                                     std::string_view(argv[1]).starts_with("--relay="));
  if (has_role && TestDriver(&why) == nullptr) return Complain(argv[1], why);
  if (argc == 4 && std::sscanf(argv[1], "--target=%d", &fd) == 1) {
    return ServeTarget(fd, argv[2], std::strtoull(argv[3], nullptr, 10));
  }
  if (argc == 3 && std::sscanf(argv[1], "--relay=%d", &fd) == 1) return ServeRelay(fd, argv[2]);
  return -1;
}

}  // namespace railhop
