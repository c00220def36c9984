#include "trace/traced_turn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "trace/testing/random_turn.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

TracedTurn read(const std::vector<std::string>& lines) {
  return traced_turn_from(std::vector<std::string_view>(lines.begin(), lines.end()), "t.zst: turn 1");
}

TEST(TracedTurn, EveryFieldSurvivesTheFile) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<std::string> lines = to_lines(random_turn(seed));
    EXPECT_EQ(to_lines(read(lines)), lines) << "seed " << seed;
  }
}

TEST(TracedTurn, AScoreOfMinusInfinityAndABannedTokenSurviveTheFile) {
  TracedTurn turn = random_turn(3);
  const double never = -std::numeric_limits<double>::infinity();
  turn.draw.sampling.logit_bias[9] = static_cast<float>(never);
  TracedRound& last = turn.rounds.back();
  last.tree = TokenTree(last.tree[0].token);
  last.tree.append(0, {.token = 6000, .score = never});
  turn.tokens.resize(turn.tokens.size() - last.visits.size() + 1);
  last.visits = {{0, turn.tokens.back()}};
  const TracedTurn again = read(to_lines(turn));
  EXPECT_EQ(again.rounds.back().tree[1].score, never);
  EXPECT_EQ(again.draw.sampling.logit_bias.at(9), static_cast<float>(never));
}

TEST(TracedTurn, TheRoundOfATokenIsTheOneThatGaveIt) {
  const TracedTurn turn = random_turn(8);
  EXPECT_EQ(turn.round_of_token(0), std::nullopt);
  std::size_t index = 1;
  for (std::size_t round = 0; round < turn.rounds.size(); ++round)
    for (std::size_t i = 0; i < turn.rounds[round].visits.size(); ++i) EXPECT_EQ(turn.round_of_token(index++), round);
  EXPECT_EQ(turn.round_of_token(index), std::nullopt);
}

TEST(TracedTurn, NamesTheSetOfItsPromptWhereItIsOfOne) {
  TracedTurn turn = random_turn(4);
  turn.set = "humaneval";
  EXPECT_EQ(Json::parse(to_lines(turn)[0]).at("set"), "humaneval");
  EXPECT_EQ(read(to_lines(turn)).set, "humaneval");
  turn.set.clear();  // generate, chat, and whatever was written before turns had one
  EXPECT_FALSE(Json::parse(to_lines(turn)[0]).contains("set"));
  EXPECT_EQ(read(to_lines(turn)).set, "");
}

TEST(TracedTurn, ScoresThatJsonHasNoWordForAreRefused) {
  for (const char* score : {"NaN", "-Infinity", "1e999", "nan"}) {
    std::vector<std::string> lines = to_lines(random_turn(4));
    const std::string_view begin = "\"scores\":[";
    lines[1].replace(lines[1].find(begin) + begin.size(), std::string_view("0.0").size(), score);
    EXPECT_THROW(read(lines), InputError) << score;
  }
}

// What a damaged or hostile file may say, by name, and what is said about it.
struct Lie {
  const char* name;
  const char* complaint;
  std::function<void(std::vector<Json>&)> tell;
};

class TracedTurnLies : public ::testing::TestWithParam<Lie> {};

