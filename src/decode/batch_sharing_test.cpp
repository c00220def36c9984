// Prompts that come together and begin alike are computed once. Counted in rows of the teacher.
#include <gtest/gtest.h>

#include "base/testing/sanitized.h"
#include "decode/batch.h"
#include "decode/ngram_drafter.h"
#include "decode/testing/tiny_model_test.h"

namespace espalier {
namespace {

class SharedPrompts : public TinyModelTest {
 protected:
  static GenerateOptions sampled(std::uint64_t seed, std::int64_t max_tokens = 12) {
    return {.sampling = {.temperature = 0.9f}, .seed = seed, .max_tokens = max_tokens};
  }
  std::vector<std::int32_t> alone(std::span<const std::int32_t> prompt, const GenerateOptions& options) const {
    return Batch(model_, {.context = 400}).generate(prompt, options).tokens;
  }
  static DecoderOptions decoder(int parallel, std::int64_t prefill_rows) {
    return {
        .context = 400, .prefill_rows = prefill_rows, .parallel = parallel, .kv = {.check = true}, .invariants = true};
  }
  // The choices of one prompt, all answered; tells the prompt rows that took.
  std::int64_t rows_of_choices(Batch& batch, std::span<const std::int32_t> prompt, std::uint64_t choices) {
    const std::int64_t before = batch.statistics().rows.prompts;
    std::vector<GenerateRequest> requests;
    for (std::uint64_t i = 0; i < choices; ++i) requests.push_back({.prompt = prompt, .options = sampled(i)});
    const std::vector<GenerateResult> results = batch.generate(requests);
    for (std::uint64_t i = 0; i < choices; ++i) EXPECT_EQ(results[i].tokens, alone(prompt, sampled(i))) << i;
    batch.check_conservation();
    return batch.statistics().rows.prompts - before;
  }
};

TEST_F(SharedPrompts, TheChoicesOfARequestComputeItsPromptOnceAndTheirLastPositionEach) {
  for (std::size_t length : {2u, 30u, 127u, 128u, 129u, 300u})
    for (std::int64_t rows : {7, 64, 400}) {
      if (kSanitized && rows == 64) continue;
      Batch batch(model_, decoder(4, rows));
      EXPECT_EQ(rows_of_choices(batch, text(length, 37), 4), static_cast<std::int64_t>(length) + 3)
          << length << " tokens, " << rows << " rows a step";
    }
}

TEST_F(SharedPrompts, AlsoWhereNotAllOfThemRunAtOnce) {
  for (int parallel : {1, 2, 3}) {
    Batch batch(model_, decoder(parallel, 64));
    EXPECT_EQ(rows_of_choices(batch, text(200, 37), 6), 200 + 5) << parallel << " at once";
  }
}

TEST_F(SharedPrompts, AndWhereSomebodyElseDecodes) {
  Batch batch(model_, decoder(5, 32));
  const auto other = text(50, 5);
  std::vector<std::int32_t> tokens;
  batch.submit({.prompt = other, .options = {.max_tokens = 60}, .events = {.on_end = [&](const AnswerEnd& end) {
                                                                  tokens = end.result.tokens;
                                                                }}});
  for (int i = 0; i < 5; ++i) batch.step();
  EXPECT_EQ(rows_of_choices(batch, text(300, 37), 4), 300 + 3);
  while (batch.step()) continue;
  EXPECT_EQ(tokens, alone(other, {.max_tokens = 60}));
}

TEST_F(SharedPrompts, WhatSeveralPromptsBeginWithIsComputedOnce) {
  const auto system = text(250, 37);
  std::vector<std::vector<std::int32_t>> prompts;
  for (std::size_t i = 0; i < 4; ++i) {
    prompts.push_back(system);
    const auto question = text(20 + i, 3 + i);
    prompts.back().insert(prompts.back().end(), question.begin(), question.end());
  }
  Batch batch(model_, decoder(4, 64));
  std::vector<GenerateRequest> requests;
  for (const auto& prompt : prompts) requests.push_back({.prompt = prompt, .options = {.max_tokens = 10}});
  const auto results = batch.generate(requests);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(results[i].tokens, alone(prompts[i], {.max_tokens = 10})) << i;
  EXPECT_EQ(batch.statistics().rows.prompts, 250 + 20 + 21 + 22 + 23);
}

TEST_F(SharedPrompts, NobodyWaitsForAShortBeginning) {
  auto first = text(100, 37), second = text(90, 5);
  for (std::size_t i = 0; i < 20; ++i) second[i] = first[i];
  Batch batch(model_, decoder(2, 400));
  const std::vector<GenerateRequest> requests = {{.prompt = first, .options = {.max_tokens = 5}},
                                                 {.prompt = second, .options = {.max_tokens = 5}}};
  const auto results = batch.generate(requests);
  EXPECT_EQ(batch.statistics().rows.prompts, 190) << "in one step";
  EXPECT_EQ(results[1].tokens, alone(second, {.max_tokens = 5}));
}

TEST_F(SharedPrompts, SaltsAndRequestsWithoutCacheShareNothing) {
  const auto prompt = text(150, 37);
  Batch batch(model_, decoder(4, 64));
  const std::vector<GenerateRequest> requests = {{.prompt = prompt, .options = {.max_tokens = 5}, .salt = "a"},
                                                 {.prompt = prompt, .options = {.max_tokens = 5}, .salt = "b"},
                                                 {.prompt = prompt, .options = {.max_tokens = 5}, .cache = false},
                                                 {.prompt = prompt, .options = {.max_tokens = 5}, .salt = "b"}};
  for (const GenerateResult& result : batch.generate(requests))
    EXPECT_EQ(result.tokens, alone(prompt, {.max_tokens = 5}));
  EXPECT_EQ(batch.statistics().rows.prompts, 3 * 150 + 1);
}

// Whoever waits for a prompt goes on by himself when its request leaves, at whatever step.
TEST_F(SharedPrompts, ALeaderThatIsCancelledLeavesTheOthersToGoOn) {
  const auto prompt = text(200, 37);
  const auto expected = alone(prompt, {.max_tokens = 8});
  for (int k = 0; k < 12; ++k) {
    Batch batch(model_, decoder(3, 32));
    std::vector<GenerateResult> results;
    const RequestId leader = batch.submit({.prompt = prompt, .options = {.max_tokens = 8}});
    for (int i = 0; i < 2; ++i)
      batch.submit({.prompt = prompt, .options = {.max_tokens = 8}, .events = {.on_end = [&](const AnswerEnd& end) {
                                                                      results.push_back(end.result);
                                                                    }}});
    for (int step = 0; step < k; ++step) batch.step();
    batch.cancel(leader);
    while (batch.step()) continue;
    ASSERT_EQ(results.size(), 2u);
    for (const GenerateResult& result : results) EXPECT_EQ(result.tokens, expected) << "step " << k;
    EXPECT_LE(batch.statistics().rows.prompts, 200 + 3) << "what the first has computed is not lost";
    batch.check_conservation();
  }
}

// The older half of the pool belongs to one that others wait for.
TEST_F(SharedPrompts, AlsoInAPoolForTwoOfThem) {
  const auto prompt = text(300, 37);
  DecoderOptions options = decoder(4, 64);
  options.cache_positions = 2 * 6 * 128;
  Batch batch(model_, options);
  EXPECT_LE(rows_of_choices(batch, prompt, 6), 300 + 5 + 2 * 44) << "a copy may have had no block";
}

// An answer that publishes behind blocks that others have computed too would keep theirs besides its own, and a pool
// for one context would not hold it any more.
TEST_F(SharedPrompts, WhatWasComputedTwiceIsNotKeptTwice) {
  const auto prompt = text(294, 37);
  DecoderOptions options = decoder(2, 64);
  options.context = 300;
  options.cache_positions = 5 * 128;
  Batch batch(model_, options);
  batch.generate(std::span(prompt).first(258), {.max_tokens = 2});
  const std::vector<GenerateRequest> requests = {
      {.prompt = prompt, .options = {.max_tokens = 5, .prompt_logprobs = 0}},  // it takes nothing from others
      {.prompt = prompt, .options = {.max_tokens = 5}}};
  for (const GenerateResult& result : batch.generate(requests))
    EXPECT_EQ(result.tokens, alone(prompt, {.max_tokens = 5}));
  batch.check_conservation();
}

}  // namespace
}  // namespace espalier
