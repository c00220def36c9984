#include "engine/model_advice.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "engine/testing/tiny_model.h"
#include "format/testing/complaint.h"
#include "format/testing/gguf_builder.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

class ModelAdvice : public ::testing::Test {
 protected:
  TemporaryFolder folder_;

  SamplingAdvice of_config(const std::string& json) {
    std::ofstream(folder_.path() / "generation_config.json") << json;
    return recommended_sampling(folder_.path(), {});
  }
};

TEST_F(ModelAdvice, AGenerationConfigThatSamplesIsTaken) {
  const SamplingAdvice advice =
      of_config(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05})");
  EXPECT_EQ(advice.source, "generation_config.json");
  EXPECT_EQ(advice.sampling, (SamplingWish{.temperature = 0.6f, .top_k = 20, .top_p = 0.95f, .repeat_penalty = 1.05f}));
  EXPECT_EQ(of_config(R"({"do_sample": true, "top_p": 0.9})").sampling.temperature, 1.0f) << "as transformers has it";
}

TEST_F(ModelAdvice, AGenerationConfigThatDoesNotSampleRecommendsNothing) {
  EXPECT_EQ(of_config(R"({"eos_token_id": 2})").source, "");
  EXPECT_EQ(of_config(R"({"do_sample": false, "temperature": 0.6})").sampling, SamplingWish());
}

TEST_F(ModelAdvice, SamplingKeysOfAGgufFileAreTaken) {
  const auto file = folder_.path() / "model.gguf";
  GgufBuilder()
      .set("general.architecture", "llama")
      .set("general.sampling.temp", 0.7f)
      .set("general.sampling.top_k", -1)
      .set("general.sampling.top_p", 0.8f)
      .set("general.sampling.penalty_repeat", 1.1f)
      .write(file);
  const SamplingAdvice advice = recommended_sampling(file, {});
  EXPECT_EQ(advice.source, "general.sampling.*");
  EXPECT_EQ(advice.sampling, (SamplingWish{.temperature = 0.7f, .top_k = 0, .top_p = 0.8f, .repeat_penalty = 1.1f}))
      << "-1 is all tokens";
}

TEST_F(ModelAdvice, ARecommendationThatCannotBeIsToldWithItsFile) {
  const std::string told = complaint([&] { of_config(R"({"do_sample": true, "top_p": 7})"); });
  EXPECT_NE(told.find("generation_config.json"), std::string::npos) << told;
  EXPECT_NE(told.find("7"), std::string::npos) << told;
  EXPECT_NE(complaint([&] { of_config(R"({"do_sample": true, "top_p": "a lot"})"); }).find("top_p"), std::string::npos);
}

TEST_F(ModelAdvice, AnyOtherModelBeginsAsItsTemplateHasIt) {
  const OpenEngine engine = open_engine({.model = kTinyModel});
  EXPECT_EQ(with_chosen_system({}, engine).chat_template, "");
  EXPECT_EQ(with_chosen_system({}, engine).system, "");
  EXPECT_EQ(with_chosen_system({.system = "be brief"}, engine).system, "be brief");
}

TEST_F(ModelAdvice, NothingIsRecommendedForAnyOtherModel) {
  EXPECT_EQ(recommended_sampling(kTinyModel, {}).source, "");
}

TEST_F(ModelAdvice, WhatWasGivenBeatsWhatIsRecommended) {
  SamplingOptions sampling{.temperature = 0.0f, .top_p = 1.0f};
  take_recommended({.temperature = 0.2f, .top_p = 0.9f}, {.temperature = 0.0f}, sampling);
  EXPECT_EQ(sampling.temperature, 0.0f) << "somebody wants it greedy";
  EXPECT_EQ(sampling.top_p, 0.9f);
}

TEST_F(ModelAdvice, SeedsAreFresh) {
  EXPECT_NE(fresh_seed(), fresh_seed());
}

}  // namespace
}  // namespace espalier
