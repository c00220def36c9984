// What an answer cost: `usage`, `timings` (llama.cpp's names) and `metrics` (vLLM's). All numbers are finite.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "decode/request.h"

namespace espalier {

struct ChoiceFigures {
  std::int64_t choices = 1;  // whose figures these are
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;      // of the prompt
  std::int64_t completion_tokens = 0;  // the stop token counts
  double queue_seconds = 0;            // until the batch took it
  double first_token_seconds = 0;      // from the request to its first token
  double prompt_seconds = 0;           // computing the prompt
  double decode_seconds = 0;           // from the first token to the last
  std::int64_t rounds = 0;             // that verified guesses
  std::int64_t drafted = 0;            // rows without roots
  std::int64_t accepted = 0;
  std::vector<std::int64_t> accept_histogram = {};  // [k]: rounds, of those, that accepted k guesses
  std::int64_t predicted_accepted = 0;              // of the tokens of a `prediction`
  std::int64_t predicted_rejected = 0;
};

// Of what the batch says. queue and first token are the caller's to add.
ChoiceFigures figures_of(const GenerateResult& result, std::int64_t prompt_tokens);

// Of the choices of a response together, by index. Prompts count once, however many choices they have; times are those
// of the longest, since choices run side by side.
ChoiceFigures total_figures(std::span<const ChoiceFigures> choices, int n);

// prediction: with completion_tokens_details.
std::string usage_json(const ChoiceFigures& figures, bool prediction);
std::string timings_json(const ChoiceFigures& figures);
std::string metrics_json(const ChoiceFigures& figures);

}  // namespace espalier
