// The tokens of an answer on their way to whoever hears them: each waits until the text it is part of has been said.
// Sizes and offsets are bytes of the answer's text. One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "session/session.h"

namespace espalier {

class ToldTokens {
 public:
  // The next token, whose offset is where the text was before it. `text` has come out of all tokens by now, and of
  // their bytes the last `pending` have not.
  void push(TextToken token, std::int64_t text, std::int64_t pending);
  // All tokens have come out as text.
  void finish(std::int64_t text);

  // Takes those that are complete when so much of the text has been said.
  std::vector<TextToken> take(std::int64_t said);
  // The text ends here, wherever they do: takes those that have a part of it, or none of any text.
  std::vector<TextToken> take_before(std::int64_t end);

 private:
  struct Waiting {
    TextToken token;
    std::int64_t end = -1;  // of its text; -1: not known yet
  };

  std::deque<Waiting> waiting_;
};

}  // namespace espalier
