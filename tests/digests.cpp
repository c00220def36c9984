#include "digests.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/sha256.h"
#include "decode/decoder.h"
#include "session/session.h"
#include "testing/engine.h"

namespace espalier::testing {
namespace {

std::string digest(std::span<const float> values) {
  check(std::ranges::all_of(values, [](float x) { return !std::isnan(x); }), "no digest contains a NaN");
  return sha256(std::as_bytes(values));
}

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
  Decoder decoder(model, {.context = 256});
  GenerateOptions options{.seed = 7, .max_tokens = 24};
  options.sampling.temperature = pinned.temperature;
  options.sampling.top_p = pinned.temperature > 0 ? 0.95f : 1.0f;
  std::vector<std::int32_t> tokens = encode_chat(text, {{"user", pinned.text}});
  const auto answer = decoder.generate(tokens, options).tokens;
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  std::vector<float> logits;
  decoder.score(tokens,
                [&](std::int64_t, std::span<const float> row) { logits.insert(logits.end(), row.begin(), row.end()); });
  const auto kv =
      read_kv(model.device(), decoder.cache(), decoder.sequence(), static_cast<std::int64_t>(tokens.size()));
  return {{"tokens", sha256(std::as_bytes(std::span(tokens)))}, {"logits", digest(logits)}, {"kv_f16", sha256(kv)}};
}

}  // namespace

Digests tiny_model_digests(Device& device) {
  Digests all;
  for (const std::string& family : tiny_families()) {
    const auto folder = data_path("tiny/" + family);
    const auto tokens = golden_tokens(folder / "golden.safetensors", "tokens");
    auto& entry = all["tiny " + family];
    const Transformer model = load_transformer(device, folder);
    for (DType kv : {DType::f32, DType::f16, DType::bf16}) {
      const ForwardRun run = run_forward(model, tokens, {.kv_type = kv});
      entry["logits, kv " + std::string(name(kv))] = digest(run.logits);
      entry["kv " + std::string(name(kv))] = sha256(run.kv);
    }
    const Transformer quantised = load_transformer(device, folder, {.weights = WeightMode::q8_0});
    entry["logits, weights q8_0"] = digest(run_forward(quantised, tokens).logits);
  }
  return all;
}

Digests default_model_digests(Device& device) {
  const Transformer model = load_transformer(device, default_model());
  const ModelText text = load_model_text(default_model());
  Digests all;
  for (const PinnedPrompt& pinned : kPrompts) all[pinned.name] = pin(model, text, pinned);
  return all;
}

}  // namespace espalier::testing
