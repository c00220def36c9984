#include "decode/budget.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "decode/accept.h"
#include "decode/hostile_drafter.h"
#include "decode/testing/linear_times.h"

namespace espalier {
namespace {

std::vector<double> line_times(double slope, int rows) {
  std::vector<double> times;
  for (int n = 0; n < rows; ++n) times.push_back(1 + slope * n);
  return times;
}

Candidates random_candidates(std::mt19937& random, int count) {
  Candidates candidates(7);
  for (int i = 1; i < count; ++i) {
    const int parent = static_cast<int>(random() % static_cast<std::uint32_t>(candidates.size()));
    const double q = std::uniform_real_distribution(0.02, 0.9)(random);
    candidates.add(parent, {.token = i, .score = candidates[parent].score + std::log(q), .sources = 1});
  }
  return candidates;
}

// The drafters of the budget have brought a token for nothing: from now on it trusts them with any tree.
void let_win(Budget& budget, int roots = 1) {
  budget.begin_round(roots, 100);
  budget.end_round(roots, 2 * roots, 0);
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

// --- cutting

TEST(Budget, NeverCutsANodeFromItsChildren) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Budget budget(linear_times(0.02), {.rows = 64});
    budget.begin_round(2, 100);
    const Candidates first = random_candidates(random, 60), second = random_candidates(random, 30);
    const std::vector<DraftOfLane> drafts = {{&first, 1 + static_cast<int>(random() % 40)}, {&second, 64}};
    const std::vector<TokenTree> trees = budget.cut(drafts, 0);
    ASSERT_EQ(trees.size(), 2u);
    EXPECT_LE(trees[0].size(), drafts[0].room);
    EXPECT_LE(trees[0].size() + trees[1].size(), 64);
    // A token tree holds parents before children or cannot be made at all; here: the paths are those of the candidates.
    for (std::size_t lane = 0; lane < 2; ++lane)
      for (int node = 1; node < trees[lane].size(); ++node) {
        int id = 0;
        for (int step : trees[lane].path(node))
          if (step != 0) id = drafts[lane].candidates->find(id, trees[lane][step].token);
        EXPECT_NE(id, 0) << "seed " << seed;
        EXPECT_LE(trees[lane][node].score, trees[lane][trees[lane][node].parent].score);
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
  let_win(budget, 2);
  budget.begin_round(2, 100);
  const auto trees = budget.cut(std::vector<DraftOfLane>{{&good, 64}, {&poor, 64}}, 0);
  EXPECT_GT(trees[0].size(), 4);
  EXPECT_EQ(trees[1].size(), 1);
}

TEST(Budget, RespectsTheBucketsOfADevice) {
  Candidates many(1);
  for (int i = 0; i < 40; ++i) many.add(0, {.token = i, .score = std::log(0.024), .sources = 1});
  Budget budget({.rows = {1, 16, 64}, .contexts = {64}, .seconds = {1, 1.01, 4}}, {.rows = 64, .buckets = {1, 16, 64}});
  budget.begin_round(1, 100);
  EXPECT_EQ(budget.cut(std::vector<DraftOfLane>{{&many, 64}}, 0)[0].size(), 16) << "a full bucket, not one row more";
}

TEST(Budget, RisksLittleUntilDraftsHaveWon) {
  Candidates sure(1);
  int above = 0;
  for (int i = 1; i <= 12; ++i) above = sure.add(above, {.token = i, .score = i * std::log(0.95), .sources = 1});
  const std::vector<DraftOfLane> drafts = {{&sure, 64}};
  Budget budget(linear_times(0.1), {.rows = 64});
  const auto rows = [&] {
    budget.begin_round(1, 100);
    return budget.cut(drafts, 0)[0].size();
  };
  EXPECT_EQ(rows(), 3) << "a quarter of a step beyond the root";
  let_win(budget);
  EXPECT_GT(rows(), 6);
  budget.end_round(24, 1, 0);
  EXPECT_EQ(rows(), 3) << "it was lost again";
  Budget dear(linear_times(0.6), {.rows = 64});
  dear.begin_round(1, 100);
  EXPECT_EQ(dear.cut(drafts, 0)[0].size(), 2) << "one guess at least, or nothing could ever be won";
}

TEST(Budget, StopsGuessingWhatTheTeacherNeverTakes) {
  Budget budget(linear_times(0.1), {.rows = 64});
  let_win(budget);
  Candidates sure(1);
  for (int i = 0; i < 4; ++i) sure.add(0, {.token = i, .score = std::log(0.24), .sources = 1});
  const std::vector<DraftOfLane> drafts = {{&sure, 64}};
  budget.begin_round(1, 100);
  EXPECT_EQ(budget.cut(drafts, 0)[0].size(), 5);
  for (int i = 0; i < 30; ++i) budget.learn(sure, std::vector<Visit>{{.node = 0, .token = 99}});
  budget.begin_round(1, 100);
  EXPECT_EQ(budget.cut(drafts, 0)[0].size(), 1);
  for (int i = 0; i < 200; ++i) budget.learn(sure, std::vector<Visit>{{.node = 0, .token = i % 4}});
  budget.begin_round(1, 100);
  EXPECT_EQ(budget.cut(drafts, 0)[0].size(), 5) << "plain rounds teach as well";
}

// --- whether to draft at all

// The share of rounds in which a drafter of these rounds is asked.
double asked(Patience& patience, int rounds, double tokens, double seconds) {
  int count = 0;
  for (int i = 0; i < rounds; ++i) {
    if (!patience.drafts()) continue;
    ++count;
    patience.settle(tokens, seconds, 1.0);
  }
  return static_cast<double>(count) / rounds;
}

TEST(Patience, DraftsAlwaysWhileThatWins) {
  Patience patience;
  EXPECT_EQ(asked(patience, 1000, 2, 1.5), 1.0);
  EXPECT_EQ(patience.pause(), 0);
}

TEST(Patience, ProbesEverMoreRarelyWhileThatLoses) {
  Patience patience;
  std::vector<std::int64_t> pauses;
  for (int i = 0; i < 8; ++i) {
    while (!patience.drafts()) {
    }
    patience.settle(1, 1.5, 1.0);
    pauses.push_back(patience.pause());
  }
  EXPECT_EQ(pauses, (std::vector<std::int64_t>{1, 3, 7, 15, 31, 50, 50, 50})) << "a half step in 50 is one percent";
}

TEST(Patience, KeepsWhatIsLostByProbesNearOnePercent) {
  for (double draft : {0.001, 0.02, 0.1, 0.5, 1.0}) {
    Patience patience;
    asked(patience, 1000, 1, 1 + draft);
    EXPECT_LE(asked(patience, 10000, 1, 1 + draft) * draft, 0.0111) << draft;
  }
}

TEST(Patience, AProbeThatCostsNothingDoesNotShortenThePauseAfterADearOne) {
  Patience patience;
  double lost = 0;
  constexpr int kRounds = 10000;
  for (int i = 0, probes = 0; i < kRounds; ++i) {
    if (!patience.drafts()) continue;
    const double draft = ++probes % 3 == 0 ? 0.5 : 0.001;
    patience.settle(1, 1 + draft, 1.0);
    lost += draft;
  }
  EXPECT_LE(lost / kRounds, 0.0111);
}

TEST(Patience, ReturnsToDraftingSoonAfterTheTextTurns) {
  Patience patience;
  asked(patience, 2000, 1, 1.5);
  EXPECT_GT(patience.pause(), 40);
  int rounds = 0, drafted = 0;
  for (; drafted < 10; ++rounds) {
    if (!patience.drafts()) continue;
    ++drafted;
    patience.settle(4, 2.0, 1.0);
  }
  EXPECT_LT(rounds, 80) << "one probe, and then no pause";
}

// --- levels

// A drafter of one guess per node, always with the same probability; a pass takes a given time on a clock of its own.
class FakeDrafter final : public Drafter {
 public:
  FakeDrafter(double q, double pass_seconds) : q_(q), pass_seconds_(pass_seconds) {}
  std::string_view name() const override { return "fake"; }
  void rewind(std::int64_t) override {}
  void committed(const CommittedRows&) override {}
  void begin_round(std::span<const std::int32_t>) override {}
  std::vector<std::vector<DraftToken>> expand(const Candidates&, std::span<const int> nodes, int) override {
    now += pass_seconds_;
    ++passes;
    return {nodes.size(), {{.token = 5, .log_probability = std::log(q_)}}};
  }

  double now = 0;
  int passes = 0;

 private:
  double q_, pass_seconds_;
};

int levels_bought(double q, double pass_seconds, double slope) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::make_unique<FakeDrafter>(q, pass_seconds));
  auto& fake = static_cast<FakeDrafter&>(*drafters[0]);
  const SecondsClock clock = [&] { return fake.now; };
  Budget budget(linear_times(slope), {.rows = 64});
  let_win(budget);
  int passes = 0;
  for (int round = 0; round < 20; ++round) {  // until the drafter's ways are known
    budget.begin_round(1, 100);
    fake.passes = 0;
    LevelBudget levels(budget, clock);
    grow_candidates(1, {.nodes = 64, .depth = 12}, {.rows = 64, .depth = 12, .vocabulary = 100}, drafters, &levels);
    passes = fake.passes;
  }
  return passes;
}

// The best number of levels of a chain, by trying them all.
int best_levels(double q, double pass_seconds, double slope) {
  int best = 1;
  double best_rate = 0;
  for (int levels = 1; levels <= 12; ++levels) {
    std::vector<double> accepted;
    for (int i = 1; i <= levels; ++i) accepted.push_back(std::pow(q, i));
    const double rate = best_rows(accepted, line_times(slope, 64), levels * pass_seconds).rate;
    if (rate > best_rate) best = levels, best_rate = rate;
  }
  return best;
}

TEST(LevelBudget, BuysTheLevelsThatPay) {
  for (double q : {0.3, 0.6, 0.8, 0.95})
    for (double pass : {0.0, 0.01, 0.05, 0.2, 0.5})
      for (double slope : {0.02, 0.1, 0.3}) {
        const int bought = levels_bought(q, pass, slope), best = best_levels(q, pass, slope);
        EXPECT_LE(std::abs(bought - best), 1)
            << fmt::format("q {} pass {} slope {}: {} or {}", q, pass, slope, bought, best);
      }
}

TEST(LevelBudget, BuysNothingMoreBelowAPoorFirstLevel) {
  EXPECT_EQ(levels_bought(0.05, 0.3, 0.1), 1);
  EXPECT_EQ(levels_bought(0.95, 0.0, 0.0), 12);
}

// --- what drafting costs in all

// Answers of a teacher that says anything at all, drafted by `drafter`; steps and passes take their time on a clock of
// its own. Nothing here reads another.
class SimulatedAnswer {
 public:
  SimulatedAnswer(std::uint32_t seed, std::unique_ptr<Drafter> drafter, const StepTimes& times, double pass_seconds)
      : random_(seed), budget_(times, {.rows = 64}), pass_seconds_(pass_seconds) {
    drafters_.push_back(std::move(drafter));
    for (int i = 0; i < 30; ++i) text_.push_back(next_token());
  }

