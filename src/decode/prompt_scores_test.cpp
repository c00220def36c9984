// Log-probabilities of a prompt: those that score() gives, whatever the steps, the company and the cache.
#include <gtest/gtest.h>

#include <bit>

#include "decode/batch.h"
#include "decode/hostile_drafter.h"
#include "decode/testing/tiny_model_test.h"
#include "device/conformance/remote_device.h"
#include "device/cpu/cpu_device.h"

namespace espalier {
namespace {

constexpr std::int64_t kAlternatives = 3;

bool same_bits(const TokenLogprob& a, const TokenLogprob& b) {
  return a.token == b.token && std::bit_cast<std::uint64_t>(a.logprob) == std::bit_cast<std::uint64_t>(b.logprob);
}

bool same_bits(const std::vector<Logprobs>& a, const std::vector<Logprobs>& b) {
  return std::ranges::equal(a, b, [](const Logprobs& left, const Logprobs& right) {
    return same_bits(left.chosen, right.chosen) &&
           std::ranges::equal(left.top, right.top, [](const auto& x, const auto& y) { return same_bits(x, y); });
  });
}

class PromptScores : public TinyModelTest {
 protected:
  const std::vector<std::int32_t> prompt_ = text(200, 37), other_ = text(90, 5);
  const std::vector<Logprobs> expected_ = scores(model_, prompt_);

