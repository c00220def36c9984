#include "trace/traced_turn.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "trace/random_turn.h"

namespace espalier {
namespace {

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

// What a damaged or hostile file may say, by name.
struct Lie {
  const char* name;
  std::function<void(std::vector<Json>&)> tell;
};

class TracedTurnLies : public ::testing::TestWithParam<Lie> {};

TEST_P(TracedTurnLies, AreRefusedInOneLineThatNamesTheTurn) {
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
    EXPECT_TRUE(message.starts_with("t.zst: turn 1")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

const Lie kLies[] = {
    {"NoTurn", [](auto& l) { l.erase(l.begin()); }},
    {"ARoundMissing", [](auto& l) { l.pop_back(); }},
    {"ARoundTwice", [](auto& l) { l.push_back(l.back()); }},
    {"ATurnForARound", [](auto& l) { l[1] = l[0]; }},
    {"NoTokens", [](auto& l) { l[0].erase("tokens"); }},
    {"AnEmptyPrompt", [](auto& l) { l[0]["prompt"] = Json::array(); }},
    {"ANegativeToken", [](auto& l) { l[0]["tokens"][0] = -1; }},
    {"AHugeToken", [](auto& l) { l[0]["tokens"][0] = 1ull << 40; }},
    {"ATextForAToken", [](auto& l) { l[0]["tokens"][0] = "a"; }},
    {"AnUnknownFinish", [](auto& l) { l[0]["finish_reason"] = "tired"; }},
    {"AnObjectAsPromptId", [](auto& l) { l[0]["prompt_id"] = Json::object(); }},
    {"AListForATurn", [](auto& l) { l[0] = Json::array(); }},
    {"ANumberForATurn", [](auto& l) { l[0] = 7; }},
    {"NoTree", [](auto& l) { l[1].erase("tree"); }},
    {"AnEmptyTree", [](auto& l) { l[1]["tree"]["parents"] = Json::array(); }},
    {"AParentBehindItsChild",
     [](auto& l) {
       l[1]["tree"] = {{"parents", {0, 2, 1}}, {"tokens", {1, 2, 3}}, {"scores", {0, 0, 0}}, {"sources", {0, 0, 0}}};
     }},
    {"TwinSiblings",
     [](auto& l) {
       l[1]["tree"] = {{"parents", {0, 0, 0}}, {"tokens", {1, 2, 2}}, {"scores", {0, 0, 0}}, {"sources", {0, 0, 0}}};
     }},
    {"AScoreAboveTheParents",
     [](auto& l) {
       l[1]["tree"] = {{"parents", {0, 0}}, {"tokens", {1, 2}}, {"scores", {0, 3}}, {"sources", {0, 0}}};
     }},
    {"ListsOfDifferentLengths", [](auto& l) { l[1]["tree"]["tokens"].push_back(1); }},
    {"AnotherRoot", [](auto& l) { l[1]["tree"]["tokens"][0] = 4999; }},
    {"AnotherPrefix", [](auto& l) { l[1]["prefix"] = 1; }},
    {"AnotherNumber", [](auto& l) { l[1]["round"] = 5; }},
    {"APathThatLeavesTheTree",
     [](auto& l) {
       l[1]["path"] = {0, 4000};
       l[1]["choices"] = {1, 2};
     }},
    {"AnEmptyPath",
     [](auto& l) {
       l[1]["path"] = Json::array();
       l[1]["choices"] = Json::array();
     }},
    {"AnotherChoice", [](auto& l) { l[1]["choices"].back() = 4998; }},
    {"AnUnknownMask", [](auto& l) { l[1]["mask"] = "sparse"; }},
    {"NegativeBytes", [](auto& l) { l[1]["kv_bytes"]["committed"] = -1; }},
    {"ManyBytes", [](auto& l) { l[1]["kv_bytes"]["committed"] = 1ull << 60; }},
    {"ATextForATime", [](auto& l) { l[1]["seconds"]["draft"] = "soon"; }},
};
INSTANTIATE_TEST_SUITE_P(All, TracedTurnLies, ::testing::ValuesIn(kLies),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace espalier
