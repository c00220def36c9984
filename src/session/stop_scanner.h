// Finds stop strings in a stream of text, also across the borders of its parts. Text that may be the beginning of a
// stop string is held back until it is clear that it is not. Of several the one that is complete first counts, so the
// result does not depend on how the stream is cut.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier {

class StopScanner {
 public:
  // Empty stop strings are ignored.
  explicit StopScanner(std::vector<std::string> stops);

  // The text that can be shown now. After a stop string has been found it is always empty.
  std::string push(std::string_view text);
  // What was held back, at the end of the stream.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace espalier
