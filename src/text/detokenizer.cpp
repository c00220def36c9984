#include "text/detokenizer.h"

#include "text/utf8.h"

namespace espalier {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special) {}

void Detokenizer::continue_behind(std::span<const TokenId> ids) {
  for (const TokenId id : ids) pass(id);
}

void Detokenizer::pass(TokenId id) {
  if (!skips(id)) first_ = false;
  if (tokenizer_->starts_text_after(id)) first_ = true;
}

std::string Detokenizer::push(TokenId id) {
  added_ = skips(id) ? std::string() : tokenizer_->bytes(id, first_);
  pending_ += added_;
  pass(id);
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
