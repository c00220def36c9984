#include "serve/protocol/choice_pieces.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/detokenizer.h"

namespace espalier {
namespace {

bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
}

}  // namespace

std::int64_t count_characters(std::string_view text) {
  return std::ranges::count_if(text, begins_character);
}

void ChoicePieces::add(const TextPart& part) {
  counted_from_ += part.text;
  ready_.text += part.text;
  for (const TextToken& token : part.tokens)
    ready_.tokens.push_back({.id = token.id,
                             .first = token.first,
                             .stops = token.stops,
                             .offset = offset_of(token),
                             .logprobs = token.logprobs});
}

AnswerPiece ChoicePieces::take() {
  return std::exchange(ready_, {});
}

// Tokens begin one behind the other, so only the text between them is counted. One that begins inside a character has
// that character's place.
std::int64_t ChoicePieces::offset_of(const TextToken& token) {
  check(token.offset >= counted_bytes_, "a token begins at byte {}, one before it at {}", token.offset, counted_bytes_);
  auto bytes = std::min(static_cast<std::size_t>(token.offset - counted_bytes_), counted_from_.size());
  while (bytes > 0 && bytes < counted_from_.size() && !begins_character(counted_from_[bytes])) --bytes;
  characters_ += count_characters(std::string_view(counted_from_).substr(0, bytes));
  counted_bytes_ += static_cast<std::int64_t>(bytes);
  counted_from_.erase(0, bytes);
  return characters_;
}

AnswerPiece echo_piece(const PlannedPrompt& prompt, std::span<const Logprobs> logprobs, const Tokenizer& tokenizer) {
  check(logprobs.empty() || logprobs.size() + 1 == prompt.tokens.size(), "{} log-probabilities for {} tokens",
        logprobs.size(), prompt.tokens.size());
  AnswerPiece piece{.text = prompt.echo};
  const std::int64_t characters = count_characters(prompt.echo);
  Detokenizer detokenizer(tokenizer, /*skip_special=*/false);
  std::int64_t offset = 0;
  bool first = true;
  for (std::size_t i = 0; i < prompt.tokens.size(); ++i) {
    const TokenId id = prompt.tokens[i];
    AnswerToken token{.id = id, .first = first, .of_prompt = true, .offset = std::min(offset, characters)};
    if (i > 0 && !logprobs.empty()) token.logprobs = logprobs[i - 1];
    piece.tokens.push_back(std::move(token));
    first = tokenizer.starts_text_after(id);
    if (i > 0 || !prompt.added_bos) offset += count_characters(detokenizer.push(id));
  }
  return piece;
}

}  // namespace espalier
