#include "eval/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "decode/sampler.h"
#include "eval/testing/tiny_setup.h"
#include "format/testing/complaint.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;

std::vector<TokenId> counting(std::size_t count) {
  std::vector<TokenId> ids(count);
  std::iota(ids.begin(), ids.end(), 10);
  return ids;
}

// What is counted, as places of the text; checks that a window has there what the text has.
std::vector<std::int64_t> counted_places(const std::vector<TextWindow>& windows, std::span<const TokenId> text) {
  std::vector<std::int64_t> places;
  for (const TextWindow& window : windows)
    for (std::size_t i = window.first_counted; i < window.tokens.size(); ++i) {
      places.push_back(window.place + static_cast<std::int64_t>(i));
      EXPECT_EQ(window.tokens[i], text[static_cast<std::size_t>(places.back())]);
    }
  return places;
}

TEST(TextWindows, EveryTokenCountsThatHasOneBeforeIt) {
  const auto text = counting(9);
  const auto windows = cut_windows(text, std::nullopt, {.window = 4});
  ASSERT_EQ(windows.size(), 2u) << "a single token is no window";
  EXPECT_THAT(windows[1].tokens, ElementsAre(14, 15, 16, 17));
  EXPECT_THAT(counted_places(windows, text), ElementsAre(1, 2, 3, 5, 6, 7));
}

TEST(TextWindows, BosStandsBeforeEachWindowSoThatEveryTokenCounts) {
  const auto text = counting(7);
  const auto windows = cut_windows(text, 1, {.window = 4});
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_THAT(windows[1].tokens, ElementsAre(1, 13, 14, 15));
  EXPECT_THAT(counted_places(windows, text), ElementsAre(0, 1, 2, 3, 4, 5, 6));
}

// llama.cpp, tools/perplexity: logits of positions n_ctx/2 to n_ctx - 2 of each whole window are looked at.
TEST(TextWindows, SecondHalvesAreThoseThatLlamaCppCounts) {
  const auto text = counting(21);
  const auto even = cut_windows(text, std::nullopt, {.window = 8, .second_half = true});
  EXPECT_THAT(even[1].tokens, ElementsAre(18, 19, 20, 21, 22, 23, 24, 25));
  EXPECT_THAT(counted_places(even, text), ElementsAre(5, 6, 7, 13, 14, 15)) << "the rest fills no window";
  const auto odd = cut_windows(text, std::nullopt, {.window = 7, .second_half = true});
  EXPECT_THAT(counted_places(odd, text), ElementsAre(4, 5, 6, 11, 12, 13, 18, 19, 20));
}

TEST(TextWindows, InSecondHalvesBosStandsBeforeTheTextAndThenInPlaceOfATokenAsInLlamaCpp) {
  const auto text = counting(15);
  const auto windows = cut_windows(text, 1, {.window = 8, .second_half = true});
  ASSERT_EQ(windows.size(), 2u) << "BOS fills the second";
  EXPECT_THAT(windows[0].tokens, ElementsAre(1, 10, 11, 12, 13, 14, 15, 16));
  EXPECT_THAT(windows[1].tokens, ElementsAre(1, 18, 19, 20, 21, 22, 23, 24)) << "the text's 17 gave way";
  EXPECT_THAT(counted_places(windows, text), ElementsAre(4, 5, 6, 12, 13, 14));
}

TEST(TextWindows, OfAWindowThatHasNoTokenToCountThereIsNone) {
  EXPECT_EQ(shortest_window({.second_half = true}), 3);
  EXPECT_THAT(counted_places(cut_windows(counting(3), std::nullopt, {.window = 3, .second_half = true}), counting(3)),
              ElementsAre(2));
  EXPECT_THROW(cut_windows(counting(3), std::nullopt, {.window = 2, .second_half = true}), std::logic_error);
}

TEST(ChosenWindows, FitTheContextAndHaveSomethingToCount) {
  EXPECT_EQ(chosen_windows({.window = 0}, 4096).window, 512);
  EXPECT_EQ(chosen_windows({.window = 0}, 100).window, 100);
  EXPECT_EQ(chosen_windows({.window = 3, .second_half = true}, 100).window, 3);
  EXPECT_EQ(complaint([] { chosen_windows({.window = 2, .second_half = true}, 100); }),
            "--window: expected 3 to the context of 100, got 2");
  EXPECT_EQ(complaint([] { chosen_windows({.window = 101}, 100); }),
            "--window: expected 2 to the context of 100, got 101");
}

class PerplexityTest : public TinySetupTest {
 protected:
  std::vector<TokenId> ids_ = text_.tokenizer->encode("a tree trained flat against a wall, a tree trained flat.");
};

TEST_F(PerplexityTest, ATextMustHaveAWindow) {
  const Tokenizer& tokenizer = *text_.tokenizer;
  const std::string text = "a tree trained flat against a wall";
  const auto length = std::ssize(tokenizer.encode(text)) + (tokenizer.add_bos() ? 1 : 0);
  EXPECT_EQ(text_windows(text, "f", tokenizer, {.window = length, .second_half = true}).size(), 1u);
  EXPECT_THAT(complaint([&] { text_windows(text, "f", tokenizer, {.window = length + 1, .second_half = true}); }),
              ::testing::StartsWith("f: expected at least "));
  EXPECT_EQ(complaint([&] { text_windows("", "f", tokenizer, {.window = 12}); }),
            "f: expected at least 2 tokens, got 0");
}

// The sums as llama.cpp forms them: of the numbers and of their squares.
TEST_F(PerplexityTest, MeanAndErrorAreThoseOfTheLogProbabilitiesThatAreTold) {
  for (const bool second_half : {false, true}) {
    const auto windows = cut_windows(ids_, text_.tokenizer->bos(), {.window = 12, .second_half = second_half});
    Batch decoder(model_, {.context = 12});
    Listener nobody;
    std::vector<CountedToken> told;
    const RunningMean surprise =
        measure_surprise(windows, decoder, nobody, [&](const CountedToken& token) { told.push_back(token); });
    double sum = 0, squares = 0;
    for (const CountedToken& token : told) {
      EXPECT_EQ(token.token, ids_[static_cast<std::size_t>(token.place)]);
      sum -= token.logprob;
      squares += token.logprob * token.logprob;
    }
    const auto count = static_cast<double>(told.size());
    const double mean = sum / count, error = std::sqrt((squares / count - mean * mean) / (count - 1));
    ASSERT_GT(told.size(), 4u);
    EXPECT_EQ(surprise.count(), std::ssize(told));
    EXPECT_NEAR(surprise.mean(), mean, 1e-12 * count);
    EXPECT_NEAR(surprise.standard_error(), error, 1e-10 * count);
  }
}

TEST_F(PerplexityTest, ATokenIsPredictedByItsOwnWindowAlone) {
  const auto windows = cut_windows(ids_, text_.tokenizer->bos(), {.window = 12, .second_half = true});
  ASSERT_GE(windows.size(), 2u);
  Batch decoder(model_, {.context = 12});
  Listener nobody;
  double last = 0;
  measure_surprise(windows, decoder, nobody, [&](const CountedToken& token) { last = token.logprob; });
  const std::vector<TokenId>& window = windows.back().tokens;
  Batch fresh(model_, {.context = 12});
  double expected = 0;
  fresh.score(window, [&](std::int64_t position, std::span<const float> logits) {
    if (position + 2 == std::ssize(window)) expected = logprobs(logits, window.back(), 0).chosen.logprob;
  });
  EXPECT_EQ(last, expected);
}

}  // namespace
}  // namespace espalier
