#include "trace/failure_dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"
#include "format/temporary_folder.h"
#include "trace/failure_dumper.h"
#include "trace/random_turn.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

const RecordOrigin kOrigin{.commit = "abc", .configuration = {{"model", "m"}}};

// Another token in place of one of the turn's.
std::vector<std::int32_t> plain_tokens(const TracedTurn& turn, std::size_t wrong) {
  std::vector<std::int32_t> tokens = turn.tokens;
  tokens[wrong] += 1;
  return tokens;
}

class FailureDumpTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  TracedTurn turn_ = random_turn(4);

  nlohmann::json written() {
    const auto path =
        write_failure_dump(mismatch_dump(turn_, plain_tokens(turn_, 2), "length"), kOrigin, folder_.path());
    return nlohmann::json::parse(read_text_file(path));
  }
  static std::string refusal(const nlohmann::json& object) {
    try {
      failure_dump_from(object.dump(), "d.json");
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(FailureDumpTest, AMismatchNamesTheRoundAndBothTokens) {
  const std::size_t last = turn_.tokens.size() - 1;
  const FailureDump dump = mismatch_dump(turn_, plain_tokens(turn_, last), "length");
  const TracedRound& round = turn_.rounds.back();
  EXPECT_EQ(dump.round, round.number);
  EXPECT_EQ(dump.tree, round.tree);
  EXPECT_EQ(dump.answered.back(), round.tree[0].token);
  EXPECT_EQ(dump.drawn.size(), round.visits.size());
  EXPECT_EQ(dump.mismatch->token, static_cast<std::int64_t>(last));
  EXPECT_EQ(dump.mismatch->plain.back(), turn_.tokens.back() + 1);
  EXPECT_THAT(dump.error, HasSubstr(std::to_string(turn_.tokens.back())));
}

TEST_F(FailureDumpTest, AMismatchInTheFirstTokenHasNoRound) {
  const FailureDump dump = mismatch_dump(turn_, plain_tokens(turn_, 0), "length");
  EXPECT_FALSE(dump.tree.has_value());
  EXPECT_TRUE(dump.answered.empty());
  EXPECT_EQ(dump.drawn, std::vector<std::int32_t>{turn_.tokens[0]});
}

TEST_F(FailureDumpTest, AnAnswerThatEndsEarlierIsAMismatchOfTheLastRound) {
  std::vector<std::int32_t> longer = turn_.tokens;
  longer.push_back(7);
  const FailureDump dump = mismatch_dump(turn_, longer, "stop");
  EXPECT_EQ(dump.round, turn_.rounds.back().number);
  EXPECT_EQ(dump.mismatch->plain.back(), 7);
  EXPECT_THAT(dump.error, HasSubstr("the end (length) with speculation, 7 without"));
}

TEST_F(FailureDumpTest, EverythingAReplayNeedsSurvivesTheFile) {
  const FailureDump dump = mismatch_dump(turn_, plain_tokens(turn_, 3), "length");
  const auto path = write_failure_dump(dump, kOrigin, folder_ / "new folder");
  const ReadDump read = read_failure_dump(path);
  EXPECT_EQ(read.origin, kOrigin);
  EXPECT_EQ(read.dump.kind, dump.kind);
  EXPECT_EQ(read.dump.error, dump.error);
  EXPECT_EQ(read.dump.prompt_id, dump.prompt_id);
  EXPECT_EQ(read.dump.prompt, dump.prompt);
  EXPECT_EQ(read.dump.answered, dump.answered);
  EXPECT_EQ(read.dump.tree, dump.tree);
  EXPECT_EQ(read.dump.drawn, dump.drawn);
  EXPECT_EQ(read.dump.mismatch->plain, dump.mismatch->plain);
  EXPECT_EQ(read.dump.draw.seed, dump.draw.seed);
  EXPECT_EQ(read.dump.draw.sampling.logit_bias, dump.draw.sampling.logit_bias);
}

TEST_F(FailureDumpTest, TwoDumpsOfOneSecondHaveDifferentNames) {
  const FailureDump dump = mismatch_dump(turn_, plain_tokens(turn_, 3), "length");
  EXPECT_NE(write_failure_dump(dump, kOrigin, folder_.path()), write_failure_dump(dump, kOrigin, folder_.path()));
}

TEST_F(FailureDumpTest, OtherSchemasVersionsAndKindsAreRefused) {
  const nlohmann::json good = written();
  EXPECT_EQ(refusal(good), "accepted");
  nlohmann::json bad = good;
  bad["schema"] = 2;
  EXPECT_EQ(refusal(bad), "d.json: a dump of schema 2, expected 1");
  bad = good;
  bad["version"] = "9.9.9";
  EXPECT_THAT(refusal(bad), HasSubstr("9.9.9"));
  bad = good;
  bad["kind"] = "trace";
  EXPECT_THAT(refusal(bad), HasSubstr("expected a dump of espalier"));
}

TEST_F(FailureDumpTest, DumpsThatDoNotHoldTogetherAreRefused) {
  const nlohmann::json good = written();
  for (const char* field : {"prompt", "answered", "tree", "drawn", "draw", "stage", "failure", "mismatch", "error"}) {
    nlohmann::json bad = good;
    bad.erase(field);
    EXPECT_THAT(refusal(bad), HasSubstr("d.json: ")) << field;
  }
  nlohmann::json bad = good;
  bad["tree"]["tokens"][0] = 4999;
  EXPECT_THAT(refusal(bad), HasSubstr("expected a tree below the last token answered"));
  bad = good;
  bad["mismatch"] = nullptr;
  EXPECT_THAT(refusal(bad), HasSubstr("mismatch"));
}

TEST_F(FailureDumpTest, AnErrorThatLeftNoDumpGoesOnAsItIs) {
  FailureDumper dumper(folder_.path(), kOrigin);
  EXPECT_THROW(dumper.guard("p", 1, [](const FailureObserver&) -> int { throw InputError("flag"); }), InputError);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

}  // namespace
}  // namespace espalier
