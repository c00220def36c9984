// Log-probabilities of tokens as the two APIs write them. A token is its bytes; where those are no characters, its text
// has U+FFFD. The chosen token and the same token among the alternatives are the same double. What is not finite is
// -9999.
#pragma once

#include <span>
#include <string>

#include "serve/protocol/answer_piece.h"
#include "text/tokenizer.h"

namespace espalier {

// {"content": [{"token", "logprob", "bytes", "top_logprobs"}], "refusal": null}; without the stop token, which is no
// part of the content (OpenAI).
std::string chat_logprobs_json(std::span<const AnswerToken> tokens, const Tokenizer& tokenizer);

// {"text_offset", "token_logprobs", "tokens", "top_logprobs"}; with the stop token: lm-evaluation-harness takes the
// last entry for the one token it had generated. Alternatives are the best and the chosen one, by text; of two with one
// text the better one stays.
std::string text_logprobs_json(std::span<const AnswerToken> tokens, const Tokenizer& tokenizer);

}  // namespace espalier
