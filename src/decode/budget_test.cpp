#include "decode/budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "decode/company_drafting.h"
#include "decode/patience.h"
#include "decode/row_choice.h"
#include "decode/testing/linear_times.h"

namespace espalier {
namespace {

Candidates random_candidates(std::mt19937& random, int count) {
  Candidates candidates(7);
  for (int i = 1; i < count; ++i) {
    const int parent = static_cast<int>(random() % static_cast<std::uint32_t>(candidates.size()));
    const double q = std::uniform_real_distribution(0.02, 0.9)(random);
    candidates.add(parent, {.token = i, .score = candidates[parent].score + std::log(q), .sources = 1});
  }
  return candidates;
}

// --- the choice itself

TEST(BestRows, EqualsTryingEveryTree) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const Candidates candidates = random_candidates(random, 2 + static_cast<int>(random() % 10));
    AcceptanceEstimate estimate;
    estimate.extend(candidates, Calibration());
    std::vector<double> times;
    for (int n = 0; n < candidates.size(); ++n)
      times.push_back((times.empty() ? 1 : times.back()) + std::uniform_real_distribution(0.0, 0.5)(random));
    const double draft = std::uniform_real_distribution(0.0, 1.0)(random);

    double best = 0;
    for (unsigned subset = 0; subset < 1u << (candidates.size() - 1); ++subset) {
      const auto has = [&](int id) { return id == 0 || (subset >> (id - 1) & 1) != 0; };
      double tokens = 1;
      std::size_t rows = 1;
      bool closed = true;
      for (int id = 1; id < candidates.size(); ++id) {
        if (!has(id)) continue;
        closed = closed && has(candidates[id].parent);
        tokens += estimate[id];
        ++rows;
      }
      if (closed) best = std::max(best, tokens / (draft + times[rows - 1]));
    }
    std::vector<double> accepted;
    for (int id = 1; id < candidates.size(); ++id) accepted.push_back(estimate[id]);
    std::ranges::sort(accepted, std::greater<>());
    EXPECT_NEAR(best_rows(accepted, times, draft).rate, best, 1e-12) << "seed " << seed;
  }
}

TEST(BestRows, IsPlainDecodingWithoutGuessesOrWithDearRows) {
  EXPECT_EQ(best_rows({}, line_times(0.1, 64), 0).rows, 1);
  EXPECT_EQ(best_rows(std::vector{0.9, 0.9, 0.9}, line_times(1, 64), 0).rows, 1) << "a row costs a whole step";
  EXPECT_EQ(best_rows(std::vector{0.0, 0.0}, line_times(0, 64), 0).rows, 1) << "the fewest among equals";
}

TEST(BestRows, TakesEverythingThatIsFree) {
  EXPECT_EQ(best_rows(std::vector(40, 0.01), line_times(0, 64), 0).rows, 41);
  EXPECT_EQ(best_rows(std::vector(90, 0.01), line_times(0, 64), 0).rows, 64) << "no more than a step holds";
}

TEST(BestRows, FallsWithTheCostOfARowAndRisesWithWhatWasSpentOnDrafting) {
  std::vector<double> accepted;
  for (int i = 1; i <= 40; ++i) accepted.push_back(std::pow(0.85, i));
  int before = 64;
  for (double slope : {0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0}) {
    const int rows = best_rows(accepted, line_times(slope, 64), 0).rows;
    EXPECT_LE(rows, before) << slope;
    before = rows;
  }
  before = 0;
  for (double draft : {0.0, 0.1, 0.5, 1.0, 3.0}) {
    const int rows = best_rows(accepted, line_times(0.1, 64), draft).rows;
    EXPECT_GE(rows, before) << draft;
    before = rows;
  }
}

TEST(BestRows, FillsABucketThatIsPaidFor) {
  std::vector<double> times(8, 1.5);
  times[0] = 1;
  EXPECT_EQ(best_rows(std::vector(20, 0.2), times, 0).rows, 8);
}

