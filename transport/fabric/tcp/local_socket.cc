#include "transport/fabric/tcp/local_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>
#include <utility>

namespace railhop {
namespace {

constexpr size_t kLongestName = 64;
static_assert(1 + kLongestName <= sizeof(sockaddr_un::sun_path));

std::string RandomName() {
  std::random_device random;
  return fmt::format("railhop-{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace

absl::StatusOr<LocalListener> ListenOnLocalSocket(int backlog) {
  LocalListener listener;
  listener.name = RandomName();
  const TcpAddress address = LocalSocketAddress(listener.name);
  listener.fd = GuardedFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.fd.valid() || bind(listener.fd.get(), address.get(), address.length) != 0 ||
      listen(listener.fd.get(), backlog) != 0) {
    return absl::UnavailableError(fmt::format("no local socket: {}", strerror(errno)));
  }
  return listener;
}

bool IsLocalSocketName(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
}

// The first byte of an abstract name is 0; it ends where the length says.
TcpAddress LocalSocketAddress(std::string_view name) {
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), kLongestName);
  memcpy(local.sun_path + 1, name.data(), length);
  TcpAddress address;
  memcpy(&address.storage, &local, sizeof(local));
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

bool PeerIsSameUser(int fd) {
  // Whom the kernel shows to a user namespace that does not know him: it may be anybody.
  constexpr uid_t kOverflowUser = 65534;
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid() &&
         peer.uid != kOverflowUser;
}

}  // namespace railhop
