// Tokens that are found in the text before anything else looks at it: control tokens (<|im_start|>) and the words a
// vocabulary wants in one piece whatever stands around them. Immutable after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/marked_text.h"

namespace espalier {

struct AddedToken {
  std::string text;
  std::int32_t id = 0;
  bool special = false;      // a control token: recognised only where every byte of the text allows it
  bool strip_left = false;   // swallows the white space before it
  bool strip_right = false;  // swallows the white space after it
  bool single_word = false;  // not inside a word
  bool normalized = false;   // looked for after normalisation instead of before
};

class AddedTokens {
 public:
  // A stretch of the text: an added token, or what lies between two of them.
  struct Segment {
    std::optional<std::int32_t> id;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  // No two tokens may have the same text, none may be empty.
  explicit AddedTokens(std::vector<AddedToken> tokens = {});

  // The segments in order; together they cover the text, none is empty. The leftmost token wins, among those that
  // start at the same byte the longest.
  std::vector<Segment> split(const MarkedText& text) const;

 private:
  const AddedToken* longest_match(const MarkedText& text, std::size_t begin) const;

  std::vector<AddedToken> tokens_;  // sorted by text: tokens with a common prefix are neighbours
  std::vector<bool> starts_token_;  // by first byte
};

}  // namespace espalier
