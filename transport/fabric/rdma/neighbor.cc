#include "transport/fabric/rdma/neighbor.h"

#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "transport/ring/guarded_fd.h"

namespace railhop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint16_t kDiscardPort = 9;  // RFC 863: whatever comes there means nothing
constexpr int kLookEveryMs = 1;

bool IsIpv4(const Gid& gid) {
  constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kMapped.begin(), kMapped.end(), gid.begin());
}

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

SocketAddress ToAddress(const Gid& gid, uint32_t interface, uint16_t port) {
  SocketAddress address;
  if (IsIpv4(gid)) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&v4.sin_addr, gid.data() + 12, 4);
    address.length = sizeof v4;
    std::memcpy(&address.storage, &v4, sizeof v4);
  } else {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    v6.sin6_scope_id = interface;  // of a link-local address
    std::memcpy(&v6.sin6_addr, gid.data(), gid.size());
    address.length = sizeof v6;
    std::memcpy(&address.storage, &v6, sizeof v6);
  }
  return address;
}

// By that interface alone, as the device sends, even to an address of this host.
bool Bind(int fd, uint32_t interface, const Gid& own) {
  std::array<char, IF_NAMESIZE> name{};
  if (if_indextoname(interface, name.data()) == nullptr) return false;
  const SocketAddress address = ToAddress(own, interface, 0);
  return setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name.data(),
                    static_cast<socklen_t>(strlen(name.data()) + 1)) == 0 &&
         bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.length) == 0;
}

}  // namespace

// The datagram waits in the kernel for as long as the link address is not known.
void FindNeighbor(uint32_t interface, const Gid& own, const Gid& peer) {
  if (interface == 0 || IsIpv4(own) != IsIpv4(peer)) return;
  const GuardedFd fd(
      socket(IsIpv4(own) ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0 || !Bind(fd.get(), interface, own)) return;
  const SocketAddress to = ToAddress(peer, interface, kDiscardPort);
  const auto* const address = reinterpret_cast<const sockaddr*>(&to.storage);
  if (sendto(fd.get(), "", 0, MSG_NOSIGNAL, address, to.length) < 0) return;
  const auto until = Clock::now() + kLongestSearch;
  int waiting = 0;
  while (ioctl(fd.get(), SIOCOUTQ, &waiting) == 0 && waiting != 0 && Clock::now() < until) {
    pollfd entry{.fd = fd.get(), .events = 0, .revents = 0};
    if (poll(&entry, 1, kLookEveryMs) != 0) return;  // it cannot be sent
  }
}

}  // namespace railhop
