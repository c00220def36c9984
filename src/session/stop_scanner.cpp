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

StopScanner::StopScanner(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, std::string());
}

std::string StopScanner::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  std::size_t first_end = std::string::npos, begin = 0, open = 0;
  for (const std::string& stop : stops_) {
    const std::size_t at = held_.find(stop);
    // Of two that end together the longer one begins earlier.
    if (at != std::string::npos && (at + stop.size() < first_end || (at + stop.size() == first_end && at < begin))) {
      first_end = at + stop.size();
      begin = at;
    }
    open = std::max(open, open_suffix(held_, stop));
  }
  stopped_ = first_end != std::string::npos;
  const std::size_t shown = stopped_ ? begin : held_.size() - open;
  std::string out = held_.substr(0, shown);
  held_ = stopped_ ? std::string() : held_.substr(shown);
  return out;
}

std::string StopScanner::finish() {
  return std::exchange(held_, {});
}

}  // namespace espalier