TEST(BestRows, OfSeveralSequencesCountATokenForEachRoot) {
  const std::vector<double> times = line_times(0.1, 64);
  const RowChoice choice = best_rows({}, times, 0, 4);
  EXPECT_EQ(choice.rows, 4);
  EXPECT_DOUBLE_EQ(choice.rate, 4 / 1.3);
  EXPECT_EQ(best_rows({}, std::vector{1.0, 1.1}, 0, 4).rows, 4) << "roots are never dropped";
}

TEST(BestRows, PayForWhatTheyAddToAStepThatHasPromptRowsAnyway) {
  std::vector<double> times(64, 1.0);  // steep up to sixteen rows, flat behind
  for (std::size_t i = 0; i < 16; ++i) times[i] = static_cast<double>(i + 1) / 16;
  const std::vector<double> accepted(8, 0.1);
  EXPECT_EQ(best_rows(accepted, times, 0).rows, 1);
  EXPECT_EQ(best_rows(accepted, times, 0, 1, 20).rows, 9) << "beside a prompt they cost nothing";
  EXPECT_DOUBLE_EQ(best_rows(accepted, times, 0, 1, 20).rate, 1.8 * 16);
  EXPECT_EQ(best_rows(accepted, times, 0, 1, 60).rows, 4) << "no more than a step holds";
  EXPECT_EQ(best_rows(accepted, times, 0, 1, 80).rows, 1);
}

// --- cutting

TEST(Budget, NeverCutsANodeFromItsChildren) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Budget budget(linear_times(0.02), {.rows = 64});
    budget.begin_round({.roots = 2, .context = 100});
    const Candidates first = random_candidates(random, 60), second = random_candidates(random, 30);
    const std::vector<DraftOfSequence> drafts = {{&first, 1 + static_cast<int>(random() % 40)}, {&second, 64}};
    const std::vector<TokenTree> trees = budget.cut(drafts, 0);
    ASSERT_EQ(trees.size(), 2u);
    EXPECT_LE(trees[0].size(), drafts[0].room);
    EXPECT_LE(trees[0].size() + trees[1].size(), 64);
    // A token tree holds parents before children or cannot be made at all; here: the paths are those of the candidates.
    for (std::size_t sequence = 0; sequence < 2; ++sequence)
      for (int node = 1; node < trees[sequence].size(); ++node) {
        int id = 0;
        for (int step : trees[sequence].path(node))
          if (step != 0) id = drafts[sequence].candidates->find(id, trees[sequence][step].token);
        EXPECT_NE(id, 0) << "seed " << seed;
        EXPECT_LE(trees[sequence][node].score, trees[sequence][trees[sequence][node].parent].score);
      }
  }
}

TEST(Budget, GivesRowsToTheSequenceWithTheBetterGuesses) {
  Candidates good(1), poor(2);
  int above_good = 0, above_poor = 0;
  for (int i = 0; i < 10; ++i) {
    above_good = good.add(above_good, {.token = i, .score = 0.1 * (i + 1) * std::log(0.5), .sources = 1});
    above_poor = poor.add(above_poor, {.token = i, .score = (i + 1) * std::log(0.1), .sources = 1});
  }
  Budget budget(linear_times(0.15), {.rows = 64});
  budget.begin_round(winning(2));
  const auto trees = budget.cut(std::vector<DraftOfSequence>{{&good, 64}, {&poor, 64}}, 0);
  EXPECT_GT(trees[0].size(), 4);
  EXPECT_EQ(trees[1].size(), 1);
}

