// A stream socket that two processes of one host use in place of TCP: the kernel then carries each
// byte half as far (docs/tcp.md, "Within a host").
//
// It lies in Linux' abstract namespace, under a random name that its owner publishes with its TCP
// port. Who finds somebody listening there has found that process and no other: a name is used
// once, is not there on other hosts or in other network namespaces, and is gone with its owner.
// Control path; any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "transport/fabric/tcp/tcp_target.h"
#include "transport/ring/guarded_fd.h"

namespace railhop {

struct LocalListener {
  GuardedFd fd;  // non-blocking
  std::string name;
};

// Unavailable: this process may not make such sockets.
absl::StatusOr<LocalListener> ListenOnLocalSocket(int backlog);

// 1 to 64 of [a-z0-9-]: what may come from a peer.
bool IsLocalSocketName(std::string_view name);
TcpAddress LocalSocketAddress(std::string_view name);

// Whether the process at the other end of a connected socket has this one's user: both sides ask
// before they send or store anything. "nobody", whom user namespaces take for each other, has none.
bool PeerIsSameUser(int fd);

}  // namespace railhop
