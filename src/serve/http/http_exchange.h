// One answer on its way from the application to a connection: what was said and not sent yet. The two sides meet only
// here: HttpReply (http_reply.h) is the application's, from any thread; the connection takes on the I/O thread. Knows
// no sockets. Both sides share it, since either may be gone long before the other.
//
// Thread-safe; no call blocks. `wake` is called with the lock held and must only post; on_gone's callback without it.
// Where `wake` throws, the call that wanted it has not happened, and may be made again; only abandon() has.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/http_types.h"

namespace espalier {

class HttpExchange {
 public:
  // `outbox_bytes`: how much of a stream may wait. `wake`: there is something to take.
  HttpExchange(std::size_t outbox_bytes, std::function<void()> wake);

  // The application's side, as HttpReply describes it.
  bool send(HttpResponse response);
  bool begin_events(std::vector<HttpHeader> headers);
  bool write(std::string_view bytes);
  bool finish();
  void on_gone(std::function<void()> callback);
  bool gone() const;
  std::size_t waiting_bytes() const;
  // Nobody is left who could finish it. Does nothing when it is complete or the client gone.
  void abandon() noexcept;

  // What the connection has to send next. All of it is empty where nothing is new.
  struct Step {
    std::optional<HttpResponse> whole{};             // the whole answer
    std::optional<std::vector<HttpHeader>> begun{};  // a stream of events begins, with these headers
    std::string bytes{};                             // of the stream
    bool last = false;                               // the answer ends with this
    bool abandoned = false;                          // it will never end
  };
  Step take();
  // Of the bytes taken, how many the system has not accepted yet.
  void set_in_flight(std::size_t bytes);
  // The application has said all that belongs to the answer.
  bool complete() const;
  // More waits than may: the client counts as gone.
  bool overflowed() const;
  // There is nobody to answer. Tells the application, unless the answer is complete or that was said before.
  void client_left() noexcept;
  // The connection is done with it: `wake` is not called any more.
  void detach();

 private:
  enum class Phase { nothing, streaming, complete, abandoned };

  bool deaf() const { return gone_ || overflowed_ || phase_ == Phase::abandoned; }
  void signal();
  bool completed(std::unique_lock<std::mutex>& lock);

  const std::size_t outbox_bytes_;
  mutable std::mutex mutex_;
  std::function<void()> wake_;
  std::function<void()> on_gone_;
  Phase phase_ = Phase::nothing;
  Step next_;
  std::size_t in_flight_ = 0;
  std::size_t long_piece_ = 0;  // bytes of one longer than the outbox that came when nothing waited
  bool signalled_ = false;
  bool overflowed_ = false;
  bool gone_ = false;
};

}  // namespace espalier
