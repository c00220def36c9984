#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "format/testing/complaint.h"
#include "format/testing/gguf_builder.h"
#include "format/testing/temporary_folder.h"
#include "model/testing/changed_config.h"

namespace espalier {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

Json llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"vocab_size", 272},
          {"rms_norm_eps", 1e-5},
          {"max_position_embeddings", 512}};
}

Json pangu_7b() {
  return {{"architectures", {"PanguEmbeddedForCausalLM"}},
          {"model_type", "PanguEmbedded"},
          {"hidden_size", 4096},
          {"intermediate_size", 12800},
          {"num_hidden_layers", 34},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"vocab_size", 153376},
          {"max_position_embeddings", 32768},
          {"rope_theta", 16000000.0},
          {"rms_norm_eps", 1e-5},
          {"hidden_act", "silu"},
          {"bias", true},
          {"tie_word_embeddings", false}};
}

std::string config_refusal(const Json& config) {
  return complaint([&] { read_config(config, "config.json"); });
}

TEST(Config, OpenPangu7bHasTheSizesOfItsPublishedIndex) {
  const ModelConfig c = read_config(pangu_7b(), "config.json");
  EXPECT_EQ(c.head_size, 128);
  EXPECT_TRUE(c.qkv_bias && c.output_bias && !c.tied);
  // The arithmetic of the specification: total_size of model.safetensors.index.json, bf16 and fp32 inv_freq buffers.
  const std::int64_t q = c.heads * c.head_size, kv = c.kv_heads * c.head_size;
  const std::int64_t layer = (q * c.hidden + q) + 2 * (kv * c.hidden + kv) + (c.hidden * q + c.hidden) +
                             3 * c.hidden * c.intermediate + 2 * c.hidden;
  const std::int64_t parameters = c.layers * layer + 2 * c.vocabulary * c.hidden + c.hidden;
  EXPECT_EQ(parameters, 8030887936);
  EXPECT_EQ(2 * parameters + c.layers * 64 * 4, 16061784576);
}

TEST(Config, EveryActiveVariantOfPanguIsRefused) {
  for (const char* key : {"param_sink_number", "param_sink_with_value", "qk_nope_dim", "qk_rope_dim", "v_channels",
                          "num_nextn_predict_layers", "sandwich_norm", "n_routed_experts", "kv_lora_rank"}) {
    EXPECT_THAT(config_refusal(with(pangu_7b(), key, 1)), HasSubstr(key));
    EXPECT_EQ(config_refusal(with(pangu_7b(), key, 0)), "") << key << " switched off";
    EXPECT_EQ(config_refusal(with(pangu_7b(), key, nullptr)), "");
  }
  EXPECT_THAT(config_refusal(with(pangu_7b(), "rotary_percent", 0.25)), HasSubstr("rotary_percent"));
  EXPECT_THAT(config_refusal(with(pangu_7b(), "is_causal", false)), HasSubstr("is_causal"));
  EXPECT_THAT(config_refusal(with(pangu_7b(), "rope_scaling", {{"type", "linear"}})), HasSubstr("rope_scaling"));
  EXPECT_THAT(config_refusal(with(with(pangu_7b(), "sliding_window", 512), "layer_types",
                                  Json::array({"full_attention", "sliding_attention"}))),
              HasSubstr("layer_types"));
}

TEST(Config, TheOutputBiasFollowsTheBiasRuleOfEachFamily) {
  EXPECT_FALSE(read_config(llama(), "f").qkv_bias);
  const ModelConfig biased = read_config(with(llama(), "attention_bias", true), "f");
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias);
  const ModelConfig qwen2 = read_config(with(llama(), "architectures", {"Qwen2ForCausalLM"}), "f");
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.output_bias);
  const ModelConfig only_o = read_config(with(with(llama(), "attention_bias", true), "qkv_bias", false), "f");
  EXPECT_FALSE(only_o.qkv_bias);
  EXPECT_TRUE(only_o.output_bias);
}

TEST(Config, ASlidingWindowIsReadOnlyWhereItIsUsed) {
  EXPECT_EQ(read_config(with(with(llama(), "architectures", {"MistralForCausalLM"}), "sliding_window", 16), "f")
                .sliding_window,
            16);
  EXPECT_EQ(read_config(with(with(llama(), "architectures", {"MistralForCausalLM"}), "sliding_window", nullptr), "f")
                .sliding_window,
            0);
  const Json mistral = with(with(llama(), "architectures", {"MistralForCausalLM"}), "sliding_window", 16);
  EXPECT_EQ(config_refusal(with(mistral, "layer_types", Json::array({"sliding_attention", "sliding_attention"}))), "");
  EXPECT_THAT(config_refusal(with(mistral, "layer_types", Json::array({"sliding_attention", "full_attention"}))),
              HasSubstr("layer_types: expected sliding_attention in every layer"));
  const Json qwen = with(with(llama(), "architectures", {"Qwen2ForCausalLM"}), "sliding_window", 4096);
  EXPECT_EQ(read_config(with(qwen, "use_sliding_window", false), "f").sliding_window, 0);
  EXPECT_THAT(config_refusal(with(qwen, "use_sliding_window", true)), HasSubstr("use_sliding_window"));
}

TEST(Config, RopeThetaComesFromEitherForm) {
  const auto classic = read_config(with(llama(), "rope_theta", 500000.0), "f").inverse_frequencies;
  const auto newer =
      read_config(with(llama(), "rope_parameters", {{"rope_theta", 500000.0}, {"rope_type", "default"}}), "f");
  EXPECT_EQ(classic, newer.inverse_frequencies);
  EXPECT_EQ(classic[0], 1.0f);
  EXPECT_NEAR(classic[1], std::pow(500000.0, -1.0 / 8), 1e-7);
}

