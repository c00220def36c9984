#include "text/detokenizer.h"

#include "text/utf8.h"

namespace espalier {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special) {}

std::string Detokenizer::push(TokenId id) {
  const bool skipped = skip_special_ && tokenizer_->is_special(id);
  if (!skipped) {
    pending_ += tokenizer_->bytes(id, first_);
    first_ = false;
  }
  if (tokenizer_->starts_text_after(id)) first_ = true;
  return take_characters(pending_);
}

std::string Detokenizer::finish() {
  std::string text = take_characters(pending_);
  if (!pending_.empty()) text += kReplacementCharacter;
  pending_.clear();
  first_ = true;
  return text;
}

}  // namespace espalier
