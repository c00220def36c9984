#include "eval/shared_baseline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "eval/run_folder.h"
#include "format/testing/complaint.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

TurnRecord turn(std::int64_t number, std::string set = "mine") {
  return {.set = std::move(set),
          .prompt_id = "p",
          .turn = number,
          .prompt = {1, 2},
          .tokens = {3, 4},
          .finish_reason = "stop",
          .seconds = {1, 2}};
}

TurnRecord with_baseline(TurnRecord turn) {
  turn.baseline = BaselineTurn{{4, 5}, {6}, "length", TurnSeconds{1, 1}};
  return turn;
}

TEST(SharedBaseline, ARunWithoutABaselineIsOneItself) {
  const SharedBaseline shared(std::vector{turn(1), turn(2)});
  const BaselineTurn found = shared.find(turn(2)).turn;
  EXPECT_EQ(found.tokens, (std::vector{3, 4}));
  EXPECT_EQ(found.finish_reason, "stop");
  EXPECT_EQ(found.seconds.whole(), 3);
}

TEST(SharedBaseline, OfARunThatHadOneItIsTaken) {
  const BaselineTurn found = SharedBaseline(std::vector{with_baseline(turn(1))}).find(turn(1)).turn;
  EXPECT_EQ(found.tokens, (std::vector{6}));
  EXPECT_EQ(found.seconds.whole(), 9);
  EXPECT_FALSE(found.retimed) << "what was timed again beside another run";
}

TEST(SharedBaseline, ATurnThatIsNotThereOrAnsweredAnotherPromptIsRefused) {
  TurnRecord failed = turn(4);
  failed.error = "too long";
  const SharedBaseline shared(std::vector{turn(1), turn(2), failed});
  EXPECT_THAT(complaint([&] { shared.find(turn(1, "yours")); }), HasSubstr("prompt \"p\", turn 1: not there"));
  EXPECT_THAT(complaint([&] { shared.find(turn(3)); }), HasSubstr("turn 3: not there"));
  EXPECT_THAT(complaint([&] { shared.find(turn(4)); }), HasSubstr("turn 4: not there"));
  TurnRecord other = turn(1);
  other.prompt = {1, 3};
  EXPECT_THAT(complaint([&] { shared.find(other); }), HasSubstr("its prompt has other tokens"));
  other.turn = 2;
  EXPECT_EQ(shared.find(other).turn.tokens, (std::vector{3, 4})) << "the history may differ after a turn that did";
  EXPECT_FALSE(shared.find(other).same_prompt);
  EXPECT_TRUE(shared.find(turn(2)).same_prompt);
}

class SharedRunTest : public ::testing::Test {
 protected:
  static Json manifest(std::string_view drafters = "none") {
    return {{"commit", "c-dirty"},
            {"program", "hash"},
            {"compiler", {{"name", "GNU"}}},
            {"configuration",
             {{"arithmetic", 2},
              {"model", {{"sha256", "m"}}},
              {"engine",
               {{"device", "cpu"},
                {"isa", "avx2"},
                {"threads", 2},
                {"kv", "f16"},
                {"weights", "auto"},
                {"activations", "f32"},
                {"context", 512},
                {"cache", "shared"},
                {"reorder", "fast"},
                {"attention", "fused"}}},
              {"draft", {{"drafters", drafters}}},
              {"sampling", {{"seed", 0}}},
              {"chat", {{"system", nullptr}}}}},
            {"world", 1},
            {"end", "now"}};
  }
  void finish(const Json& manifest, const std::vector<TurnRecord>& turns) const {
    std::filesystem::remove_all(run_);
    RunFolder::create(run_, manifest).finish(manifest, turns, {});
  }
  // What is said of a run that differs from the shared one in this field; empty when nothing is.
  std::string refusal(const char* place, const Json& value, bool any_world = false) const {
    Json now = manifest("ngram");
    now[Json::json_pointer(place)] = value;
    return complaint([&] { read_shared_baseline(run_, now, any_world); });
  }

  TemporaryFolder folder_;
  std::filesystem::path run_ = folder_ / "plain";
};

TEST_F(SharedRunTest, ARunThatSpeculatedIsNoBaselineUnlessEveryTurnHasItsOwn) {
  finish(manifest("ngram"), {with_baseline(turn(1)), turn(2)});
  EXPECT_THAT(refusal("/world", 1),
              HasSubstr("plain: it speculated (drafters \"ngram\"), expected a run with --draft"));
  TurnRecord failed = turn(3);
  failed.error = "too long";
  finish(manifest("ngram"), {with_baseline(turn(1)), with_baseline(turn(2)), failed});
  EXPECT_EQ(read_shared_baseline(run_, manifest("eagle3")).find(turn(2)).turn.seconds.whole(), 9);
  finish(manifest(), {turn(1)});
  EXPECT_EQ(refusal("/world", 1), "");
}

TEST_F(SharedRunTest, WhatSecondsDependOnMustBeTheSame) {
  finish(manifest(), {turn(1)});
  const auto expect_refused = [&](const char* place, const Json& value, const char* name) {
    EXPECT_THAT(refusal(place, value),
                HasSubstr(std::string("--baseline-run ") + run_.string() + ": " + name + " is "));
  };
  for (const char* field : {"device", "isa", "threads", "kv", "weights", "activations", "context"})
    expect_refused((std::string("/configuration/engine/") + field).c_str(), "other",
                   (std::string("configuration.engine.") + field).c_str());
  expect_refused("/configuration/model/sha256", "other", "configuration.model.sha256");
  expect_refused("/configuration/sampling/seed", 1, "configuration.sampling.seed");
  expect_refused("/configuration/chat/system", "x", "configuration.chat.system");
  expect_refused("/world", 2, "world");
  expect_refused("/configuration/parallel", 2, "configuration.parallel");
  expect_refused("/commit", "d", "commit");
  expect_refused("/program", "other", "program");
  expect_refused("/compiler/name", "Clang", "compiler.name");
}

TEST_F(SharedRunTest, ARunOfAnotherArithmeticIsRefusedByBothNumbers) {
  Json older = manifest();
  older["configuration"].erase("arithmetic");
  older["commit"] = "older";
  finish(older, {turn(1)});
  EXPECT_THAT(refusal("/world", 1), HasSubstr("plain/manifest.json: arithmetic 1, this program computes with 2: "));
}

TEST_F(SharedRunTest, WhatSweepsVaryMayDiffer) {
  finish(manifest(), {turn(1)});
  for (const char* field : {"cache", "reorder", "attention"})
    EXPECT_EQ(refusal((std::string("/configuration/engine/") + field).c_str(), "other"), "") << field;
}

TEST_F(SharedRunTest, WhereAnyNumberOfRanksWillDoTheirThreadsMayDifferToo) {
  finish(manifest(), {turn(1)});
  EXPECT_EQ(refusal("/world", 2, true), "");
  EXPECT_THAT(refusal("/configuration/engine/threads", 1, true), HasSubstr("configuration.engine.threads is"));
  Json two = manifest();
  two["world"] = 2;
  two["configuration"]["engine"]["threads"] = 1;
  EXPECT_EQ(complaint([&] { read_shared_baseline(run_, two, true); }), "");
}

}  // namespace
}  // namespace espalier
