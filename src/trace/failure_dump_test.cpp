#include "trace/failure_dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"
#include "format/testing/temporary_folder.h"
#include "trace/failure_dumper.h"
#include "trace/testing/random_turn.h"
#include "trace/trace_file.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

const RecordOrigin kOrigin{.commit = "abc", .configuration = R"({"model":"m"})"};

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
  EXPECT_EQ(read.dump.stage, "verify");
}

TEST_F(FailureDumpTest, IsToldFromATraceByItsFirstByte) {
  const auto path = write_failure_dump(mismatch_dump(turn_, plain_tokens(turn_, 2), "length"), kOrigin, folder_.path());
  EXPECT_TRUE(is_failure_dump(path));
  EXPECT_FALSE(is_failure_dump(folder_.write("trace", trace_bytes(TraceHeader{}))));
  EXPECT_FALSE(is_failure_dump(folder_.write("empty", "")));
}

TEST_F(FailureDumpTest, TwoDumpsOfOneSecondHaveDifferentNames) {
  const FailureDump dump = mismatch_dump(turn_, plain_tokens(turn_, 3), "length");
  EXPECT_NE(write_failure_dump(dump, kOrigin, folder_.path()), write_failure_dump(dump, kOrigin, folder_.path()));
}

TEST_F(FailureDumpTest, OtherSchemasVersionsAndKindsAreRefused) {
  const nlohmann::json good = written();
  EXPECT_EQ(refusal(good), "accepted");
  nlohmann::json bad = good;
  bad["schema"] = 1;
  EXPECT_EQ(refusal(bad), "d.json: a dump of schema 1, expected 2");
  bad = good;
  bad["version"] = "9.9.9";
  EXPECT_THAT(refusal(bad), HasSubstr("9.9.9"));
  bad = good;
  bad["arithmetic"] = 1;
  EXPECT_THAT(refusal(bad), HasSubstr("d.json: arithmetic 1, this program computes with 2: "));
  bad = good;
  bad["kind"] = "trace";
  EXPECT_THAT(refusal(bad), HasSubstr("expected a dump of espalier"));
}

TEST_F(FailureDumpTest, EveryFieldIsNeeded) {
  const nlohmann::json good = written();
  for (const auto& [field, value] : good.items()) {
    nlohmann::json bad = good;
    bad.erase(field);
    const std::string expected = field == "kind"         ? "expected a dump of espalier"
                                 : field == "arithmetic" ? "arithmetic 1, this program computes with 2"
                                                         : fmt::format("\"{}\" is missing", field);
    EXPECT_THAT(refusal(bad), HasSubstr(field == "commit" ? "accepted" : expected));
  }
}

// What a damaged or hostile dump may say, by name, and what is said about it.
TEST_F(FailureDumpTest, DumpsThatDoNotHoldTogetherAreRefusedInOneLine) {
  struct Lie {
    const char* complaint;
    std::function<void(nlohmann::json&)> tell;
  };
  const Lie lies[] = {
      {"expected a dump of espalier", [](auto& d) { d = 7; }},
      {"d.json: a dump of version 1, expected ", [](auto& d) { d["version"] = 1; }},
      {"d.json: failure: expected one of error, violation, mismatch, got \"flu\"",
       [](auto& d) { d["failure"] = "flu"; }},
      {"d.json: stage: expected one of prefill, draft, verify, accept, commit, got \"lunch\"",
       [](auto& d) { d["stage"] = "lunch"; }},
      {"d.json: error: expected a string, got array", [](auto& d) { d["error"] = nlohmann::json::array(); }},
      {"d.json: prompt[0]: expected 0 to 2147483647, got -1", [](auto& d) { d["prompt"][0] = -1; }},
      {"d.json: expected a prompt, got an empty one", [](auto& d) { d["prompt"] = nlohmann::json::array(); }},
      {"d.json: answered: 0 tokens in stage verify, expected one or more",
       [](auto& d) { d["answered"] = nlohmann::json::array(); }},
      {"expected less than the 1 that may be drawn", [](auto& d) { d["draw"]["max_tokens"] = 1; }},
      {"d.json: draw: --top-p: expected above 0 to 1, got 2", [](auto& d) { d["draw"]["top_p"] = 2; }},
      {"d.json: tree: expected one in stage verify", [](auto& d) { d["tree"] = nullptr; }},
      {"d.json: tree: expected none in stage draft", [](auto& d) { d["stage"] = "draft"; }},
      {"d.json: expected a tree below the last token answered, got one below 4999",
       [](auto& d) { d["tree"]["tokens"][0] = 4999; }},
      {"d.json: tree.parents[0]: expected 0 to 4095, got -1", [](auto& d) { d["tree"]["parents"][0] = -1; }},
      {"d.json: expected two answers in a mismatch and nowhere else", [](auto& d) { d["mismatch"] = nullptr; }},
      {"d.json: expected two answers in a mismatch and nowhere else", [](auto& d) { d["failure"] = "error"; }},
      {"d.json: mismatch.plain[0]: expected an integer, got string", [](auto& d) { d["mismatch"]["plain"][0] = "x"; }},
      {"d.json: attention: expected one of fused, eager, got \"none\"", [](auto& d) { d["attention"] = "none"; }},
  };
  const nlohmann::json good = written();
  for (const Lie& lie : lies) {
    nlohmann::json bad = good;
    lie.tell(bad);
    EXPECT_THAT(refusal(bad), HasSubstr(lie.complaint));
    EXPECT_EQ(refusal(bad).find('\n'), std::string::npos);
  }
}

TEST_F(FailureDumpTest, AnErrorThatLeftNoDumpGoesOnAsItIs) {
  FailureDumper dumper(folder_.path(), kOrigin);
  EXPECT_THROW(dumper.guard("p", 1, [](const FailureObserver&) -> int { throw InputError("flag"); }), InputError);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

}  // namespace
}  // namespace espalier
