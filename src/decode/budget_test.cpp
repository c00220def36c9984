#include "decode/budget.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "base/testing/sanitized.h"
#include "decode/accept.h"
#include "decode/hostile_drafter.h"
#include "decode/row_choice.h"
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

// Of a round of drafters that have lately won: they are trusted with any tree.
RoundShape winning(int roots = 1) {
  return {.roots = roots, .context = 100, .wins = true};
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
  patience.settle(1, budget.drafted_seconds(24, 24, 1, 0), budget.plain_seconds());
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

TEST(Budget, ASequenceAnswersForItsOwnGuessesAndItsShareOfTheDraftingToAllWhoWait) {
  Budget budget(linear_times(0.1), {.rows = 64});
  budget.begin_round({.roots = 2, .context = 100});
  EXPECT_DOUBLE_EQ(budget.plain_seconds(), 1.1) << "a step of the roots";
  EXPECT_DOUBLE_EQ(budget.drafted_seconds(1, 2, 2, 0), 1.1);
  EXPECT_DOUBLE_EQ(budget.drafted_seconds(1, 2, 2, 0.5), 1.1 + 2 * 0.25);
  EXPECT_DOUBLE_EQ(budget.drafted_seconds(5, 6, 1, 0.5), 1.1 + 2 * (0.5 + 0.4)) << "all guesses are its own";
  EXPECT_DOUBLE_EQ(budget.drafted_seconds(4, 10, 2, 0), 1.1 + 2 * 0.3);
  EXPECT_DOUBLE_EQ(budget.drafted_seconds(6, 10, 2, 0), 1.1 + 2 * 0.5);
  EXPECT_DOUBLE_EQ(budget.drafted_seconds(1, 10, 2, 0), 1.1) << "nobody pays for the guesses of others";
}

// Where everybody drafts alike, patience and the rate of the whole step must say the same.
TEST(Budget, DraftingPaysForASequenceWhereItPaysForTheStep) {
  int pays = 0, loses = 0;
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const auto uniform = [&](double low, double high) { return std::uniform_real_distribution(low, high)(random); };
    Budget budget(linear_times(uniform(0.01, 0.5)), {.rows = 512});
    const int roots = 1 + static_cast<int>(random() % 16), rows = 1 + static_cast<int>(random() % 8);
    budget.begin_round({.roots = roots, .context = 100});
    const double draft = uniform(0, 0.5), tokens = uniform(1, 3);
    const double step = seconds_of_rows(budget.step_seconds(), roots * rows);
    const double gain = roots * tokens / (draft + step) - roots / budget.plain_seconds();
    if (std::abs(gain) < 1e-9) continue;
    Patience patience;
    patience.settle(tokens, budget.drafted_seconds(rows, roots * rows, roots, draft), budget.plain_seconds());
    ASSERT_EQ(patience.wins(), gain > 0) << "seed " << seed;
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

TEST(Patience, WinsAsLongAsMoreWasWonThanLost) {
  Patience patience;
  EXPECT_FALSE(patience.wins()) << "nothing yet";
  patience.settle(2, 1.0, 1.0);
  EXPECT_TRUE(patience.wins());
  patience.settle(1, 1.5, 1.0);
  EXPECT_TRUE(patience.wins()) << "half of it is left";
  patience.settle(1, 1.6, 1.0);
  EXPECT_FALSE(patience.wins());
}

TEST(Patience, RestsOnlyInAPauseInWhichDraftersWouldForgetWhatTheyHeardBefore) {
  Patience patience;
  EXPECT_FALSE(patience.rests());
  for (int i = 0; i < 8; ++i) {
    while (!patience.drafts()) EXPECT_EQ(patience.rests(), patience.pause() >= Patience::kRestingPause);
    patience.settle(1, 1.5, 1.0);
    EXPECT_EQ(patience.rests(), patience.pause() > 31) << patience.pause();
  }
  EXPECT_TRUE(patience.rests());
  patience.settle(4, 1.0, 1.0);
  EXPECT_FALSE(patience.rests()) << "one good probe";
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

// Knows nothing of its sequence.
class FakeSequence final : public DraftSequence {
 public:
  bool reused(std::span<const std::int32_t>) override { return false; }
  void committed(const CommittedRows&) override {}
  void begin_round(const DraftRound&) override {}
};

// A drafter of one guess per node, always with the same probability; a pass takes a given time on a clock of its own.
class FakeDrafter final : public Drafter {
 public:
  FakeDrafter(double q, double pass_seconds) : q_(q), pass_seconds_(pass_seconds) {}
  std::string_view name() const override { return "fake"; }
  std::unique_ptr<DraftSequence> open(SequenceId, std::span<const std::int32_t>) override {
    return std::make_unique<FakeSequence>();
  }
  std::vector<Guesses> expand(std::span<const DraftJob> jobs) override {
    now += pass_seconds_;
    passes.push_back(jobs.size());
    std::vector<Guesses> all;
    for (const DraftJob& job : jobs)
      all.push_back(Guesses(job.nodes.size(), {{.token = 5, .log_probability = std::log(q_)}}));
    return all;
  }

  double now = 0;
  std::vector<std::size_t> passes;  // the sequences of each

 private:
  double q_, pass_seconds_;
};

// Rounds of one fake drafter.
class FakeRounds {
 public:
  FakeRounds(double q, double pass_seconds, double slope) : budget_(linear_times(slope), {.rows = 64}) {
    drafters_.push_back(std::make_unique<FakeDrafter>(q, pass_seconds));
  }

  // By pass of the last of several rounds, after which the drafter's ways are known, the sequences in it. depths: how
  // deep the tree of each sequence may become.
  std::vector<std::size_t> passes(const std::vector<int>& depths) {
    auto& fake = static_cast<FakeDrafter&>(*drafters_[0]);
    const SecondsClock clock = [&] { return fake.now; };
    DraftSequences sequences(depths.size());
    std::vector<GrowthJob> jobs;
    for (std::size_t i = 0; i < depths.size(); ++i) {
      sequences[i].push_back(fake.open(0, {}));
      jobs.push_back({1, {.rows = 64, .depth = depths[i], .vocabulary = 100}, sequences[i]});
    }
    for (int round = 0; round < 20; ++round) {
      budget_.begin_round(winning(static_cast<int>(depths.size())));
      fake.passes.clear();
      LevelBudget levels(budget_, clock);
      grown = grow_candidates(jobs, {.nodes = 64, .depth = 12}, drafters_, &levels);
    }
    return fake.passes;
  }

  std::vector<Candidates> grown;  // in the last round

 private:
  using DraftSequences = std::vector<std::vector<std::unique_ptr<DraftSequence>>>;
  DrafterSet drafters_;
  Budget budget_;
};

int levels_bought(double q, double pass_seconds, double slope) {
  return static_cast<int>(FakeRounds(q, pass_seconds, slope).passes({12}).size());
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

TEST(LevelBudget, OnePassBuysALevelForAllSequences) {
  FakeRounds rounds(0.95, 0.0, 0.0);
  EXPECT_EQ(rounds.passes({12, 12, 12}), std::vector<std::size_t>(12, 3));
  for (const Candidates& candidates : rounds.grown) EXPECT_EQ(candidates.size(), 13);
}

TEST(LevelBudget, ASequenceThatMayNotGetDeeperLeavesThePassesToTheOthers) {
  FakeRounds rounds(0.95, 0.0, 0.0);
  EXPECT_EQ(rounds.passes({2, 4, 3}), (std::vector<std::size_t>{3, 3, 2, 1}));
  ASSERT_EQ(rounds.grown.size(), 3u);
  EXPECT_EQ(rounds.grown[0].size(), 3);
  EXPECT_EQ(rounds.grown[1].size(), 5);
  EXPECT_EQ(rounds.grown[2].size(), 4);
}

// --- what drafting costs in all

// Answers of a teacher that says anything at all, drafted by `drafter`; steps and passes take their time on a clock of
// its own. Nothing here reads another.
class SimulatedAnswer {
 public:
  SimulatedAnswer(std::uint32_t seed, std::unique_ptr<Drafter> drafter, const StepTimes& times, double pass_seconds)
      : random_(seed), budget_(times, {.rows = 64}), pass_seconds_(pass_seconds) {
    drafters_.push_back(std::move(drafter));
    sequences_.push_back(drafters_[0]->open(0, {}));
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
    bool buys(std::span<const Frontier> frontiers) override {
      if (!buyer_.buys(frontiers)) return false;
      now_ += seconds_;
      return true;
    }
    void bought(std::span<const Frontier> frontiers) override { buyer_.bought(frontiers); }

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
    sequences_[0]->begin_round({.tokens = text_});
    const GrowthJob job{text_.back(), {.rows = 64, .depth = 12, .vocabulary = kVocabulary}, sequences_};
    return grow_candidates(std::span(&job, 1), {.nodes = 64, .depth = 12, .branch = 4}, drafters_, &timer)[0];
  }

  void round() {
    const bool asked = patience_.drafts();
    budget_.begin_round({.context = std::ssize(text_), .wins = asked && patience_.wins()});
    const double begin = now_;
    const Candidates candidates = asked ? draft() : Candidates(text_.back());
    const double draft_seconds = now_ - begin;
    const TokenTree tree = budget_.cut(std::vector<DraftOfSequence>{{&candidates, 64}}, draft_seconds)[0];
    const std::vector<Visit> visits = walk(
        tree, [&](int) { return text_.emplace_back(next_token()); }, [](std::int32_t) { return false; });
    now_ += budget_.step_seconds()[static_cast<std::size_t>(tree.size()) - 1];
    if (!asked) return;
    budget_.learn(candidates, visits);
    patience_.settle(static_cast<double>(visits.size()),
                     budget_.drafted_seconds(tree.size(), tree.size(), 1, draft_seconds), budget_.plain_seconds());
  }

  static constexpr std::int32_t kVocabulary = 1000;
  std::mt19937 random_;
  std::vector<std::int32_t> text_;
  DrafterSet drafters_;
  std::vector<std::unique_ptr<DraftSequence>> sequences_;
  Budget budget_;
  Patience patience_;
  double pass_seconds_;
  double now_ = 0;
  SecondsClock clock_ = [this] { return now_; };
};

TEST(Budget, AHostileDrafterCostsAtMostTwoPercent) {
  for (double slope : {0.02, 0.15, 0.4})
    for (double pass : {0.001, 0.05}) {
      if (kSanitized && slope != 0.15) continue;
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

TEST(Budget, GuessesMayPayWhileGoodOnesBringMoreThanTheirRowsCost) {
  const auto may_pay = [](double slope, int roots) { return Budget(linear_times(slope), {.rows = 64}).may_pay(roots); };
  EXPECT_TRUE(may_pay(0.02, 1));
  EXPECT_TRUE(may_pay(0.02, 16));
  EXPECT_TRUE(may_pay(0.5, 1));
  EXPECT_FALSE(may_pay(0.5, 8)) << "8 of 4.5, and 8.8 of 5";
  EXPECT_FALSE(may_pay(0.9, 1)) << "1 of 1, and 1.8 of 1.9";
  EXPECT_FALSE(may_pay(0.02, 64)) << "there is no room";
}

// --- cost

TEST(Budget, DecidesInALittlePartOfAStep) {
  std::mt19937 random(3);
  const Candidates candidates = random_candidates(random, 64);
  const std::vector<DraftOfSequence> drafts = {{&candidates, 64}};
  Budget budget(linear_times(0.05), {.rows = 64});
  Patience patience;
  const std::vector<Visit> visits = {{.node = 0, .token = 1}};
  double best = 1;
  for (int i = 0; i < 200; ++i) {
    const double begin = steady_seconds();
    budget.begin_round({.context = 100, .wins = patience.wins()});
    budget.cut(drafts, 1e-5);
    budget.observe_step(8, 100, 5e-3);
    budget.learn(candidates, visits);
    patience.settle(2, budget.drafted_seconds(8, 8, 1, 1e-5), budget.plain_seconds());
    best = std::min(best, steady_seconds() - begin);
  }
  fmt::print("{:.1f} us a round over {} candidates\n", 1e6 * best, candidates.size());
#if !defined(ESPALIER_SANITIZED) && defined(NDEBUG)
  EXPECT_LT(best, 50e-6) << "one percent of a step of 5 ms";
#endif
}

}  // namespace
}  // namespace espalier
