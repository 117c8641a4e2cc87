// The way to a peer's address within its network, looked for before a queue pair needs it.
//
// To connect a queue pair the kernel wants the link address behind a GID. One that it does not know
// it asks for, and looks a whole second later whether the answer has come; that is the first
// connection to a host. So it is asked beforehand, as by any datagram, which takes as long as the
// peer does to answer.
// Any thread; blocks until the address is known, or for kLongestSearch.
#pragma once

#include <chrono>
#include <cstdint>

#include "transport/fabric/rdma/gid.h"

namespace railhop {

inline constexpr std::chrono::milliseconds kLongestSearch{100};

// `interface`: number of the network interface whose address is `own`; 0: there is none, and
// nothing is done. What goes wrong is left for the connection to find out.
void FindNeighbor(uint32_t interface, const Gid& own, const Gid& peer);

}  // namespace railhop
