#include "cli/help.h"

#include <gmock/gmock.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class HelpTest : public ::testing::Test {
 protected:
  HelpTest() {
    app_.set_help_all_flag("--help-all", "all options");
    for (const auto& add : {add_generate, add_chat, add_serve, add_compare, add_tree, add_inspect, add_tokenize,
                            add_perplexity, add_bench, add_eval, add_trace, add_replay, add_quantize, add_selftest})
      commands_.push_back(add(app_));
  }

  std::string help(std::vector<std::string> words, HelpExtent extent) {
    words.emplace_back("--help");
    std::reverse(words.begin(), words.end());
    try {
      app_.parse(words);
    } catch (const CLI::CallForHelp&) {
    }
    return help_text(app_, extent);
  }

  CLI::App app_{"About it.", "espalier"};
  std::vector<Command> commands_;  // the options are theirs
};

TEST_F(HelpTest, EveryLineOfEveryCommandFitsEightyColumns) {
  std::vector<std::vector<std::string>> commands;
  const auto any = [](const CLI::App*) { return true; };
  for (const CLI::App* command : app_.get_subcommands(any)) {
    commands.push_back({command->get_name()});
    for (const CLI::App* inner : command->get_subcommands(any))
      commands.push_back({command->get_name(), inner->get_name()});
  }
  for (const auto& words : commands)
    for (const HelpExtent extent : {HelpExtent::usual, HelpExtent::all}) {
      std::istringstream lines(help(words, extent));
      for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
    }
}

TEST_F(HelpTest, ADozenOptionsAreShownAndAllOnRequest) {
  const std::string usual = help({"generate"}, HelpExtent::usual), all = help({"generate"}, HelpExtent::all);
  EXPECT_LE(std::count(usual.begin(), usual.end(), '\n'), 32);
  for (const char* flag : {"PROMPT", "-m, --model PATH", "--temperature", "--help-all"})
    EXPECT_THAT(usual, HasSubstr(flag));
  for (const char* flag : {"--logit-bias", "--reorder"}) {
    EXPECT_THAT(usual, Not(HasSubstr(flag)));
    EXPECT_THAT(all, HasSubstr(flag));
  }
}

TEST_F(HelpTest, EveryOptionIsInTheHelpOfAll) {
  const std::string all = help({"eval", "run"}, HelpExtent::all);
  for (const CLI::Option* option : app_.get_subcommand("eval")->get_subcommand("run")->get_options())
    EXPECT_THAT(all,
                HasSubstr(option->get_name(false, true).substr(0, option->get_name(false, true).find_first_of(",{"))));
}

TEST_F(HelpTest, OnlyTheServerOffersNoOracle) {
  EXPECT_THAT(help({"generate"}, HelpExtent::all), HasSubstr("--oracle-profile"));
  EXPECT_THAT(help({"generate"}, HelpExtent::all), HasSubstr("oracle, hostile"));
  EXPECT_THAT(help({"serve"}, HelpExtent::all), Not(HasSubstr("oracle")));
  EXPECT_THAT(help({"serve"}, HelpExtent::all), HasSubstr("hostile"));
}

TEST_F(HelpTest, ACommandThatCanDoWithoutACommandSaysSo) {
  EXPECT_THAT(help({"bench"}, HelpExtent::usual), HasSubstr("espalier bench [COMMAND] [OPTIONS]"));
  EXPECT_THAT(help({"eval"}, HelpExtent::usual), HasSubstr("espalier eval COMMAND [OPTIONS]"));
  EXPECT_THAT(help({"bench", "serve"}, HelpExtent::usual), HasSubstr("--against URL"));
  EXPECT_THAT(help({"serve"}, HelpExtent::usual), HasSubstr("--parallel N"));
}

TEST_F(HelpTest, ACommandWithCommandsListsThem) {
  EXPECT_THAT(help({"eval"}, HelpExtent::usual), HasSubstr("  report "));
  EXPECT_THAT(help({}, HelpExtent::usual), HasSubstr("  generate "));
}

}  // namespace
}  // namespace espalier
