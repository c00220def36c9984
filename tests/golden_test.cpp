// The reference arithmetic against Hugging Face transformers in float32, on a tiny random model of every family
// (tests/data/README.md). Transformers is the judge; the bounds are derived in train/fixtures, not tuned.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "decode/batch.h"
#include "device/cpu/cpu_device.h"
#include "device/reference/reference_device.h"
#include "format/safetensors.h"
#include "testing/engine.h"

namespace espalier::testing {
namespace {

class Golden : public ::testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path folder() const { return data_path("tiny/" + GetParam()); }
  std::filesystem::path golden() const { return folder() / "golden.safetensors"; }
  float bound(const std::string& name) const { return golden_floats(golden(), name)[0]; }

  std::unique_ptr<Device> device_ = make_reference_device();
};

// Boundary i of every position out of rows that hold all boundaries side by side.
std::vector<float> boundary(const ForwardRun& run, std::size_t i, std::size_t boundaries, std::size_t hidden) {
  std::vector<float> values;
  for (std::size_t at = i * hidden; at < run.taps.size(); at += boundaries * hidden)
    values.insert(values.end(), run.taps.begin() + static_cast<std::ptrdiff_t>(at),
                  run.taps.begin() + static_cast<std::ptrdiff_t>(at + hidden));
  return values;
}

TEST_P(Golden, LogitsHiddenStatesAndTapsEqualTransformersWithinTheDerivedBound) {
  const Transformer model = load_transformer(*device_, folder());
  ForwardOptions options;
  for (std::int64_t i = 0; i <= model.config().layers; ++i) options.tap_boundaries.push_back(i);
  const ForwardRun run = run_forward(model, golden_tokens(golden(), "tokens"), options);
  const float logits = largest_difference(run.logits, golden_floats(golden(), "logits"));
  const float hidden = largest_difference(run.hidden, golden_floats(golden(), "hidden"));
  EXPECT_LE(logits, bound("bound"));
  EXPECT_LE(hidden, bound("bound.hidden"));
  const std::vector<float> tap_bounds = golden_floats(golden(), "bound.boundary");  // one per boundary
  float taps = 0;
  for (std::size_t i = 0; i < options.tap_boundaries.size(); ++i) {
    const float difference = largest_difference(
        boundary(run, i, options.tap_boundaries.size(), static_cast<std::size_t>(model.config().hidden)),
        golden_floats(golden(), "boundary." + std::to_string(i)));
    EXPECT_LE(difference, tap_bounds[i]) << "boundary " << i;
    taps = std::max(taps, difference);
  }
  std::cout << GetParam() << ": logits differ by " << logits << " (bound " << bound("bound") << "), hidden by "
            << hidden << " (" << bound("bound.hidden") << "), taps by " << taps << " (" << tap_bounds.back() << ")\n";
}

TEST_P(Golden, SixtyFourGreedyTokensAreIdentical) {
  const Transformer model = load_transformer(*device_, folder());
  const auto expected = golden_tokens(golden(), "greedy");
  constexpr std::size_t kPrompt = 16;
  Batch decoder(model, {.kv_type = DType::f32});
  const auto result = decoder.generate(std::span(expected).first(kPrompt), {.max_tokens = 64});
  EXPECT_EQ(result.tokens, std::vector(expected.begin() + kPrompt, expected.end()));
}

INSTANTIATE_TEST_SUITE_P(Tiny, Golden, ::testing::ValuesIn(tiny_families()),
                         [](const auto& info) { return info.param; });

// The same values in a GGUF file.
class GgufGolden : public Golden {};
class GgufBits : public Golden {};

TEST_P(GgufGolden, LogitsEqualTransformersWithinTheDerivedBound) {
  const Transformer model = load_transformer(*device_, data_path("tiny/" + GetParam() + ".gguf"));
  const ForwardRun run = run_forward(model, golden_tokens(golden(), "tokens"));
  EXPECT_LE(largest_difference(run.logits, golden_floats(golden(), "logits")), bound("bound"));
}

TEST_P(GgufBits, EqualThoseOfTheHuggingFaceFolder) {
  const auto tokens = golden_tokens(golden(), "tokens");
  const Transformer gguf = load_transformer(*device_, data_path("tiny/" + GetParam() + ".gguf"));
  const Transformer folder_model = load_transformer(*device_, folder());
  EXPECT_EQ(run_forward(gguf, tokens).logits, run_forward(folder_model, tokens).logits);
}

INSTANTIATE_TEST_SUITE_P(Tiny, GgufGolden, ::testing::Values("llama2", "llama3", "qwen2", "qwen3", "pangu1b"),
                         [](const auto& info) { return info.param; });
// Not llama3: GGUF stores its scaling as rounded divisors, so frequencies differ in the last bit.
INSTANTIATE_TEST_SUITE_P(Tiny, GgufBits, ::testing::Values("llama2", "qwen2", "qwen3", "pangu1b"),
                         [](const auto& info) { return info.param; });

// Far into one text of 4,096 tokens, at positions on both sides of many powers of two. An error of the last bit of a
// frequency grows with the position and would hide others, so frequencies are compared by themselves, and the logits
// are computed with those of transformers.
struct LongCase {
  std::string name;         // of the golden
  std::string model;        // under tests/data/tiny
  std::int64_t window = 0;  // instead of the model's; 0: its own
};
void PrintTo(const LongCase& test, std::ostream* out) {
  *out << test.model << ", golden " << test.name;
}

class LongGolden : public ::testing::TestWithParam<LongCase> {
 protected:
  std::vector<float> golden(const std::string& what) const {
    return golden_floats(file_, GetParam().name + "." + what);
  }

