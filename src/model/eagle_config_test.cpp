#include "model/eagle_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "format/safetensors.h"
#include "format/testing/complaint.h"
#include "model/testing/changed_config.h"

namespace espalier {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig teacher() {
  ModelConfig config;
  config.layers = 32;
  config.hidden = 64;
  config.vocabulary = 1000;
  return config;
}

// What SafeAILab publishes, and the same values as speculators nests them.
Json flat_config() {
  return {{"hidden_size", 64},        {"intermediate_size", 128}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"rms_norm_eps", 1e-5},     {"vocab_size", 1000}};
}
Json nested_config() {
  return {{"speculators_model_type", "eagle3"}, {"transformer_layer_config", flat_config()}};
}

EagleConfig read(const Json& config, const HeadOptions& options = {}) {
  HeadFiles files;
  files.config = config.dump();
  files.config_file = "config.json";
  return read_eagle_config(files, HeadKind::eagle3, teacher(), options);
}
std::string eagle3_refusal(const Json& config) {
  return complaint([&] { read(config); });
}

TEST(Eagle3Taps, IdsMeanWhatTheTableOfTheFixturesSays) {
  const auto table = read_json_file(std::filesystem::path(ESPALIER_TEST_DATA) / "heads/taps.json");
  for (const Json& row : table) {
    std::optional<std::vector<std::int64_t>> ids;
    if (!row["ids"].is_null()) ids = row["ids"].get<std::vector<std::int64_t>>();
    const auto layers = row["layers"].get<std::int64_t>();
    if (row["boundaries"].is_null())
      EXPECT_THROW(resolve_taps(ids, layers, "config.json"), InputError) << row.dump();
    else
      EXPECT_EQ(resolve_taps(ids, layers, "config.json"), row["boundaries"].get<std::vector<std::int64_t>>())
          << row.dump();
  }
  EXPECT_GT(table.size(), 10u);
}

TEST(Eagle3Taps, AnEmptyListIsRefused) {
  EXPECT_THROW(resolve_taps(std::vector<std::int64_t>{}, 32, "config.json"), InputError);
}

TEST(EagleConfig, NestedAndFlatFilesAreReadAlike) {
  for (const Json& config : {flat_config(), nested_config()}) {
    const EagleConfig head = read(config);
    EXPECT_EQ(head.hidden, 64);
    EXPECT_EQ(head.intermediate, 128);
    EXPECT_EQ(head.heads, 4);
    EXPECT_EQ(head.kv_heads, 2);
    EXPECT_EQ(head.head_size, 16);
    EXPECT_FLOAT_EQ(head.rms_eps, 1e-5f);
    EXPECT_THAT(head.taps, ElementsAre(2, 16, 29));
    EXPECT_EQ(head.feature_width(), 3 * 64);
  }
}

TEST(EagleConfig, TheTopLevelBeatsWhatIsNestedAndNullCountsAsAbsent) {
  EXPECT_EQ(read(with(nested_config(), "intermediate_size", 32)).intermediate, 32);
  EXPECT_EQ(read(with(nested_config(), "intermediate_size", nullptr)).intermediate, 128);
}

TEST(EagleConfig, SwitchesAreReadUnderEagleConfigToo) {
  const Json switches = {{"norm_before_fc", true}, {"eagle_aux_hidden_state_layer_ids", {1, 15, 28}}};
  const EagleConfig head = read(with(flat_config(), "eagle_config", switches));
  EXPECT_TRUE(head.norm_before_fc);
  EXPECT_THAT(head.taps, ElementsAre(2, 16, 29));
}

TEST(EagleConfig, WithoutThetaTheBaseIsTenThousandAndNeverTheTeachers) {
  EXPECT_EQ(read(flat_config()).rope.inverse_frequencies,
            read(with(flat_config(), "rope_theta", 10000)).rope.inverse_frequencies);
  EXPECT_NE(read(flat_config()).rope.inverse_frequencies,
            read(with(flat_config(), "rope_theta", 500000)).rope.inverse_frequencies);
}

