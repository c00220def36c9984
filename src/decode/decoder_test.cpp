#include "decode/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"
#include "device/conformance/counting_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

using ::testing::ElementsAreArray;

GenerateOptions limit(std::int64_t max_tokens) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  return options;
}

GenerateOptions sampled(const SamplingOptions& sampling, std::uint64_t seed, std::int64_t max_tokens) {
  GenerateOptions options = limit(max_tokens);
  options.sampling = sampling;
  options.seed = seed;
  return options;
}

class DecoderTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_reference_device();
  Transformer model_ = load_transformer(*device_, std::filesystem::path(ESPALIER_TEST_DATA) / "tiny/smollm2");
  std::vector<std::int32_t> prompt_ = {5, 9, 40, 77, 120, 33};

  std::vector<std::int32_t> answer(std::int64_t count, const SamplingOptions& sampling = {}) {
    Decoder decoder(model_, {.context = 64});
    return decoder.generate(prompt_, sampled(sampling, 3, count)).tokens;
  }
};

TEST_F(DecoderTest, StopsAtTheTokenLimit) {
  Decoder decoder(model_, {.context = 64});
  const auto result = decoder.generate(prompt_, limit(5));
  EXPECT_EQ(result.tokens.size(), 5u);
  EXPECT_EQ(result.finish_reason, FinishReason::token_limit);
  EXPECT_EQ(decoder.cache().length(decoder.sequence()), 6 + 4) << "the last token is drawn, not yet computed";
}

TEST_F(DecoderTest, ZeroTokensOnlyReadsThePrompt) {
  Decoder decoder(model_, {.context = 64});
  const auto result = decoder.generate(prompt_, limit(0));
  EXPECT_TRUE(result.tokens.empty());
  EXPECT_EQ(result.finish_reason, FinishReason::token_limit);
}

TEST_F(DecoderTest, StopsAtAStopTokenAndKeepsIt) {
  const auto whole = answer(12);
  Decoder decoder(model_, {.context = 64});
  GenerateOptions options = limit(12);
  options.stop_tokens = {whole[3]};
  const auto result = decoder.generate(prompt_, options);
  const auto first = std::find(whole.begin(), whole.end(), whole[3]) - whole.begin();
  EXPECT_EQ(result.finish_reason, FinishReason::stop_token);
  EXPECT_THAT(result.tokens, ElementsAreArray(whole.begin(), whole.begin() + first + 1));
}

TEST_F(DecoderTest, StopsWhenTheContextIsFull) {
  Decoder decoder(model_, {.context = 10});
  const auto result = decoder.generate(prompt_, limit(100));
  EXPECT_EQ(result.finish_reason, FinishReason::context_limit);
  EXPECT_EQ(result.tokens.size(), 5u) << "positions 6 to 9, and the token drawn from the last of them";
  EXPECT_THAT(result.tokens, ElementsAreArray(answer(5)));
}

TEST_F(DecoderTest, StopsWhenTheListenerHasEnough) {
  Decoder decoder(model_, {.context = 64});
  int heard = 0;
  GenerateEvents events;
  events.on_token = [&](const GeneratedToken&) { return ++heard < 3; };
  const auto result = decoder.generate(prompt_, limit(50), events);
  EXPECT_EQ(result.finish_reason, FinishReason::stopped);
  EXPECT_EQ(result.tokens.size(), 3u);
}

TEST_F(DecoderTest, CancellingLeavesAUsableDecoder) {
  Decoder decoder(model_, {.context = 64, .prefill_rows = 2});
  int asked = 0;
  GenerateEvents events;
  events.cancelled = [&] { return ++asked > 2; };
  const auto cancelled = decoder.generate(prompt_, limit(50), events);
  EXPECT_EQ(cancelled.finish_reason, FinishReason::cancelled);
  EXPECT_TRUE(cancelled.tokens.empty()) << "cancelled while reading the prompt";
  EXPECT_EQ(decoder.generate(prompt_, limit(8)).tokens, answer(8));
}

TEST_F(DecoderTest, APromptThatContinuesTheConversationIsNotComputedAgain) {
  Decoder decoder(model_, {.context = 64});
  const auto first = decoder.generate(prompt_, limit(6));
  EXPECT_EQ(first.reused_tokens, 0);
  std::vector<std::int32_t> longer = prompt_;
  longer.insert(longer.end(), first.tokens.begin(), first.tokens.end());
  longer.push_back(44);
  const auto second = decoder.generate(longer, limit(8));
  EXPECT_EQ(second.reused_tokens, 6 + 5);
  Decoder fresh(model_, {.context = 64});
  EXPECT_EQ(second.tokens, fresh.generate(longer, limit(8)).tokens);
}

