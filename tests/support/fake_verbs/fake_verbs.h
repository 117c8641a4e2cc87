// A stand-in for libibverbs: a library with the same entry points and two devices, whose queue
// pairs move bytes within this process, so that what Railhop does with an RDMA device is tested
// where there is none.
//
//   FakeVerbs& fake = FakeVerbs::Get();  fake.max_mr_size = 8192;
//   auto device = RdmaDevice::Open({.name = "fake0"});
//
// Railhop loads it by its file name: a test that links railhop_fake_verbs finds it before the
// machine's own. A request is carried out when it is posted, and checked against registrations at
// both ends; a queue pair in error flushes. Memory that the CPU cannot touch, a GPU's, is reached
// by `gpu`. Threads: calls are serialised; the test changes fields while no other thread calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace railhop {

class FakeVerbs {
 public:
  // The instance behind the loaded library (which tests link as well).
  __attribute__((visibility("default"))) static FakeVerbs& Get();
  virtual ~FakeVerbs() = default;

  // As after loading. Not while a device is open.
  virtual void Reset() = 0;

  struct Registration {
    uint64_t address = 0;
    uint64_t length = 0;
    unsigned access = 0;
    bool by_file = false;  // a DMA-BUF
    uint64_t offset = 0;   // in that
    uint32_t lkey = 0;
    uint32_t rkey = 0;
  };
  // In order of address.
  virtual std::vector<Registration> Registrations() = 0;

  // How GPU memory is known and reached; nullptr: there is none.
  class Gpu {
   public:
    virtual bool Owns(uint64_t address) = 0;
    virtual std::vector<std::byte> Read(uint64_t address, size_t bytes) = 0;
    virtual void Write(uint64_t address, const std::vector<std::byte>& bytes) = 0;

   protected:
    ~Gpu() = default;
  };
  Gpu* gpu = nullptr;
  bool peer_memory = false;  // nvidia-peermem: memory of GPUs is registered as any other

  uint64_t max_mr_size = UINT64_MAX;
  int max_cqe = 1 << 20;
  bool thread_domains = true;
  // Entry point -> how many of its next calls succeed, and the error number of the one after them.
  struct Failure {
    int after = 0;
    int error = 0;
  };
  std::map<std::string, Failure> fail;
  // Called with the peer's number when a queue pair is told of its peer; it may block, as a kernel
  // does that looks for the device behind an address, and holds up no other call.
  std::function<void(uint32_t)> looks_for_peer;
  // Called by ibv_destroy_qp before anything else: it takes as long as this.
  std::function<void()> before_destroy_qp;
  // --- To look at:
  std::map<std::string, int> calls;
  uint32_t inline_room = 0;   // the largest that a queue pair was asked for
  int posted_inline = 0;      // requests
  int overflows = 0;          // completions for which a queue had no room any more
  int in_thread_domains = 0;  // queue pairs that were made in such a domain
  int objects = 0;  // of all kinds that were made and are not destroyed, registrations too
};

}  // namespace railhop
