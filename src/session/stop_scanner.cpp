#include "session/stop_scanner.h"

#include <algorithm>
#include <utility>

namespace espalier {
namespace {

// The length of the longest suffix of text that begins a stop string.
std::size_t open_suffix(std::string_view text, std::string_view stop) {
  for (std::size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length)
    if (stop.starts_with(text.substr(text.size() - length))) return length;
  return 0;
}

}  // namespace

StopScanner::StopScanner(std::vector<std::string> stops, bool include) : stops_(std::move(stops)), include_(include) {
  std::erase(stops_, std::string());
}

std::string StopScanner::push(std::string_view text) {
  if (stopped()) return {};
  held_ += text;
  std::size_t first_end = std::string::npos, begin = 0;
  for (const std::string& stop : stops_) {
    const std::size_t from = passed_ < stop.size() ? 0 : passed_ - stop.size() + 1;
    const std::size_t at = held_.find(stop, from);
    if (at == std::string::npos) continue;
    // Of two that end together the longer one begins earlier.
    const std::size_t end = at + stop.size();
    if (end > first_end || (end == first_end && at >= begin)) continue;
    first_end = end;
    begin = at;
    found_ = stop;
  }
  if (!stopped()) return show(held_.size() - open_beginning());
  std::string shown = show(include_ ? first_end : begin);
  held_.clear();
  return shown;
}

std::string StopScanner::pass(std::string_view text) {
  if (stopped()) return {};
  held_ += text;
  passed_ = held_.size();
  return show(held_.size() - open_beginning());
}

std::string StopScanner::finish() {
  return show(held_.size());
}

// How much of the end of what is held back may begin a stop string.
std::size_t StopScanner::open_beginning() const {
  std::size_t open = 0;
  for (const std::string& stop : stops_) open = std::max(open, open_suffix(held_, stop));
  return open;
}

// Takes it off the front.
std::string StopScanner::show(std::size_t size) {
  std::string shown = held_.substr(0, size);
  held_.erase(0, size);
  passed_ -= std::min(passed_, size);
  return shown;
}

}  // namespace espalier