TEST(Budget, RespectsTheBucketsOfADevice) {
  Candidates many(1);
  for (int i = 0; i < 40; ++i) many.add(0, {.token = i, .score = std::log(0.024), .sources = 1});
  Budget budget({.rows = {1, 16, 64}, .contexts = {64}, .seconds = {1, 1.01, 4}}, {.rows = 64, .buckets = {1, 16, 64}});
  budget.begin_round({.context = 100});
  EXPECT_EQ(budget.cut(std::vector<DraftOfSequence>{{&many, 64}}, 0)[0].size(), 16)
      << "a full bucket, not one row more";
}

// A chain of so many guesses, each taken with probability q.
Candidates sure_chain(int guesses, double q) {
  Candidates sure(1);
  int above = 0;
  for (int i = 1; i <= guesses; ++i) above = sure.add(above, {.token = i, .score = i * std::log(q), .sources = 1});
  return sure;
}

TEST(Budget, RisksLittleUntilDraftsHaveWon) {
  const Candidates sure = sure_chain(12, 0.95);
  const std::vector<DraftOfSequence> drafts = {{&sure, 64}};
  Budget budget(linear_times(0.1), {.rows = 64});
  Patience patience;
  const auto rows = [&] {
    budget.begin_round({.context = 100, .wins = patience.wins()});
    return budget.cut(drafts, 0)[0].size();
  };
  EXPECT_EQ(rows(), 3) << "a quarter of a step beyond the root";
  patience.settle(2, budget.plain_seconds(), budget.plain_seconds());
  EXPECT_GT(rows(), 6);
  patience.settle(1, budget.plain_seconds() + budget.added_seconds(1, 24, 1, 0), budget.plain_seconds());
  EXPECT_EQ(rows(), 3) << "it was lost again";
  Budget dear(linear_times(0.6), {.rows = 64});
  dear.begin_round({.context = 100});
  EXPECT_EQ(dear.cut(drafts, 0)[0].size(), 2) << "one guess at least, or nothing could ever be won";
}

TEST(Budget, GuessesDoNotPayForThePromptRowsOfTheirStepButShareItsRoom) {
  const Candidates sure = sure_chain(30, 0.95);
  const std::vector<DraftOfSequence> drafts = {{&sure, 64}};
  Budget budget(linear_times(0.2), {.rows = 64});
  const auto rows = [&](int prompt_rows) {
    budget.begin_round({.prompt_rows = prompt_rows, .context = 100, .wins = true});
    return budget.cut(drafts, 0)[0].size();
  };
  const int alone = rows(0);
  EXPECT_GT(alone, 6);
  EXPECT_LT(alone, 24);
  EXPECT_EQ(rows(10), alone) << "every further row costs the same";
  EXPECT_EQ(rows(40), alone);
  EXPECT_EQ(rows(60), 4) << "root and guesses have what the prompts leave of 64";
  EXPECT_EQ(rows(63), 1);
  EXPECT_EQ(rows(100), 1) << "the rows of the round may exceed a step";
}

TEST(Budget, RiskedIsAShareOfAStepWithItsPromptRows) {
  const Candidates sure = sure_chain(12, 0.95);
  const std::vector<DraftOfSequence> drafts = {{&sure, 64}};
  Budget budget(linear_times(0.1), {.rows = 64});
  budget.begin_round({.prompt_rows = 20, .context = 100});
  EXPECT_EQ(budget.cut(drafts, 0)[0].size(), 8) << "a quarter of 3 s is 7 rows";
}

TEST(Budget, ASequenceAnswersForItsOwnGuessesAndItsDrafting) {
  Budget budget(linear_times(0.1), {.rows = 64});
  budget.begin_round({.roots = 2, .context = 100});
  EXPECT_DOUBLE_EQ(budget.plain_seconds(), 1.1) << "a step of the roots";
  EXPECT_DOUBLE_EQ(budget.added_seconds(0, 2, 1, 0), 0);
  EXPECT_DOUBLE_EQ(budget.added_seconds(0, 2, 1, 0.25), 0.25);
  EXPECT_DOUBLE_EQ(budget.added_seconds(0, 2, 2, 0.25), 0.125) << "two drafted";
  EXPECT_DOUBLE_EQ(budget.added_seconds(1, 6, 1, 0.25), 0.25 + 0.4) << "all guesses are its own";
  EXPECT_DOUBLE_EQ(budget.added_seconds(3.0 / 8, 10, 2, 0), 0.3);
  EXPECT_DOUBLE_EQ(budget.added_seconds(5.0 / 8, 10, 2, 0), 0.5);
  EXPECT_DOUBLE_EQ(budget.added_seconds(0, 10, 2, 0), 0) << "nobody pays for the guesses of others";
}