  // The time of so many tokens against that of plain decoding.
  double cost(std::size_t tokens) {
    const double begin = now_;
    const std::size_t before = text_.size();
    while (text_.size() < before + tokens) round();
    return (now_ - begin) / (static_cast<double>(text_.size() - before) * budget_.step_seconds()[0]);
  }

 private:
  // A level takes its time between the two questions about it.
  class PassTimer final : public LevelBuyer {
   public:
    PassTimer(LevelBuyer& buyer, double& now, double seconds) : buyer_(buyer), now_(now), seconds_(seconds) {}
    void begin(std::size_t drafter) override { buyer_.begin(drafter); }
    bool buys(const Candidates& candidates, std::span<const int> frontier) override {
      if (!buyer_.buys(candidates, frontier)) return false;
      now_ += seconds_;
      return true;
    }
    void bought(const Candidates& candidates, std::span<const int> frontier) override {
      buyer_.bought(candidates, frontier);
    }

   private:
    LevelBuyer& buyer_;
    double& now_;
    double seconds_;
  };

  // Half of the tokens were there before: a drafter that repeats the text is right now and then.
  std::int32_t next_token() {
    if (text_.empty() || random_() % 2 == 0) return static_cast<std::int32_t>(random_() % kVocabulary);
    return text_[random_() % text_.size()];
  }