TEST_F(DecoderTest, TheSamePromptTwiceGivesTheSameAnswer) {
  Decoder decoder(model_, {.context = 64});
  const auto first = decoder.generate(prompt_, limit(8));
  const auto second = decoder.generate(prompt_, limit(8));
  EXPECT_EQ(first.tokens, second.tokens);
  EXPECT_EQ(second.reused_tokens, 5) << "the last token's logits are needed again";
}

// Each token, recomputed from a fresh cache and the sampler alone.
TEST_F(DecoderTest, EveryTokenIsTheSamplersDrawFromAFreshForwardPass) {
  const SamplingOptions sampling{.repeat_penalty = 1.1f, .temperature = 0.9f, .top_k = 50, .top_p = 0.95f};
  std::vector<std::int32_t> path = prompt_;
  const auto tokens = answer(10, sampling);
  for (std::int32_t token : tokens) {
    Decoder fresh(model_, {.context = 64});
    std::vector<float> last;
    fresh.score(path, [&](std::int64_t, std::span<const float> logits) { last.assign(logits.begin(), logits.end()); });
    ASSERT_EQ(token, sample(last, sampling, {path, prompt_.size()}, uniform(3, path.size())));
    path.push_back(token);
  }
}

TEST_F(DecoderTest, ScoresAreTheSameHoweverManyRowsAStepHas) {
  std::vector<std::int32_t> tokens(40);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 37 % 272);
  const auto scores = [&](const DecoderOptions& options, const Speculation& speculation = {}) {
    Decoder decoder(model_, options, speculation);
    std::vector<float> all;
    decoder.score(tokens, [&](std::int64_t position, std::span<const float> logits) {
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
  EXPECT_EQ(scores({.context = 64}, {.tree = {.nodes = 16}, .drafters = [] { return DrafterSet(); }}), expected);
}

TEST_F(DecoderTest, AStepOfAPromptTakesMemoryForTheLogitsOfItsLastRowAlone) {
  CountingDevice device(make_reference_device());
  const Transformer model = load_transformer(device, std::filesystem::path(ESPALIER_TEST_DATA) / "tiny/smollm2");
  const auto bytes = [&](const DecoderOptions& options) {
    const std::int64_t before = device.counts().allocated_bytes;
    Decoder decoder(model, options);
    EXPECT_EQ(decoder.generate(prompt_, limit(3)).tokens, answer(3));
    return device.counts().allocated_bytes - before;
  };
  // The logits of a row, and its state before and after the final norm.
  const std::int64_t row = (model.config().vocabulary + 2 * model.config().hidden) * 4;
  EXPECT_EQ(bytes({.context = 64, .prefill_rows = 64, .scored_rows = 64}), bytes({.context = 64}) + 63 * row);
}

TEST_F(DecoderTest, AnotherSeedGivesAnotherText) {
  Decoder decoder(model_, {.context = 64});
  const SamplingOptions sampling{.temperature = 1.0f};
  const auto a = decoder.generate(prompt_, sampled(sampling, 1, 20)).tokens;
  const auto b = decoder.generate(prompt_, sampled(sampling, 2, 20)).tokens;
  EXPECT_NE(a, b);
}

TEST_F(DecoderTest, LogprobsBelongToTheChosenTokens) {
  Decoder decoder(model_, {.context = 64});
  std::vector<GeneratedToken> heard;
  GenerateEvents events;
  events.on_token = [&](const GeneratedToken& token) {
    heard.push_back(token);
    return true;
  };
  GenerateOptions options = limit(4);
  options.logprobs = 2;
  const auto result = decoder.generate(prompt_, options, events);
  ASSERT_EQ(heard.size(), 4u);
  for (std::size_t i = 0; i < heard.size(); ++i) {
    EXPECT_EQ(heard[i].logprobs->chosen.token, result.tokens[i]);
    EXPECT_EQ(heard[i].logprobs->top.size(), 2u);
    EXPECT_EQ(heard[i].logprobs->top[0].token, result.tokens[i]) << "greedy takes the most probable";
    EXPECT_LE(heard[i].logprobs->chosen.logprob, 0);
  }
}

TEST_F(DecoderTest, BadPromptsAreNamed) {
  Decoder decoder(model_, {.context = 8});
  const auto refusal = [&](std::vector<std::int32_t> prompt) {
    try {
      decoder.generate(prompt, limit(1));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal({}), "the prompt is empty: expected at least one token");
  EXPECT_EQ(refusal(std::vector<std::int32_t>(9, 5)), "the prompt has 9 tokens, the context holds 8");
  EXPECT_EQ(refusal({5, -1}), "token 1 of the prompt is -1, the vocabulary has 272");
  EXPECT_EQ(refusal({5, 272}), "token 1 of the prompt is 272, the vocabulary has 272");
  EXPECT_THROW(Decoder(model_, {.context = 513}), InputError) << "more than the model was made for";
}

}  // namespace
}  // namespace espalier
