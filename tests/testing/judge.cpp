#include "testing/judge.h"

#include <algorithm>

#include "base/random.h"
#include "testing/engine.h"

namespace espalier::testing {

Verdict judge(const Transformer& model, const JudgedRequest& request) {
  const auto vocabulary = static_cast<std::size_t>(model.config().vocabulary);
  Verdict verdict;
  std::vector<std::int32_t> path = request.prompt;
  while (verdict.finish.empty()) {
    const ForwardRun run = run_forward(model, path, {.kv_type = request.kv_type});
    const auto logits = std::span(run.logits).last(vocabulary);
    const bool may_stop = std::ssize(verdict.tokens) >= request.min_tokens;
    const std::int32_t token =
        sample(logits, request.sampling, {path, request.prompt.size()}, uniform(request.seed, path.size()),
               may_stop ? std::vector<std::int32_t>() : request.stop_tokens);
    path.push_back(token);
    verdict.tokens.push_back(token);
    if (std::ranges::find(request.stop_tokens, token) != request.stop_tokens.end() ||
        (request.complete && request.complete(verdict.tokens))) {
      verdict.finish = "stop";
    } else if (static_cast<std::int64_t>(verdict.tokens.size()) == request.max_tokens) {
      verdict.finish = "length";
    } else if (static_cast<std::int64_t>(path.size()) > request.context) {
      verdict.finish = "context";
    }
    verdict.kv = run.kv;
  }
  return verdict;
}

}  // namespace espalier::testing