TEST(Budget, DraftingThatSomethingDelayedCountsForLittle) {
  Budget budget(linear_times(0.1), {.rows = 64});
  budget.begin_round({.context = 100});
  const auto added = [&](std::int64_t drafting, double seconds) {
    return budget.added_seconds(0, 1, drafting, seconds);
  };
  EXPECT_DOUBLE_EQ(added(1, 6), 0.4) << "nobody knows yet what is usual: a tenth of a step";
  for (int i = 0; i < 50; ++i) budget.observe_drafting(1, 0.5);
  EXPECT_NEAR(added(1, 1), 1, 1e-9);
  EXPECT_NEAR(added(1, 6), 2, 0.01);
  budget.observe_drafting(1, 1000);
  EXPECT_LT(added(1, 6), 3) << "nor does it become the usual";
  EXPECT_DOUBLE_EQ(added(8, 8), 0.4 / 8) << "what is usual alone says nothing of many";
}

// What is settled of all who draft, and the rate of the whole step, must say the same.
TEST(Budget, DraftingPaysForACompanyWhereItPaysForTheStep) {
  int pays = 0, loses = 0;
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const auto uniform = [&](double low, double high) { return std::uniform_real_distribution(low, high)(random); };
    Budget budget(linear_times(uniform(0.01, 0.5)), {.rows = 512});
    const int roots = 1 + static_cast<int>(random() % 16), rows = 1 + static_cast<int>(random() % 8);
    budget.begin_round({.roots = roots, .context = 100});
    const double draft = uniform(0, 0.3);
    const auto accepted = static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(2 * roots + 1));
    const double step = seconds_of_rows(budget.step_seconds(), roots * rows), plain = budget.plain_seconds();
    const double gain = static_cast<double>(roots + accepted) / (draft + step) - roots / plain;
    if (std::abs(gain) < 1e-9) continue;
    CompanyDrafting company;
    company.settle({.accepted = accepted,
                    .seconds = budget.added_seconds(1, roots * rows, 1, draft),
                    .plain_seconds = plain,
                    .answers = roots});
    ASSERT_EQ(company.wins(), gain > 0) << "seed " << seed;
    ++(gain > 0 ? pays : loses);
  }
  EXPECT_GT(pays, 100);
  EXPECT_GT(loses, 100);
}

TEST(Budget, StopsGuessingWhatTheTeacherNeverTakes) {
  Budget budget(linear_times(0.1), {.rows = 64});
  Candidates sure(1);
  for (int i = 0; i < 4; ++i) sure.add(0, {.token = i, .score = std::log(0.24), .sources = 1});
  const std::vector<DraftOfSequence> drafts = {{&sure, 64}};
  budget.begin_round(winning());
  EXPECT_EQ(budget.cut(drafts, 0)[0].size(), 5);
  for (int i = 0; i < 30; ++i) budget.learn(sure, std::vector<Visit>{{.node = 0, .token = 99}});
  budget.begin_round(winning());
  EXPECT_EQ(budget.cut(drafts, 0)[0].size(), 1);
  for (int i = 0; i < 200; ++i) budget.learn(sure, std::vector<Visit>{{.node = 0, .token = i % 4}});
  budget.begin_round(winning());
  EXPECT_EQ(budget.cut(drafts, 0)[0].size(), 5) << "plain rounds teach as well";
}

