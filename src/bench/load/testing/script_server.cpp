#include "bench/load/testing/script_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"

namespace espalier {
namespace {

// Head and body, as far as they come.
std::string read_request(int socket) {
  std::string text;
  char bytes[65536];
  while (true) {
    const std::size_t head = text.find("\r\n\r\n");
    if (head != std::string::npos) {
      const std::size_t field = text.find("Content-Length: ");
      const std::size_t length = field < head ? std::strtoul(text.c_str() + field + 16, nullptr, 10) : 0;
      if (text.size() >= head + 4 + length) return text;
    }
    const auto count = ::recv(socket, bytes, sizeof bytes, 0);
    if (count <= 0) return text;
    text.append(bytes, static_cast<std::size_t>(count));
  }
}

void write_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

std::string chunk(const std::string& data) {
  const std::string event = fmt::format("data: {}\n\n", data);
  return fmt::format("{:x}\r\n{}\r\n", event.size(), event);
}

}  // namespace

ScriptServer::ScriptServer(Script script, After after) : script_(std::move(script)), after_(after) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  check(::bind(listener_, plain, size) == 0 && ::listen(listener_, 64) == 0, "no port for a test");
  ::getsockname(listener_, plain, &size);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

ScriptServer::~ScriptServer() {
  stopped_ = true;
  thread_.join();
  for (const int socket : kept_) ::close(socket);
  ::close(listener_);
}

void ScriptServer::serve() {
  while (!stopped_) {
    pollfd wait{listener_, POLLIN, 0};
    if (::poll(&wait, 1, 20) <= 0) continue;
    const int socket = ::accept(listener_, nullptr, nullptr);
    if (socket < 0) continue;
    const std::string answer = script_(read_request(socket));
    ++requests_;
    write_all(socket, answer);
    if (answer.empty() || after_ == After::keep)
      kept_.push_back(socket);
    else
      ::close(socket);
  }
}

std::string response_of(int status, std::string_view body, std::string_view type) {
  return fmt::format("HTTP/1.1 {} Word\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n{}", status, type, body.size(),
                     body);
}

std::string answer_stream(int tokens) {
  std::string text = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < tokens; ++i) text += chunk(R"({"choices":[{"delta":{"content":"x"},"finish_reason":null}]})");
  text += chunk(R"({"choices":[{"delta":{},"finish_reason":"length"}]})");
  text += chunk(fmt::format(R"({{"choices":[],"usage":{{"prompt_tokens":5,"completion_tokens":{}}}}})", tokens));
  return text + chunk("[DONE]") + "0\r\n\r\n";
}

std::string models_response() {
  return response_of(200, R"({"object":"list","data":[{"id":"tiny","owned_by":"somebody"}]})");
}

}  // namespace espalier
