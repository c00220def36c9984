// Finds stop strings in a stream of text, also across the borders of its parts. Text that may be the beginning of a
// stop string is held back until it is clear that it is not. Of several the one that is complete first counts, of those
// the longest, so the result does not depend on how the stream is cut.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

class StopScanner {
 public:
  // Empty stop strings are ignored. include: the text ends with the stop string, not before it.
  explicit StopScanner(std::vector<std::string> stops, bool include = false);

  // The text that can be shown now. After a stop string has been found it is always empty.
  std::string push(std::string_view text);
  // Likewise of text in which no stop string may end; one that begins in it may.
  std::string pass(std::string_view text);
  // What was held back, at the end of the stream.
  std::string finish();
  bool stopped() const { return found_.has_value(); }
  const std::optional<std::string>& found() const { return found_; }  // the stop string

 private:
  std::string show(std::size_t size);
  std::size_t open_beginning() const;

  std::vector<std::string> stops_;
  bool include_;
  std::string held_;
  std::size_t passed_ = 0;  // of the text held back, where no stop string may end
  std::optional<std::string> found_;
};

}  // namespace espalier
