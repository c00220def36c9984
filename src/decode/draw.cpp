#include "decode/draw.h"

#include "base/random.h"

namespace espalier {

std::span<const std::int32_t> banned_tokens(const GenerateOptions& options, std::int64_t answered) {
  if (answered >= options.min_tokens) return {};
  return options.stop_tokens;
}

std::int32_t draw_token(std::span<const float> logits, const GenerateOptions& options, const TokenPath& path) {
  const std::int64_t answered = std::ssize(path.tokens) - static_cast<std::int64_t>(path.prompt);
  return sample(logits, options.sampling, path, uniform(options.seed, path.tokens.size()),
                banned_tokens(options, answered));
}

bool largest_decides(const GenerateOptions& options, std::int64_t answered) {
  return largest_decides(options.sampling) && options.logprobs < 0 && banned_tokens(options, answered).empty();
}

}  // namespace espalier
