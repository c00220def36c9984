#include "serve/http/http_exchange.h"

#include <utility>

#include "base/error.h"
#include "serve/http/response_bytes.h"

namespace espalier {

HttpExchange::HttpExchange(std::size_t outbox_bytes, std::function<void()> wake)
    : outbox_bytes_(outbox_bytes), wake_(std::move(wake)) {}

// Requires the lock, so that nobody takes before the change that is told of. May fail: comes before that change.
void HttpExchange::signal() {
  if (signalled_) return;
  if (wake_) wake_();
  signalled_ = true;
}

// The callback may own what owns this answer, so it goes when it can no longer be called; and outside the lock, because
// its end may call us.
bool HttpExchange::completed(std::unique_lock<std::mutex>& lock) {
  const std::function<void()> unused = std::exchange(on_gone_, nullptr);
  lock.unlock();
  return true;
}

bool HttpExchange::send(HttpResponse response) {
  check_answer(response.status, response.content_type, response.headers);
  std::unique_lock lock(mutex_);
  if (deaf()) return false;
  check(phase_ == Phase::nothing, "an HTTP answer that is sent twice");
  signal();
  phase_ = Phase::complete;
  next_.whole = std::move(response);
  next_.last = true;
  return completed(lock);
}

bool HttpExchange::begin_events(std::vector<HttpHeader> headers) {
  check_answer(200, "text/event-stream", headers);
  const std::lock_guard lock(mutex_);
  if (deaf()) return false;
  check(phase_ == Phase::nothing, "an event stream that begins in the middle of an answer");
  signal();
  phase_ = Phase::streaming;
  next_.begun = std::move(headers);
  return true;
}

bool HttpExchange::write(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  if (deaf()) return false;
  check(phase_ == Phase::streaming, "bytes for an event stream that is not open");
  // One piece may be as long as it likes where nothing waits: the client had no chance to take any of it. Until most
  // of it has been taken, what comes behind it has the outbox for itself.
  const std::size_t waiting = next_.bytes.size() + in_flight_;
  if (waiting == 0) long_piece_ = bytes.size() > outbox_bytes_ ? bytes.size() : 0;
  overflowed_ = waiting > 0 && waiting + bytes.size() > outbox_bytes_ + long_piece_;
  if (overflowed_) {
    // A connection that cannot send does not take, so it has been told of earlier bytes and not come for them.
    if (wake_) wake_();
    return false;
  }
  signal();
  next_.bytes += bytes;
  return true;
}

bool HttpExchange::finish() {
  std::unique_lock lock(mutex_);
  if (deaf()) return false;
  check(phase_ == Phase::streaming, "the end of an event stream that is not open");
  signal();
  phase_ = Phase::complete;
  next_.last = true;
  return completed(lock);
}

void HttpExchange::on_gone(std::function<void()> callback) {
  std::unique_lock lock(mutex_);
  if (phase_ == Phase::complete) return;
  if (!gone_) {
    std::swap(on_gone_, callback);
    lock.unlock();  // a callback from before ends outside the lock
    return;
  }
  lock.unlock();
  callback();
}

bool HttpExchange::gone() const {
  const std::lock_guard lock(mutex_);
  return deaf();
}

std::size_t HttpExchange::waiting_bytes() const {
  const std::lock_guard lock(mutex_);
  return next_.bytes.size() + in_flight_;
}

void HttpExchange::abandon() noexcept {
  std::unique_lock lock(mutex_);
  if (deaf() || phase_ == Phase::complete) return;
  phase_ = Phase::abandoned;
  next_.abandoned = true;
  try {
    signal();
  } catch (...) {  // the connection looks by itself after a while
  }
  completed(lock);
}

HttpExchange::Step HttpExchange::take() {
  const std::lock_guard lock(mutex_);
  signalled_ = false;
  in_flight_ = next_.bytes.size();
  return std::exchange(next_, {});
}

void HttpExchange::set_in_flight(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  in_flight_ = bytes;
  if (bytes <= outbox_bytes_) long_piece_ = 0;
}

bool HttpExchange::complete() const {
  const std::lock_guard lock(mutex_);
  return phase_ == Phase::complete;
}

bool HttpExchange::overflowed() const {
  const std::lock_guard lock(mutex_);
  return overflowed_;
}

void HttpExchange::client_left() noexcept {
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    gone_ = true;
    callback = std::exchange(on_gone_, nullptr);
    next_ = {};
    in_flight_ = 0;
  }
  try {
    if (callback) callback();
  } catch (...) {  // nobody is left whom it could concern, and the I/O thread goes on
  }
}

void HttpExchange::detach() {
  const std::lock_guard lock(mutex_);
  wake_ = nullptr;
}

}  // namespace espalier