TEST_P(TracedTurnLies, AreRefusedInOneLineThatNamesTurnAndField) {
  std::vector<Json> objects;
  for (const std::string& line : to_lines(random_turn(4))) objects.push_back(Json::parse(line));
  ASSERT_GT(objects.size(), 2u);
  GetParam().tell(objects);
  std::vector<std::string> lines;
  for (const Json& object : objects) lines.push_back(object.dump());
  try {
    read(lines);
    ADD_FAILURE() << "accepted";
  } catch (const InputError& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("t.zst: turn 1: ")) << message;
    EXPECT_THAT(message, HasSubstr(GetParam().complaint));
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

Json tree_of(const Json& parents, const Json& tokens, const Json& scores, const Json& sources) {
  return {{"parents", parents}, {"tokens", tokens}, {"scores", scores}, {"sources", sources}};
}

using Lines = std::vector<Json>;

const Lie kLiesOfTurns[] = {
    {"NoTurn", "expected a turn, got \"round\"", [](Lines& l) { l.erase(l.begin()); }},
    {"AListForATurn", "expected an object, got array", [](Lines& l) { l[0] = Json::array(); }},
    {"ANumberForATurn", "expected an object, got number", [](Lines& l) { l[0] = 7; }},
    {"AKindOfTwoLines", "expected a turn, got \"a\\x0ab\"", [](Lines& l) { l[0]["kind"] = "a\nb"; }},
    {"ARoundMissing", "rounds: expected ", [](Lines& l) { l.pop_back(); }},
    {"ARoundTwice", "rounds: expected ", [](Lines& l) { l.push_back(l.back()); }},
    {"ATextForTheRounds", "rounds: expected an integer, got string", [](Lines& l) { l[0]["rounds"] = "many"; }},
    {"NoTokens", "\"tokens\" is missing", [](Lines& l) { l[0].erase("tokens"); }},
    {"NullForTheTokens", "tokens: expected an array, got null", [](Lines& l) { l[0]["tokens"] = nullptr; }},
    {"AnEmptyPrompt", "expected a prompt, got an empty one", [](Lines& l) { l[0]["prompt"] = Json::array(); }},
    {"ANegativeToken", "tokens[0]: expected 0 to 2147483647, got -1", [](Lines& l) { l[0]["tokens"][0] = -1; }},
    {"AHugeToken", "tokens[0]: expected 0 to 2147483647, got 1099511627776",
     [](Lines& l) { l[0]["tokens"][0] = 1ull << 40; }},
    {"ATokenBeyondAllIntegers", "tokens[0]: expected an integer, got number",
     [](Lines& l) { l[0]["tokens"][0] = 1e300; }},
    {"ATokenAndAHalf", "tokens[0]: expected an integer, got number", [](Lines& l) { l[0]["tokens"][0] = 1.5; }},
    {"ATruthForAToken", "tokens[0]: expected an integer, got boolean", [](Lines& l) { l[0]["tokens"][0] = true; }},
    {"ATextForAToken", "tokens[0]: expected an integer, got string", [](Lines& l) { l[0]["tokens"][0] = "a"; }},
    {"AnUnknownFinish", "finish_reason: expected one of stop, length, context, cancelled, got \"tired\"",
     [](Lines& l) { l[0]["finish_reason"] = "tired"; }},
    {"AnotherFinishThanThatOfTheLastRound", "finish_reason: \"stop\", expected that of the last round, \"length\"",
     [](Lines& l) { l[0]["finish_reason"] = "stop"; }},
    {"AnObjectAsPromptId", "prompt_id: expected a text or an integer, got \"{}\"",
     [](Lines& l) { l[0]["prompt_id"] = Json::object(); }},
    {"ANumberAsSet", "set: expected a string, got number", [](Lines& l) { l[0]["set"] = 5; }},
    {"TurnZero", "turn: expected 1 to ", [](Lines& l) { l[0]["turn"] = 0; }},
    {"MoreTokensThanMayBeDrawn", "tokens: expected at most 1, got ", [](Lines& l) { l[0]["draw"]["max_tokens"] = 1; }},
    {"MoreReusedThanThePromptHas", "reused_tokens: expected at most ", [](Lines& l) { l[0]["reused_tokens"] = 1000; }},
    {"SecondsBelowZero", "prefill_seconds: expected 0 seconds or more, got -1",
     [](Lines& l) { l[0]["prefill_seconds"] = -1; }},
    {"ASeedBelowZero", "draw.seed: expected 0 or more, got -1", [](Lines& l) { l[0]["draw"]["seed"] = -1; }},
    {"ATemperatureBelowZero", "draw: --temperature: expected 0 to 100, got -1",
     [](Lines& l) { l[0]["draw"]["temperature"] = -1; }},
    {"ATemperatureBeyondAFloat", "draw.temperature: expected a number that 32 bits hold",
     [](Lines& l) { l[0]["draw"]["temperature"] = 1e300; }},
    {"ABiasWithoutAValue", "draw.logit_bias[0]: expected an id and a value, got 1 values",
     [](Lines& l) { l[0]["draw"]["logit_bias"] = Json::array({Json::array({7})}); }},
    {"ABiasOfANegativeToken", "draw.logit_bias[0][0]: expected 0 to ",
     [](Lines& l) {
       l[0]["draw"]["logit_bias"] = Json::array({Json::array({-7, 1})});
     }},
};

const Lie kLiesOfTrees[] = {
    {"NoTree", "round 0: \"tree\" is missing", [](Lines& l) { l[1].erase("tree"); }},
    {"AnEmptyTree", "tree: expected 1 to 4096 nodes, got 0", [](Lines& l) { l[1]["tree"]["parents"] = Json::array(); }},
    {"ATreeBeyondAnyStep", "tree: expected 1 to 4096 nodes, got 5000",
     [](Lines& l) { l[1]["tree"]["parents"] = std::vector<int>(5000); }},
    {"ANegativeParent", "tree.parents[1]: expected 0 to 4095, got -1",
     [](Lines& l) {
       l[1]["tree"] = tree_of({0, -1}, {1, 2}, {0, 0}, {0, 0});
     }},
    {"AHugeParent", "tree.parents[1]: expected 0 to 4095, got 1099511627776",
     [](Lines& l) {
       l[1]["tree"] = tree_of({0, 1ull << 40}, {1, 2}, {0, 0}, {0, 0});
     }},
    {"ANodeThatIsItsOwnParent", "tree: token tree: node 1 below node 1",
     [](Lines& l) {
       l[1]["tree"] = tree_of({0, 1}, {1, 2}, {0, 0}, {0, 0});
     }},
    {"ACircle", "tree: token tree: node 1 below node 2",
     [](Lines& l) {
       l[1]["tree"] = tree_of({0, 2, 1}, {1, 2, 3}, {0, 0, 0}, {0, 0, 0});
     }},
    {"TwinSiblings", "tree: token tree: node 0 has two children with token 2",
     [](Lines& l) {
       l[1]["tree"] = tree_of({0, 0, 0}, {1, 2, 2}, {0, 0, 0}, {0, 0, 0});
     }},
    {"AScoreAboveTheParents", "tree: token tree: node 1 scores 3, above its parent's 0",
     [](Lines& l) {
       l[1]["tree"] = tree_of({0, 0}, {1, 2}, {0, 3}, {0, 0});
     }},
    {"ATextForAScore", "tree.scores[1]: expected a number, got string",
     [](Lines& l) {
       l[1]["tree"] = tree_of({0, 0}, {1, 2}, {0, "likely"}, {0, 0});
     }},
    {"ARootBelowAnother", "expected parent 0, score 0 and no sources at the root, got 1, 0 and 0",
     [](Lines& l) {
       l[1]["tree"] = tree_of({1, 0}, {1, 2}, {0, 0}, {0, 0});
     }},
    {"ARootWithAScore", "expected parent 0, score 0 and no sources at the root, got 0, -1 and 0",
     [](Lines& l) {
       l[1]["tree"] = tree_of({0, 0}, {1, 2}, {-1, -1}, {0, 0});
     }},
    {"ARootThatSomebodyDrafted", "expected parent 0, score 0 and no sources at the root, got 0, 0 and 1",
     [](Lines& l) {
       l[1]["tree"] = tree_of({0, 0}, {1, 2}, {0, 0}, {1, 0});
     }},
    {"MoreSourcesThanThereAreBits", "tree.sources[1]: expected 0 to 4294967295, got 1099511627776",
     [](Lines& l) {
       l[1]["tree"] = tree_of({0, 0}, {1, 2}, {0, 0}, {0, 1ull << 40});
     }},
    {"ListsOfDifferentLengths", "one for each node", [](Lines& l) { l[1]["tree"]["tokens"].push_back(1); }},
    {"AnotherRoot", "tree.tokens[0]: expected ", [](Lines& l) { l[1]["tree"]["tokens"][0] = 4999; }},
};

const Lie kLiesOfRounds[] = {
    {"ATurnForARound", "round 0: expected a round, got \"turn\"", [](Lines& l) { l[1] = l[0]; }},
    {"AnotherPrompt", "round 0: prompt_id: expected \"4\", got ", [](Lines& l) { l[1]["prompt_id"] = "x"; }},
    {"AnotherTurn", "round 0: turn: expected ", [](Lines& l) { l[1]["turn"] = 77; }},
    {"AnotherPrefix", "round 0: prefix: expected ", [](Lines& l) { l[1]["prefix"] = 100000; }},
    {"AnotherNumber", "round 0: round: expected 0, got 5", [](Lines& l) { l[1]["round"] = 5; }},
    {"APathThatLeavesTheTree", "path: node 4000 is no child of node 0 that carries token 1",
     [](Lines& l) {
       l[1]["path"] = {0, 4000};
       l[1]["choices"] = {1, 2};
     }},
    {"AnEmptyPath", "path: expected one that begins at the root",
     [](Lines& l) {
       l[1]["path"] = Json::array();
       l[1]["choices"] = Json::array();
     }},
    {"APathWithoutChoices", "with a choice at every node", [](Lines& l) { l[1]["choices"] = Json::array(); }},
    {"AnotherChoice", "choices: expected ", [](Lines& l) { l[1]["choices"].back() = 4998; }},
    {"MoreAcceptedThanThePathHas", "accepted: expected ", [](Lines& l) { l[1]["accepted"] = 999; }},
    {"AnEndInTheMiddle", "round 1: expected none behind the round that ended the answer",
     [](Lines& l) { l[1]["finish"] = "length"; }},
    {"NoEnd", "finish_reason: \"length\", expected that of the last round, \"\"",
     [](Lines& l) { l.back()["finish"] = nullptr; }},
    {"AnUnknownMask", "mask: expected one of list, dense, got \"sparse\"", [](Lines& l) { l[1]["mask"] = "sparse"; }},
    {"NegativeBytes", "kv_bytes.committed: expected 0 to ", [](Lines& l) { l[1]["kv_bytes"]["committed"] = -1; }},
    {"ManyBytes", "kv_bytes.committed: expected 0 to ", [](Lines& l) { l[1]["kv_bytes"]["committed"] = 1ull << 60; }},
    {"ATextForATime", "seconds.draft: expected a number, got string",
     [](Lines& l) { l[1]["seconds"]["draft"] = "soon"; }},
    {"ATextForABudget", "budget: expected an object, got string", [](Lines& l) { l[1]["budget"] = "large"; }},
    {"ABudgetWithoutStepTimes", "budget.step_seconds: expected the seconds of a step of one row",
     [](Lines& l) {
       l[1]["budget"] = {{"drafted", true}, {"step_rows", 1}, {"step_seconds", nlohmann::json::array()}};
     }},
    {"AStepOfNoRows", "budget.step_rows: expected 1 to ",
     [](Lines& l) {
       l[1]["budget"] = {{"drafted", true}, {"step_rows", 0}, {"step_seconds", {0.1}}};
     }},
    {"AStepInNegativeTime", "budget.step_seconds[1]: expected ",
     [](Lines& l) {
       l[1]["budget"] = {{"drafted", true}, {"step_rows", 1}, {"step_seconds", {0.1, -0.2}}};
     }},
};

std::string name_of(const ::testing::TestParamInfo<Lie>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Turns, TracedTurnLies, ::testing::ValuesIn(kLiesOfTurns), name_of);
INSTANTIATE_TEST_SUITE_P(Trees, TracedTurnLies, ::testing::ValuesIn(kLiesOfTrees), name_of);
INSTANTIATE_TEST_SUITE_P(Rounds, TracedTurnLies, ::testing::ValuesIn(kLiesOfRounds), name_of);

}  // namespace
}  // namespace espalier