  std::filesystem::path path() const { return data_path("tiny/" + GetParam().model); }

  Transformer load(Device& device) const {
    return load_changed(device, path(), WeightMode::stored, [this](ModelConfig& config) {
      config.inverse_frequencies = golden("frequencies");
      if (GetParam().window != 0) config.sliding_window = GetParam().window;
    });
  }

  // The first `length` tokens in steps of many sizes.
  void expect_transformers_logits(Device& device, std::size_t length) const {
    auto tokens = golden_tokens(file_, "tokens"), positions = golden_tokens(file_, "positions");
    ASSERT_EQ(tokens.size(), 4096u);
    tokens.resize(length);
    std::erase_if(positions, [&](std::int32_t position) { return static_cast<std::size_t>(position) >= length; });
    const Transformer model = load(device);
    const ForwardRun run =
        run_forward(model, tokens, {.chunks = {300, 1, 95, 513, 2, 64, 700}, .positions = positions});
    auto expected = golden("logits");
    expected.resize(positions.size() * static_cast<std::size_t>(model.config().vocabulary));
    const float largest = largest_difference(run.logits, expected);
    const float bound = golden("bound")[0];
    EXPECT_LE(largest, bound);
    std::cout << GetParam().name << ": " << positions.size() << " positions below " << length << " differ by "
              << largest << " (bound " << bound << ")\n";
  }

  std::filesystem::path file_ = data_path("long.safetensors");
};

TEST_P(LongGolden, FrequenciesEqualThoseOfTransformersWithinAFewRoundings) {
  EXPECT_LE(largest_relative_difference(load_config(path()).inverse_frequencies, golden("frequencies")),
            kFrequencyBound);
}

TEST_P(LongGolden, LogitsUpToPosition512EqualTransformersOnTheReferenceDevice) {
  expect_transformers_logits(*make_reference_device(), kSanitized ? 129 : 513);
}

TEST_P(LongGolden, LogitsUpToPosition4095EqualTransformersOnTheCpuDevice) {
  expect_transformers_logits(*make_cpu_device({.threads = 2}), kSanitized ? 513 : 4096);
}

const LongCase kLongCases[] = {
    {"llama2", "llama2"},      {"llama3", "llama3"},
    {"llama3", "llama3.gguf"},                                    // its scaling comes from divisors
    {"mistral", "mistral"},    {"mistral_wide", "mistral", 300},  // a window of three blocks of the KV cache
    {"smollm2", "smollm2"},    {"qwen2", "qwen2"},
    {"qwen3", "qwen3"},        {"pangu1b", "pangu1b"},
    {"pangu7b", "pangu7b"},
};
INSTANTIATE_TEST_SUITE_P(Tiny, LongGolden, ::testing::ValuesIn(kLongCases), [](const auto& info) {
  return info.param.model.ends_with(".gguf") ? info.param.name + "_gguf" : info.param.name;
});

// The most likely porting mistake: a Qwen2-style path has no bias there.
TEST(Pangu, DroppingTheOutputBiasWouldChangeTheLogits) {
  const auto device = make_reference_device();
  const auto folder = data_path("tiny/pangu7b");
  const auto golden = folder / "golden.safetensors";
  ModelConfig config = load_config(folder);
  const Safetensors source(folder);
  ModelWeights weights = load_weights(*device, config, source, TensorNaming::hugging_face, WeightMode::stored, {});
  for (LayerWeights& layer : weights.layers) layer.output_bias = {};
  const Transformer without(*device, std::move(config), std::move(weights));
  const float change =
      largest_difference(run_forward(without, golden_tokens(golden, "tokens")).logits, golden_floats(golden, "logits"));
  EXPECT_GT(change, 100 * golden_floats(golden, "bound")[0]);
}

TEST(Llama3, TheNewerFormOfItsConfigurationIsReadAlike) {
  const auto folder = data_path("tiny/llama3");
  const auto newer = folder / "config.rope_parameters.json";
  EXPECT_EQ(read_config(read_json_file(newer), newer.string()).inverse_frequencies,
            load_config(folder).inverse_frequencies);
}

TEST(Quantisation, ATinyModelQuantisedAtLoadStaysClose) {
  const auto device = make_reference_device();
  const auto folder = data_path("tiny/llama2");
  const auto tokens = golden_tokens(folder / "golden.safetensors", "tokens");
  const Transformer exact = load_transformer(*device, folder);
  const Transformer quantised = load_transformer(*device, folder, {.weights = WeightMode::q8_0});
  const auto a = run_forward(exact, tokens).logits, b = run_forward(quantised, tokens).logits;
  double error = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += std::pow(a[i] - b[i], 2);
    size += std::pow(a[i], 2);
  }
  EXPECT_GT(error, 0);
  EXPECT_LT(std::sqrt(error / size), 0.1) << "8-bit weights and activations over four layers";
}

}  // namespace
}  // namespace espalier::testing