TEST(Config, LinearScalingDividesEveryFrequency) {
  const auto plain = read_config(llama(), "f").inverse_frequencies;
  const auto scaled = read_config(with(llama(), "rope_scaling", {{"type", "linear"}, {"factor", 4.0}}), "f");
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(scaled.inverse_frequencies[i], plain[i] / 4);
}

TEST(Config, EachBadFieldIsNamedWithWhatWasExpectedAndFound) {
  EXPECT_EQ(config_refusal(with(llama(), "num_hidden_layers", "four")),
            "config.json: num_hidden_layers: expected an integer, got \"four\"");
  EXPECT_EQ(config_refusal(with(llama(), "hidden_size", -1)),
            "config.json: hidden_size: expected 1 to 1048576, got -1");
  EXPECT_EQ(config_refusal(with(llama(), "vocab_size", 1e30)),
            "config.json: vocab_size: expected an integer, got 1e+30");
  EXPECT_THAT(config_refusal(with(llama(), "num_key_value_heads", 3)), HasSubstr("not a multiple of 3"));
  EXPECT_THAT(config_refusal(with(llama(), "head_dim", 15)), HasSubstr("even"));
  EXPECT_THAT(config_refusal(with(llama(), "rope_theta", 0)), HasSubstr("rope_theta"));
  EXPECT_THAT(config_refusal(with(llama(), "rope_scaling", {{"rope_type", "yarn"}})),
              HasSubstr("yarn is not supported"));
  EXPECT_THAT(config_refusal(with(llama(), "rope_scaling", {{"rope_type", "llama3"}})), HasSubstr("factor is missing"));
  EXPECT_THAT(config_refusal(with(llama(), "architectures", {"GPT2LMHeadModel"})),
              HasSubstr("GPT2LMHeadModel is not supported"));
  EXPECT_THAT(config_refusal(with(llama(), "architectures", Json::array())), HasSubstr("architectures"));
  EXPECT_THAT(config_refusal(with(llama(), "hidden_act", "gelu")), HasSubstr("expected silu, got gelu"));
  EXPECT_THAT(config_refusal(with(llama(), "mlp_bias", true)), HasSubstr("mlp_bias"));
  EXPECT_THAT(config_refusal(with(llama(), "quantization_config", {{"bits", 4}})), HasSubstr("quantization_config"));
  EXPECT_THAT(config_refusal(Json::array()), HasSubstr("expected a JSON object"));
  Json missing = llama();
  missing.erase("hidden_size");
  EXPECT_EQ(config_refusal(missing), "config.json: hidden_size is missing");
}

GgufBuilder tiny_gguf() {
  return GgufBuilder()
      .set("general.architecture", "llama")
      .set("llama.block_count", 1u)
      .set("llama.embedding_length", 4u)
      .set("llama.feed_forward_length", 8u)
      .set("llama.attention.head_count", 2u)
      .set("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .set("llama.context_length", 64u)
      .tensor("token_embd.weight", DType::f32, {3, 4}, std::string(48, '\0'));
}

std::string gguf_refusal(const GgufBuilder& builder) {
  const TemporaryFolder folder;
  builder.write(folder / "model.gguf");
  return complaint([&] { read_config(Gguf(folder / "model.gguf")); });
}

TEST(GgufConfig, WhatAFileDoesNotSayFollowsFromItsTensors) {
  const TemporaryFolder folder;
  tiny_gguf().write(folder / "model.gguf");
  const ModelConfig config = read_config(Gguf(folder / "model.gguf"));
  EXPECT_EQ(config.vocabulary, 3);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_TRUE(config.tied);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_EQ(config.sliding_window, 0);
  tiny_gguf().set("llama.attention.sliding_window", 16u).write(folder / "window.gguf");
  EXPECT_EQ(read_config(Gguf(folder / "window.gguf")).sliding_window, 16);
}

TEST(GgufConfig, EachBadFieldIsNamed) {
  EXPECT_THAT(gguf_refusal(GgufBuilder()), HasSubstr("general.architecture is missing"));
  EXPECT_THAT(gguf_refusal(GgufBuilder().set("general.architecture", "mamba")), HasSubstr("mamba is not supported"));
  EXPECT_THAT(gguf_refusal(GgufBuilder().set("general.architecture", "llama")),
              HasSubstr("llama.block_count is missing"));
  EXPECT_THAT(gguf_refusal(tiny_gguf().set("llama.expert_count", 8u)), HasSubstr("mixtures of experts"));
  EXPECT_THAT(gguf_refusal(tiny_gguf().set("llama.rope.dimension_count", 1u)), HasSubstr("rope.dimension_count"));
  EXPECT_THAT(gguf_refusal(tiny_gguf().set("llama.rope.scaling.type", "yarn")), HasSubstr("yarn is not supported"));
  EXPECT_THAT(gguf_refusal(tiny_gguf().set("llama.attention.value_length", 6u)), HasSubstr("value_length"));
  EXPECT_THAT(gguf_refusal(tiny_gguf().tensor("rope_freqs.weight", DType::f32, {2}, bytes_of<float>({1, 2}))),
              HasSubstr("rope_freqs.weight"))
      << "one frequency per pair of the head size of 2";
}

}  // namespace
}  // namespace espalier
