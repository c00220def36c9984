#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "decode/budget.h"
#include "decode/row_choice.h"
#include "decode/testing/linear_times.h"

namespace espalier {
namespace {

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
      LevelBudget levels(budget_, clock, std::ssize(depths));
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

}  // namespace
}  // namespace espalier
