#include "bench/load/load_prompts.h"

#include <gmock/gmock.h>

#include <set>

#include "base/untrusted_text.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

LoadPrompts made(const LoadPromptOptions& options) {
  return LoadPrompts(options, {.questions = {"Why?", "Where to?", "Who?"},
                               .readings = {"One pear tr\xc3\xa9"
                                            "e.",
                                            "Two apple trees and a wall."}});
}

TEST(LoadPrompts, AreTheSameForTheSameSeedAndOthersForAnother) {
  for (std::uint64_t number = 0; number < 20; ++number) {
    EXPECT_EQ(made({.seed = 3}).prompt(number).text, made({.seed = 3}).prompt(number).text);
    EXPECT_NE(made({.seed = 3}).prompt(number).text, made({.seed = 4}).prompt(number).text);
  }
}

TEST(LoadPrompts, NoTwoBeginAlikeAndNothingIsSharedUnlessWanted) {
  const LoadPrompts prompts = made({.seed = 1});
  std::set<std::string> beginnings;
  for (std::uint64_t number = 0; number < 100; ++number) {
    const LoadPrompt prompt = prompts.prompt(number);
    EXPECT_EQ(prompt.shared, "");
    beginnings.insert(prompt.text.substr(0, prompt.text.find(": ")));
  }
  EXPECT_EQ(beginnings.size(), 100u);
}

TEST(LoadPrompts, TwoServersAreAskedTheSameButForTheFirstWords) {
  const LoadPrompts prompts = made({.seed = 1});
  for (std::uint64_t number = 0; number < 20; ++number) {
    const std::string one = prompts.prompt(number, 0).text, two = prompts.prompt(number, 1).text;
    EXPECT_NE(one.substr(0, 5), two.substr(0, 5)) << "else a server would find the one for the other";
    EXPECT_EQ(one.substr(one.find(": ")), two.substr(two.find(": ")));
  }
}

TEST(LoadPrompts, ASharedPrefixIsTheSameForAll) {
  const LoadPrompts prompts = made({.shared_prefix = true, .seed = 1});
  EXPECT_GT(prompts.prompt(0).shared.size(), 3000u);
  EXPECT_EQ(prompts.prompt(0).shared, prompts.prompt(7).shared);
  EXPECT_NE(prompts.prompt(0).text, prompts.prompt(7).text);
}

TEST(LoadPrompts, LongOnesHaveTheirLengthAndAreNeverCutInsideACharacter) {
  const LoadPrompts prompts = made({.kind = "long"});
  EXPECT_GT(prompts.prompt(5).text.size(), 3900u);
  for (std::size_t characters = 0; characters < 200; ++characters) {
    const std::string text = prompts.long_prompt(2, characters).text;
    EXPECT_TRUE(is_utf8(text)) << text;
    EXPECT_THAT(text, StartsWith("No. 1-0-2: "));
    EXPECT_THAT(text, HasSubstr("\n\nWhat is the text above about?"));
  }
}

}  // namespace
}  // namespace espalier
