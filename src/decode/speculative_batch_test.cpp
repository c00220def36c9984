// The decoding loop with drafters: what a round costs, what its listeners hear, and what happens at its edges. That the
// text never changes is shown by tests/lossless_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "decode/batch.h"
#include "decode/hostile_drafter.h"
#include "decode/testing/speculative_batch.h"

namespace espalier {
namespace {

using ::testing::Each;

// The committed positions of an answer at its end.
EndObserver keep_length(std::int64_t& length) {
  return [&length](const AnswerEnd& end) { length = end.cache.length(end.sequence.value()); };
}

TEST_F(SpeculativeBatch, AnOracleOfDepthFiveDividesTheTeachersStepsBySix) {
  for (TreeShape shape : {TreeShape::chain, TreeShape::dynamic}) {
    Batch batch(model_, {.context = 256}, oracle({.shape = shape, .nodes = 16, .depth = 5}));
    const auto result = batch.generate(prompt_, {.max_tokens = 181});
    EXPECT_EQ(result.tokens, expected(181));
    EXPECT_EQ(result.rounds(), 180 / 6) << "the first token comes from the prompt, each step brings six";
    EXPECT_THAT(result.accept_lengths, Each(5));
    EXPECT_EQ(result.accept_length(), 5.0);
  }
}

TEST_F(SpeculativeBatch, PlainDecodingTakesAStepForEveryToken) {
  Batch batch(model_, {.context = 256});
  const auto result = batch.generate(prompt_, {.max_tokens = 31});
  EXPECT_EQ(result.rounds(), 30);
  EXPECT_THAT(result.accept_lengths, Each(0));
}

TEST_F(SpeculativeBatch, EveryTokenIsTheFirstOrCountedByARound) {
  Batch batch(model_, {.context = 256}, oracle({.nodes = 12, .depth = 4}, {0.8, 0.6}));
  const auto result = batch.generate(prompt_, {.max_tokens = 100});
  std::int64_t tokens = 1;
  for (std::int64_t accepted : result.accept_lengths) tokens += accepted + 1;
  EXPECT_EQ(tokens, 100);
  EXPECT_GT(result.accept_length(), 0.5);
}

TEST_F(SpeculativeBatch, ABudgetOfOneAsksTheDrafterForNothing) {
  CountingDrafter::Calls calls;
  Batch batch(model_, {.context = 64}, counting({.nodes = 1}, calls));
  EXPECT_EQ(batch.generate(prompt_, {.max_tokens = 10}).tokens, expected(10));
  EXPECT_EQ(calls.rounds, 0);
  EXPECT_EQ(calls.ended, 0);
  EXPECT_EQ(calls.committed.size(), prompt_.size() + 9) << "it still hears what is committed";
}

TEST_F(SpeculativeBatch, ABudgetOfTwoIsOneDraftPassAndNoExpansion) {
  CountingDrafter::Calls calls;
  Batch batch(model_, {.context = 64}, counting({.nodes = 2, .depth = 6}, calls));
  EXPECT_EQ(batch.generate(prompt_, {.max_tokens = 10}).tokens, expected(10));
  EXPECT_EQ(calls.passes, calls.rounds);
  EXPECT_EQ(calls.ended, calls.rounds);
  EXPECT_THAT(calls.nodes, Each(1u));
}

TEST_F(SpeculativeBatch, ATreeIsNoDeeperThanTheAnswerMayStillGet) {
  std::vector<int> depths;
  GenerateEvents events;
  events.on_round = [&](const Round& round) { depths.push_back(round.tree.depth()); };
  CountingDrafter::Calls calls;
  Batch batch(model_, {.context = 64}, counting({.shape = TreeShape::chain, .nodes = 16, .depth = 3}, calls));
  batch.generate(prompt_, {.max_tokens = 6}, events);
  EXPECT_EQ(depths.back(), 0) << "one token is missing: the root's own draw";
  EXPECT_EQ(calls.rounds, static_cast<int>(depths.size()) - 1);
}

TEST_F(SpeculativeBatch, ATreeFitsBetweenTheLastTokenAndTheEndOfTheContext) {
  Batch plain(model_, {.context = 20});
  const auto expected_result = plain.generate(prompt_, {.max_tokens = 100});
  for (const Speculation& speculation : {oracle({.nodes = 64, .depth = 12, .expand = 8}),
                                         oracle({.shape = TreeShape::chain, .nodes = 64, .depth = 12})}) {
    Batch batch(model_, {.context = 20, .invariants = true}, speculation);
    std::int64_t length = 0;
    const auto result = batch.generate(prompt_, {.max_tokens = 100}, {.on_end = keep_length(length)});
    EXPECT_EQ(result.tokens, expected_result.tokens);
    EXPECT_EQ(result.finish_reason, FinishReason::context_limit);
    EXPECT_EQ(length, 20);
  }
}

TEST_F(SpeculativeBatch, AStopInsideAnAcceptedPathCutsTheCacheThere) {
  Batch batch(model_, {.context = 256}, oracle({.nodes = 16, .depth = 10}));
  int heard = 0;
  GenerateEvents events;
  events.on_token = [&](const GeneratedToken&) { return ++heard < 5; };
  std::int64_t length = 0;
  events.on_end = keep_length(length);
  const auto result = batch.generate(prompt_, {.max_tokens = 100}, events);
  EXPECT_EQ(result.finish_reason, FinishReason::stopped);
  EXPECT_EQ(result.tokens, expected(5));
  EXPECT_EQ(heard, 5);
  EXPECT_EQ(length, static_cast<std::int64_t>(prompt_.size()) + 4);
  EXPECT_EQ(batch.generate(prompt_, {.max_tokens = 20}).tokens, expected(20)) << "and it can go on from there";
}

TEST_F(SpeculativeBatch, ListenersSeeTheWholeRound) {
  std::vector<std::int32_t> heard;
  std::int64_t prefix = 0, rounds = 0;
  std::optional<FinishReason> finish;
  GenerateEvents events;
  events.on_round = [&](const Round& round) {
    EXPECT_EQ(round.number, rounds++);
    if (round.number == 0) prefix = round.prefix;
    EXPECT_EQ(round.prefix, prefix);
    EXPECT_EQ(round.visits.front().node, 0);
    EXPECT_EQ(round.tree[0].token, text_[static_cast<std::size_t>(prefix)]);
    for (std::size_t i = 0; i < round.visits.size(); ++i) {
      heard.push_back(round.visits[i].token);
      if (i == 0) continue;
      EXPECT_EQ(round.tree[round.visits[i].node].token, round.visits[i - 1].token);
    }
    EXPECT_GT(round.times.verify, 0);
    prefix += round.accepted() + 1;
    finish = round.finish;
  };
  Batch batch(model_, {.context = 256}, oracle({.nodes = 12, .depth = 4}, {0.7}));
  const auto result = batch.generate(prompt_, {.max_tokens = 60}, events);
  EXPECT_EQ(heard, std::vector(result.tokens.begin() + 1, result.tokens.end()));
  EXPECT_EQ(rounds, result.rounds());
  EXPECT_EQ(finish, FinishReason::token_limit);
}

TEST_F(SpeculativeBatch, AnExceptionOfAListenerLeavesAUsableBatch) {
  Batch batch(model_, {.context = 256, .kv = {.check = true}}, oracle({.nodes = 16, .depth = 5}));
  int heard = 0;
  GenerateEvents events;
  events.on_token = [&](const GeneratedToken&) -> bool {
    if (++heard == 4) throw std::runtime_error("the listener fell asleep");
    return true;
  };
  std::int64_t length = 0;
  events.on_end = keep_length(length);
  EXPECT_THROW(batch.generate(prompt_, {.max_tokens = 50}, events), std::runtime_error);
  EXPECT_EQ(length, static_cast<std::int64_t>(prompt_.size())) << "the round it happened in was rolled back";
  EXPECT_EQ(batch.generate(prompt_, {.max_tokens = 50}).tokens, expected(50));
}

TEST_F(SpeculativeBatch, SequencesOfOneStepAreCommittedAndRolledBackIndependently) {
  const std::vector<std::int32_t> other = {7, 7, 8};
  Batch alone(model_, {.context = 64});
  const auto expected_other = alone.generate(other, {.max_tokens = 9}).tokens;
  Batch batch(model_, {.context = 64, .parallel = 2, .kv = {.check = true}}, oracle({.nodes = 16, .depth = 5}));
  const std::vector<GenerateRequest> requests = {{.prompt = prompt_, .options = {.max_tokens = 30}},
                                                 {.prompt = other, .options = {.max_tokens = 9}}};
  const auto results = batch.generate(requests);
  EXPECT_EQ(results[0].tokens, expected(30)) << "the oracle knows this one";
  EXPECT_EQ(results[1].tokens, expected_other) << "and not this one";
  EXPECT_EQ(results[0].rounds(), 5);
  EXPECT_EQ(results[1].rounds(), 8);
}

TEST_F(SpeculativeBatch, EagerAttentionWithListsIsRefused) {
  EXPECT_THROW(Batch(model_, {.attention = AttentionOp::eager, .mask = MaskChoice::list}), InputError);
  EXPECT_EQ(Batch(model_, {.attention = AttentionOp::eager}).form().mask, MaskForm::dense);
  EXPECT_EQ(Batch(model_, {}).form().mask, MaskForm::list);
}

TEST_F(SpeculativeBatch, AFastCommitWritesOnlyRowsThatAreNotInPlace) {
  Batch chain(model_, {.context = 256}, oracle({.shape = TreeShape::chain, .nodes = 6, .depth = 5}));
  chain.generate(prompt_, {.max_tokens = 61});
  EXPECT_EQ(chain.cache().counts().bytes_committed, 0) << "a chain is always in place";
  Batch tree(model_, {.context = 256}, oracle({.nodes = 16, .depth = 5}));
  const auto result = tree.generate(prompt_, {.max_tokens = 61});
  const KvCounts& counts = tree.cache().counts();
  EXPECT_GT(counts.bytes_committed, 0);
  EXPECT_LE(counts.bytes_committed, 5 * result.rounds() * tree.cache().memory().slot_bytes());
  EXPECT_EQ(counts.bytes_branched, 0);
  EXPECT_EQ(counts.reorder_fallbacks, 0);
}

// --- trees that are known, answers that have begun

TEST_F(SpeculativeBatch, TreesThatAreKnownAreVerifiedAsTheyAre) {
  std::vector<TokenTree> given, seen;
  const auto source = [&](std::span<const std::int32_t> tokens) {
    TokenTree tree(tokens.back());
    tree.append(0, {.token = 3, .score = -9});
    tree.append(0, {.token = text_[tokens.size()], .score = -9.5, .sources = 4});  // right, but worse
    tree.append(2, {.token = 7, .score = -10});
    given.push_back(tree);
    return tree;
  };
  Batch batch(model_, {.context = 256, .invariants = true}, {.tree = {.nodes = 4}, .trees = source});
  const auto result = batch.generate(prompt_, {.max_tokens = 20},
                                     {.on_round = [&](const Round& round) { seen.push_back(round.tree); }});
  EXPECT_EQ(result.tokens, expected(20));
  EXPECT_EQ(seen, given);
  EXPECT_GE(result.accept_length(), 0.9);
}

TEST_F(SpeculativeBatch, TreesThatAreKnownAreNotForABudgetToCut) {
  const Speculation both{
      .tree = {.nodes = 4}, .budget = budget_of(0.1), .trees = [](auto tokens) { return TokenTree(tokens.back()); }};
  EXPECT_THROW(Batch(model_, {.context = 64}, both).generate(prompt_, {.max_tokens = 4}), std::logic_error);
}

TEST_F(SpeculativeBatch, ATreeBelowAnotherTokenThanTheRootIsOurMistake) {
  Batch batch(model_, {.context = 64},
              {.tree = {.nodes = 4}, .trees = [](auto tokens) { return TokenTree(tokens.back() + 1); }});
  EXPECT_THROW(batch.generate(prompt_, {.max_tokens = 4}), std::logic_error);
}

TEST_F(SpeculativeBatch, AnAnswerThatHasBegunGoesOnAsIfItHadBeenDrawn) {
  const GenerateOptions options{
      .sampling = {.presence_penalty = 0.5f, .temperature = 0.8f}, .seed = 3, .max_tokens = 24};
  Batch batch(model_, {.context = 256});
  const auto whole = batch.generate(prompt_, options).tokens;
  for (std::size_t begun : {1u, 2u, 11u, 24u}) {
    Batch fresh(model_, {.context = 256});
    for (Batch* one : {&fresh, &batch}) {  // with and without the text in its cache
      const auto result =
          one->generate({.prompt = prompt_, .options = options, .answered = std::span(whole).first(begun)});
      EXPECT_EQ(result.tokens, whole) << begun;
      EXPECT_EQ(result.rounds(), static_cast<std::int64_t>(24 - begun));
    }
  }
}

TEST_F(SpeculativeBatch, CopiedBytesAreToldByRound) {
  for (CacheStrategy strategy : {CacheStrategy::shared, CacheStrategy::replicate}) {
    Batch batch(model_, {.context = 256, .kv = {.strategy = strategy}}, oracle({.nodes = 8, .depth = 3}, {0.5}));
    batch.generate(prompt_, {.max_tokens = 1});
    KvCounts before;
    KvTraffic sum;
    const auto read = [&](std::int64_t, std::int64_t) { before = batch.cache().counts(); };  // last: all of the prompt
    const auto observe = [&](const Round& round) {
      sum.branched += round.kv.branched;
      sum.committed += round.kv.committed;
    };
    batch.generate({.prompt = prompt_,
                    .options = {.max_tokens = 40},
                    .events = {.on_prefill = read, .on_round = observe},
                    .answered = std::span(text_).subspan(prompt_.size(), 1)});
    const KvCounts& after = batch.cache().counts();
    EXPECT_EQ(sum.branched, after.bytes_branched - before.bytes_branched);
    EXPECT_EQ(sum.committed, after.bytes_committed - before.bytes_committed);
    EXPECT_EQ(sum.branched > 0, strategy == CacheStrategy::replicate);
  }
}

TEST_F(SpeculativeBatch, AFailureIsToldWithTheStateOfItsRound) {
  Batch batch(model_, {.context = 64}, {.tree = {.nodes = 4}, .trees = [&](auto tokens) {
                                          if (tokens.size() == prompt_.size() + 3) throw DeviceError("no more");
                                          return TokenTree(tokens.back());
                                        }});
  std::vector<AnswerStage> stages;
  const auto observe = [&](const AnswerFailure& failure) {
    stages.push_back(failure.stage);
    EXPECT_EQ(failure.round, 2);
    EXPECT_EQ(failure.tree, nullptr);
    EXPECT_EQ(std::vector(failure.answered.begin(), failure.answered.end()), expected(3));
    EXPECT_EQ(failure.committed, static_cast<std::int64_t>(prompt_.size()) + 2);
  };
  EXPECT_THROW(batch.generate(prompt_, {.max_tokens = 9}, {.on_failure = observe}), DeviceError);
  EXPECT_EQ(stages, std::vector{AnswerStage::draft});
}

// --- many answers

TEST_F(SpeculativeBatch, ARequestHasTheDraftsItAskedForWhateverItsCompanyHas) {
  for (bool chosen : {false, true}) {
    Speculation speculation = oracle({.nodes = 16, .depth = 5});
    if (chosen) speculation.budget = budget_of(0.0);
    Batch batch(model_, {.context = 256, .parallel = 5, .kv = {.check = true}, .invariants = true}, speculation);
    struct Seen {
      int rows = 0, depth = 0;
    };
    Seen seen[5];
    const DraftCaps caps[5] = {{}, {.drafts = false}, {.nodes = 3}, {.depth = 2}, {.nodes = 1}};
    std::vector<GenerateRequest> requests(5);
    for (std::size_t i = 0; i < 5; ++i) {
      const auto observe = [&, i](const Round& round) {
        seen[i].rows = std::max(seen[i].rows, round.tree.size());
        seen[i].depth = std::max(seen[i].depth, round.tree.depth());
      };
      requests[i] = {
          .prompt = prompt_, .options = {.max_tokens = 40}, .events = {.on_round = observe}, .draft = caps[i]};
    }
    const auto results = batch.generate(requests);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(results[i].tokens, expected(40)) << "request " << i;
    EXPECT_EQ(seen[0].depth, 5);
    EXPECT_GT(seen[0].rows, 5);
    EXPECT_EQ(seen[1].rows, 1);
    EXPECT_EQ(results[1].undrafted_rounds, 39) << "its drafters are not even asked";
    EXPECT_EQ(seen[2].rows, 3);
    EXPECT_EQ(seen[3].depth, 2);
    EXPECT_EQ(seen[4].rows, 1);
    EXPECT_EQ(results[4].undrafted_rounds, 39);
    EXPECT_THAT(results[3].accept_lengths, Each(::testing::Le(2)));
  }
}

TEST_F(SpeculativeBatch, AnswersThatJoinAtDifferentStepsAreDraftedAsIfTheyWereAlone) {
  Batch batch(model_, {.context = 256, .parallel = 3, .kv = {.check = true}, .invariants = true},
              oracle({.nodes = 12, .depth = 4}, {0.7}));
  const std::vector<std::int32_t> other = {7, 7, 8};
  const auto expected_other = Batch(model_, {.context = 256}).generate(other, {.max_tokens = 30}).tokens;
  Batch alone(model_, {.context = 256}, oracle({.nodes = 12, .depth = 4}, {0.7}));
  const auto lone = alone.generate(prompt_, {.max_tokens = 50});
  GenerateResult results[3];
  const auto submit = [&](std::size_t i, std::span<const std::int32_t> prompt, std::int64_t count) {
    const auto keep = [&results, i](const AnswerEnd& end) { results[i] = end.result; };
    batch.submit({.prompt = prompt, .options = {.max_tokens = count}, .events = {.on_end = keep}});
  };
  submit(0, prompt_, 50);
  for (int i = 0; i < 3; ++i) batch.step();
  submit(1, other, 30);
  for (int i = 0; i < 3; ++i) batch.step();
  submit(2, prompt_, 50);
  while (batch.step()) {
  }
  EXPECT_EQ(results[0].tokens, expected(50));
  EXPECT_EQ(results[1].tokens, expected_other);
  EXPECT_EQ(results[2].tokens, expected(50));
  EXPECT_EQ(results[0].accept_lengths, lone.accept_lengths) << "nor do drafts depend on the company";
  EXPECT_EQ(results[2].accept_lengths, lone.accept_lengths);
}

// Three answers of two blocks and more, in a cache that holds one and a half of them.
TEST_F(SpeculativeBatch, AnAnswerThatGivesWayToOthersIsDraftedAndComputedAgain) {
  CountingDrafter::Calls calls{.may_hear_twice = true};
  Speculation speculation{{.nodes = 8, .depth = 3}, [&](KvCache&, int) {
                            DrafterSet set;
                            set.push_back(std::make_unique<OracleDrafter>(
                                &answers_, OracleOptions{.profile = {0.6}, .seed = 1, .vocabulary = kTinyVocabulary}));
                            set.push_back(std::make_unique<HostileDrafter>(5, kTinyVocabulary));
                            set.push_back(std::make_unique<CountingDrafter>(calls));
                            return set;
                          }};
  // 300 + 9 + 128 positions are four blocks; one more may be copied.
  Batch batch(model_,
              {.context = 300, .parallel = 3, .cache_positions = 5 * 128, .kv = {.check = true}, .invariants = true},
              speculation);
  std::vector<std::vector<std::int32_t>> prompts(3, std::vector<std::int32_t>(100));
  std::vector<GenerateRequest> requests(3);
  std::vector<std::vector<std::int32_t>> alone;
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t k = 0; k < 100; ++k)
      prompts[i][k] = static_cast<std::int32_t>((k * (5 + 16 * i) + k * k) % static_cast<std::size_t>(kTinyVocabulary));
    requests[i] = {.prompt = prompts[i], .options = {.max_tokens = 190}};
    alone.push_back(Batch(model_, {.context = 300}).generate(requests[i]).tokens);
    answers_.learn(prompts[i], alone[i]);
  }
  const auto results = batch.generate(requests);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(results[i].tokens, alone[i]) << "request " << i;
    std::int64_t tokens = 1;
    for (std::int64_t accepted : results[i].accept_lengths) tokens += accepted + 1;
    EXPECT_EQ(tokens, 190);
  }
  EXPECT_GT(calls.opened, 3) << "nobody gave way";
  EXPECT_GE(calls.settled, 3) << "whoever leaves blocks to others writes them first";
  batch.cache().check_conservation();
}

