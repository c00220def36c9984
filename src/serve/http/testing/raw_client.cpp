#include "serve/http/testing/raw_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

bool wait_for_event(int socket, short events, std::chrono::milliseconds time) {
  pollfd poll{.fd = socket, .events = events, .revents = 0};
  return ::poll(&poll, 1, static_cast<int>(time.count())) > 0;
}

std::size_t number_in(std::string_view text, int base) {
  std::size_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

RawAnswer parse_raw_head(std::string_view head) {
  RawAnswer answer;
  answer.status = static_cast<int>(number_in(head.substr(std::min<std::size_t>(head.size(), 9), 3), 10));
  std::size_t line = head.find("\r\n") + 2;
  while (line < head.size()) {
    const std::size_t end = head.find("\r\n", line);
    const std::size_t colon = head.find(": ", line);
    answer.headers.push_back(
        {std::string(head.substr(line, colon - line)), std::string(head.substr(colon + 2, end - colon - 2))});
    line = end + 2;
  }
  return answer;
}

}  // namespace

std::string RawAnswer::header(std::string_view name) const {
  for (const HttpHeader& header : headers)
    if (equal_ignoring_case(header.name, name)) return header.value;
  return "";
}

RawClient::RawClient(int port, const std::string& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(address.c_str(), fmt::to_string(port).c_str(), &hints, &list) != 0)
    device_error("{}: no such address", address);
  socket_ = ::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int failed = ::connect(socket_, list->ai_addr, list->ai_addrlen);
  const int reason = errno;
  const int on = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // bytes leave as they were sent
  ::freeaddrinfo(list);
  if (failed == 0) return;
  close();
  device_error("{}:{}: {}", address, port, std::strerror(reason));
}

RawClient::~RawClient() {
  close();
}

RawClient::RawClient(RawClient&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), received_(std::move(other.received_)) {}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    if (!wait_for_event(socket_, POLLOUT, kPatience)) return false;
    const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EAGAIN) continue;
    if (count < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

bool RawClient::fill(std::size_t most) {
  std::array<char, kMostAtOnce> bytes{};
  if (!wait_for_event(socket_, POLLIN, kPatience)) return false;
  const ssize_t count = ::recv(socket_, bytes.data(), std::min(most, bytes.size()), 0);
  if (count <= 0) return false;
  received_.append(bytes.data(), static_cast<std::size_t>(count));
  return true;
}

std::string RawClient::read_some(std::size_t most) {
  if (received_.empty()) fill(most);
  return std::exchange(received_, {});
}

std::string RawClient::read_until(std::string_view text) {
  while (received_.find(text) == std::string::npos)
    if (!fill()) return {};
  const std::size_t end = received_.find(text) + text.size();
  std::string bytes = received_.substr(0, end);
  received_.erase(0, end);
  return bytes;
}

bool RawClient::read_chunks(std::string& body) {
  while (true) {
    const std::string line = read_until("\r\n");
    if (line.empty()) return false;
    const std::size_t size = number_in(line, 16);
    while (received_.size() < size + 2)
      if (!fill()) return false;
    body += received_.substr(0, size);
    received_.erase(0, size + 2);
    if (size == 0) return true;
  }
}

RawAnswer RawClient::read_answer(bool bodiless) {
  const std::string head = read_until("\r\n\r\n");
  if (head.empty()) return {};
  RawAnswer answer = parse_raw_head(std::string_view(head).substr(0, head.size() - 2));
  const std::string length = answer.header("Content-Length");
  if (bodiless || answer.status == 204 || answer.status < 200) {
    answer.complete = true;
  } else if (answer.header("Transfer-Encoding") == "chunked") {
    answer.complete = read_chunks(answer.body);
  } else if (length.empty()) {
    answer.body = read_to_end();
    answer.complete = true;
  } else {
    const std::size_t size = number_in(length, 10);
    while (received_.size() < size && fill()) {
    }
    answer.complete = received_.size() >= size;
    answer.body = received_.substr(0, size);
    received_.erase(0, answer.body.size());
  }
  return answer;
}

std::string RawClient::read_to_end() {
  while (fill()) {
  }
  return std::exchange(received_, {});
}

bool RawClient::ended() {
  while (wait_for_event(socket_, POLLIN, kPatience)) {
    std::array<char, 4096> bytes{};
    if (::recv(socket_, bytes.data(), bytes.size(), 0) <= 0) return true;
  }
  return false;
}

bool RawClient::readable() const {
  return wait_for_event(socket_, POLLIN, std::chrono::milliseconds(0));
}

void RawClient::half_close() {
  ::shutdown(socket_, SHUT_WR);
}

void RawClient::close() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

void RawClient::reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close();
}

void RawClient::shrink_buffers(std::size_t bytes) {
  const int size = static_cast<int>(bytes);
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
}

std::string post_bytes(std::string_view path, std::string_view body, std::string_view more_headers) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}", path,
      body.size(), more_headers, body);
}

std::string get_bytes(std::string_view path, std::string_view more_headers) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, more_headers);
}

}  // namespace espalier
