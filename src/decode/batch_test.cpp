#include "decode/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"
#include "decode/testing/plain_batch.h"
#include "device/conformance/counting_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

using ::testing::ElementsAreArray;

class BatchTest : public PlainBatch {};

TEST_F(BatchTest, StopsAtTheTokenLimit) {
  Batch batch(model_, {.context = 64});
  Ending ending;
  const auto result = batch.generate(prompt_, limit(5), {.on_end = ending.observer()});
  EXPECT_EQ(result.tokens.size(), 5u);
  EXPECT_EQ(result.finish_reason, FinishReason::token_limit);
  EXPECT_EQ(ending.heard, 1);
  EXPECT_EQ(ending.length, 6 + 4) << "the last token is drawn, not yet computed";
}

TEST_F(BatchTest, ZeroTokensOnlyReadsThePrompt) {
  Batch batch(model_, {.context = 64});
  const auto result = batch.generate(prompt_, limit(0));
  EXPECT_TRUE(result.tokens.empty());
  EXPECT_EQ(result.finish_reason, FinishReason::token_limit);
}

TEST_F(BatchTest, StopsAtAStopTokenAndKeepsIt) {
  const auto whole = answer(12);
  Batch batch(model_, {.context = 64});
  GenerateOptions options = limit(12);
  options.stop_tokens = {whole[3]};
  const auto result = batch.generate(prompt_, options);
  const auto first = std::find(whole.begin(), whole.end(), whole[3]) - whole.begin();
  EXPECT_EQ(result.finish_reason, FinishReason::stop_token);
  EXPECT_THAT(result.tokens, ElementsAreArray(whole.begin(), whole.begin() + first + 1));
}

TEST_F(BatchTest, StopsWhenTheContextIsFull) {
  Batch batch(model_, {.context = 10});
  const auto result = batch.generate(prompt_, limit(100));
  EXPECT_EQ(result.finish_reason, FinishReason::context_limit);
  EXPECT_EQ(result.tokens.size(), 5u) << "positions 6 to 9, and the token drawn from the last of them";
  EXPECT_THAT(result.tokens, ElementsAreArray(answer(5)));
}

TEST_F(BatchTest, StopsWhenTheListenerHasEnough) {
  Batch batch(model_, {.context = 64});
  int heard = 0;
  GenerateEvents events;
  events.on_token = [&](const GeneratedToken&) { return ++heard < 3; };
  const auto result = batch.generate(prompt_, limit(50), events);
  EXPECT_EQ(result.finish_reason, FinishReason::stopped);
  EXPECT_EQ(result.tokens.size(), 3u);
}

TEST_F(BatchTest, CancellingLeavesAUsableBatch) {
  Batch batch(model_, {.context = 64, .prefill_rows = 2});
  int asked = 0;
  GenerateEvents events;
  events.cancelled = [&] { return ++asked > 2; };
  const auto cancelled = batch.generate(prompt_, limit(50), events);
  EXPECT_EQ(cancelled.finish_reason, FinishReason::cancelled);
  EXPECT_TRUE(cancelled.tokens.empty()) << "cancelled while reading the prompt";
  EXPECT_EQ(batch.generate(prompt_, limit(8)).tokens, answer(8));
}

TEST_F(BatchTest, APromptThatContinuesTheConversationIsNotComputedAgain) {
  Batch batch(model_, {.context = 64});
  const auto first = batch.generate(prompt_, limit(6));
  EXPECT_EQ(first.reused_tokens, 0);
  std::vector<std::int32_t> longer = prompt_;
  longer.insert(longer.end(), first.tokens.begin(), first.tokens.end());
  longer.push_back(44);
  const auto second = batch.generate(longer, limit(8));
  EXPECT_EQ(second.reused_tokens, 6 + 5);
  Batch fresh(model_, {.context = 64});
  EXPECT_EQ(second.tokens, fresh.generate(longer, limit(8)).tokens);
}

TEST_F(BatchTest, TheSamePromptTwiceGivesTheSameAnswer) {
  Batch batch(model_, {.context = 64});
  const auto first = batch.generate(prompt_, limit(8));
  const auto second = batch.generate(prompt_, limit(8));
  EXPECT_EQ(first.tokens, second.tokens);
  EXPECT_EQ(second.reused_tokens, 5) << "the last token's logits are needed again";
}

// Each token, recomputed from a fresh cache and the sampler alone.
TEST_F(BatchTest, EveryTokenIsTheSamplersDrawFromAFreshForwardPass) {
  const SamplingOptions sampling{.repeat_penalty = 1.1f, .temperature = 0.9f, .top_k = 50, .top_p = 0.95f};
  std::vector<std::int32_t> path = prompt_;
  const auto tokens = answer(10, sampling);
  for (std::int32_t token : tokens) {
    Batch fresh(model_, {.context = 64});
    std::vector<float> last;
    fresh.score(path, [&](std::int64_t, std::span<const float> logits) { last.assign(logits.begin(), logits.end()); });
    ASSERT_EQ(token, sample(last, sampling, {path, prompt_.size()}, uniform(3, path.size())));
    path.push_back(token);
  }
}

