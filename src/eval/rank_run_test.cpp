#include "eval/rank_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "eval/testing/tiny_setup.h"
#include "eval/turn_journal.h"
#include "format/testing/complaint.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

// A long turn does not fit into the tiny model's context.
class RankRunTest : public TinySetupTest {
 protected:
  EvalSetup setup(bool baseline) { return tiny_setup(baseline, 12); }
  // A prompt on each line of prompts.jsonl, named by its number.
  static PromptSet data(std::vector<std::vector<std::string>> prompts) {
    PromptSet set{.files = {{.path = "prompts.jsonl", .set = "mine"}}};
    for (std::vector<std::string>& turns : prompts) {
      EvalPrompt& prompt = set.prompts.emplace_back();
      prompt.line = static_cast<std::int64_t>(set.prompts.size());
      prompt.id = prompt.line;
      prompt.set = "mine";
      prompt.turns = std::move(turns);
    }
    return set;
  }
  std::vector<TurnRecord> kept() const { return read_journal(rank_.path() / kJournalName); }

  TemporaryFolder folder_;
  RankPlace place_;
  RankFolder rank_{folder_ / "run/ranks/0000", place_, /*resume=*/false};
  const std::string long_ = std::string(2000, 'x');
};

TEST_F(RankRunTest, ATurnThatCannotBeAnsweredIsKeptAndTheNextPromptFollows) {
  EvalSetup all = setup(false);
  all.traced = true;
  const PromptSet prompts = data({{"hello", long_, "again"}, {"hello"}});
  TraceWriter trace = TraceWriter::create(folder_ / "trace.jsonl.zst", {});
  std::vector<std::string> complaints;
  EXPECT_TRUE(answer_share({.data = prompts,
                            .setup = all,
                            .place = place_,
                            .trace = &trace,
                            .on_complaint = [&](const std::string& line) { complaints.push_back(line); }},
                           {}, rank_));
  const std::vector<TurnRecord> turns = kept();
  ASSERT_EQ(turns.size(), 4u);
  EXPECT_FALSE(turns[0].error);
  EXPECT_THAT(turns[1].error, Optional(HasSubstr("the context holds 256")));
  EXPECT_THAT(turns[2].error, Optional(std::string("an earlier turn failed")));
  EXPECT_EQ(turns[3].tokens.size(), 12u);
  EXPECT_EQ(trace.turns(), 2) << "what was not answered has no rounds";
  EXPECT_THAT(complaints, ElementsAre(HasSubstr("prompts.jsonl:1: turn 2: the prompt has"),
                                      "prompts.jsonl:1: turn 3: an earlier turn failed"));
}

class CompanyRunTest : public RankRunTest {
 protected:
  // Prompts of different lengths, one of which fails in its second turn.
  PromptSet many() const {
    return data({{"one two one two one two"}, {"hello", long_, "again"}, {"a", "b", "c"}, {"hello"}, {"x y"}, {"z"}});
  }
  std::vector<TurnRecord> turns_of(int parallel, const EvalSetup& all, ShareSpeed* speed = nullptr) {
    const std::filesystem::path path = folder_ / fmt::format("run{}/ranks/0000", runs_++);
    RankFolder rank(path, place_, false);
    const PromptSet prompts = many();
    TraceWriter trace = TraceWriter::create(path / "trace.jsonl.zst", {});
    EXPECT_TRUE(answer_share({.data = prompts, .setup = all, .place = place_, .parallel = parallel, .trace = &trace},
                             {}, rank, speed));
    std::vector<TurnRecord> turns = read_journal(path / kJournalName);
    EXPECT_EQ(trace.turns(), std::ranges::count_if(turns, [](const TurnRecord& turn) { return !turn.error; }));
    return turns;
  }
  int runs_ = 0;
};

TEST_F(CompanyRunTest, ConversationsInOneBatchLeaveTheSameTurnsInTheSameOrder) {
  EvalSetup all = setup(true);
  all.traced = true;
  const std::vector<TurnRecord> alone = turns_of(1, all);
  ASSERT_EQ(alone.size(), 10u);
  for (const int parallel : {2, 5, 20}) {
    ShareSpeed speed;
    const std::vector<TurnRecord> turns = turns_of(parallel, all, &speed);
    ASSERT_EQ(turns.size(), alone.size()) << parallel;
    std::int64_t tokens = 0;
    for (std::size_t i = 0; i < turns.size(); ++i) {
      EXPECT_EQ(turns[i].record, alone[i].record) << parallel;
      EXPECT_EQ(turns[i].turn, alone[i].turn) << parallel;
      EXPECT_EQ(turns[i].prompt, alone[i].prompt) << parallel;
      EXPECT_EQ(turns[i].tokens, alone[i].tokens) << parallel;
      EXPECT_EQ(turns[i].text, alone[i].text) << parallel;
      EXPECT_EQ(turns[i].finish_reason, alone[i].finish_reason) << parallel;
      EXPECT_EQ(turns[i].error, alone[i].error) << parallel;
      EXPECT_EQ(turns[i].first_difference(), std::nullopt) << parallel;
      tokens += std::ssize(turns[i].tokens);
    }
    EXPECT_EQ(speed.tokens, tokens);
    EXPECT_GT(speed.seconds, 0);
  }
}

