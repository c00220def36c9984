#include "eval/perplexity_report.h"

#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

TEST(PerplexityReport, IsTheExponentialOfTheMeanWithItsError) {
  RunningMean surprise;
  surprise.add(0);
  surprise.add(0);
  EXPECT_EQ(perplexity_text(surprise, {.window = 7}), "perplexity 1.0000 +- 0.0000 over 2 tokens, windows of 7\n");
  surprise.add(3);
  const Perplexity found = perplexity_of(surprise);
  EXPECT_NEAR(found.value, 2.718281828, 1e-8);
  EXPECT_NEAR(found.standard_error, found.value, 1e-12) << "the mean is 1 +- 1";
  EXPECT_EQ(perplexity_text(surprise, {.window = 7, .second_half = true}),
            "perplexity 2.7183 +- 2.7183 over 3 tokens, second halves of windows of 7\n");
}

TEST(PerplexityReport, TheFileHasALineForEachToken) {
  const TemporaryFolder folder;
  LogprobFile file(folder / "logprobs", Existing::refuse);
  std::string expected;
  for (int i = 0; i < 10'000; ++i) {
    file.add({i, 7, -0.5});
    expected += std::to_string(i) + "\t7\t-0.5\n";
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "logprobs")) << "it is there whole or not at all";
  file.finish();
  EXPECT_EQ(read_text_file(folder / "logprobs"), expected);
}

}  // namespace
}  // namespace espalier
