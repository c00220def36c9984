// The teacher's sampler: from logits, the tokens of the path and one uniform number to the next token. It never
// consults a draft, and its only randomness is the argument u, so a position's draw does not depend on how the loop got
// there. All of it is host arithmetic with one result on every machine (docs/arithmetic.md).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace espalier {

// Applied in the order of the fields.
// One that changes logits also belongs in changes_logits() (sampler.cpp): greedy draws skip everything else, and may
// see the largest logit alone.
struct SamplingOptions {
  std::map<std::int32_t, float> logit_bias = {};  // added to the logit of an id
  // Tokens seen in prompt or answer: a positive logit is divided, a negative one multiplied. 1: off.
  float repeat_penalty = 1.0f;
  float presence_penalty = 0.0f;   // subtracted once for an id that the answer contains
  float frequency_penalty = 0.0f;  // subtracted for each time the answer contains it
  float temperature = 0.0f;        // 0: greedy
  std::int64_t top_k = 0;          // keep the k largest; 0: all
  float top_p = 1.0f;              // keep the fewest most probable ids that together reach p; 1: all
  float min_p = 0.0f;              // keep ids with at least this share of the largest probability; 0: all
};

// Whether draws see other logits than the model's.
bool changes_logits(const SamplingOptions& options);

// Throws InputError naming the option, the range and the value.
void check_options(const SamplingOptions& options);

// The tokens before the one to be drawn.
struct TokenPath {
  std::span<const std::int32_t> tokens;  // prompt and answer
  std::size_t prompt = 0;                // how many of them are the prompt
};

// NaN counts as minus infinity, and so do the logits of banned ids, before everything else; among equals the lowest id
// comes first. No finite logit, or plus infinity, throws InputError: the model is broken, not the caller.
std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, const TokenPath& path, double u,
                    std::span<const std::int32_t> banned = {});

// Whether the largest logit alone decides, where nothing is banned: a greedy draw from logits that nothing changes.
bool largest_decides(const SamplingOptions& options);
// What sample() draws then. best: the lowest id that has the largest logit; NaN counts as minus infinity.
std::int32_t sample_largest(float largest, std::int32_t best);

struct TokenLogprob {
  std::int32_t token = 0;
  double logprob = 0;
};

// log softmax of the raw logits (before bias, penalties and temperature): of `token`, and the n largest by
// (logprob descending, id ascending).
struct Logprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
};
Logprobs logprobs(std::span<const float> logits, std::int32_t token, std::int64_t n);

}  // namespace espalier
