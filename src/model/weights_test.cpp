#include "model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "device/reference/reference_device.h"
#include "format/safetensors.h"
#include "format/testing/gguf_builder.h"
#include "format/testing/safetensors_builder.h"
#include "format/testing/temporary_folder.h"
#include "model/transformer.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kHidden = 32, kLlamaVocabulary = 7, kIntermediate = 64, kHeadSize = 8;

std::string random_floats(std::int64_t count) {
  std::mt19937 random(static_cast<std::uint32_t>(count));
  std::normal_distribution<float> normal(0, 0.1f);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return bytes_of(values);
}

struct LlamaTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};

// One layer with four heads; the tensors of a Llama.
std::vector<LlamaTensor> llama_tensors() {
  const std::string layer = "model.layers.0.";
  return {{"model.embed_tokens.weight", {kLlamaVocabulary, kHidden}},
          {"model.norm.weight", {kHidden}},
          {"lm_head.weight", {kLlamaVocabulary, kHidden}},
          {layer + "input_layernorm.weight", {kHidden}},
          {layer + "self_attn.q_proj.weight", {4 * kHeadSize, kHidden}},
          {layer + "self_attn.k_proj.weight", {4 * kHeadSize, kHidden}},
          {layer + "self_attn.v_proj.weight", {4 * kHeadSize, kHidden}},
          {layer + "self_attn.o_proj.weight", {kHidden, 4 * kHeadSize}},
          {layer + "post_attention_layernorm.weight", {kHidden}},
          {layer + "mlp.gate_proj.weight", {kIntermediate, kHidden}},
          {layer + "mlp.up_proj.weight", {kIntermediate, kHidden}},
          {layer + "mlp.down_proj.weight", {kHidden, kIntermediate}}};
}

ModelConfig llama_config() {
  ModelConfig config;
  config.family = "llama";
  config.layers = 1;
  config.hidden = kHidden;
  config.intermediate = kIntermediate;
  config.heads = config.kv_heads = 4;
  config.head_size = kHeadSize;
  config.vocabulary = kLlamaVocabulary;
  config.context = 16;
  config.rms_eps = 1e-5f;
  config.inverse_frequencies = {1, 0.5f, 0.25f, 0.125f};
  return config;
}

std::string outcome(const std::vector<LlamaTensor>& tensors, const ModelConfig& config = llama_config(),
                    WeightMode mode = WeightMode::stored) {
  const TemporaryFolder folder;
  SafetensorsBuilder builder;
  for (const auto& [name, shape] : tensors) {
    std::int64_t count = 1;
    for (std::int64_t extent : shape) count *= extent;
    builder.tensor(name, DType::f32, shape, random_floats(count));
  }
  builder.write(folder / "model.safetensors");
  try {
    const auto device = make_reference_device();
    const Safetensors source(folder / "model.safetensors");
    load_weights(*device, config, source, TensorNaming::hugging_face, mode, {});
  } catch (const InputError& error) {
    return error.what();
  }
  return "loaded";
}

TEST(Weights, AWholeModelLoadsAndReportsProgressToTheEnd) {
  EXPECT_EQ(outcome(llama_tensors()), "loaded");
  EXPECT_EQ(outcome(llama_tensors(), llama_config(), WeightMode::q8_0), "loaded");
}

TEST(Weights, EveryMissingTensorIsNamed) {
  const auto all = llama_tensors();
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto some = all;
    some.erase(some.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THAT(outcome(some), HasSubstr("tensor " + all[i].name + " is missing"));
  }
}

TEST(Weights, EveryWrongShapeIsNamedWithBothShapes) {
  const auto all = llama_tensors();
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto some = all;
    some[i].shape[0] += 1;
    EXPECT_THAT(outcome(some), HasSubstr("tensor " + all[i].name + ": expected shape ["));
  }
}

TEST(Weights, AnUnknownTensorShowsAnUnsupportedVariant) {
  auto tensors = llama_tensors();
  tensors.push_back({"model.layers.0.self_attn.sinks", {4}});
  EXPECT_THAT(outcome(tensors), HasSubstr("model.layers.0.self_attn.sinks is not part of a llama model"));
}

TEST(Weights, BuffersThatFollowFromTheConfigurationAreIgnored) {
  auto tensors = llama_tensors();
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {4}});
  EXPECT_EQ(outcome(tensors), "loaded");
}

TEST(Weights, ATiedModelIgnoresARedundantOutputMatrix) {
  ModelConfig config = llama_config();
  config.tied = true;
  EXPECT_EQ(outcome(llama_tensors(), config), "loaded");
}

// A Llama of nothing but zeros, whose matrices are blocks, but for one.
class MixedZeros final : public TensorSource {
 public:
  explicit MixedZeros(const std::string& in_floats) {
    for (const auto& [name, shape] : llama_tensors()) {
      const DType type = shape.size() == 1 || name == in_floats ? DType::f32 : DType::q8_0;
      const std::int64_t rows = shape.size() == 1 ? 1 : shape[0];
      bytes_.emplace_back(static_cast<std::size_t>(rows * row_bytes(type, shape.back())));
      infos_.push_back({name, type, shape, bytes_.back()});
    }
  }

  const TensorInfo* find(std::string_view name) const override {
    const auto found = std::ranges::find(infos_, name, &TensorInfo::name);
    return found == infos_.end() ? nullptr : &*found;
  }
  std::span<const TensorInfo> tensors() const override { return infos_; }
  std::string_view description() const override { return "zeros"; }

 private:
  std::vector<std::vector<std::byte>> bytes_;
  std::vector<TensorInfo> infos_;
};

bool has_float_linears(const std::string& in_floats, bool tied = false, WeightMode mode = WeightMode::stored) {
  ModelConfig config = llama_config();
  config.tied = tied;
  const auto device = make_reference_device();
  return load_weights(*device, config, MixedZeros(in_floats), TensorNaming::hugging_face, mode, {}).float_linears;
}

TEST(Weights, KnowsWhetherALinearHasFloats) {
  EXPECT_FALSE(has_float_linears("none"));
  EXPECT_TRUE(has_float_linears("none", false, WeightMode::f32));
  EXPECT_TRUE(has_float_linears("lm_head.weight"));
  EXPECT_FALSE(has_float_linears("lm_head.weight", false, WeightMode::q8_0));
  EXPECT_TRUE(has_float_linears("model.layers.0.mlp.up_proj.weight")) << "the gate beside it has none";
  EXPECT_FALSE(has_float_linears("model.embed_tokens.weight")) << "rows are only looked up in it";
  EXPECT_TRUE(has_float_linears("model.embed_tokens.weight", true)) << "it is the output matrix too";
}

TEST(Weights, AnnouncedBiasesMustBeThere) {
  ModelConfig config = llama_config();
  config.qkv_bias = config.output_bias = true;
  EXPECT_THAT(outcome(llama_tensors(), config), HasSubstr("q_proj.bias is missing"));
}

}  // namespace
}  // namespace espalier
