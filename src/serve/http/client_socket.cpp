#include "serve/http/client_socket.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>

namespace espalier {

// None of it is necessary, so failures are passed over.
void set_client_options(int socket, const HttpLimits& limits) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(limits.write_time.count()));
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

ClientState look_at_client(int socket) {
  char byte = 0;
  const ssize_t count = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (count == 0) return ClientState::gone;
  if (count < 0) return errno == EAGAIN || errno == EINTR ? ClientState::silent : ClientState::gone;
  pollfd poll{.fd = socket, .events = POLLRDHUP, .revents = 0};
  const bool ended = ::poll(&poll, 1, 0) > 0 && (poll.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  return ended ? ClientState::gone : ClientState::talking;
}

int unacknowledged_bytes(int socket) {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

int accept_client(int listener) {
  return ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

bool concerns_one_client(int error) {
  return error == EAGAIN || error == EINTR || error == ECONNABORTED || error == EPROTO || error == EPERM;
}

}  // namespace espalier