TEST_F(CompanyRunTest, WhoHasToLearnHearsEveryAnswerBeforeItsDrafters) {
  EvalSetup all = setup(false);
  all.traced = true;
  int heard = 0;
  all.learn = [&](const auto&, const auto&) { ++heard; };
  EXPECT_EQ(turns_of(3, all).size(), 10u);
  EXPECT_EQ(heard, 9) << "eight turns that can be answered, and the warming up";
}

TEST_F(CompanyRunTest, WhatWasFinishedBeforeAnInterruptIsKeptAndGoneOnFrom) {
  EvalSetup all = setup(false);
  all.traced = true;
  const std::vector<TurnRecord> whole = turns_of(1, all);
  const PromptSet prompts = many();
  for (const int patience : {1, 30, 60, 90}) {
    const std::filesystem::path path = folder_ / fmt::format("interrupted{}/ranks/0000", patience);
    RankFolder rank(path, place_, false);
    int asked = 0;
    RankRun run{.data = prompts, .setup = all, .place = place_, .parallel = 3};
    run.cancelled = [&] { return ++asked > patience; };
    EXPECT_FALSE(answer_share(run, {}, rank));
    const std::vector<TurnRecord> before = read_journal(path / kJournalName);
    EXPECT_LT(before.size(), whole.size());
    EXPECT_TRUE(patience < 90 || !before.empty());
    run.cancelled = {};
    EXPECT_TRUE(answer_share(run, before, rank));
    std::map<TurnPlace, std::vector<std::int32_t>> tokens;
    for (const TurnRecord& turn : read_journal(path / kJournalName)) tokens[{turn.record, turn.turn}] = turn.tokens;
    ASSERT_EQ(tokens.size(), whole.size());
    for (const TurnRecord& turn : whole) EXPECT_EQ((tokens[{turn.record, turn.turn}]), turn.tokens) << patience;
  }
}

TEST_F(CompanyRunTest, ABaselineThatDoesNotFitEndsTheRunAndWhatWasFinishedIsKept) {
  EvalSetup all = setup(true);
  all.traced = true;
  std::vector<TurnRecord> before = turns_of(1, all);
  std::erase_if(before, [](const TurnRecord& turn) { return turn.record == 2 && turn.turn == 3; });
  const SharedBaseline shared(before);
  all.baseline = false;
  all.shared = &shared;
  const PromptSet prompts = many();
  RankRun run{.data = prompts, .setup = all, .place = place_, .parallel = 2};
  EXPECT_THAT(complaint([&] { answer_share(run, {}, rank_); }),
              HasSubstr("prompts.jsonl:3: turn 3: the shared baseline: prompt"));
  EXPECT_GE(kept().size(), 6u) << "the first two prompts, and two turns of the third";
}

TEST_F(RankRunTest, AFirstPromptThatCannotBeAnsweredDoesNotKeepTheOthersFromIt) {
  const EvalSetup all = setup(true);
  const PromptSet prompts = data({{long_}, {"hello"}});
  EXPECT_TRUE(answer_share({.data = prompts, .setup = all, .place = place_}, {}, rank_));
  ASSERT_EQ(kept().size(), 2u);
  EXPECT_TRUE(kept()[0].error);
  EXPECT_EQ(kept()[1].first_difference(), std::nullopt);
}

TEST_F(RankRunTest, WhereNoPromptAtAllCanBeAnsweredItIsToldAndNothingKept) {
  EvalSetup all = setup(false);
  all.decoder.context = 4;
  const PromptSet prompts = data({{"hello"}, {"again"}});
  EXPECT_THAT(complaint([&] { answer_share({.data = prompts, .setup = all, .place = place_}, {}, rank_); }),
              HasSubstr("prompts.jsonl:1: turn 1: the prompt has"));
  EXPECT_TRUE(kept().empty());
}

TEST_F(RankRunTest, TheDumpOfATurnThatDiffersIsThereWhenItsJournalSaysSo) {
  EvalSetup all = setup(true);
  std::vector<TurnRecord> before = {*PromptRunner(all, std::int64_t{1}, "mine").next({.user = "hello"})};
  before[0].baseline->tokens[3] ^= 1;
  const SharedBaseline shared(before);
  FailureDumper dumper(folder_ / "dumps", RecordOrigin{});
  all.baseline = false;
  all.shared = &shared;
  all.dumper = &dumper;
  const PromptSet prompts = data({{"hello"}});
  bool dumped = false;
  EXPECT_TRUE(answer_share({.data = prompts,
                            .setup = all,
                            .place = place_,
                            .on_turn = [&](const TurnRecord&) { dumped = std::filesystem::exists(folder_ / "dumps"); }},
                           {}, rank_));
  EXPECT_EQ(kept()[0].first_difference(), 3);
  EXPECT_TRUE(dumped);
}

}  // namespace
}  // namespace espalier
