#include "base/error.h"
#include "base/sha256.h"
#include "decode/batch.h"
#include "digests.h"
#include "session/session.h"
#include "testing/ended_answer.h"
#include "testing/engine.h"

namespace espalier::testing {
namespace {

struct PinnedPrompt {
  const char* name;
  const char* text;
  float temperature;
};

constexpr PinnedPrompt kPrompts[] = {
    {"smollm2 greedy", "Explain in two sentences why the sky is blue.", 0.0f},
    {"smollm2 code", "Write a Python function that tells whether a number is prime.", 0.0f},
    {"smollm2 sampled", "Tell me a short story about a pear tree on a wall.", 0.8f},
};

std::map<std::string, std::string> pin(const Transformer& model, const ModelText& text, const PinnedPrompt& pinned) {
  Batch decoder(model, {.context = 256, .scored_rows = 64});
  GenerateOptions options{.seed = 7, .max_tokens = 24};
  options.sampling.temperature = pinned.temperature;
  options.sampling.top_p = pinned.temperature > 0 ? 0.95f : 1.0f;
  std::vector<std::int32_t> tokens = encode_chat(text, {{"user", pinned.text}});
  const auto answer = decoder.generate(tokens, options).tokens;
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  std::vector<float> logits;
  decoder.score(tokens,
                [&](std::int64_t, std::span<const float> row) { logits.insert(logits.end(), row.begin(), row.end()); });
  // The whole text as a prompt, computed anew: a drawn token has no position before it is read.
  EndedAnswer read;
  decoder.generate({.prompt = tokens,
                    .options = {.max_tokens = 0},
                    .events = {.on_end = keep_end(model.device(), read)},
                    .cache = false});
  check(read.length == std::ssize(tokens), "{}: {} of {} positions", pinned.name, read.length, tokens.size());
  return {
      {"tokens", sha256(std::as_bytes(std::span(tokens)))}, {"logits", digest(logits)}, {"kv_f16", sha256(read.kv)}};
}

}  // namespace

Digests default_model_digests(Device& device) {
  const Transformer model = load_transformer(device, default_model());
  const ModelText text = load_model_text(default_model());
  Digests all;
  for (const PinnedPrompt& pinned : kPrompts) all[pinned.name] = pin(model, text, pinned);
  return all;
}

}  // namespace espalier::testing
