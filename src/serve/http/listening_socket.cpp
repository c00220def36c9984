#include "serve/http/listening_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "serve/http/browser_rules.h"

namespace espalier {
namespace {

// A port the system chose for the first address may be taken on the second.
constexpr int kPortAttempts = 20;

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList addresses_of(const std::string& host) {
  const bool brackets = host.size() > 2 && host.starts_with('[') && host.ends_with(']');
  const std::string name = brackets ? host.substr(1, host.size() - 2) : host;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failure = name.empty() ? EAI_NONAME : ::getaddrinfo(name.c_str(), nullptr, &hints, &found);
  if (failure != 0)
    input_error("--host: expected an address or a name of this machine, got {} ({})", in_quotes(host),
                ::gai_strerror(failure));
  return {found, &::freeaddrinfo};
}

std::string text_of(const addrinfo& address) {
  std::array<char, NI_MAXHOST> text{};
  ::getnameinfo(address.ai_addr, address.ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

void set_port(addrinfo& address, int port) {
  const auto number = htons(static_cast<std::uint16_t>(port));
  if (address.ai_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address.ai_addr)->sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in*>(address.ai_addr)->sin_port = number;
  }
}

// False, with errno, and then `descriptor` is closed by the caller.
bool bind_and_listen(int descriptor, const addrinfo& address, bool ipv6_only) {
  const int on = 1;
  const int only = ipv6_only ? 1 : 0;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.ai_family == AF_INET6) ::setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
  return ::bind(descriptor, address.ai_addr, address.ai_addrlen) == 0 && ::listen(descriptor, SOMAXCONN) == 0;
}

// The sockets that could be opened, and why one could not.
struct Opened {
  std::vector<ListeningSocket> sockets;
  int error = 0;
  std::string failed;  // its address
};

void open_socket(const addrinfo& address, bool ipv6_only, Opened& opened) {
  const bool ipv6 = address.ai_family == AF_INET6;
  const std::string text = text_of(address);
  const std::string in_url = ipv6 ? fmt::format("[{}]", text) : text;
  if (std::ranges::find(opened.sockets, in_url, &ListeningSocket::address) != opened.sockets.end())
    return;  // listed twice
  const int descriptor = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor >= 0 && bind_and_listen(descriptor, address, ipv6_only)) {
    opened.sockets.emplace_back(descriptor, in_url, ipv6, is_loopback_host(text));
    return;
  }
  opened.error = errno;
  opened.failed = text;
  if (descriptor >= 0) ::close(descriptor);
}

// A name may have addresses that this machine does not, such as ::1 where IPv6 is switched off.
bool may_lack(int error) {
  return error == EADDRNOTAVAIL || error == EAFNOSUPPORT;
}

Opened open_all(addrinfo* list, int port) {
  Opened opened;
  const bool several = list->ai_next != nullptr;
  for (addrinfo* address = list; address != nullptr; address = address->ai_next) {
    set_port(*address, opened.sockets.empty() ? port : opened.sockets.front().port());
    open_socket(*address, several, opened);
    if (opened.error != 0 && !may_lack(opened.error)) return opened;
  }
  return opened;
}

[[noreturn]] void refuse_to_listen(const Opened& opened, int port) {
  if (opened.error == EADDRINUSE)
    input_error("--port {}: another program listens on {} already; expected a free port", port, opened.failed);
  if (opened.error == EADDRNOTAVAIL) input_error("--host {}: this machine does not have this address", opened.failed);
  input_error("--port {}: cannot listen on {}: {}", port, opened.failed, std::strerror(opened.error));
}

}  // namespace

ListeningSocket::ListeningSocket(int descriptor, std::string address, bool ipv6, bool loopback)
    : descriptor_(descriptor), address_(std::move(address)), ipv6_(ipv6), loopback_(loopback) {}

ListeningSocket::~ListeningSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      address_(std::move(other.address_)),
      ipv6_(other.ipv6_),
      loopback_(other.loopback_) {}

int ListeningSocket::port() const {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    device_error("getsockname: {}", std::strerror(errno));
  return ntohs(ipv6_ ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                     : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

int ListeningSocket::release() {
  return std::exchange(descriptor_, -1);
}

std::vector<ListeningSocket> listen_on(const std::string& host, int port) {
  if (port < 0 || port > 65535) input_error("--port: expected 0 to 65535, got {}", port);
  const AddressList list = addresses_of(host);
  for (int attempt = 1;; ++attempt) {
    Opened opened = open_all(list.get(), port);
    const bool again = port == 0 && opened.error == EADDRINUSE && attempt < kPortAttempts;
    if (!opened.sockets.empty() && (opened.error == 0 || may_lack(opened.error))) return std::move(opened.sockets);
    if (!again) refuse_to_listen(opened, port);
  }
}

}  // namespace espalier
