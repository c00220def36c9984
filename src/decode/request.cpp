#include "decode/request.h"

#include <numeric>

#include "base/error.h"

namespace espalier {

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
  const auto sum = std::accumulate(accept_lengths.begin(), accept_lengths.end(), std::int64_t{0});
  return static_cast<double>(sum) / static_cast<double>(accept_lengths.size());
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
}

void check_request(const GenerateRequest& request, const RequestLimits& limits) {
  check_tokens(request.prompt, limits);
  if (!request.answered.empty()) check_tokens(request.answered, limits);
  if (std::ssize(request.prompt) + std::ssize(request.answered) > limits.context)
    input_error("prompt and answer have {} tokens, the context holds {}",
                request.prompt.size() + request.answered.size(), limits.context);
  check_options(request.options);
  if (request.draft.nodes < 0) input_error("--draft-nodes: expected 1 or more, got {}", request.draft.nodes);
  if (request.draft.depth < 0) input_error("--draft-depth: expected 1 or more, got {}", request.draft.depth);
  for (const auto& [id, bias] : request.options.sampling.logit_bias)
    if (id < 0 || id >= limits.vocabulary)
      input_error("--logit-bias: token {}: the vocabulary has {}", id, limits.vocabulary);
}

}  // namespace espalier
