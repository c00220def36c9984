// Whether to draft at all, and what it costs to ask a drafter that is always wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "base/testing/sanitized.h"
#include "decode/accept.h"
#include "decode/budget.h"
#include "decode/hostile_drafter.h"
#include "decode/patience.h"
#include "decode/testing/linear_times.h"

namespace espalier {
namespace {

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

TEST(Patience, AProbeThatWinsIsFollowedByAnotherAtOnceAndOneThatLosesByALongerPause) {
  Patience patience;
  for (int i = 0; i < 5; ++i) patience.settle(1, 1.5, 1.0);
  EXPECT_EQ(patience.pause(), 31);
  patience.settle(2, 1.5, 1.0);
  EXPECT_EQ(patience.pause(), 0) << "though more is lost than won";
  EXPECT_FALSE(patience.wins());
  patience.settle(1, 1.5, 1.0);
  EXPECT_EQ(patience.pause(), 50) << "no longer than it takes to pay for it";
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
    LevelBudget levels(budget_, clock_, 1);
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
    const double plain = budget_.plain_seconds();
    patience_.settle(static_cast<double>(visits.size()),
                     plain + budget_.added_seconds(1, tree.size(), 1, draft_seconds), plain);
    budget_.observe_drafting(1, draft_seconds);
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

}  // namespace
}  // namespace espalier
