#include "decode/batch_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "decode/batch.h"
#include "decode/ngram_drafter.h"
#include "decode/oracle_drafter.h"
#include "decode/testing/tiny_model_test.h"
#include "device/checked/checked_device.h"
#include "device/cpu/cpu_device.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;

// Root 1 with children 2 and 3; below 2 a 4.
TokenTree two_drafters_tree() {
  TokenTree tree(1);
  tree.append(0, {.token = 2, .score = -1, .sources = 1});
  tree.append(0, {.token = 3, .score = -2, .sources = 2});
  tree.append(1, {.token = 4, .score = -3, .sources = 3});
  return tree;
}

TEST(DraftCounts, CountsGuessesOfAnyOfTheSources) {
  const TokenTree tree = two_drafters_tree();
  const std::vector<Visit> path = {{0, 2}, {1, 4}, {3, 9}};
  DraftCounts all, first, second, third;
  all.count(tree, path, ~SourceSet{0});
  first.count(tree, path, 1);
  second.count(tree, path, 2);
  third.count(tree, path, 4);
  EXPECT_EQ(all.drafts, 1);
  EXPECT_EQ(all.tokens, 3);
  EXPECT_EQ(all.accepted_tokens, 2);
  EXPECT_THAT(all.accepted_by_depth, ElementsAre(1, 1));
  EXPECT_EQ(first.tokens, 2);
  EXPECT_EQ(first.accepted_tokens, 2);
  EXPECT_EQ(second.tokens, 2);
  EXPECT_EQ(second.accepted_tokens, 1);
  EXPECT_THAT(second.accepted_by_depth, ElementsAre(0, 1)) << "the other one guessed the way to it";
  EXPECT_EQ(third.drafts, 0);
  EXPECT_TRUE(third.accepted_by_depth.empty());
  all.count(TokenTree(7), std::vector<Visit>{{0, 2}}, ~SourceSet{0});
  EXPECT_EQ(all.drafts, 1) << "a root alone is no draft";
}

class WatchedBatch : public TinyModelTest {
 protected:
  KnownAnswers answers_;

  Speculation speculation() {
    return {.tree = {.nodes = 8, .depth = 3}, .drafters = [this](KvCache&, int) {
              DrafterSet set;
              set.push_back(std::make_unique<NgramDrafter>());
              set.push_back(std::make_unique<OracleDrafter>(
                  &answers_, OracleOptions{.profile = {0.8, 0.6}, .seed = 1, .vocabulary = 272}));
              return set;
            }};
  }
};

TEST_F(WatchedBatch, WhatIsCountedIsWhatTheAnswersSay) {
  std::vector<std::vector<std::int32_t>> prompts = {text(30, 37), text(9, 5), text(200, 11)};
  std::vector<GenerateRequest> requests;
  std::vector<std::vector<std::int64_t>> judged(prompts.size());
  for (const auto& prompt : prompts) {
    answers_.learn(prompt, Batch(model_, {.context = 300}).generate(prompt, {.max_tokens = 40}).tokens);
    std::vector<std::int64_t>& levels = judged[requests.size()];
    requests.push_back({.prompt = prompt, .options = {.max_tokens = 40}});
    requests.back().events.on_round = [&](const Round& round) {
      count_levels(judged_levels(round.tree, round.visits, round.finish.has_value()), levels);
    };
  }
  Batch batch(model_, {.context = 300, .parallel = 2}, speculation());
  const std::vector<GenerateResult> results = batch.generate(requests);
  const BatchStatistics counted = batch.statistics();
  std::int64_t rounds = 0, drafted = 0, accepted = 0, tokens = 0, plain = 0;
  for (const GenerateResult& result : results) {
    rounds += result.rounds();
    drafted += result.drafted_tokens();
    accepted += result.accepted_tokens();
    tokens += std::ssize(result.tokens);
    plain += result.plain_rounds;
  }
  for (std::size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].judged_by_depth, judged[i]);
  EXPECT_EQ(counted.rows.roots, rounds);
  EXPECT_EQ(counted.rows.drafts, drafted);
  EXPECT_EQ(counted.rows.prompts, 30 + 9 + 200);
  EXPECT_EQ(counted.rows.padding, 0) << "this device has no buckets";
  EXPECT_EQ(counted.prompt_tokens, 30 + 9 + 200);
  EXPECT_EQ(counted.cached_prompt_tokens, 0);
  EXPECT_EQ(counted.answer_tokens, tokens);
  EXPECT_EQ(counted.drafts.drafts, rounds - plain);
  EXPECT_EQ(counted.drafts.tokens, drafted);
  EXPECT_EQ(counted.drafts.accepted_tokens, accepted);
  EXPECT_EQ(std::accumulate(counted.drafts.accepted_by_depth.begin(), counted.drafts.accepted_by_depth.end(),
                            std::int64_t{0}),
            accepted);
  EXPECT_GT(accepted, 20);
  ASSERT_EQ(counted.drafters.size(), 2u);
  EXPECT_EQ(counted.drafters[0].name, "ngram");
  EXPECT_EQ(counted.drafters[1].name, "oracle");
  EXPECT_GT(counted.drafters[1].counts.accepted_tokens, 0);
  EXPECT_LE(counted.drafters[1].counts.accepted_tokens, accepted);
  EXPECT_GE(counted.drafters[0].counts.tokens + counted.drafters[1].counts.tokens, drafted);
  EXPECT_GT(counted.step_seconds, counted.draft_seconds);
  EXPECT_GT(counted.draft_seconds, 0);
  EXPECT_GT(counted.steps, rounds / 2 - 1);
}

