#include "experiments/suite_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

class SuiteRanksTest : public ::testing::Test {
 protected:
  EvalRequest request(double timeout = 60) const {
    EvalRequest request;
    request.out = folder_.path().string();
    request.resume = true;
    request.rank_timeout = timeout;
    return request;
  }
  SuiteRanks rank(int number, int world = 2, double timeout = 60) const {
    return SuiteRanks(request(timeout), {.rank = number, .world = world}, 1, [] { return false; });
  }
  nlohmann::json life(int number) const {
    return nlohmann::json::parse(read_text_file(folder_.path() / "ranks" / rank_folder_name(number) / kLifeName));
  }

  TemporaryFolder folder_;
};

TEST_F(SuiteRanksTest, AProcessThatIsAloneLeavesNothing) {
  SuiteRanks alone = rank(0, 1);
  EXPECT_TRUE(alone.meet());
  EXPECT_EQ(alone.run<int>([] { return 3; }), 3);
  EXPECT_EQ(alone.watch(), nullptr);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(SuiteRanksTest, RanksOfALaunchMeetWhoeverComesFirst) {
  for (int first : {0, 1}) {
    SuiteRanks early = rank(first);
    std::future<bool> met = std::async(std::launch::async, [&] { return early.meet(); });
    SuiteRanks late = rank(1 - first);
    EXPECT_TRUE(late.meet());
    EXPECT_TRUE(met.get());
  }
}

TEST_F(SuiteRanksTest, WhatAnEarlierLaunchLeftIsNobody) {
  { rank(1); }
  try {
    rank(0, 2, 0).meet();
    FAIL() << "nobody has come";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("results are missing: rank 1: no sign of life for 0 s"));
  }
}

TEST_F(SuiteRanksTest, EachSaysInItsPlaceHowItEnded) {
  SuiteRanks well = rank(0), interrupted = rank(1, 3), failed = rank(2, 3);
  EXPECT_EQ(life(0)["ended"], false);
  EXPECT_EQ(well.run<int>([] { return 1; }), 1);
  EXPECT_EQ(interrupted.run<int>([] { return std::nullopt; }), std::nullopt);
  EXPECT_THROW(failed.run<int>([]() -> std::optional<int> { throw DeviceError("no more memory"); }), DeviceError);
  EXPECT_EQ(life(0)["ended"], true);
  EXPECT_TRUE(life(0)["failure"].is_null());
  EXPECT_EQ(life(1)["failure"], "interrupted");
  EXPECT_EQ(life(2)["failure"], "no more memory");
}

TEST_F(SuiteRanksTest, WhoWaitsForRank0LearnsThatItFailed) {
  SuiteRanks second = rank(1), first = rank(0);
  EXPECT_TRUE(second.await([] { return true; }));
  EXPECT_THROW(first.run<int>([]() -> std::optional<int> { throw InputError("a bad line"); }), InputError);
  try {
    second.await([] { return false; });
    FAIL() << "rank 0 has failed";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("results are missing: rank 0: a bad line"));
  }
}

}  // namespace
}  // namespace espalier
