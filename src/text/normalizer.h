// What a tokenizer does to a text before it looks for words: a list of steps, applied in order. Immutable after
// construction, safe to share between threads.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "text/marked_text.h"

namespace espalier {

class Normalizer {
 public:
  struct Nfc {};  // canonical composition; a composed character has the marks all its parts share
  struct Prepend {
    std::string text;  // put before a text that is not empty
  };
  struct Replace {
    std::string from;  // not empty
    std::string to;
  };
  using Step = std::variant<Nfc, Prepend, Replace>;

  explicit Normalizer(std::vector<Step> steps = {});

  MarkedText apply(MarkedText text) const;

 private:
  std::vector<Step> steps_;
};

// Every occurrence of `from`, found from left to right, becomes `to`. A literal character is never part of an
// occurrence.
MarkedText replace_all(const MarkedText& text, const std::string& from, const std::string& to);

}  // namespace espalier
