#include "decode/request.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"

namespace espalier {
namespace {

void check_draft(const DraftCaps& caps, const RequestLimits& limits) {
  if (caps.nodes < 0) input_error("--draft-nodes: expected 1 or more, got {}", caps.nodes);
  if (caps.depth < 0) input_error("--draft-depth: expected 1 or more, got {}", caps.depth);
  for (const std::string& drafter : caps.drafters)
    if (std::ranges::find(limits.drafters, drafter) == limits.drafters.end())
      input_error("--draft: expected some of {}, got {}",
                  limits.drafters.empty() ? "none" : fmt::format("{}", fmt::join(limits.drafters, ", ")), drafter);
  if (caps.tree && *caps.tree != TreeShape::chain && *caps.tree != limits.tree)
    input_error("--tree: expected {}chain, got {}",
                limits.tree == TreeShape::chain ? "" : fmt::format("{} or ", name(limits.tree)), name(*caps.tree));
}

// While all tokens of the vocabulary are banned there is nothing to draw.
void check_minimum(const GenerateOptions& options, std::int64_t vocabulary) {
  if (options.min_tokens == 0 || std::ssize(options.stop_tokens) < vocabulary) return;
  std::set<std::int32_t> stops;
  for (const std::int32_t token : options.stop_tokens)
    if (token >= 0 && token < vocabulary) stops.insert(token);
  if (std::ssize(stops) == vocabulary) input_error("--min-tokens {}: every token is a stop token", options.min_tokens);
}

}  // namespace

std::string_view name(AnswerStage stage) {
  switch (stage) {
    case AnswerStage::prefill: return "prefill";
    case AnswerStage::draft: return "draft";
    case AnswerStage::verify: return "verify";
    case AnswerStage::accept: return "accept";
    case AnswerStage::commit: return "commit";
  }
  return "unknown";
}

double GenerateResult::accept_length() const {
  if (accept_lengths.empty()) return 0;
  return static_cast<double>(accepted_tokens()) / static_cast<double>(accept_lengths.size());
}

std::int64_t GenerateResult::drafted_tokens() const {
  return verified_rows - rounds();
}

std::int64_t GenerateResult::accepted_tokens() const {
  return std::accumulate(accept_lengths.begin(), accept_lengths.end(), std::int64_t{0});
}

std::vector<std::int64_t> GenerateResult::accepted_by_depth() const {
  std::vector<std::int64_t> counts;
  for (std::int64_t accepted : accept_lengths) count_levels(accepted, counts);
  return counts;
}

void check_tokens(std::span<const std::int32_t> tokens, const RequestLimits& limits) {
  if (tokens.empty()) input_error("the prompt is empty: expected at least one token");
  if (std::ssize(tokens) > limits.context)
    input_error("the prompt has {} tokens, the context holds {}", tokens.size(), limits.context);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= limits.vocabulary)
      input_error("token {} of the prompt is {}, the vocabulary has {}", i, tokens[i], limits.vocabulary);
}

void check_options(const GenerateOptions& options) {
  check_options(options.sampling);
  if (options.max_tokens < 0) input_error("--max-tokens: expected 0 or more, got {}", options.max_tokens);
  if (options.logprobs < -1 || options.logprobs > kMostLogprobs)
    input_error("--logprobs: expected 0 to {}, got {}", kMostLogprobs, options.logprobs);
  if (options.prompt_logprobs < -1 || options.prompt_logprobs > kMostLogprobs)
    input_error("--prompt-logprobs: expected 0 to {}, got {}", kMostLogprobs, options.prompt_logprobs);
  if (options.min_tokens < 0) input_error("--min-tokens: expected 0 or more, got {}", options.min_tokens);
}

void check_request(const GenerateRequest& request, const RequestLimits& limits) {
  check_tokens(request.prompt, limits);
  if (!request.answered.empty()) check_tokens(request.answered, limits);
  if (std::ssize(request.prompt) + std::ssize(request.answered) > limits.context)
    input_error("prompt and answer have {} tokens, the context holds {}",
                request.prompt.size() + request.answered.size(), limits.context);
  check_options(request.options);
  check_minimum(request.options, limits.vocabulary);
  check_draft(request.draft, limits);
  if (request.priority < kFirstPriority || request.priority > kLastPriority)
    input_error("--priority: expected {} to {}, got {}", kFirstPriority, kLastPriority, request.priority);
  for (const std::int32_t token : request.prediction)
    if (token < 0 || token >= limits.vocabulary)
      input_error("the prediction has token {}, the vocabulary has {}", token, limits.vocabulary);
  for (const auto& [id, bias] : request.options.sampling.logit_bias)
    if (id < 0 || id >= limits.vocabulary)
      input_error("--logit-bias: token {}: the vocabulary has {}", id, limits.vocabulary);
}

}  // namespace espalier
