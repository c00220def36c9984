#include "digests.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/arithmetic.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "testing/engine.h"

namespace espalier::testing {

namespace {

std::vector<std::int32_t> repeated(std::span<const std::int32_t> tokens, std::size_t count) {
  std::vector<std::int32_t> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(tokens[i % tokens.size()]);
  return all;
}

// Whether a model has the bits of the contract on a device, which may add float weights in an order of its own.
bool has_pinned_order(const Device& device, const Transformer& model) {
  return !model.weights().float_linears ||
         (device.float_order() == kContractFloatOrder && device.activations() == kContractActivations);
}

}  // namespace

std::string digest(std::span<const float> values) {
  check(std::ranges::all_of(values, [](float x) { return !std::isnan(x); }), "no digest contains a NaN");
  return sha256(std::as_bytes(values));
}

Digests pinned_digests() {
  const auto file = data_path("digests.json");
  auto object = nlohmann::json::parse(read_text_file(file));
  check_arithmetic(file.string(), object.value("arithmetic", nlohmann::json()));
  object.erase("arithmetic");
  return object.get<Digests>();
}

Digests tiny_model_digests(Device& device) {
  Digests all;
  for (const std::string& family : tiny_families()) {
    const auto folder = data_path("tiny/" + family);
    const auto tokens = golden_tokens(folder / "golden.safetensors", "tokens");
    auto& entry = all["tiny " + family];
    const Transformer model = load_transformer(device, folder);
    if (has_pinned_order(device, model)) {
      for (DType kv : {DType::f32, DType::f16, DType::bf16}) {
        const ForwardRun run = run_forward(model, tokens, {.kv_type = kv});
        entry["logits, kv " + std::string(name(kv))] = digest(run.logits);
        entry["kv " + std::string(name(kv))] = sha256(run.kv);
      }
      const ForwardRun longer = run_forward(model, repeated(tokens, 300));
      entry["logits, 300 positions"] = digest(longer.logits);
      entry["kv, 300 positions"] = sha256(longer.kv);
    }
    const Transformer quantised = load_transformer(device, folder, {.weights = WeightMode::q8_0});
    entry["logits, weights q8_0"] = digest(run_forward(quantised, tokens).logits);
  }
  return all;
}

}  // namespace espalier::testing
