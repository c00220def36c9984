#include "report/run_words.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/model_text.h"
#include "text/token_text.h"

namespace espalier {
namespace {

const std::string kModel = std::string(ESPALIER_TEST_DATA) + "/tiny/llama2.gguf";

nlohmann::ordered_json configuration_of(const std::string& model) {
  return {{"model", {{"path", model}}}, {"draft", {{"drafters", "eagle3+ngram"}}}};
}

TEST(RunWords, AreThoseOfTheRunsModelAndIdsWhereItHasNone) {
  const TokenWords words = words_of_runs("", std::nullopt)(configuration_of(kModel));  // outlive the function
  const ModelText text = load_model_text(kModel);
  EXPECT_EQ(words.word(100), quoted_token(text.tokenizer->bytes(100, false)));
  EXPECT_EQ(words.word(1'000'000), "1000000");
  EXPECT_EQ(words.drafters, (std::vector<std::string>{"eagle3", "ngram"}));
}

TEST(RunWords, OfAModelThatIsGoneAreIdsUnlessAnotherIsGiven) {
  EXPECT_EQ(words_of_runs("", std::nullopt)(configuration_of("gone.gguf")).word(100), "100");
  EXPECT_NE(words_of_runs(kModel, std::nullopt)(configuration_of("gone.gguf")).word(100), "100");
  EXPECT_EQ(words_of_runs("", std::nullopt)(nlohmann::ordered_json::object()).word(100), "100");
}

TEST(RunWords, AModelThatIsGivenMustBeTheirs) {
  nlohmann::ordered_json other = configuration_of(kModel);
  other["model"]["bytes"] = 17;
  EXPECT_EQ(words_of_runs("", std::nullopt)(other).word(100), "100");
  EXPECT_THROW(words_of_runs(kModel, std::nullopt)(other), InputError);
}

}  // namespace
}  // namespace espalier