TEST_F(WatchedBatch, CountersNeverFallAndThePoolIsAlwaysWhole) {
  const auto prompt = text(140, 37), other = text(150, 5);
  Batch batch(model_, {.context = 300, .parallel = 3, .cache_positions = 8 * 128}, speculation());
  const auto values = [&] {
    const BatchStatistics s = batch.statistics();
    return std::vector<double>{static_cast<double>(s.steps),
                               static_cast<double>(s.rows.roots),
                               static_cast<double>(s.rows.drafts),
                               static_cast<double>(s.rows.prompts),
                               s.step_seconds,
                               s.draft_seconds,
                               static_cast<double>(s.prompt_tokens),
                               static_cast<double>(s.answer_tokens),
                               static_cast<double>(s.prefix_queries),
                               static_cast<double>(s.prefix_hits),
                               static_cast<double>(s.preemptions)};
  };
  EXPECT_EQ(batch.pool_counts().all(), 8);
  EXPECT_EQ(batch.pool_counts().free, 8);
  for (int i = 0; i < 3; ++i) {
    batch.submit({.prompt = prompt, .options = {.max_tokens = 20}});
    batch.submit({.prompt = other, .options = {.max_tokens = 30}, .cache = i != 1});
  }
  std::vector<double> before = values();
  std::int64_t held = 0;
  while (batch.step()) {
    const std::vector<double> after = values();
    for (std::size_t i = 0; i < after.size(); ++i) EXPECT_GE(after[i], before[i]) << "counter " << i;
    before = after;
    const PoolCounts pool = batch.pool_counts();
    EXPECT_EQ(pool.all(), 8);
    EXPECT_EQ(pool.padding, 0);
    held = std::max(held, pool.held);
    batch.check_conservation();
  }
  EXPECT_GT(held, 2);
  const PoolCounts pool = batch.pool_counts();
  EXPECT_EQ(pool.held, 0);
  EXPECT_EQ(pool.cached, batch.index().size());
  const BatchStatistics counted = batch.statistics();
  EXPECT_EQ(counted.prompt_tokens, 3 * (140 + 150));
  EXPECT_EQ(counted.prefix_queries, 3 * 140 + 2 * 150);
  EXPECT_EQ(counted.prefix_hits, counted.cached_prompt_tokens);
  EXPECT_GE(counted.prefix_hits, 2 * 128 + 128);
  EXPECT_LE(counted.prefix_hits, counted.prefix_queries);
}

TEST_F(WatchedBatch, RowsThatFillABucketArePadding) {
  const auto ascend = make_checked_device(make_cpu_device({.threads = 1}), {.profile = CheckedProfile::ascend});
  const Transformer model = load_transformer(*ascend, std::filesystem::path(ESPALIER_TEST_DATA) / "tiny/smollm2");
  Batch batch(model, {.context = 64});
  batch.generate(text(5, 3), {.max_tokens = 4});
  const BatchStatistics counted = batch.statistics();
  const auto buckets = ascend->row_buckets();
  EXPECT_EQ(counted.steps, 4);
  EXPECT_EQ(counted.rows.prompts + counted.rows.roots, 5 + 3);
  EXPECT_EQ(counted.rows.padding, bucket_for(*ascend, 5) - 5 + 3 * (buckets[0] - 1));
  EXPECT_GT(batch.pool_counts().padding, 0);
  EXPECT_EQ(batch.pool_counts().all(), batch.cache().tables().block_count());
}

TEST_F(WatchedBatch, WhoRunsIsToldWithWhatItHasDone) {
  const auto prompt = text(140, 37);
  answers_.learn(prompt, Batch(model_, {.context = 300}).generate(prompt, {.max_tokens = 40}).tokens);
  Batch batch(model_, {.context = 300, .prefill_rows = 50, .parallel = 2}, speculation());
  EXPECT_TRUE(batch.running_answers().empty());
  batch.generate(prompt, {.max_tokens = 3});
  const RequestId id = batch.submit({.prompt = prompt, .options = {.max_tokens = 40}});
  const auto other = text(120, 5);
  const RequestId newer = batch.submit({.prompt = other, .options = {.max_tokens = 40}});
  EXPECT_TRUE(batch.running_answers().empty()) << "until there is a step";
  for (int i = 0; i < 5; ++i) batch.step();
  const std::vector<RunningAnswer> running = batch.running_answers();
  ASSERT_EQ(running.size(), 2u);
  EXPECT_EQ(running[0].id, id);
  EXPECT_TRUE(running[0].decodes);
  EXPECT_EQ(running[0].prompt_tokens, 140);
  EXPECT_EQ(running[0].cached_tokens, 139);
  EXPECT_EQ(running[0].rounds, 4);
  EXPECT_EQ(running[0].answer_tokens, 1 + running[0].rounds + running[0].accepted_tokens);
  EXPECT_EQ(running[0].computed, 140 + running[0].answer_tokens - 1);
  EXPECT_GT(running[0].accepted_tokens, 0);
  EXPECT_EQ(running[0].accept_length(), static_cast<double>(running[0].accepted_tokens) / 4);
  EXPECT_GT(running[0].verified_rows, 4);
  EXPECT_EQ(running[1].id, newer);
  EXPECT_EQ(running[1].cached_tokens, 0);
  while (batch.step()) continue;
  EXPECT_TRUE(batch.running_answers().empty());
}

}  // namespace
}  // namespace espalier