TEST_F(BatchTest, ScoresAreTheSameHoweverManyRowsAStepHas) {
  std::vector<std::int32_t> tokens(40);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 37 % 272);
  const auto scores = [&](const DecoderOptions& options, const Speculation& speculation = {}) {
    Batch batch(model_, options, speculation);
    std::vector<float> all;
    batch.score(tokens, [&](std::int64_t position, std::span<const float> logits) {
      EXPECT_EQ(position * 272, std::ssize(all));
      all.insert(all.end(), logits.begin(), logits.end());
    });
    return all;
  };
  const auto expected = scores({.context = 64, .scored_rows = 64});
  EXPECT_EQ(std::ssize(expected), 40 * 272);
  EXPECT_EQ(scores({.context = 64}), expected) << "row by row";
  EXPECT_EQ(scores({.context = 64, .scored_rows = 7}), expected);
  EXPECT_EQ(scores({.context = 64, .prefill_rows = 3, .scored_rows = 7}), expected);
  EXPECT_EQ(scores({.context = 64}, {.tree = {.nodes = 16}, .drafters = [](KvCache&, int) { return DrafterSet(); }}),
            expected);
}

TEST_F(BatchTest, AStepOfAPromptTakesMemoryForTheLogitsOfItsLastRowAlone) {
  CountingDevice device(make_reference_device());
  const Transformer model = load_transformer(device, std::filesystem::path(ESPALIER_TEST_DATA) / "tiny/smollm2");
  const auto bytes = [&](const DecoderOptions& options) {
    const std::int64_t before = device.counts().allocated_bytes;
    Batch batch(model, options);
    EXPECT_EQ(batch.generate(prompt_, limit(3)).tokens, answer(3));
    return device.counts().allocated_bytes - before;
  };
  bytes({.context = 64});  // the rotation tables, which are the model's
  // The logits of a row, its state before and after the final norm, and the largest logit with its id.
  const std::int64_t row = (model.config().vocabulary + 2 * model.config().hidden + 2) * 4;
  EXPECT_EQ(bytes({.context = 64, .prefill_rows = 64, .scored_rows = 64}), bytes({.context = 64}) + 63 * row);
}

TEST_F(BatchTest, AnotherSeedGivesAnotherText) {
  Batch batch(model_, {.context = 64});
  const SamplingOptions sampling{.temperature = 1.0f};
  const auto a = batch.generate(prompt_, sampled(sampling, 1, 20)).tokens;
  const auto b = batch.generate(prompt_, sampled(sampling, 2, 20)).tokens;
  EXPECT_NE(a, b);
}

TEST_F(BatchTest, LogprobsBelongToTheChosenTokens) {
  Batch batch(model_, {.context = 64});
  std::vector<GeneratedToken> heard;
  GenerateEvents events;
  events.on_token = [&](const GeneratedToken& token) {
    heard.push_back(token);
    return true;
  };
  GenerateOptions options = limit(4);
  options.logprobs = 2;
  const auto result = batch.generate(prompt_, options, events);
  ASSERT_EQ(heard.size(), 4u);
  for (std::size_t i = 0; i < heard.size(); ++i) {
    EXPECT_EQ(heard[i].logprobs->chosen.token, result.tokens[i]);
    EXPECT_EQ(heard[i].logprobs->top.size(), 2u);
    EXPECT_EQ(heard[i].logprobs->top[0].token, result.tokens[i]) << "greedy takes the most probable";
    EXPECT_LE(heard[i].logprobs->chosen.logprob, 0);
  }
}

TEST_F(BatchTest, BadPromptsAreNamed) {
  Batch batch(model_, {.context = 8});
  const auto refusal = [&](std::vector<std::int32_t> prompt) {
    try {
      batch.generate(prompt, limit(1));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal({}), "the prompt is empty: expected at least one token");
  EXPECT_EQ(refusal(std::vector<std::int32_t>(9, 5)), "the prompt has 9 tokens, the context holds 8");
  EXPECT_EQ(refusal({5, -1}), "token 1 of the prompt is -1, the vocabulary has 272");
  EXPECT_EQ(refusal({5, 272}), "token 1 of the prompt is 272, the vocabulary has 272");
  EXPECT_THROW(Batch(model_, {.context = 513}), InputError) << "more than the model was made for";
}

}  // namespace
}  // namespace espalier
