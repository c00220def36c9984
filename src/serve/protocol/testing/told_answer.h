// Answers without a model: a list of tokens, told to a TextStream as a batch would in rounds of some sizes, both as the
// pieces of a stream and as one. For tests only.
#pragma once

#include <random>
#include <vector>

#include "serve/protocol/answer_object.h"
#include "serve/protocol/choice_pieces.h"
#include "text/model_text.h"

namespace espalier {

struct ToldAnswer {
  std::vector<AnswerPiece> pieces = {};  // one for each round, and what was left at the end; some are empty
  ChoiceAnswer whole = {};               // the same in one piece
};

// The answer ends at the first stop token or stop string, else with the last of `tokens`. rounds: how many tokens each
// round has, over and over. Log-probabilities are made up where they are asked for.
ToldAnswer told_answer(const ModelText& text, const std::vector<TokenId>& tokens, const std::vector<int>& rounds,
                       const TextOptions& options, std::int64_t offset = 0);

// Log-probabilities of a token and of n others, of a vocabulary of this size; the same for the same arguments.
Logprobs made_up_logprobs(TokenId token, std::int64_t n, TokenId vocabulary);

}  // namespace espalier
