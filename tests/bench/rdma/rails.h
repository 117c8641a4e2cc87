// The rails of the virtual machine (tools/rdma-vm: rail N is the device rxeN on the interface
// railN, a cable leads from there to portN), shaped, broken and looked at. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace railhop {

// Whether this machine has rails 0 to `count` - 1.
bool HasRails(int count);

// While it lives, rails send no faster than so: a token bucket of the kernel's, below what its
// emulated processor can do.
class ShapedRails {
 public:
  ShapedRails(std::vector<int> rails, int mbit_per_s);
  ~ShapedRails();
  ShapedRails(const ShapedRails&) = delete;
  ShapedRails& operator=(const ShapedRails&) = delete;

  const absl::Status& status() const { return status_; }

 private:
  const std::vector<int> rails_;
  absl::Status status_;
};

// Runs `ip link set INTERFACE up|down`.
absl::Status SetLink(const std::string& interface, bool up);

// This machine knows no link address of another any more, as before it has spoken to any.
absl::Status ForgetNeighbors();

// Packets that the rail's device has sent so far, as its driver counts them.
uint64_t PacketsSent(int rail);

// CPU time that this machine has been busy with so far, in seconds: all processes, the kernel's own
// threads and interrupts.
double BusySeconds();

}  // namespace railhop
