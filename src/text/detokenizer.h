// Turns a stream of token ids into a stream of whole characters: bytes of an unfinished UTF-8 character are held back
// until the rest arrives or the stream is finished. The joined output equals Tokenizer::decode of all ids.
#pragma once

#include <span>
#include <string>

#include "text/tokenizer.h"

namespace espalier {

class Detokenizer {
 public:
  // The tokenizer must outlive this object.
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = true);

  // The ids that come next stand behind these, whose text is known: a space that SentencePiece has at the beginning of
  // a text alone is not taken from them.
  void continue_behind(std::span<const TokenId> ids);

  // The text that became complete with this id; may be empty.
  std::string push(TokenId id);
  // What is left: bytes that never became a character come out as U+FFFD, once per maximal invalid part.
  std::string finish();

  // Whether the next id is the first of a text.
  bool first() const { return first_; }
  // The bytes that the last id has added, and how many at the end of all ids' bytes have not come out yet.
  const std::string& added() const { return added_; }
  std::size_t pending() const { return pending_.size(); }

 private:
  bool skips(TokenId id) const { return skip_special_ && tokenizer_->is_special(id); }
  void pass(TokenId id);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool first_ = true;
  std::string added_, pending_;
};

}  // namespace espalier
