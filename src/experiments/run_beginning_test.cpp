#include "experiments/run_beginning.h"

#include <gmock/gmock.h>

#include "format/testing/complaint.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RunBeginningTest : public ::testing::Test {
 protected:
  std::string refusal(std::string_view manifest) const {
    folder_.write("manifest.json", manifest);
    return complaint([&] { read_beginning(folder_.path()); });
  }
  TemporaryFolder folder_;
};

TEST_F(RunBeginningTest, IsInTheManifestOfARunOrInTheFileOfASuite) {
  folder_.write("suite.json", R"({"command": ["espalier", "eval", "run", "--suite", "paper"]})");
  EXPECT_THAT(read_beginning(folder_.path()).words, ElementsAre("eval", "run", "--suite", "paper"));
  EXPECT_EQ(read_beginning(folder_.path()).directory, "");
  folder_.write("manifest.json", R"({"command": ["espalier", "eval", "run", "-n", "8"], "directory": "/there"})");
  EXPECT_THAT(read_beginning(folder_.path()).words, ElementsAre("eval", "run", "-n", "8"));
  EXPECT_EQ(read_beginning(folder_.path()).directory, "/there");
}

TEST_F(RunBeginningTest, ThatIsNoneIsRefused) {
  EXPECT_THAT(complaint([&] { read_beginning(folder_.path()); }), HasSubstr("neither manifest.json nor suite.json"));
  EXPECT_THAT(refusal("{}"), HasSubstr("manifest.json: \"command\" is missing"));
  EXPECT_THAT(refusal(R"({"command": "eval"})"), HasSubstr("manifest.json: command: expected"));
  EXPECT_THAT(refusal(R"({"command": ["espalier", 7, "run"]})"), HasSubstr("command[1]: expected"));
  EXPECT_THAT(refusal(R"({"command": ["espalier", "eval", "run"], "directory": 7})"), HasSubstr("directory: expected"));
  for (const char* command : {"[]", R"(["espalier", "eval"])", R"(["espalier", "eval", "report"])"})
    EXPECT_THAT(refusal(std::string(R"({"command": )") + command + "}"), HasSubstr("the command is none of eval run"));
}

TEST(WordsToResume, AreThoseOfTheBeginningAndBehindThemThoseOfNow) {
  const RunBeginning beginning{.words = {"eval", "run", "-n", "8"}};
  EXPECT_THAT(words_to_resume(beginning, {"espalier", "eval", "run", "--resume", "-o", "x"}, "/x"),
              ElementsAre("eval", "run", "-n", "8", "--resume", "-o", "x", "-o", "/x"));
  EXPECT_THAT(words_to_resume(beginning, {}, "/x"), ElementsAre("eval", "run", "-n", "8", "-o", "/x"));
}

TEST(WordsToResume, LetCodeRunUnconfinedOnlyWhereThatIsSaidOnceMore) {
  const std::string unconfined = "--execute-model-code=unconfined";
  const RunBeginning beginning{.words = {"eval", "run", "--suite", "paper", unconfined}};
  EXPECT_THAT(complaint([&] {
                words_to_resume(beginning, {"espalier", "eval", "run", "--execute-model-code"}, "x");
              }),
              HasSubstr("expected " + unconfined + " once more"));
  EXPECT_EQ(words_to_resume(beginning, {"espalier", "eval", "run", unconfined}, "x").size(), 8u);
}

}  // namespace
}  // namespace espalier
