// Whole responses: chat.completion and text_completion. Their choices are written by the same functions as those of
// events (answer_events.h).
#pragma once

#include <span>
#include <string>

#include "serve/protocol/answer_figures.h"
#include "serve/protocol/answer_frame.h"
#include "serve/protocol/answer_piece.h"
#include "text/tokenizer.h"

namespace espalier {

struct ChoiceAnswer {
  AnswerPiece piece = {};
  ChoiceEnd end = {};
  ChoiceFigures figures = {};
  std::uint64_t seed = 0;    // the choice's own
  std::string receipt = {};  // JSON; empty: none
};

// Choices by index.
std::string response_json(const AnswerFrame& frame, std::span<const ChoiceAnswer> choices, const Tokenizer& tokenizer);

}  // namespace espalier
