// A part of one choice's answer, as it goes out: some text, and the tokens and rounds that belong to it. Pieces that
// are joined in their order are the whole answer; streams send them one by one, other responses all at once, so both
// say the same. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decode/round.h"
#include "decode/sampler.h"
#include "session/session.h"
#include "text/tokenizer.h"

namespace espalier {

struct AnswerToken {
  TokenId id = 0;
  bool first = false;                     // of its text: what Tokenizer::bytes() asks
  bool of_prompt = false;                 // it was not drawn, but comes back with `echo`
  bool stops = false;                     // the stop token: it is no part of the text
  std::int64_t offset = 0;                // of its first character in the choice's text, in characters
  std::optional<Logprobs> logprobs = {};  // none: not asked for, or the first of a prompt
};

// One round: the tree by rows, root first, and how far the teacher went.
struct RoundRows {
  std::vector<std::int32_t> parents = {};  // the root is its own
  std::vector<TokenId> tokens = {};
  std::vector<double> scores = {};  // cumulative log-probabilities, as the drafters estimate them
  std::vector<bool> accepted = {};
  TokenId drawn = 0;  // the teacher's own token behind the last accepted row
};
RoundRows rows_of(const Round& round);

struct AnswerPiece {
  std::string text = {};
  std::vector<AnswerToken> tokens = {};
  std::vector<RoundRows> rounds = {};

  bool empty() const { return text.empty() && tokens.empty() && rounds.empty(); }
  void append(AnswerPiece piece);
};

// Why a choice is complete.
struct ChoiceEnd {
  FinishReason reason = FinishReason::token_limit;
  std::optional<std::string> stop_string = {};  // that ended it
  std::optional<TokenId> stop_token = {};       // likewise, one of the request's; the model's own are not told (vLLM)
};
// Of a text that was asked for with these options.
ChoiceEnd end_of(const TextResult& result, const TextOptions& options);
std::string_view finish_reason(const ChoiceEnd& end);  // "stop", "length"; "abort" where it was cancelled

}  // namespace espalier
