#include "decode/row_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <stdexcept>
#include <vector>

#include "decode/budget.h"

namespace espalier {
namespace {

double draw_between(std::mt19937& random, double low, double high) {
  return std::uniform_real_distribution(low, high)(random);
}

// Some rise, some are stairs, some are flat.
std::vector<double> random_step_seconds(std::mt19937& random, int rows) {
  const double slope = draw_between(random, 0.0, 0.4);
  const int stair = 1 + static_cast<int>(random() % 9);
  std::vector<double> seconds = {draw_between(random, 0.5, 2)};
  for (int n = 1; n < rows; ++n)
    seconds.push_back(seconds.back() + (n % stair == 0 ? draw_between(random, 0.0, slope) : 0.0));
  return seconds;
}

std::vector<GuessChance> random_guesses(std::mt19937& random, int count, int sequences) {
  std::vector<GuessChance> guesses;
  for (int i = 0; i < count; ++i)
    guesses.push_back({draw_between(random, 0.0, 1.0), static_cast<int>(random() % static_cast<unsigned>(sequences))});
  std::ranges::sort(guesses, std::greater<>(), &GuessChance::accepted);
  return guesses;
}

struct RandomOffer {
  std::vector<double> step_seconds;
  std::vector<GuessChance> guesses;
  StepOffer offer;
};

RandomOffer random_offer(std::mt19937& random, int roots, int prompt_rows) {
  RandomOffer drawn;
  drawn.step_seconds = random_step_seconds(random, roots + prompt_rows + static_cast<int>(random() % 40));
  drawn.guesses = random_guesses(random, static_cast<int>(random() % 50), roots);
  drawn.offer = {.step_seconds = drawn.step_seconds,
                 .draft_seconds = random() % 4 == 0 ? 0 : draw_between(random, 0.0, 3),
                 .roots = roots,
                 .prompt_rows = prompt_rows,
                 .affordable = static_cast<int>(drawn.step_seconds.size())};
  return drawn;
}

// The formulas of the header, word by word.
struct PlainStep {
  double rate;
  bool fair;
};
PlainStep plain_step(const RandomOffer& drawn, int guesses) {
  const StepOffer& offer = drawn.offer;
  const auto t = [&](int rows) { return drawn.step_seconds[static_cast<std::size_t>(rows - 1)]; };
  const int before = offer.roots + offer.prompt_rows;
  std::vector<double> tokens(static_cast<std::size_t>(offer.roots), 1.0);
  double all = offer.roots;
  for (int i = 0; i < guesses; ++i) {
    const GuessChance& guess = drawn.guesses[static_cast<std::size_t>(i)];
    tokens[static_cast<std::size_t>(guess.sequence)] += guess.accepted;
    all += guess.accepted;
  }
  const double d = offer.draft_seconds, step = t(before + guesses);
  const bool fair = std::ranges::all_of(
      tokens, [&](double own) { return own / (d + step) >= std::min(0.5 / t(before), 1 / (d + t(before))) - 1e-12; });
  return {all / (d + t(offer.roots) + step - t(before)), fair};
}

TEST(RowChoice, IsThatOfBestRowsForOneSequenceWithoutPrompts) {
  int drafted = 0, dear = 0;
  for (std::uint32_t seed = 0; seed < 10000; ++seed) {
    std::mt19937 random(seed);
    const RandomOffer drawn = random_offer(random, 1, 0);
    std::vector<double> accepted;
    for (const GuessChance& guess : drawn.guesses) accepted.push_back(guess.accepted);
    const RowChoice rows = best_rows(accepted, drawn.step_seconds, drawn.offer.draft_seconds);
    const GuessChoice choice = best_guesses(drawn.guesses, drawn.offer);
    ASSERT_EQ(choice.guesses, rows.rows - 1) << "seed " << seed;
    ASSERT_EQ(choice.rate, rows.rate) << "seed " << seed;
    drafted += choice.guesses > 0;
    dear += choice.guesses > 0 && choice.rate < 0.5 / drawn.step_seconds[0];
  }
  EXPECT_GT(drafted, 5000) << "some cases have something to choose";
  EXPECT_GT(dear, 50) << "some have paid more for drafting than half their speed: guesses still help them";
}

TEST(RowChoice, IsTheBestRateAmongStepsThatAreFairToEverybody) {
  int bound = 0;
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const int roots = 1 + static_cast<int>(random() % 6), prompt_rows = static_cast<int>(random() % 3) * 7;
    RandomOffer drawn = random_offer(random, roots, prompt_rows);
    drawn.offer.affordable = roots + static_cast<int>(random() % 60);
    const GuessChoice choice = best_guesses(drawn.guesses, drawn.offer);
    const int most = std::min(drawn.offer.affordable, static_cast<int>(drawn.step_seconds.size()));
    const int room = std::min(static_cast<int>(drawn.guesses.size()), most - roots - prompt_rows);
    ASSERT_LE(choice.guesses, std::max(0, room)) << "seed " << seed;
    ASSERT_TRUE(plain_step(drawn, choice.guesses).fair) << "seed " << seed;
    for (int guesses = 0; guesses <= room; ++guesses) {
      const PlainStep step = plain_step(drawn, guesses);
      ASSERT_TRUE(!step.fair || step.rate <= choice.rate + 1e-9) << "seed " << seed << ", " << guesses << " guesses";
      bound += !step.fair && step.rate > choice.rate + 1e-9;
    }
  }
  EXPECT_GT(bound, 100) << "fairness has decided some cases";
}

TEST(RowChoice, TheFloorNeverBindsForASequenceAlone) {
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const RandomOffer drawn = random_offer(random, 1, static_cast<int>(random() % 20));
    const GuessChoice choice = best_guesses(drawn.guesses, drawn.offer);
    const auto room = static_cast<int>(drawn.step_seconds.size()) - 1 - drawn.offer.prompt_rows;
    for (int guesses = 0; guesses <= std::min(static_cast<int>(drawn.guesses.size()), room); ++guesses)
      ASSERT_LE(plain_step(drawn, guesses).rate, choice.rate + 1e-9) << "seed " << seed;
  }
}

