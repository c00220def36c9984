#include "cli/load_flags.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

std::optional<std::string> nothing(const char*) {
  return std::nullopt;
}

TEST(LoadFlags, WithoutAnyFlagThereAreOneToEightUsersInThreeRounds) {
  const LoadPlan plan = load_plan({}, nothing, 7);
  ASSERT_EQ(plan.targets.size(), 1u);
  EXPECT_EQ(plan.targets[0].url.text(), "http://127.0.0.1:8080");
  EXPECT_EQ(plan.shapes.size(), 4u);
  EXPECT_EQ(plan.rounds, 3);
  EXPECT_EQ(plan.settings.tokens, 128);
  EXPECT_EQ(plan.settings.requests, 4);
  EXPECT_EQ(plan.prompts.seed, 7u);
  EXPECT_EQ(plan.targets[0].speculation, "");
}

TEST(LoadFlags, DefaultsFollowTheKindOfLoad) {
  LoadFlags open;
  open.rates = {0.5, 2};
  EXPECT_EQ(load_plan(open, nothing, 0).settings.requests, 32);
  EXPECT_EQ(load_plan(open, nothing, 0).shapes[1].rate, 2);
  LoadFlags interrupted;
  interrupted.settings.interrupt_tokens = 4000;
  const LoadPlan plan = load_plan(interrupted, nothing, 0);
  EXPECT_EQ(plan.shapes.size(), 1u);
  EXPECT_EQ(plan.shapes[0].users, 4);
  EXPECT_EQ(plan.settings.tokens, 512);
  EXPECT_EQ(plan.rounds, 1);
}

TEST(LoadFlags, KeysComeFromFlagsElseFromTheEnvironmentEachServersOwn) {
  const auto environment = [](const char* name) { return std::optional<std::string>(std::string("of ") + name); };
  const auto plain = [](const char* name) { return std::optional<std::string>(name); };
  LoadFlags flags;
  flags.against = "http://h:1";
  flags.key = "mine";
  const LoadPlan plan = load_plan(flags, plain, 0);
  EXPECT_EQ(plan.targets[0].key, "mine");
  EXPECT_EQ(plan.targets[1].key, "ESPALIER_AGAINST_API_KEY");
  EXPECT_THROW(load_plan(flags, environment, 0), InputError);  // a space
}

TEST(LoadFlags, ContradictionsAreOneLine) {
  const auto refused = [](auto change) {
    LoadFlags flags;
    change(flags);
    try {
      load_plan(flags, nothing, 0);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused([](LoadFlags& f) { f.rates = {1}, f.users = {1}; }), HasSubstr("--rate: not with --users"));
  EXPECT_THAT(refused([](LoadFlags& f) { f.settings.seconds = 1, f.requests = 1; }), HasSubstr("--seconds: not with"));
  EXPECT_THAT(refused([](LoadFlags& f) { f.settings.interrupt_tokens = 1, f.requests = 1; }), HasSubstr("--interrupt"));
  EXPECT_THAT(refused([](LoadFlags& f) { f.settings.interrupt_tokens = 1, f.rates = {1}; }), HasSubstr("--interrupt"));
  EXPECT_THAT(refused([](LoadFlags& f) { f.against_key = "k"; }), HasSubstr("only with --against"));
  EXPECT_THAT(refused([](LoadFlags& f) { f.json = f.chart = "-"; }), HasSubstr("only one of them"));
  EXPECT_THAT(refused([](LoadFlags& f) { f.url = "localhost:8080"; }), HasSubstr("--url: expected http://HOST"));
}

}  // namespace
}  // namespace espalier
