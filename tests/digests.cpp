#include "digests.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/sha256.h"
#include "testing/engine.h"

namespace espalier::testing {

std::string digest(std::span<const float> values) {
  check(std::ranges::all_of(values, [](float x) { return !std::isnan(x); }), "no digest contains a NaN");
  return sha256(std::as_bytes(values));
}

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

}  // namespace espalier::testing
