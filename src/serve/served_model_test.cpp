#include "serve/served_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/testing/tiny_model.h"

namespace espalier {
namespace {

struct Remarks final : Listener {
  void remark(std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines = {};
};

ServedModelOptions tiny_options(const DraftOptions& drafts = {.draft = "ngram"}) {
  ServedModelOptions options{.parallel = 2};
  options.engine.model = kTinyModel;
  options.engine.threads = 1;
  options.drafting = plan_drafting(drafts, {});
  return options;
}

TEST(ServedModel, IsNamedAfterItsFileUnlessItHasAnotherName) {
  EXPECT_EQ(ServedModel(tiny_options(), nullptr).facts().id, "llama2");
  ServedModelOptions named = tiny_options();
  named.alias = "me";
  const ServedModel model(named, nullptr);
  EXPECT_EQ(model.facts().id, "me");
  EXPECT_EQ(model.settings()->server.model, "me");
  EXPECT_EQ(model.server_facts().model_file, "llama2.gguf");
}

TEST(ServedModel, AMemoryThatIsTooSmallForTheContextCutsItAndSaysSo) {
  Remarks remarks;
  ServedModelOptions options = tiny_options();
  const std::int64_t whole = ServedModel(options, &remarks).context();
  EXPECT_TRUE(remarks.lines.empty());
  options.kv_bytes = 512 * 512;
  const ServedModel model(options, &remarks);
  EXPECT_LT(model.context(), whole);
  ASSERT_EQ(remarks.lines.size(), 1u);
  EXPECT_THAT(remarks.lines[0], ::testing::StartsWith("the context is "));
  EXPECT_EQ(model.make_batch()->context(), model.context());
  options.kv_bytes = 1;
  EXPECT_THROW(ServedModel(options, &remarks), InputError);
}

TEST(ServedModel, PromptsAreScoredManyRowsAtATimeAlsoWithoutDrafters) {
  const ServedModel model(tiny_options({.draft = "none"}), nullptr);
  const std::unique_ptr<Batch> batch = model.make_batch();
  const std::vector<std::int32_t> prompt(120, 40);
  const GenerateResult result = batch->generate(prompt, {.max_tokens = 1, .prompt_logprobs = 0});
  EXPECT_EQ(result.prompt_logprobs.size(), 119u);
  EXPECT_LE(batch->statistics().steps, 3);
}

TEST(ServedModel, StepsAreBoundedInTimeWhoeverDrafts) {
  for (const DraftOptions& drafts :
       {DraftOptions{.draft = "none"}, DraftOptions{.draft = "ngram"}, DraftOptions{.draft = "ngram", .nodes = 4}}) {
    const ServedModel model(tiny_options(drafts), nullptr);
    const std::unique_ptr<Batch> batch = model.make_batch();
    EXPECT_NE(batch->step_times(), nullptr) << *drafts.draft;
  }
}

TEST(ServedModel, TheFingerprintIsThatOfTextsAndNotOfSpeed) {
  const std::string plain = ServedModel(tiny_options({.draft = "none"}), nullptr).settings()->fingerprint;
  ServedModelOptions options = tiny_options();
  options.parallel = 7;
  EXPECT_EQ(ServedModel(options, nullptr).settings()->fingerprint, plain);
  options.sampling.temperature = 0.25;
  EXPECT_NE(ServedModel(options, nullptr).settings()->fingerprint, plain);
}

TEST(ServedModel, ASystemMessageIsToldAndChangesNoText) {
  const ServedModel plain(tiny_options(), nullptr);
  EXPECT_EQ(plain.server_facts().system_message, "");
  ServedModelOptions options = tiny_options();
  options.chat.system = "Be brief.";
  const ServedModel told(options, nullptr);
  EXPECT_EQ(told.server_facts().system_message, "Be brief.");
  EXPECT_EQ(told.server_facts().fingerprint, plain.server_facts().fingerprint);
}

TEST(ServedModel, WhoNeedsTheAnswersBeforehandCannotServe) {
  EXPECT_THROW(ServedModel(tiny_options({.draft = "oracle"}), nullptr), InputError);
}

TEST(ServedModel, VariablesThatNoTemplateTakesAreRefusedAtOnce) {
  ServedModelOptions options = tiny_options();
  options.chat.variables = "[1]";
  EXPECT_THROW(ServedModel(options, nullptr), InputError);
}

TEST(ParameterCount, CountsEveryWeight) {
  // Two layers of 8 with 2 heads of 4, one for keys, and 16 inside; 10 tokens; tied.
  ModelConfig config;
  config.layers = 2;
  config.hidden = 8;
  config.intermediate = 16;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_size = 4;
  config.vocabulary = 10;
  config.tied = true;
  const std::int64_t layer = 8 * 8 * 2 + 8 * 4 * 2 + 3 * 8 * 16 + 2 * 8;
  EXPECT_EQ(parameter_count(config), 10 * 8 + 8 + 2 * layer);
}

}  // namespace
}  // namespace espalier