TEST_F(SpeculativeBatch, ADrafterHearsOfWhatIsReusedAndOfWhatIsComputed) {
  CountingDrafter::Calls calls;
  Batch batch(model_, {.context = 256}, counting({.nodes = 4, .depth = 2}, calls));
  batch.generate(prompt_, {.max_tokens = 10});
  EXPECT_EQ(calls.committed, std::vector(text_.begin(), text_.begin() + 15));
  EXPECT_EQ(calls.settled, 1);
  std::vector<std::int32_t> longer(text_.begin(), text_.begin() + 16);
  longer.push_back(44);
  const auto second = batch.generate(longer, {.max_tokens = 10});
  EXPECT_EQ(second.reused_tokens, 15);
  EXPECT_EQ(second.tokens, Batch(model_, {.context = 256}).generate(longer, {.max_tokens = 10}).tokens);
  longer.insert(longer.end(), second.tokens.begin(), second.tokens.end() - 1);
  EXPECT_EQ(calls.committed, longer) << "the drafter itself expects every position in its place";
  EXPECT_EQ(calls.opened, 2);
}

TEST_F(SpeculativeBatch, WhatAFailedAnswerLeavesOpenIsClosedAndTheBatchGoesOn) {
  bool fails = true;
  Batch batch(model_, {.context = 64, .parallel = 2, .kv = {.check = true}},
              {.tree = {.nodes = 4}, .trees = [&](auto tokens) {
                 if (fails && tokens.size() == prompt_.size() + 3) throw DeviceError("no more");
                 return TokenTree(tokens.back());
               }});
  const std::vector<GenerateRequest> requests(2, {.prompt = prompt_, .options = {.max_tokens = 9}});
  int told = 0;
  std::vector<GenerateRequest> heard = requests;
  for (GenerateRequest& request : heard) request.events.on_failure = [&](const AnswerFailure&) { ++told; };
  EXPECT_THROW(batch.generate(heard), DeviceError);
  EXPECT_EQ(told, 2) << "a step that failed ends all answers in it";
  EXPECT_EQ(batch.running() + batch.waiting(), 0);
  fails = false;
  for (const GenerateResult& result : batch.generate(requests)) EXPECT_EQ(result.tokens, expected(9));
}

TEST_F(SpeculativeBatch, DraftingIsDoneForAllAnswersTogetherAndEachIsToldWhatItTook) {
  Batch batch(model_, {.context = 256, .parallel = 2}, oracle({.nodes = 8, .depth = 3}));
  std::vector<double> drafting[2];
  std::vector<GenerateRequest> requests(2, {.prompt = prompt_, .options = {.max_tokens = 30}});
  for (std::size_t i = 0; i < 2; ++i)
    requests[i].events.on_round = [&, i](const Round& round) { drafting[i].push_back(round.times.draft); };
  batch.generate(requests);
  ASSERT_FALSE(drafting[0].empty());
  EXPECT_EQ(drafting[0], drafting[1]);
  EXPECT_THAT(drafting[0], Each(::testing::Gt(0)));
}

}  // namespace
}  // namespace espalier