  Candidates draft() {
    LevelBudget levels(budget_, clock_);
    PassTimer timer(levels, now_, pass_seconds_);
    drafters_[0]->begin_round(text_);
    return grow_candidates(text_.back(), {.nodes = 64, .depth = 12, .branch = 4},
                           {.rows = 64, .depth = 12, .vocabulary = kVocabulary}, drafters_, &timer);
  }

  void round() {
    const bool asked = budget_.begin_round(1, std::ssize(text_));
    const double begin = now_;
    const Candidates candidates = asked ? draft() : Candidates(text_.back());
    const double draft_seconds = now_ - begin;
    const TokenTree tree = budget_.cut(std::vector<DraftOfLane>{{&candidates, 64}}, draft_seconds)[0];
    const std::vector<Visit> visits = walk(
        tree, [&](int) { return text_.emplace_back(next_token()); }, [](std::int32_t) { return false; });
    now_ += budget_.step_seconds()[static_cast<std::size_t>(tree.size()) - 1];
    if (asked) budget_.learn(candidates, visits);
    budget_.end_round(tree.size(), std::ssize(visits), draft_seconds);
  }

  static constexpr std::int32_t kVocabulary = 1000;
  std::mt19937 random_;
  std::vector<std::int32_t> text_;
  std::vector<std::unique_ptr<Drafter>> drafters_;
  Budget budget_;
  double pass_seconds_;
  double now_ = 0;
  SecondsClock clock_ = [this] { return now_; };
};

TEST(Budget, AHostileDrafterCostsAtMostTwoPercent) {
  for (double slope : {0.02, 0.15, 0.4})
    for (double pass : {0.001, 0.05}) {
      double costs = 0;
      constexpr std::uint32_t kSeeds = 20;
      for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
        SimulatedAnswer answer(seed, std::make_unique<HostileDrafter>(seed, 1000), linear_times(slope), pass);
        const double first = answer.cost(256), later = answer.cost(2000);
        EXPECT_LE(later, 1.015) << fmt::format("slope {} pass {} seed {}", slope, pass, seed);
        costs += first;
      }
      EXPECT_LE(costs / kSeeds, 1.02) << fmt::format("slope {} pass {}", slope, pass);
    }
}

// --- cost

TEST(Budget, DecidesInALittlePartOfAStep) {
  std::mt19937 random(3);
  const Candidates candidates = random_candidates(random, 64);
  const std::vector<DraftOfLane> drafts = {{&candidates, 64}};
  Budget budget(linear_times(0.05), {.rows = 64});
  const std::vector<Visit> visits = {{.node = 0, .token = 1}};
  double best = 1;
  for (int i = 0; i < 200; ++i) {
    const double begin = steady_seconds();
    budget.begin_round(1, 100);
    budget.cut(drafts, 1e-5);
    budget.observe_step(8, 5e-3);
    budget.learn(candidates, visits);
    budget.end_round(8, 2, 1e-5);
    best = std::min(best, steady_seconds() - begin);
  }
  fmt::print("{:.1f} us a round over {} candidates\n", 1e6 * best, candidates.size());
#if !defined(ESPALIER_SANITIZED) && defined(NDEBUG)
  EXPECT_LT(best, 50e-6) << "one percent of a step of 5 ms";
#endif
}

}  // namespace
}  // namespace espalier
