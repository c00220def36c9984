// Several requests in one batch: who waits, who gives way, what they share; and each has the answer it has alone.
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "base/error.h"
#include "decode/batch.h"
#include "decode/testing/plain_batch.h"

namespace espalier {
namespace {

class BatchOfSeveral : public PlainBatch {};

TEST_F(BatchOfSeveral, RequestsThatJoinAtDifferentStepsGetTheAnswersTheyGetAlone) {
  const auto b = text(20, 37), c = text(9, 5);
  const GenerateOptions drawn = sampled({.repeat_penalty = 1.1f, .temperature = 0.9f}, 7, 25);
  Batch batch(model_, {.context = 64, .prefill_rows = 8, .parallel = 3, .kv = {.check = true}, .invariants = true});
  Ending ends[3];
  submit(batch, prompt_, limit(20), ends[0]);
  for (int i = 0; i < 4; ++i) batch.step();
  submit(batch, b, drawn, ends[1]);
  for (int i = 0; i < 2; ++i) batch.step();
  submit(batch, c, limit(12), ends[2]);
  batch.step();
  EXPECT_EQ(batch.running(), 3);
  finish(batch);
  EXPECT_EQ(ends[0].result.tokens, alone(prompt_, limit(20)));
  EXPECT_EQ(ends[1].result.tokens, alone(b, drawn));
  EXPECT_EQ(ends[2].result.tokens, alone(c, limit(12)));
  for (const Ending& end : ends) {
    EXPECT_EQ(end.heard, 1);
    EXPECT_EQ(end.failure, nullptr);
    EXPECT_EQ(end.result.finish_reason, FinishReason::token_limit);
  }
}

TEST_F(BatchOfSeveral, TheTokensOfARequestAreCopied) {
  Batch batch(model_, {.context = 64});
  Ending end;
  std::vector<std::int32_t> prompt = prompt_, answered = answer(2);
  batch.submit({.prompt = prompt, .options = limit(8), .events = {.on_end = end.observer()}, .answered = answered});
  std::ranges::fill(prompt, 1);
  std::ranges::fill(answered, 1);
  finish(batch);
  EXPECT_EQ(end.result.tokens, answer(8));
}

TEST_F(BatchOfSeveral, ARequestWaitsWhileAsManyRunAsMay) {
  const auto b = text(20, 37), c = text(9, 5);
  Batch batch(model_, {.context = 64, .parallel = 2});
  Ending ends[3];
  submit(batch, prompt_, limit(4), ends[0]);
  submit(batch, b, limit(12), ends[1]);
  submit(batch, c, limit(5), ends[2]);
  EXPECT_EQ(batch.waiting(), 3) << "until there is a step";
  batch.step();
  EXPECT_EQ(batch.running(), 2);
  EXPECT_EQ(batch.waiting(), 1);
  while (ends[0].heard == 0) {
    EXPECT_EQ(ends[2].heard, 0);
    ASSERT_LE(batch.running(), 2);
    ASSERT_TRUE(batch.step());
  }
  batch.step();
  EXPECT_EQ(batch.waiting(), 0) << "there is room now";
  finish(batch);
  EXPECT_EQ(ends[0].result.tokens, alone(prompt_, limit(4)));
  EXPECT_EQ(ends[1].result.tokens, alone(b, limit(12)));
  EXPECT_EQ(ends[2].result.tokens, alone(c, limit(5)));
}

TEST_F(BatchOfSeveral, OfManyRequestsEachResultStandsInItsPlace) {
  Batch batch(model_, {.context = 64, .parallel = 2});
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<GenerateRequest> requests;
  for (std::size_t i = 0; i < 5; ++i) prompts.push_back(text(4 + 3 * i, 11 + i));
  for (std::size_t i = 0; i < 5; ++i)
    requests.push_back({.prompt = prompts[i], .options = limit(static_cast<std::int64_t>(12 - 2 * i))});
  const auto results = batch.generate(requests);
  ASSERT_EQ(results.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_EQ(results[i].tokens, alone(prompts[i], requests[i].options)) << "request " << i;
}

TEST_F(BatchOfSeveral, AnEmptyBatchHasNothingToDo) {
  Batch batch(model_, {.context = 64});
  EXPECT_FALSE(batch.step());
  EXPECT_TRUE(batch.generate(std::vector<GenerateRequest>()).empty());
}

TEST_F(BatchOfSeveral, CancellingOneThatWaitsLeavesTheOthersAlone) {
  const auto b = text(20, 37);
  Batch batch(model_, {.context = 64});
  Ending ends[2];
  submit(batch, prompt_, limit(10), ends[0]);
  const RequestId waiting = submit(batch, b, limit(10), ends[1]);
  batch.step();
  batch.cancel(waiting);
  EXPECT_EQ(ends[1].heard, 0) << "with the next step";
  batch.step();
  EXPECT_EQ(ends[1].heard, 1);
  EXPECT_EQ(ends[1].result.finish_reason, FinishReason::cancelled);
  EXPECT_TRUE(ends[1].result.tokens.empty());
  EXPECT_EQ(ends[1].length, std::nullopt) << "it had no sequence";
  EXPECT_EQ(ends[0].heard, 0);
  finish(batch);
  EXPECT_EQ(ends[0].result.tokens, answer(10));
  batch.cancel(waiting);
  batch.cancel(1000);
  EXPECT_FALSE(batch.step()) << "there is nobody to cancel";
  EXPECT_EQ(ends[1].heard, 1);
}

TEST_F(BatchOfSeveral, CancellingOneThatRunsEndsItAsItIsAndNobodyElse) {
  const auto b = text(20, 37), c = text(9, 5);
  Batch batch(model_, {.context = 64, .parallel = 3, .kv = {.check = true}});
  Ending ends[3];
  submit(batch, prompt_, limit(20), ends[0]);
  const RequestId running = submit(batch, b, limit(20), ends[1]);
  submit(batch, c, limit(20), ends[2]);
  for (int i = 0; i < 6; ++i) batch.step();
  batch.cancel(running);
  batch.step();
  ASSERT_EQ(ends[1].heard, 1);
  EXPECT_EQ(ends[1].result.finish_reason, FinishReason::cancelled);
  EXPECT_EQ(ends[1].failure, nullptr);
  const auto tokens = ends[1].result.tokens;
  EXPECT_EQ(tokens.size(), 6u) << "one with the prompt, and one with every further step";
  EXPECT_EQ(tokens, alone(b, limit(6)));
  EXPECT_EQ(ends[1].length, 20 + 5);
  finish(batch);
  EXPECT_EQ(ends[0].result.tokens, alone(prompt_, limit(20)));
  EXPECT_EQ(ends[2].result.tokens, alone(c, limit(20)));
  EXPECT_EQ(batch.generate(b, limit(20)).tokens, alone(b, limit(20))) << "what it left is sound";
}

TEST_F(BatchOfSeveral, AListenerMayCancelAndSubmit) {
  const auto b = text(20, 37), c = text(9, 5);
  Batch batch(model_, {.context = 64, .parallel = 3, .kv = {.check = true}});
  Ending ends[3];
  RequestId other = 0;
  int heard = 0;
  GenerateEvents events{.on_token =
                            [&](const GeneratedToken&) {
                              if (++heard == 4) {
                                batch.cancel(other);
                                submit(batch, c, limit(7), ends[2]);
                              }
                              return true;
                            },
                        .on_end = ends[0].observer()};
  batch.submit({.prompt = prompt_, .options = limit(12), .events = events});
  other = submit(batch, b, limit(20), ends[1]);
  finish(batch);
  EXPECT_EQ(ends[0].result.tokens, answer(12));
  EXPECT_EQ(ends[1].result.finish_reason, FinishReason::cancelled);
  EXPECT_LT(ends[1].result.tokens.size(), 8u);
  EXPECT_EQ(ends[1].result.tokens, alone(b, limit(std::ssize(ends[1].result.tokens))));
  EXPECT_EQ(ends[2].result.tokens, alone(c, limit(7)));
}

TEST_F(BatchOfSeveral, TheEndOfAnAnswerMaySubmitTheNext) {
  Batch batch(model_, {.context = 64});
  std::vector<std::vector<std::int32_t>> answers;
  std::function<void(const AnswerEnd&)> next = [&](const AnswerEnd& end) {
    answers.push_back(end.result.tokens);
    const auto prompt = text(5, answers.size());
    if (answers.size() < 4) batch.submit({.prompt = prompt, .options = limit(6), .events = {.on_end = next}});
  };
  batch.submit({.prompt = prompt_, .options = limit(6), .events = {.on_end = next}});
  finish(batch);
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(answers[0], answer(6));
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(answers[i], alone(text(5, i), limit(6))) << i;
}

TEST_F(BatchOfSeveral, WhatAListenerThrowsEndsItsAnswerAlone) {
  const auto b = text(20, 37), c = text(9, 5);
  Batch batch(model_, {.context = 64, .parallel = 3, .kv = {.check = true}});
  Ending ends[3];
  int heard = 0, told = 0;
  std::vector<GenerateRequest> requests(3);
  const std::vector<std::span<const std::int32_t>> prompts = {prompt_, b, c};
  for (std::size_t i = 0; i < 3; ++i)
    requests[i] = {.prompt = prompts[i], .options = limit(15), .events = {.on_end = ends[i].observer()}};
  requests[1].events.on_token = [&](const GeneratedToken&) -> bool {
    if (++heard == 3) throw std::runtime_error("the listener fell asleep");
    return true;
  };
  requests[1].events.on_failure = [&](const AnswerFailure&) { ++told; };
  for (bool generates : {false, true}) {
    heard = 0;
    for (Ending& end : ends) end = {};
    if (generates) {
      EXPECT_THROW(batch.generate(requests), std::runtime_error);
    } else {
      for (const GenerateRequest& request : requests) batch.submit(request);
      finish(batch);
    }
    ASSERT_TRUE(ends[1].failure);
    EXPECT_THROW(std::rethrow_exception(ends[1].failure), std::runtime_error);
    EXPECT_EQ(ends[1].heard, 1);
    EXPECT_EQ(told, 0) << "it is no failure of the answer";
    EXPECT_EQ(ends[0].result.tokens, alone(prompt_, limit(15)));
    EXPECT_EQ(ends[2].result.tokens, alone(c, limit(15)));
    EXPECT_EQ(ends[0].failure, nullptr);
    EXPECT_EQ(ends[2].failure, nullptr);
  }
  EXPECT_EQ(batch.generate(b, limit(15)).tokens, alone(b, limit(15)));
}

TEST_F(BatchOfSeveral, ThePromptIsToldAsItIsRead) {
  using Progress = std::vector<std::pair<std::int64_t, std::int64_t>>;
  Batch batch(model_, {.context = 64, .prefill_rows = 2});
  Progress told;
  GenerateEvents events;
  events.on_prefill = [&](std::int64_t done, std::int64_t total) { told.emplace_back(done, total); };
  const auto first = batch.generate(prompt_, limit(4), events);
  EXPECT_EQ(told, (Progress{{0, 6}, {2, 6}, {4, 6}, {6, 6}}));
  told.clear();
  std::vector<std::int32_t> longer = prompt_;
  longer.insert(longer.end(), first.tokens.begin(), first.tokens.end());
  longer.insert(longer.end(), {7, 8});
  batch.generate(longer, limit(4), events);
  EXPECT_EQ(told, (Progress{{0, 3}, {2, 3}, {3, 3}})) << "without what was there already";
}

TEST_F(BatchOfSeveral, ScoringLeavesRunningAnswersAlone) {
  const auto b = text(30, 37);
  Batch batch(model_, {.context = 64});
  Ending end;
  submit(batch, prompt_, limit(20), end);
  for (int i = 0; i < 5; ++i) batch.step();
  const auto scores = [&](Batch& one) {
    std::vector<float> all;
    one.score(b, [&](std::int64_t, std::span<const float> row) { all.insert(all.end(), row.begin(), row.end()); });
    return all;
  };
  Batch fresh(model_, {.context = 64});
  EXPECT_EQ(scores(batch), scores(fresh));
  finish(batch);
  EXPECT_EQ(end.result.tokens, answer(20));
}

// --- what the cache can hold

TEST_F(BatchOfSeveral, WhatTheCacheCanNeverHoldIsRefusedOnArrival) {
  EXPECT_THROW(Batch(model_, {.context = 64, .cache_positions = 2 * 128}), InputError) << "not even one context";
  Batch batch(model_, {.context = 64, .parallel = 3, .cache_positions = 3 * 128});
  EXPECT_THROW(batch.submit({.prompt = text(65, 3)}), InputError);
  EXPECT_THROW(batch.submit({.prompt = text(60, 3), .answered = prompt_}), InputError);
  EXPECT_THROW(batch.submit({.prompt = prompt_, .draft = {.nodes = -1}}), InputError);
  EXPECT_THROW(batch.submit({.prompt = prompt_, .draft = {.depth = -1}}), InputError);
  EXPECT_EQ(batch.waiting(), 0);
  // Those before a bad one do not run either.
  const auto long_prompt = text(65, 3);
  const std::vector<GenerateRequest> requests = {{.prompt = prompt_}, {.prompt = long_prompt}};
  EXPECT_THROW(batch.generate(requests), InputError);
  EXPECT_EQ(batch.waiting(), 0);
  const auto endless = batch.generate(prompt_, limit(std::numeric_limits<std::int64_t>::max()));
  EXPECT_EQ(endless.finish_reason, FinishReason::context_limit) << "no answer is longer than the context";
  EXPECT_EQ(endless.tokens, alone(prompt_, limit(59)));
}

// Three answers of three blocks each, in a cache of five: the newest gives way, and is computed again.
TEST_F(BatchOfSeveral, AnAnswerThatGivesWayToOthersIsTheSameInTheEnd) {
  const std::vector<std::vector<std::int32_t>> prompts = {text(100, 37), text(101, 5), text(99, 11)};
  const GenerateOptions drawn = sampled({.frequency_penalty = 0.3f, .temperature = 0.9f}, 5, 190);
  std::vector<GenerateOptions> options = {limit(190), drawn, limit(190)};
  for (bool cache : {true, false}) {
    Batch batch(model_,
                {.context = 300, .parallel = 3, .cache_positions = 5 * 128, .kv = {.check = true}, .invariants = true});
    Ending ends[3];
    int told[3] = {};
    for (std::size_t i = 0; i < 3; ++i) {
      const GenerateEvents events{.on_token =
                                      [&told, i](const GeneratedToken&) {
                                        ++told[i];
                                        return true;
                                      },
                                  .on_end = ends[i].observer()};
      batch.submit({.prompt = prompts[i], .options = options[i], .events = events, .cache = cache});
    }
    int preempted = 0;
    std::int64_t waiting = batch.waiting();
    while (batch.step()) {
      preempted += batch.waiting() > waiting ? 1 : 0;  // nobody joins: one that ran waits again
      waiting = batch.waiting();
    }
    EXPECT_GT(preempted, 0);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(ends[i].result.tokens, alone(prompts[i], options[i], 300)) << "request " << i;
      EXPECT_EQ(told[i], 190) << "every token once";
      EXPECT_EQ(ends[i].result.rounds(), 189);
      EXPECT_EQ(ends[i].result.reused_tokens, 0) << "what it computed itself before";
    }
    batch.cache().check_conservation();
  }
}

TEST_F(BatchOfSeveral, WhatIsKeptForLaterGivesWayToWhatIsNeeded) {
  Batch batch(model_, {.context = 300, .cache_positions = 5 * 128, .kv = {.check = true}});
  for (std::size_t i = 0; i < 4; ++i) {
    const auto prompt = text(280, 3 + 2 * i);
    EXPECT_EQ(batch.generate(prompt, limit(10)).tokens, alone(prompt, limit(10), 300)) << i;
  }
  EXPECT_GT(batch.index().counts().evictions, 0);
}

// --- what others have computed

TEST_F(BatchOfSeveral, EqualPromptsThatCameTogetherAreComputedOnce) {
  const auto prompt = text(300, 37);
  Batch batch(model_, {.context = 400, .parallel = 3, .kv = {.check = true}, .invariants = true});
  Ending ends[3];
  for (Ending& end : ends) submit(batch, prompt, limit(10), end);
  finish(batch);
  const auto expected = alone(prompt, limit(10), 400);
  for (const Ending& end : ends) EXPECT_EQ(end.result.tokens, expected);
  // Two whole blocks for two of them, but for rows that shared a step with the last ones of the first prompt.
  EXPECT_GE(batch.index().counts().hits, 2);
  EXPECT_GE(batch.index().counts().positions_reused, 2 * (256 - 64));
  Ending later;
  submit(batch, prompt, limit(10), later);
  finish(batch);
  EXPECT_EQ(later.result.reused_tokens, 299) << "all but the last, whose logits are needed";
  EXPECT_EQ(later.result.tokens, expected);
}

TEST_F(BatchOfSeveral, ATextThatBranchesOffInsideABlockSharesWhatIsBefore) {
  const auto prompt = text(200, 37);
  Batch batch(model_, {.context = 300, .cache_positions = 20 * 128, .kv = {.check = true}});
  batch.generate(prompt, limit(5));
  for (std::size_t at : {60u, 128u, 150u}) {
    auto other = prompt;
    other[at] = (other[at] + 1) % 272;
    const auto result = batch.generate(other, limit(12));
    EXPECT_EQ(result.reused_tokens, static_cast<std::int64_t>(at));
    EXPECT_EQ(result.tokens, alone(other, limit(12), 300)) << at;
  }
}

TEST_F(BatchOfSeveral, ASecondTurnReusesAllOfTheFirst) {
  for (std::size_t length : {6u, 120u, 128u, 200u}) {
    Batch batch(model_, {.context = 300, .kv = {.check = true}});
    auto prompt = text(length, 37);
    const auto first = batch.generate(prompt, limit(9));
    prompt.insert(prompt.end(), first.tokens.begin(), first.tokens.end());
    prompt.insert(prompt.end(), {7, 8, 9});
    const auto second = batch.generate(prompt, limit(9));
    EXPECT_EQ(second.reused_tokens, static_cast<std::int64_t>(length) + 8);
    EXPECT_EQ(second.tokens, alone(prompt, limit(9), 300)) << length;
  }
}

TEST_F(BatchOfSeveral, WithoutCacheARequestNeitherFindsNorLeavesAnything) {
  const auto prompt = text(140, 37);
  const auto expected = alone(prompt, limit(10), 300);
  Batch batch(model_, {.context = 300, .kv = {.check = true}});
  const GenerateRequest lonely{.prompt = prompt, .options = limit(10), .cache = false};
  EXPECT_EQ(batch.generate(lonely).tokens, expected);
  EXPECT_EQ(batch.index().size(), 0);
  EXPECT_EQ(batch.index().counts().published, 0);
  const std::int64_t free = batch.cache().free_positions();
  EXPECT_EQ(batch.generate(prompt, limit(10)).reused_tokens, 0);
  const std::int64_t kept = batch.index().size(), hits = batch.index().counts().hits;
  EXPECT_GT(kept, 0);
  EXPECT_LT(batch.cache().free_positions(), free);
  const auto result = batch.generate(lonely);
  EXPECT_EQ(result.reused_tokens, 0);
  EXPECT_EQ(result.tokens, expected);
  EXPECT_EQ(batch.index().size(), kept);
  EXPECT_EQ(batch.index().counts().hits, hits);
}

TEST_F(BatchOfSeveral, OnlyRequestsOfTheSameSaltShare) {
  const auto prompt = text(140, 37);
  const auto expected = alone(prompt, limit(10), 300);
  Batch batch(model_, {.context = 300, .cache_positions = 20 * 128, .kv = {.check = true}});
  const auto reused = [&](const std::string& salt) {
    const auto result = batch.generate(GenerateRequest{.prompt = prompt, .options = limit(10), .salt = salt});
    EXPECT_EQ(result.tokens, expected) << salt;
    return result.reused_tokens;
  };
  EXPECT_EQ(reused("a"), 0);
  EXPECT_EQ(reused("b"), 0);
  EXPECT_EQ(reused(""), 0);
  EXPECT_EQ(reused("a"), 139);
}

TEST_F(BatchOfSeveral, WhatIsForgottenIsComputedAgain) {
  Batch batch(model_, {.context = 64});
  batch.generate(prompt_, limit(8));
  batch.forget();
  EXPECT_EQ(batch.index().size(), 0);
  const auto result = batch.generate(prompt_, limit(8));
  EXPECT_EQ(result.reused_tokens, 0);
  EXPECT_EQ(result.tokens, answer(8));
}

}  // namespace
}  // namespace espalier
