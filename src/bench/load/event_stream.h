// Server-sent events out of bytes that come in any pieces. Only `data` matters; comments and other fields are passed
// over. One thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace espalier {

class EventStream {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{4} << 20;  // of one event

  explicit EventStream(std::function<void(std::string data)> on_event) : on_event_(std::move(on_event)) {}

  // False: an event is too long, now or before; nothing is told any more.
  bool feed(std::string_view bytes);

 private:
  void end_line();

  std::function<void(std::string data)> on_event_;
  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_return_ = false;  // a \n now belongs to the \r before it
  bool too_long_ = false;
};

}  // namespace espalier