// Guesses of a round whose best is believed to be taken with this chance.
Candidates first_guess(double chance) {
  Candidates one(1);
  one.add(0, {.token = 5, .score = std::log(chance), .sources = 1});
  return one;
}

TEST(Budget, ProspectsAreThoseOfWhatGuessesWereLatelyWorth) {
  Budget budget(linear_times(0.2), {.rows = 64});
  const double usual = budget.prospects(16).gain;
  EXPECT_GT(budget.prospects(2).gain, usual + 0.05);
  for (int i = 0; i < 200; ++i) budget.appraise(first_guess(0.97), 1, 1);
  EXPECT_GT(budget.prospects(16).gain, usual + 0.05);
  for (int i = 0; i < 200; ++i) budget.appraise(Candidates(1), 1, 1);
  EXPECT_LE(budget.prospects(2).gain, 1) << "roots without guesses are worth nothing";
  EXPECT_GT(budget.prospects(2).hope, 1.05) << "good ones would be";
}

TEST(Budget, LookupsAloneDoNotSayWhatANetworkIsWorth) {
  Budget budget(linear_times(0.2), {.rows = 64, .drafters = 2, .networks = 0b10});
  const double usual = budget.worth().mean();
  for (int i = 0; i < 50; ++i) budget.appraise(Candidates(1), 0b01, 1);
  EXPECT_EQ(budget.worth().mean(), usual);
  for (int i = 0; i < 50; ++i) budget.appraise(Candidates(1), 0b11, 1);
  EXPECT_LT(budget.worth().mean(), usual);
}

TEST(Budget, ThereIsNoHopeWhereNotEvenGoodGuessesWouldPay) {
  const auto hope = [](double slope, int roots) {
    return Budget(linear_times(slope), {.rows = 64}).prospects(roots).hope;
  };
  EXPECT_GT(hope(0.02, 1), 1);
  EXPECT_GT(hope(0.02, 16), 1);
  EXPECT_GT(hope(0.5, 1), 1);
  EXPECT_LE(hope(0.5, 8), 1) << "8 of 4.5, and 8.8 of 5";
  EXPECT_LE(hope(0.9, 1), 1) << "1 of 1, and 1.8 of 1.9";
  EXPECT_LE(hope(0.02, 64), 1) << "there is no room";
  const Budget with_head(linear_times(0.12), {.rows = 64, .networks = 1});
  EXPECT_GT(hope(0.12, 20), 1) << "20 of 3.28, and 36 of 5.68";
  EXPECT_LT(with_head.prospects(20).hope, 1) << "36 of 6.01 and more";
}

TEST(Budget, APassIsTakenForTheShareOfAStepThatItLatelyWas) {
  Budget budget(linear_times(0.1), {.rows = 64, .networks = 1});
  budget.begin_round(winning(2));
  double now = 0, pass = 0;
  const SecondsClock clock = [&] { return now += pass / 2; };
  const Candidates root(1);
  const std::vector<int> nodes = {0};
  const Frontier frontier{0, &root, nodes};
  const auto draft = [&](double seconds, std::int64_t first_rows) {
    pass = seconds * 2;  // the clock is looked at when it begins and when it has ended
    LevelBudget levels(budget, clock, first_rows);
    levels.begin(0);
    ASSERT_TRUE(levels.buys(std::span(&frontier, 1)));
    levels.bought(std::span(&frontier, 1));
  };
  const double usual = budget.prospects(8).gain;
  for (int i = 0; i < 50; ++i) draft(0.1 * 1.9, 10);
  EXPECT_NEAR(budget.prospects(8).gain, usual, 1e-9) << "a tenth of a step of as many rows";
  for (int i = 0; i < 50; ++i) draft(0.3 * 1.9, 10);
  EXPECT_LT(budget.prospects(8).gain, usual - 0.05);
}

}  // namespace
}  // namespace espalier