TEST(EagleConfig, ThetaOfRopeParametersWinsAndTheUsersBeatsBoth) {
  const Json config = with(with(flat_config(), "rope_theta", 5), "rope_parameters", {{"rope_theta", 7}});
  EXPECT_EQ(read(config).rope.inverse_frequencies, read(with(flat_config(), "rope_theta", 7)).rope.inverse_frequencies);
  HeadOptions options;
  options.rope_theta = 9;
  EXPECT_EQ(read(config, options).rope.inverse_frequencies,
            read(with(flat_config(), "rope_theta", 9)).rope.inverse_frequencies);
}

TEST(EagleConfig, TheUsersTapsAreBoundariesAndSpareShallowTeachersTheDefault) {
  HeadOptions options;
  options.taps = {1, 2, 3};
  EXPECT_THAT(read(with(flat_config(), "num_aux_hidden_states", 4), options).taps, ElementsAre(1, 2, 3));
}

TEST(EagleConfig, OnlySpeculatorsMeansFeedbackByNormOutput) {
  EXPECT_FALSE(read(with(flat_config(), "norm_output", true)).norm_output);
  EXPECT_TRUE(read(with(nested_config(), "norm_output", true)).norm_output);
  HeadOptions options;
  options.norm_output = true;
  EXPECT_TRUE(read(flat_config(), options).norm_output);
  options.norm_output = false;
  EXPECT_FALSE(read(with(nested_config(), "norm_output", true), options).norm_output);
}

TEST(EagleConfig, EveryRequiredFieldThatIsMissingIsNamed) {
  for (const char* key : {"hidden_size", "intermediate_size", "num_attention_heads", "rms_norm_eps"}) {
    Json config = flat_config();
    config.erase(key);
    EXPECT_EQ(eagle3_refusal(config), std::string("config.json: ") + key + " is missing");
  }
}

TEST(EagleConfig, OtherNetworksAreRefused) {
  EXPECT_EQ(eagle3_refusal(with(flat_config(), "hidden_act", "gelu")),
            "config.json: hidden_act: expected silu, got \"gelu\"");
  EXPECT_THAT(eagle3_refusal(with(flat_config(), "use_sliding_window", true)), HasSubstr("use_sliding_window"));
  EXPECT_THAT(eagle3_refusal(with(flat_config(), "layer_types", {"chunked_attention"})),
              HasSubstr("chunked_attention"));
  EXPECT_THAT(eagle3_refusal(with(flat_config(), "rope_scaling", {{"rope_type", "longrope"}, {"factor", 2}})),
              HasSubstr("longrope"));
  EXPECT_THAT(eagle3_refusal(with(flat_config(), "num_key_value_heads", 3)), HasSubstr("not a multiple of 3"));
  EXPECT_THAT(eagle3_refusal(with(flat_config(), "head_dim", 7)), HasSubstr("head size 7"));
  EXPECT_THAT(eagle3_refusal(with(flat_config(), "num_attention_heads", 5)), HasSubstr("not a multiple of 5"));
}

TEST(EagleConfig, AnotherTeachersHeadIsRefused) {
  EXPECT_EQ(eagle3_refusal(with(flat_config(), "vocab_size", 999)),
            "config.json: vocab_size: expected the teacher's 1000, got 999");
  EXPECT_EQ(eagle3_refusal(with(flat_config(), "target_hidden_size", 32)),
            "config.json: target_hidden_size: expected the teacher's 64, got 32");
}

TEST(EagleConfig, FieldsOfAnotherTypeAreRefused) {
  EXPECT_THAT(eagle3_refusal(with(flat_config(), "eagle_aux_hidden_state_layer_ids", "1,2,3")),
              HasSubstr("list of integers"));
  EXPECT_THAT(eagle3_refusal(with(flat_config(), "eagle_aux_hidden_state_layer_ids", {1, 2.5, 3})),
              HasSubstr("got 2.5"));
  EXPECT_THAT(eagle3_refusal(with(flat_config(), "norm_before_fc", 1)), HasSubstr("expected true or false"));
  EXPECT_THAT(eagle3_refusal(with(flat_config(), "logit_scale", 0)), HasSubstr("expected a positive number"));
}

}  // namespace
}  // namespace espalier