  static std::vector<Logprobs> scores(const Transformer& model, std::span<const std::int32_t> prompt) {
    std::vector<Logprobs> all;
    Batch(model, {.context = 300}).score(prompt, [&](std::int64_t position, std::span<const float> logits) {
      if (position + 1 < std::ssize(prompt))
        all.push_back(logprobs(logits, prompt[static_cast<std::size_t>(position) + 1], kAlternatives));
    });
    return all;
  }
  static GenerateOptions scored(std::int64_t max_tokens) {
    return {.max_tokens = max_tokens, .prompt_logprobs = kAlternatives};
  }
  std::vector<std::int32_t> plain(std::span<const std::int32_t> prompt, std::int64_t count) const {
    return Batch(model_, {.context = 300}).generate(prompt, {.max_tokens = count}).tokens;
  }
};

TEST_F(PromptScores, AreThoseOfTheWholeTextWhateverTheStepsAre) {
  const auto answer = plain(prompt_, 8);
  for (std::int64_t prefill : {1, 7, 64, 512})
    for (std::int64_t rows : {1, 3, 64}) {
      Batch batch(model_, {.context = 300, .prefill_rows = prefill, .scored_rows = rows, .invariants = true});
      const GenerateResult result = batch.generate(prompt_, scored(8));
      EXPECT_TRUE(same_bits(result.prompt_logprobs, expected_)) << prefill << " rows, " << rows << " scored";
      EXPECT_EQ(result.tokens, answer);
      const std::int64_t most = std::min({prefill, rows, std::int64_t{200}});
      EXPECT_GE(batch.statistics().steps, 200 / most) << "logits of no more rows";
    }
}

TEST_F(PromptScores, AreToldOnceBeforeTheFirstToken) {
  Batch batch(model_, {.context = 300});
  int told = 0, tokens = 0;
  GenerateEvents events;
  events.on_prompt_logprobs = [&](std::span<const Logprobs> all) {
    EXPECT_EQ(all.size(), 199u);
    EXPECT_EQ(tokens, 0);
    ++told;
  };
  events.on_token = [&](const GeneratedToken&) { return ++tokens > 0; };
  batch.generate(prompt_, scored(3), events);
  EXPECT_EQ(told, 1);
  batch.generate(prompt_, {.max_tokens = 3}, events);
  EXPECT_EQ(told, 1) << "nobody asked";
}

TEST_F(PromptScores, NeedNoAnswer) {
  Batch batch(model_, {.context = 200, .scored_rows = 32});
  int steps = 0;
  const GenerateResult result = batch.generate(prompt_, scored(0), {.on_step = [&] { ++steps; }});
  EXPECT_TRUE(same_bits(result.prompt_logprobs, expected_));
  EXPECT_TRUE(result.tokens.empty());
  EXPECT_EQ(result.finish_reason, FinishReason::token_limit);
  EXPECT_EQ(steps, 1);
}

TEST_F(PromptScores, OfOneTokenAreNone) {
  Batch batch(model_, {.context = 64});
  int told = 0;
  GenerateEvents events;
  events.on_prompt_logprobs = [&](std::span<const Logprobs> all) { told += all.empty() ? 1 : 100; };
  EXPECT_TRUE(batch.generate(std::vector<std::int32_t>{5}, scored(2), events).prompt_logprobs.empty());
  EXPECT_EQ(told, 1);
}

TEST_F(PromptScores, TakeNothingFromTheCacheAndFillIt) {
  Batch batch(model_, {.context = 300, .parallel = 2, .kv = {.check = true}});
  const GenerateResult first = batch.generate(prompt_, scored(8));
  EXPECT_EQ(batch.generate(prompt_, {.max_tokens = 8}).reused_tokens, 199) << "others find it";
  const std::int64_t rows = batch.statistics().rows.prompts;
  const GenerateResult again = batch.generate(prompt_, scored(8));
  EXPECT_EQ(again.reused_tokens, 0);
  EXPECT_EQ(batch.statistics().rows.prompts, rows + 200);
  EXPECT_TRUE(same_bits(again.prompt_logprobs, expected_));
  EXPECT_EQ(again.tokens, first.tokens);
  EXPECT_EQ(batch.statistics().prefix_queries, 200) << "it has asked for nothing";
  batch.check_conservation();
}

TEST_F(PromptScores, AreTheSameInCompanyThatDrafts) {
  const Speculation hostile{.tree = {.nodes = 8, .depth = 3}, .drafters = [](KvCache&, int) {
                              DrafterSet set;
                              set.push_back(std::make_unique<HostileDrafter>(3, 272));
                              return set;
                            }};
  for (std::int64_t rows : {1, 20, 64}) {
    Batch batch(model_, {.context = 300, .prefill_rows = 40, .scored_rows = rows, .parallel = 3, .invariants = true},
                hostile);
    const std::vector<GenerateRequest> requests = {{.prompt = other_, .options = {.max_tokens = 60}},
                                                   {.prompt = prompt_, .options = scored(10)},
                                                   {.prompt = prompt_, .options = scored(0)},
                                                   {.prompt = prompt_, .options = {.max_tokens = 10}}};
    const auto results = batch.generate(requests);
    EXPECT_EQ(results[0].tokens, plain(other_, 60));
    EXPECT_TRUE(same_bits(results[1].prompt_logprobs, expected_)) << rows;
    EXPECT_TRUE(same_bits(results[2].prompt_logprobs, expected_)) << rows;
    EXPECT_TRUE(results[3].prompt_logprobs.empty());
    EXPECT_EQ(results[1].tokens, plain(prompt_, 10));
    EXPECT_EQ(results[3].tokens, plain(prompt_, 10));
  }
}

// Older answers grow to three blocks each, and there are too few for the one that is scored: it gives way while its
// prompt is read a few rows at a time, or later, behind it.
TEST_F(PromptScores, AreTheSameAfterGivingWay) {
  const std::vector<std::vector<std::int32_t>> older = {text(100, 11), text(101, 3), text(99, 7)};
  const auto long_prompt = text(240, 37);
  const std::vector<Logprobs> expected = scores(model_, long_prompt);
  for (bool reading : {true, false}) {
    Batch batch(model_, {.context = 300,
                         .scored_rows = reading ? 1 : 64,
                         .parallel = 4,
                         .cache_positions = 7 * 128,
                         .kv = {.check = true}});
    GenerateResult result;
    int told = 0;
    for (const auto& prompt : older) batch.submit({.prompt = prompt, .options = {.max_tokens = 190}});
    batch.step();
    batch.submit({.prompt = long_prompt,
                  .options = scored(40),
                  .events = {.on_prompt_logprobs = [&](std::span<const Logprobs>) { ++told; },
                             .on_end = [&](const AnswerEnd& end) { result = end.result; }}});
    while (batch.statistics().preemptions == 0) ASSERT_TRUE(batch.step());
    EXPECT_EQ(told, reading ? 0 : 1) << "when it gave way";
    while (batch.step()) continue;
    EXPECT_TRUE(same_bits(result.prompt_logprobs, expected));
    EXPECT_EQ(told, 1);
    EXPECT_EQ(result.tokens, plain(long_prompt, 40));
    EXPECT_EQ(result.reused_tokens, 0);
    EXPECT_GT(result.prefill_seconds, 0);
    batch.check_conservation();
  }
}

TEST_F(PromptScores, AreTheSameOnADeviceWithMemoryOfItsOwn) {
  const auto remote = make_remote_device(make_cpu_device({.threads = 1}));
  const Transformer model = load_transformer(*remote, tiny_model());
  Batch batch(model, {.context = 300, .scored_rows = 40, .parallel = 2});
  const std::vector<GenerateRequest> requests = {{.prompt = other_, .options = {.max_tokens = 60}},
                                                 {.prompt = prompt_, .options = scored(10)}};
  const auto results = batch.generate(requests);
  EXPECT_TRUE(same_bits(results[1].prompt_logprobs, expected_));
  EXPECT_EQ(results[0].tokens, plain(other_, 60)) << "of which the largest logits were read alone";
  EXPECT_EQ(results[1].tokens, plain(prompt_, 10));
}

}  // namespace
}  // namespace espalier
