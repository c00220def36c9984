#include "eval/prompt_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "eval/summary.h"
#include "eval/testing/tiny_setup.h"

namespace espalier {
namespace {

class PromptRunnerTest : public TinySetupTest {
 protected:
  EvalSetup setup(bool baseline = true) { return tiny_setup(baseline, 40); }
};

TEST_F(PromptRunnerTest, ATurnIsTheSameWithAndWithoutSpeculation) {
  const EvalSetup all = setup();
  PromptRunner runner(all, std::int64_t{81});
  const auto record = runner.next({.user = "hello there hello there"});
  ASSERT_TRUE(record);
  EXPECT_EQ(record->prompt_id, PromptId(std::int64_t{81}));
  EXPECT_EQ(record->turn, 1);
  EXPECT_EQ(record->user, "hello there hello there");
  EXPECT_EQ(record->tokens.size(), 40u);
  EXPECT_EQ(record->finish_reason, "length");
  EXPECT_EQ(record->baseline->tokens, record->tokens);
  EXPECT_EQ(record->first_difference(), std::nullopt);
  EXPECT_GT(record->seconds.prefill, 0);
  EXPECT_GT(record->baseline->seconds.decode, 0);
}

TEST_F(PromptRunnerTest, TheSecondTurnHasTheModelsOwnAnswerInItsHistory) {
  const EvalSetup all = setup();
  PromptRunner runner(all, "p");
  const auto first = runner.next({.user = "hello"}), second = runner.next({.user = "again"});
  EXPECT_EQ(second->turn, 2);
  EXPECT_EQ(second->prompt, encode_chat(text_, {{"user", "hello"}, {"assistant", first->text}, {"user", "again"}}));
  EXPECT_EQ(second->first_difference(), std::nullopt);
}

TEST_F(PromptRunnerTest, ASystemTextStartsTheHistoryAndRawHasNone) {
  EvalSetup all = setup();
  all.system = "be brief";
  EXPECT_EQ(PromptRunner(all, "p").next({.user = "hello"})->prompt,
            encode_chat(text_, {{"system", "be brief"}, {"user", "hello"}}));
  all.raw = true;
  EXPECT_EQ(PromptRunner(all, "p").next({.user = "hello"})->prompt, encode_plain(text_, "hello"));
}

TEST_F(PromptRunnerTest, DraftersStartAfreshWithEachPromptAndStayForItsTurns) {
  const EvalSetup all = setup();
  PromptRunner first(all, "a");
  EXPECT_EQ(drafters_made_, 1);
  first.next({.user = "hello"});
  first.next({.user = "hello"});
  EXPECT_EQ(drafters_made_, 1);
  PromptRunner(all, "b").next({.user = "hello"});
  EXPECT_EQ(drafters_made_, 2);
}

TEST_F(PromptRunnerTest, WithoutABaselineNothingIsCompared) {
  const EvalSetup all = setup(false);
  EXPECT_FALSE(PromptRunner(all, "p").next({.user = "hello"})->baseline);
}

TEST_F(PromptRunnerTest, RoundsAndGuessesAddUp) {
  const EvalSetup all = setup(false);
  const auto record = PromptRunner(all, "p").next({.user = "one two one two one two"});
  const auto drafted = std::accumulate(record->accept_lengths.begin(), record->accept_lengths.end(), std::int64_t{0});
  EXPECT_EQ(static_cast<std::int64_t>(record->tokens.size()),
            1 + static_cast<std::int64_t>(record->accept_lengths.size()) + drafted);
  ASSERT_FALSE(record->reached.empty()) << "n-grams guessed nothing at all";
  EXPECT_LE(record->reached[0], static_cast<std::int64_t>(record->accept_lengths.size()));
  EXPECT_TRUE(std::is_sorted(record->reached.rbegin(), record->reached.rend())) << "a depth is below the one before";
  for (const Estimate& share : summarize(std::vector{*record}).accept_pos) EXPECT_LE(share.value, 1);
}

TEST_F(PromptRunnerTest, WhoWantsToLearnHearsTheAnswerBeforeTheDraftersAreAsked) {
  EvalSetup all = setup(false);
  std::vector<TokenId> heard;
  all.learn = [&](const std::vector<TokenId>&, const std::vector<TokenId>& answer) { heard = answer; };
  const auto record = PromptRunner(all, "p").next({.user = "hello"});
  EXPECT_EQ(heard, record->tokens);
  EXPECT_FALSE(record->baseline);
}

TEST_F(PromptRunnerTest, ACancelledTurnIsNoTurn) {
  const EvalSetup all = setup();
  int asked = 0;
  EXPECT_FALSE(PromptRunner(all, "p").next({.user = "hello", .cancelled = [] { return true; }}));
  PromptRunner late(all, "p");
  EXPECT_FALSE(late.next({.user = "hello", .cancelled = [&] { return ++asked > 60; }}))
      << "in the half with speculation";
  EXPECT_GT(asked, 60);
}

TEST_F(PromptRunnerTest, AConversationThatOutgrowsTheContextFailsFromThatTurnOn) {
  const EvalSetup all = setup();
  PromptRunner runner(all, "p", "mine", 3);
  EXPECT_FALSE(runner.next({.user = "hello"})->error);
  const auto second = runner.next({.user = std::string(2000, 'x')}), third = runner.next({.user = "again"});
  EXPECT_THAT(second->error, testing::Optional(testing::HasSubstr("the context holds 256")));
  EXPECT_EQ(third->error, "an earlier turn failed");
  for (const TurnRecord& turn : {*second, *third}) {
    EXPECT_EQ(turn.record, 3);
    EXPECT_EQ(turn.set, "mine");
    EXPECT_EQ(turn.finish_reason, "error");
    EXPECT_TRUE(turn.tokens.empty());
    EXPECT_FALSE(turn.baseline);
  }
  EXPECT_EQ(third->turn, 3);
  EXPECT_EQ(third->user, "again");
  EXPECT_FALSE(runner.traced());
  EXPECT_THROW(warm_up(all, {.id = "p", .turns = {std::string(2000, 'x')}}), InputError);
}

TEST_F(PromptRunnerTest, ASharedBaselineIsComparedAndNothingIsAnsweredTwice) {
  EvalSetup all = setup();
  const std::vector<TurnRecord> before = {*PromptRunner(all, "p").next({.user = "hello"})};
  const SharedBaseline shared(before);
  all.baseline = false;
  all.shared = &shared;
  const auto record = PromptRunner(all, "p").next({.user = "hello"});
  EXPECT_EQ(record->first_difference(), std::nullopt);
  EXPECT_EQ(record->baseline->seconds.whole(), before[0].baseline->seconds.whole());
  EXPECT_FALSE(record->baseline->retimed);
  EXPECT_TRUE(PromptRunner(all, "p").next({.user = "hello", .retimed = true})->baseline->retimed);
  EXPECT_THROW(PromptRunner(all, "q").next({.user = "hello"}), InputError);
}

TEST_F(PromptRunnerTest, ASharedBaselineThatNoLongerComesOutIsRefused) {
  EvalSetup all = setup();
  std::vector<TurnRecord> before = {*PromptRunner(all, "p").next({.user = "hello"})};
  before[0].baseline->tokens[3] ^= 1;
  const SharedBaseline shared(before);
  all.baseline = false;
  all.shared = &shared;
  EXPECT_EQ(PromptRunner(all, "p").next({.user = "hello"})->first_difference(), 3);
  EXPECT_THROW(PromptRunner(all, "p").next({.user = "hello", .retimed = true}), InputError);
}

TEST_F(PromptRunnerTest, AfterATurnThatDifferedASharedBaselineIsNeitherCheckedNorTimedAgain) {
  EvalSetup all = setup();
  PromptRunner earlier(all, "p");
  std::vector<TurnRecord> before = {*earlier.next({.user = "hello"}), *earlier.next({.user = "again"})};
  before[1].prompt.push_back(1);  // its history had another answer in it, and so its answer is another one
  before[1].baseline->tokens[3] ^= 1;
  const SharedBaseline shared(before);
  all.baseline = false;
  all.shared = &shared;
  PromptRunner runner(all, "p");
  EXPECT_TRUE(runner.next({.user = "hello", .retimed = true})->baseline->retimed);
  const auto second = runner.next({.user = "again", .retimed = true});
  EXPECT_EQ(second->first_difference(), 3);
  EXPECT_FALSE(second->baseline->retimed);
}

TEST_F(PromptRunnerTest, ARehearsalOfDraftersIsNotTakenForATimedBaseline) {
  EvalSetup all = setup();
  const SharedBaseline shared(std::vector{*PromptRunner(all, "p").next({.user = "hello"})});
  all.baseline = false;
  all.shared = &shared;
  all.learn = [](const std::vector<TokenId>&, const std::vector<TokenId>&) {};
  EXPECT_FALSE(PromptRunner(all, "p").next({.user = "hello"})->baseline->retimed);
}

TEST_F(PromptRunnerTest, RoundsAreKeptForATraceOrAComparison) {
  EvalSetup all = setup(false);
  PromptRunner silent(all, "p");
  silent.next({.user = "hello"});
  EXPECT_FALSE(silent.traced());
  all.traced = true;
  PromptRunner traced(all, "p", "questions");
  const auto record = traced.next({.user = "hello"});
  ASSERT_TRUE(traced.traced());
  EXPECT_EQ(traced.traced()->tokens, record->tokens);
  EXPECT_EQ(traced.traced()->accept_lengths(), record->accept_lengths);
  EXPECT_EQ(traced.traced()->prompt, record->prompt);
  EXPECT_EQ(traced.traced()->set, "questions");
}

TEST_F(PromptRunnerTest, IdsThatWereMadeBeforeGiveTheSameTurn) {
  const EvalSetup all = setup(false);
  PromptRunner now(all, "p"), before(all, "p");
  const auto expected = now.next({.user = "hello"});
  const auto found = before.next({.user = "hello", .prompt = encode_chat(text_, {{"user", "hello"}})});
  EXPECT_EQ(found->prompt, expected->prompt);
  EXPECT_EQ(found->tokens, expected->tokens);
  EXPECT_EQ(before.next({.user = "again"})->prompt, now.next({.user = "again"})->prompt) << "the history is the same";
}

TEST_F(PromptRunnerTest, WarmingUpLeavesNoTrace) {
  const EvalSetup all = setup();
  warm_up(all, {.id = "p", .turns = {"hello"}});
  EXPECT_EQ(all.options.generate.max_tokens, 40);
  EXPECT_EQ(PromptRunner(all, "p").next({.user = "hello"})->tokens.size(), 40u);
}

}  // namespace
}  // namespace espalier
