// Turns a stream of token ids into a stream of whole characters: bytes of an unfinished UTF-8 character are held back
// until the rest arrives or the stream is finished. The joined output equals Tokenizer::decode of all ids.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace espalier {

class Detokenizer {
 public:
  // The tokenizer must outlive this object.
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = true);

  // The text that became complete with this id; may be empty.
  std::string push(TokenId id);
  // What is left: bytes that never became a character come out as U+FFFD, once per maximal invalid part.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool first_ = true;
  std::string pending_;
};

}  // namespace espalier
