#include "model/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "format/testing/complaint.h"
#include "format/testing/gguf_builder.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

constexpr std::int64_t kRotatedSize = 64;

Rope rope_of(const Json& scaling, bool of_head = true, Json config = {{"rope_theta", 500000.0}}) {
  config["rope_scaling"] = scaling;
  return read_rope(JsonFields(config, "config.json"), kRotatedSize, {.of_head = of_head});
}
std::string refusal(const Json& scaling, bool of_head = true) {
  return complaint([&] { rope_of(scaling, of_head); });
}

Json yarn() {
  return {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 2048}};
}

// The paper's ramp written once more: by how often a wave turns within the original context.
TEST(Rope, YarnKeepsShortWavesStretchesLongOnesAndBlendsThoseBetween) {
  const Rope plain = rope_of(nullptr), scaled = rope_of(yarn());
  const auto number = [](double turns) {
    return kRotatedSize * std::log(2048 / (turns * 2 * std::numbers::pi)) / (2 * std::log(500000.0));
  };
  const double low = std::floor(number(32)), high = std::ceil(number(1));
  for (std::size_t i = 0; i < kRotatedSize / 2; ++i) {
    const double blend = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double expected = plain.inverse_frequencies[i] * ((1 - blend) + blend / 4);
    EXPECT_NEAR(scaled.inverse_frequencies[i], expected, 1e-6 * expected) << i;
  }
  EXPECT_EQ(scaled.inverse_frequencies[0], plain.inverse_frequencies[0]);
  EXPECT_FLOAT_EQ(scaled.inverse_frequencies.back(), plain.inverse_frequencies.back() / 4);
}

TEST(Rope, TheAmplitudeOfYarnIsSaidOrComesFromTheFactor) {
  const auto with = [](const char* key, double value, Json scaling = yarn()) {
    scaling[key] = value;
    return scaling;
  };
  EXPECT_EQ(rope_of(nullptr).amplitude, 1.0f);
  EXPECT_FLOAT_EQ(rope_of(yarn()).amplitude, static_cast<float>(0.1 * std::log(4.0) + 1));
  EXPECT_EQ(rope_of(with("factor", 1)).amplitude, 1.0f);
  EXPECT_EQ(rope_of(with("attention_factor", 1.25)).amplitude, 1.25f);
  EXPECT_EQ(rope_of(with("mscale_all_dim", 1, with("mscale", 1))).amplitude, 1.0f);
  EXPECT_FLOAT_EQ(rope_of(with("mscale_all_dim", 0.5, with("mscale", 2))).amplitude,
                  static_cast<float>((0.2 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1)));
}

TEST(Rope, DynamicScalingHasTheFrequenciesOfShortTexts) {
  const Rope scaled = rope_of({{"type", "dynamic"}, {"factor", 2.0}});
  EXPECT_EQ(scaled.inverse_frequencies, rope_of(nullptr).inverse_frequencies);
  EXPECT_EQ(scaled.amplitude, 1.0f);
}

TEST(Rope, TheOriginalContextOfYarnIsThatOfTheConfigurationWhereTheScalingDoesNotSay) {
  const Json scaling = {{"rope_type", "yarn"}, {"factor", 4.0}};
  EXPECT_EQ(rope_of(scaling, true, {{"rope_theta", 500000.0}, {"max_position_embeddings", 2048}}).inverse_frequencies,
            rope_of(yarn()).inverse_frequencies);
  EXPECT_THAT(refusal(scaling), HasSubstr("original_max_position_embeddings is missing"));
}

TEST(Rope, OfAGgufIsThatOfTheConfiguration) {
  const TemporaryFolder folder;
  GgufBuilder()
      .set("eagle3.rope.freq_base", 500000.0f)
      .set("eagle3.rope.scaling.type", "yarn")
      .set("eagle3.rope.scaling.factor", 4.0f)
      .set("eagle3.rope.scaling.original_context_length", std::uint32_t{2048})
      .write(folder / "head.gguf");
  const Gguf gguf(folder / "head.gguf");
  const Rope rope = read_rope(GgufFields(gguf, "eagle3"), kRotatedSize, {.of_head = true});
  EXPECT_EQ(rope.inverse_frequencies, rope_of(yarn()).inverse_frequencies);
  EXPECT_EQ(rope.amplitude, rope_of(yarn()).amplitude);
  EXPECT_THAT(complaint([&] { read_rope(GgufFields(gguf, "eagle3"), kRotatedSize, {}); }),
              HasSubstr("rope.scaling.type yarn is not supported, expected none or linear"));
}

TEST(Rope, WhatNobodyComputesIsRefused) {
  EXPECT_EQ(refusal({{"rope_type", "longrope"}}),
            "config.json: rope type longrope is not supported, expected default, linear, dynamic, yarn or llama3");
  EXPECT_EQ(refusal(yarn(), false), "config.json: rope type yarn is not supported, expected default, linear or llama3");
  EXPECT_THAT(refusal({{"type", "dynamic"}, {"factor", 2.0}}, false), HasSubstr("dynamic is not supported"));
  EXPECT_THAT(refusal({{"type", "dynamic"}, {"factor", 0.5}}), HasSubstr("factor: expected 1 or more, got 0.5"));
  EXPECT_THAT(refusal({{"rope_type", "yarn"}}), HasSubstr("factor is missing"));
  for (const Json& config : {Json{{"rope_theta", 1e-300}}, Json{{"rope_theta", 1e-3}}})
    EXPECT_THAT(complaint([&] { rope_of(nullptr, true, config); }), HasSubstr("expected angles of 0 to 16 a position"));
  EXPECT_THAT(refusal({{"type", "linear"}, {"factor", 1e-300}}), HasSubstr("expected angles of 0 to 16 a position"));
  Json loud = yarn();
  loud["mscale"] = 1e300;
  loud["mscale_all_dim"] = 1e-300;
  EXPECT_THAT(refusal(loud), HasSubstr("expected an amplitude above 0 that float32 holds, got inf"));
  EXPECT_THAT(complaint([] {
                rope_of(nullptr, true, {{"partial_rotary_factor", 0.5}});
              }),
              HasSubstr("partial rotation"));
  Json crossed = yarn();
  crossed["beta_slow"] = 40;
  EXPECT_THAT(refusal(crossed), HasSubstr("beta_slow 40: expected at most beta_fast 32"));
  EXPECT_THAT(complaint([] {
                rope_of(yarn(), true, {{"rope_theta", 1.0}});
              }),
              HasSubstr("rope_theta 1: expected more than 1"));
}

}  // namespace
}  // namespace espalier