TEST(RowChoice, NobodyPaysMoreThanHalfHisSpeedForGuessesOfOthers) {
  // A row costs 0.3 of a step. Nine sure guesses of the first sequence pay for the batch, but the second gets nothing.
  std::vector<double> seconds;
  for (int n = 0; n < 16; ++n) seconds.push_back(1 + 0.3 * n);
  const std::vector<GuessChance> guesses(9, {.accepted = 1, .sequence = 0});
  const StepOffer offer{.step_seconds = seconds, .roots = 2, .affordable = 16};
  const GuessChoice choice = best_guesses(guesses, offer);
  EXPECT_EQ(choice.guesses, 4) << "1 / t(2 + 4) is still half of 1 / t(2), 1 / t(2 + 5) is not";
}

TEST(RowChoice, GuessesPayOnlyForWhatTheyAddToAStepThatPromptsHaveMadeLong) {
  // The first rows are dear, those behind 8 cost next to nothing.
  std::vector<double> seconds;
  for (int n = 0; n < 32; ++n) seconds.push_back(n < 8 ? 1.0 + n : 8 + 0.01 * (n - 7));
  const std::vector<GuessChance> guesses(4, {.accepted = 0.5, .sequence = 0});
  EXPECT_EQ(best_guesses(guesses, {.step_seconds = seconds, .roots = 1, .affordable = 32}).guesses, 0);
  EXPECT_EQ(best_guesses(guesses, {.step_seconds = seconds, .roots = 1, .prompt_rows = 8, .affordable = 32}).guesses,
            4);
}

TEST(RowChoice, TreesShrinkToRootsAsTheBatchGrows) {
  // Eight rows are as fast as one; behind them every row costs a share of its own.
  std::vector<double> seconds;
  for (int n = 1; n <= 128; ++n) seconds.push_back(std::max(1.0, n / 8.0));
  int last = 128;
  for (int roots : {1, 2, 4, 8, 16}) {
    std::vector<GuessChance> guesses;
    for (double p : {0.8, 0.6, 0.5, 0.4, 0.3, 0.2})
      for (int sequence = 0; sequence < roots; ++sequence) guesses.push_back({p, sequence});
    const int each =
        best_guesses(guesses, {.step_seconds = seconds, .roots = roots, .affordable = 128}).guesses / roots;
    EXPECT_LE(each, last);
    last = each;
  }
  EXPECT_EQ(last, 0);
}

TEST(RowChoice, GuessesThatWouldBePaddingAreTaken) {
  const std::vector<double> seconds = {1, 1, 1, 1, 9, 9, 9, 9};  // buckets of 4 rows
  const std::vector<GuessChance> guesses = {{0.01, 0}, {0.01, 1}, {0.01, 0}, {0, 1}};
  EXPECT_EQ(best_guesses(guesses, {.step_seconds = seconds, .roots = 2, .affordable = 8}).guesses, 2);
  EXPECT_EQ(best_guesses(guesses, {.step_seconds = seconds, .roots = 2, .prompt_rows = 3, .affordable = 8}).guesses, 3);
}

TEST(RowChoice, HasNoRoomWhereRootsAndPromptsFillTheStep) {
  const std::vector<double> seconds = {1, 1, 1, 1};
  const std::vector<GuessChance> guesses = {{0.9, 0}};
  EXPECT_EQ(best_guesses(guesses, {.step_seconds = seconds, .roots = 4, .affordable = 4}).guesses, 0);
  EXPECT_EQ(best_guesses(guesses, {.step_seconds = seconds, .roots = 9, .affordable = 4}).guesses, 0);
  EXPECT_EQ(best_guesses(guesses, {.step_seconds = seconds, .roots = 1, .prompt_rows = 5, .affordable = 4}).guesses, 0);
  EXPECT_EQ(best_guesses({}, {.step_seconds = seconds, .roots = 0, .prompt_rows = 2, .affordable = 4}).guesses, 0);
}

TEST(RowChoice, RefusesGuessesOfSequencesThatAreNotInTheStep) {
  const std::vector<double> seconds = {1, 1, 1};
  const std::vector<GuessChance> guesses = {{0.9, 1}};
  EXPECT_THROW(best_guesses(guesses, {.step_seconds = seconds, .roots = 1, .affordable = 3}), std::logic_error);
}

}  // namespace
}  // namespace espalier
