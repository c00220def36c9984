// One choice on the thread of the batch: takes the parts of its text (session/text_stream.h) and its rounds as they
// come, and hands out what can go to the client. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "serve/protocol/answer_piece.h"
#include "serve/protocol/request_plan.h"

namespace espalier {

class ChoicePieces {
 public:
  // offset: characters in front of the answer, those of an echo.
  explicit ChoicePieces(std::int64_t offset) : characters_(offset) {}

  void add(const TextPart& part);
  void add(const Round& round) { ready_.rounds.push_back(rows_of(round)); }
  // Everything since the last call; may be empty.
  AnswerPiece take();

 private:
  std::int64_t offset_of(const TextToken& token);

  std::string counted_from_;        // the text from the last token's beginning on
  std::int64_t counted_bytes_ = 0;  // before that
  std::int64_t characters_;         // likewise
  AnswerPiece ready_;
};

// The prompt as the first piece of a choice that echoes it. logprobs: of the tokens from the second on, or empty.
AnswerPiece echo_piece(const PlannedPrompt& prompt, std::span<const Logprobs> logprobs, const Tokenizer& tokenizer);

// How many characters a text has, as Python counts them: what `text_offset` counts.
std::int64_t count_characters(std::string_view text);

}  // namespace espalier
