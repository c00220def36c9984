#include "eval/rank_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
