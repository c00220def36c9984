#include "bench/load/event_stream.h"

#include <utility>

namespace espalier {

bool EventStream::feed(std::string_view bytes) {
  while (!bytes.empty() && !too_long_) {
    if (std::exchange(after_return_, false) && bytes[0] == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const std::size_t end = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, end);
    too_long_ = line_.size() + data_.size() > kMostBytes;
    if (end == std::string_view::npos) break;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (!too_long_) end_line();
  }
  return !too_long_;
}

// A blank line ends an event. Of "data: x" the space belongs to nobody.
void EventStream::end_line() {
  const std::string line = std::exchange(line_, {});
  if (line.empty()) {
    const std::string data = std::exchange(data_, {});
    if (std::exchange(has_data_, false)) on_event_(data);
    return;
  }
  const std::size_t colon = line.find(':');
  if (std::string_view(line).substr(0, colon) != "data") return;
  std::string_view value = colon == std::string::npos ? std::string_view() : std::string_view(line).substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (std::exchange(has_data_, true)) data_ += '\n';
  data_ += value;
}

}  // namespace espalier
