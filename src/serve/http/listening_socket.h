// Sockets that listen: from what stands in --host and --port to descriptors that can be accepted from. Plain POSIX, so
// that it can be tried without a server around it.
#pragma once

#include <string>
#include <vector>

namespace espalier {

class ListeningSocket {
 public:
  // Takes the descriptor over.
  ListeningSocket(int descriptor, std::string address, bool ipv6, bool loopback);
  ~ListeningSocket();
  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;

  int port() const;
  const std::string& address() const { return address_; }  // as in a URL: IPv6 in brackets
  bool ipv6() const { return ipv6_; }
  bool loopback() const { return loopback_; }
  int release();  // now the caller's to close

 private:
  int descriptor_;
  std::string address_;
  bool ipv6_;
  bool loopback_;
};

// One for each address of the host, all on one port; where that is 0 the system chooses. `host` is an address, with or
// without brackets, or a name. `::` takes IPv4 too. Throws InputError in one line: no such host, port taken, not
// permitted.
std::vector<ListeningSocket> listen_on(const std::string& host, int port);

}  // namespace espalier
