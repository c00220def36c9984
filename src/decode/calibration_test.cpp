#include "decode/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace espalier {
namespace {

constexpr SourceSet kOne = 1, kOther = 2;

TEST(Calibration, BelievesADrafterThatNobodyHasSeen) {
  const Calibration calibration;
  for (double q : {0.0, 0.001, 0.02, 0.3, 0.5, 0.9}) EXPECT_NEAR(calibration.probability(kOne, q), q, 1e-12);
  EXPECT_LE(calibration.probability(kOne, 1.0), 1.0);
  EXPECT_EQ(calibration.probability(kOne, std::nan("")), 0);
}

TEST(Calibration, LearnsHowOftenAnOverconfidentDrafterIsRight) {
  Calibration calibration;
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    const double q = std::uniform_real_distribution(0.0, 1.0)(random);
    calibration.learn(kOne, q, std::uniform_real_distribution(0.0, 1.0)(random) < q * q);
  }
  for (double q : {0.3, 0.5, 0.8, 0.95}) EXPECT_NEAR(calibration.probability(kOne, q), q * q, 0.12) << q;
  EXPECT_NEAR(calibration.probability(kOther, 0.5), 0.5, 1e-12) << "drafters are judged each by themselves";
}

TEST(Calibration, NeverFallsWhereTheDrafterIsSurer) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    Calibration calibration;
    for (int i = 0; i < 200; ++i)
      calibration.learn(kOne, std::uniform_real_distribution(0.0, 1.0)(random), random() % 2 == 0);
    double before = 0;
    for (int i = 0; i <= 1000; ++i) {
      const double p = calibration.probability(kOne, i / 1000.0);
      ASSERT_GE(p, before - 1e-12) << "seed " << seed << ", q " << i / 1000.0;
      ASSERT_LE(p, 1.0);
      before = p;
    }
  }
}

TEST(Calibration, ForgetsWhatIsLongAgo) {
  Calibration calibration;
  for (int i = 0; i < 1000; ++i) calibration.learn(kOne, 0.5, false);
  EXPECT_LT(calibration.probability(kOne, 0.5), 0.05);
  for (int i = 0; i < 1000; ++i) calibration.learn(kOne, 0.5, true);
  EXPECT_GT(calibration.probability(kOne, 0.5), 0.9);
}

// A root with two children, the first of which has a child.
Candidates small_candidates() {
  Candidates candidates(10);
  const int first = candidates.add(0, {.token = 1, .score = std::log(0.5), .sources = kOne});
  candidates.add(0, {.token = 2, .score = std::log(0.25), .sources = kOne});
  candidates.add(first, {.token = 3, .score = std::log(0.5 * 0.8), .sources = kOne});
  return candidates;
}

TEST(Calibration, LearnsFromEveryChildOfAVisitedNodeAndFromNoOther) {
  const Candidates candidates = small_candidates();
  Calibration calibration;
  // The root's choice is the second child: the first one, at q = 0.5, was wrong; what is below it was never asked.
  calibration.learn(candidates, std::vector<Visit>{{.node = 0, .token = 2}});
  EXPECT_LT(calibration.probability(kOne, 0.5), 0.5);
  EXPECT_GT(calibration.probability(kOne, 0.25), 0.25);
  EXPECT_NEAR(calibration.probability(kOne, 0.76), 0.76, 1e-9);
}

TEST(Calibration, LearnsOfGuessesThatWereCutFromTheTree) {
  const Candidates candidates = small_candidates();
  Calibration once, twice;
  once.learn(candidates, std::vector<Visit>{{.node = 0, .token = 1}});
  // The walk went on: the teacher's second choice judges the grandchild.
  twice.learn(candidates, std::vector<Visit>{{.node = 0, .token = 1}, {.node = 1, .token = 99}});
  EXPECT_LT(twice.probability(kOne, 0.8), once.probability(kOne, 0.8));
}

TEST(AcceptanceEstimate, MultipliesAlongThePath) {
  AcceptanceEstimate estimate;
  estimate.extend(small_candidates(), Calibration());
  EXPECT_EQ(estimate.size(), 4);
  EXPECT_DOUBLE_EQ(estimate[0], 1);
  EXPECT_NEAR(estimate[1], 0.5, 1e-9);
  EXPECT_NEAR(estimate[2], 0.25, 1e-9);
  EXPECT_NEAR(estimate[3], 0.4, 1e-9);
}

TEST(AcceptanceEstimate, GivesSiblingsNoMoreThanOneTogetherAndNoChildMoreThanItsParent) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    Candidates candidates(0);
    AcceptanceEstimate estimate;
    const Calibration calibration;
    for (int level = 0; level < 4; ++level) {
      const int parent = static_cast<int>(random() % static_cast<std::uint32_t>(candidates.size()));
      if (candidates[parent].newest_child != 0) continue;
      for (int i = 0; i < 6; ++i)
        candidates.add(parent, {.token = i, .score = candidates[parent].score, .sources = kOne});  // each is sure
      estimate.extend(candidates, calibration);
    }
    std::vector<double> claimed(static_cast<std::size_t>(candidates.size()));
    for (int id = 1; id < candidates.size(); ++id) {
      EXPECT_LE(estimate[id], estimate[candidates[id].parent]);
      claimed[static_cast<std::size_t>(candidates[id].parent)] += estimate.conditional(id);
    }
    for (double sum : claimed) EXPECT_LE(sum, 1 + 1e-9) << "seed " << seed;
  }
}

}  // namespace
}  // namespace espalier
