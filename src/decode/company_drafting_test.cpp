#include "decode/company_drafting.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

constexpr DraftWay kHost = DraftWay::host;
constexpr Prospects kGood{.gain = 1.5, .hope = 2}, kPoor{.gain = 0.9, .hope = 1.5}, kHopeless{.gain = 0.5, .hope = 0.9};

// Rounds of drafts that bring nothing and cost this share of a plain one; how many there were.
int drafted(CompanyDrafting& company, int rounds, double cost) {
  int count = 0;
  for (int i = 0; i < rounds; ++i) {
    if (!company.drafts()) continue;
    company.settle({.accepted = 0, .seconds = cost, .plain_seconds = 1, .answers = 4});
    ++count;
  }
  return count;
}
int scouted(CompanyDrafting& company, int rounds, double cost) {
  int count = 0;
  for (int i = 0; i < rounds; ++i) {
    if (!company.scouts()) continue;
    company.settle_scout({.accepted = 0, .seconds = cost, .plain_seconds = 1, .answers = 4});
    ++count;
  }
  return count;
}

TEST(CompanySize, DoublesFromClassToClass) {
  for (std::int64_t size = 1, begin = 1, end = 1; size <= 8; ++size, begin = end + 1, end *= 2)
    for (std::int64_t answers = begin; answers <= end; ++answers)
      EXPECT_EQ(company_size(answers), static_cast<std::size_t>(size) - 1) << answers;
  EXPECT_EQ(company_size(0), 0u);
  EXPECT_EQ(company_size(1 << 20), kCompanySizes - 1);
}

TEST(CompanyDrafting, DraftsWhereThatWillPayAndElseOnlyAScoutHears) {
  CompanyDrafting company;
  company.decide(4, kHost, kGood);
  EXPECT_TRUE(company.drafts());
  EXPECT_EQ(company.hearing(), Hearing::everybody);
  company.decide(4, kHost, kPoor);
  EXPECT_FALSE(company.drafts());
  EXPECT_EQ(company.hearing(), Hearing::scout);
  EXPECT_TRUE(company.scouts());
}

TEST(CompanyDrafting, BeginsLaterThanItEnds) {
  CompanyDrafting company;
  const Prospects little{.gain = 1.03, .hope = 2};
  company.decide(4, kHost, little);
  EXPECT_FALSE(company.drafts());
  EXPECT_EQ(company.hearing(), Hearing::as_before) << "it may pay soon";
  company.decide(4, kHost, kGood);
  company.decide(4, kHost, little);
  EXPECT_TRUE(company.drafts()) << "everybody is ready";
  company.decide(4, kHost, {.gain = 1.01, .hope = 2});
  EXPECT_FALSE(company.drafts()) << "less than it has to bring";
}

TEST(CompanyDrafting, WhoIsAloneFindsOutForHimself) {
  CompanyDrafting company;
  company.decide(1, kHost, kPoor);
  EXPECT_TRUE(company.drafts()) << "good guesses would pay";
  EXPECT_EQ(company.hearing(), Hearing::everybody);
  company.decide(1, kHost, kHopeless);
  EXPECT_FALSE(company.drafts());
}

TEST(CompanyDrafting, WhatIsPromisedAndNotKeptIsProbedEverMoreRarely) {
  CompanyDrafting company;
  company.decide(4, kHost, kGood);
  drafted(company, 1000, 0.5);
  EXPECT_LE(drafted(company, 10000, 0.5) * 0.5, 10000 * 0.0111);
  EXPECT_TRUE(company.rests());
}

TEST(CompanyDrafting, AScoutCostsHalfAPercentAndWithoutHopeHalfOfThat) {
  for (const auto& [prospects, share] : {std::pair(kPoor, 0.005), std::pair(kHopeless, 0.0025)}) {
    CompanyDrafting company;
    company.decide(4, kHost, prospects);
    scouted(company, 1000, 0.2);
    const double cost = scouted(company, 10000, 0.2) * 0.2 / 10000;
    EXPECT_LE(cost, 1.06 * share);
    EXPECT_GE(cost, 0.9 * share) << "what may be spent is spent";
  }
}

TEST(CompanyDrafting, AScoutThatWinsGoesOn) {
  CompanyDrafting company;
  company.decide(4, kHost, kPoor);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(company.scouts());
    company.settle_scout({.accepted = 3, .seconds = 0.5, .plain_seconds = 1, .answers = 4});
  }
  EXPECT_TRUE(company.scout_wins());
}

TEST(CompanyDrafting, ATokenOfOneOfManyIsWorthAShareOfAStep) {
  CompanyDrafting company;
  company.decide(8, kHost, kGood);
  company.settle({.accepted = 4, .seconds = 0.4, .plain_seconds = 1, .answers = 8});
  EXPECT_TRUE(company.wins());
  company.settle({.accepted = 4, .seconds = 0.7, .plain_seconds = 1, .answers = 8});
  EXPECT_FALSE(company.wins());
}

TEST(CompanyDrafting, WhatWasWonInASmallerCompanyOrInAnotherWayDoesNotCount) {
  CompanyDrafting company;
  company.decide(2, kHost, kGood);
  company.settle({.accepted = 4, .seconds = 0.1, .plain_seconds = 1, .answers = 2});
  EXPECT_TRUE(company.wins());
  company.decide(16, kHost, kGood);
  EXPECT_FALSE(company.wins());
  company.decide(2, DraftWay::resident, kGood);
  EXPECT_FALSE(company.wins());
  company.decide(2, kHost, kGood);
  EXPECT_TRUE(company.wins());
}

TEST(CompanyDrafting, RoundsOnTheDeviceMayPayWhereThoseOfTheHostDoNot) {
  CompanyDrafting company;
  company.decide(16, kHost, kPoor);
  EXPECT_FALSE(company.drafts());
  company.decide(16, DraftWay::resident, kGood);
  EXPECT_TRUE(company.drafts());
  company.decide(16, kHost, kPoor);
  EXPECT_FALSE(company.drafts());
}

}  // namespace
}  // namespace espalier
