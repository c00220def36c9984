#include "testing/random_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/float16.h"

namespace espalier::testing {
namespace {

// Where a block has its f16 scale and minimum, and what random bytes in the rest of it amount to.
struct BlockLayout {
  std::size_t scale;
  std::size_t minimum;      // 0: none
  float minimum_per_scale;  // so that elements have the mean 0
  float deviation;          // of the elements, in scales
};

BlockLayout layout(DType type) {
  switch (type) {
    case DType::q4_0: return {0, 0, 0, 4.6f};
    case DType::q4_1: return {0, 2, -7.5f, 4.6f};
    case DType::q5_0: return {0, 0, 0, 9.2f};
    case DType::q5_1: return {0, 2, -15.5f, 9.2f};
    case DType::q8_0: return {0, 0, 0, 74.0f};
    case DType::q4_k: return {0, 2, 7.5f, 258.0f};
    case DType::q5_k: return {0, 2, 15.5f, 527.0f};
    default: check(type == DType::q6_k, "{} has no blocks", name(type)); return {208, 0, 0, 1366.0f};
  }
}

void store_f16(std::byte* to, float value) {
  const std::uint16_t bits = f32_to_f16(value);
  std::memcpy(to, &bits, sizeof bits);
}

}  // namespace

RandomBlocks::RandomBlocks(const ModelConfig& config, DType type, std::uint32_t seed) : type_(type), random_(seed) {
  matrix("model.embed_tokens.weight", config.vocabulary, config.hidden, 3.0f);
  for (std::int64_t i = 0; i < config.layers; ++i) add_layer(config, "model.layers." + std::to_string(i) + ".");
  vector("model.norm.weight", config.hidden, 1, 0.3f);
  if (!config.tied) matrix("lm_head.weight", config.vocabulary, config.hidden, 3.0f);
}

const TensorInfo* RandomBlocks::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &TensorInfo::name);
  return found == tensors_.end() ? nullptr : &*found;
}

void RandomBlocks::add_layer(const ModelConfig& config, const std::string& prefix) {
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  const std::int64_t q_width = config.heads * config.head_size, kv_width = config.kv_heads * config.head_size;
  constexpr float kGain = 1.4f, kBias = 0.7f;
  vector(prefix + "input_layernorm.weight", config.hidden, 1, 0.3f);
  vector(prefix + "post_attention_layernorm.weight", config.hidden, 1, 0.3f);
  matrix(attention + "q_proj.weight", q_width, config.hidden, kGain);
  matrix(attention + "k_proj.weight", kv_width, config.hidden, kGain);
  matrix(attention + "v_proj.weight", kv_width, config.hidden, kGain);
  matrix(attention + "o_proj.weight", config.hidden, q_width, kGain);
  if (config.qkv_bias) {
    vector(attention + "q_proj.bias", q_width, 0, kBias);
    vector(attention + "k_proj.bias", kv_width, 0, kBias);
    vector(attention + "v_proj.bias", kv_width, 0, kBias);
  }
  if (config.output_bias) vector(attention + "o_proj.bias", config.hidden, 0, kBias);
  if (config.qk_norm)
    for (const char* norm : {"q_norm.weight", "k_norm.weight"}) vector(attention + norm, config.head_size, 1, 0.3f);
  matrix(mlp + "gate_proj.weight", config.intermediate, config.hidden, kGain);
  matrix(mlp + "up_proj.weight", config.intermediate, config.hidden, kGain);
  matrix(mlp + "down_proj.weight", config.hidden, config.intermediate, kGain);
}

// A matrix keeps the size of what goes through it, times the gain.
void RandomBlocks::matrix(const std::string& name, std::int64_t outputs, std::int64_t inputs, float gain) {
  const DType type = inputs % traits(type_).block_elements == 0 ? type_ : DType::q8_0;
  const BlockLayout block = layout(type);
  const float scale = gain / (std::sqrt(static_cast<float>(inputs)) * block.deviation);
  std::vector<std::byte> bytes(static_cast<std::size_t>(outputs * row_bytes(type, inputs)));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_() >> 11);
  for (std::size_t at = 0; at < bytes.size(); at += static_cast<std::size_t>(traits(type).block_bytes)) {
    store_f16(bytes.data() + at + block.scale, scale);
    if (block.minimum > 0) store_f16(bytes.data() + at + block.minimum, scale * block.minimum_per_scale);
  }
  add(name, type, {outputs, inputs}, std::move(bytes));
}

// Evenly from mean - most to mean + most.
void RandomBlocks::vector(const std::string& name, std::int64_t size, float mean, float most) {
  std::vector<float> values(static_cast<std::size_t>(size));
  for (float& value : values) value = mean + most * (static_cast<float>(random_() % 2001) / 1000.0f - 1.0f);
  const auto bytes = std::as_bytes(std::span(values));
  add(name, DType::f32, {size}, {bytes.begin(), bytes.end()});
}

void RandomBlocks::add(const std::string& name, DType type, std::vector<std::int64_t> shape,
                       std::vector<std::byte> bytes) {
  bytes_.push_back(std::move(bytes));
  tensors_.push_back({name, type, std::move(shape), bytes_.back()});
}

}  // namespace espalier::testing
