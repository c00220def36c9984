#include "serve/http/testing/fake_site.h"

#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

std::optional<HttpRefusal> route_fake(const HttpHead& head) {
  const std::string& path = head.target.path;
  const bool any = path == "/hold";
  const bool get = path == "/health" || path == "/big";
  const bool post = path == "/echo" || path == "/throw" || path == "/drop";
  if (path == "/broken") throw std::runtime_error("broken");
  if (!any && !get && !post) return HttpRefusal{.status = 404, .message = "no such path"};
  if ((get && head.method != "GET") || (post && head.method != "POST"))
    return HttpRefusal{.status = 405, .message = "no such method", .headers = {{"Allow", get ? "GET, HEAD" : "POST"}}};
  return std::nullopt;
}

std::string fake_error(const HttpRefusal& refusal) {
  return fmt::format("{} {}", refusal.status, refusal.message);
}

}  // namespace

FakeSite::FakeSite(HttpOptions options) {
  options.port = 0;
  server_ = std::make_unique<HttpServer>(std::move(options));
  port_ = server_->port();
  server_->start({
      .is_public = [](const HttpHead& head) { return head.target.path == "/health"; },
      .admit = route_fake,
      .handle = [this](HttpRequest request,
                       std::shared_ptr<HttpReply> reply) { handle(std::move(request), std::move(reply)); },
      .error_body = fake_error,
      .on_refused =
          [this](int status) {
            const std::lock_guard lock(mutex_);
            refused_.push_back(status);
          },
  });
}

FakeSite::~FakeSite() {
  stop();
}

void FakeSite::handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  {
    const std::lock_guard lock(mutex_);
    ++handled_;
  }
  const std::string& path = request.head.target.path;
  if (path == "/health") reply->send({.content_type = "text/plain", .body = "ok"});
  if (path == "/echo") reply->send({.content_type = "text/plain", .body = std::move(request.body)});
  if (path == "/big") {
    const std::size_t size = std::stoul(std::string(request.head.target.parameter("bytes").value_or("0")));
    reply->send({.content_type = "text/plain", .body = std::string(size, 'x')});
  }
  if (path == "/throw") throw std::runtime_error("thrown");
  if (path == "/hold") hold(std::move(request), std::move(reply));
}

void FakeSite::hold(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  reply->on_gone([this] {
    const std::lock_guard lock(mutex_);
    ++gone_;
    changed_.notify_all();
  });
  const std::lock_guard lock(mutex_);
  held_.push_back({std::move(request), std::move(reply)});
  changed_.notify_all();
}

RawAnswer FakeSite::ask(std::string_view bytes) const {
  RawClient one = client();
  one.send(bytes);
  return one.read_answer();
}

HeldRequest FakeSite::held() {
  std::unique_lock lock(mutex_);
  const bool came = changed_.wait_for(lock, RawClient::kPatience, [this] { return !held_.empty(); });
  if (!came) device_error("no request came that could be held");
  HeldRequest held = std::move(held_.front());
  held_.pop_front();
  return held;
}

bool FakeSite::gone(int count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, RawClient::kPatience, [&] { return gone_ >= count; });
}

int FakeSite::handled() const {
  const std::lock_guard lock(mutex_);
  return handled_;
}

std::vector<int> FakeSite::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

HttpOptions on_any_port(HttpLimits limits) {
  HttpOptions options;
  options.port = 0;
  options.limits = limits;
  return options;
}

bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + RawClient::kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace espalier
