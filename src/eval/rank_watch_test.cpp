#include "eval/rank_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "base/error.h"
#include "eval/rank_folder.h"
#include "format/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RankWatchTest : public ::testing::Test {
 protected:
  std::filesystem::path path(int rank) const { return ranks_ / fmt::format("{:04}", rank); }
  RankFolder sign_in(int rank, bool resume = false) const {
    return RankFolder(path(rank), {.rank = rank, .world = 3}, resume);
  }
  // Signs in and is killed.
  void sign_in_and_die(int rank) const {
    const pid_t child = ::fork();
    if (child == 0) {
      sign_in(rank);
      ::kill(::getpid(), SIGKILL);
    }
    ::waitpid(child, nullptr, 0);
  }
  // What is said when the ranks never deliver; empty when it was not given up.
  std::string loss(RankWatch watch, std::vector<int> missing) const {
    try {
      int asked = 0;
      watch.wait([&] { return missing; }, [&] { return ++asked > 4; });
      return "";
    } catch (const DeviceError& error) {
      return error.what();
    }
  }

  TemporaryFolder folder_;
  std::filesystem::path ranks_ = folder_ / "run/ranks";
};

TEST_F(RankWatchTest, WaitsUntilNothingIsMissing) {
  RankWatch watch(ranks_, 3, 60);
  int asked = 0;
  EXPECT_TRUE(watch.wait([&] { return ++asked < 3 ? std::vector{1, 2} : std::vector<int>{}; }, {}));
  EXPECT_EQ(asked, 3);
  EXPECT_FALSE(watch.wait([] { return std::vector{1}; }, [] { return true; }));
}

TEST_F(RankWatchTest, ARankWithoutASignOfLifeIsNamed) {
  const RankFolder alive = sign_in(1);
  EXPECT_THAT(loss(RankWatch(ranks_, 3, 0), {1, 2}),
              HasSubstr("run: turns are missing: rank 1: no sign of life for 0 s; rank 2: no sign of life for 0 s; "
                        "--resume finishes them"));
  EXPECT_EQ(loss(RankWatch(ranks_, 3, 60), {1, 2}), "");
}

TEST_F(RankWatchTest, ARankWhoseProcessIsGoneIsLostAtOnce) {
  const RankWatch watch(ranks_, 3, 60);
  sign_in_and_die(2);
  EXPECT_THAT(loss(watch, {2}), testing::ContainsRegex("rank 2: process [0-9]+ is gone"));
  EXPECT_EQ(loss(watch, {1, 2}), "") << "rank 1 may still come";
}

TEST_F(RankWatchTest, ARankThatFailedSaysWhy) {
  const RankWatch watch(ranks_, 3, 60);
  RankFolder rank = sign_in(1);
  rank.fail("no more memory");
  EXPECT_THAT(loss(watch, {1}), HasSubstr("rank 1: no more memory"));
}

TEST_F(RankWatchTest, WhatEndedBeforeIsOfAnEarlierLaunchAndMayComeAgain) {
  sign_in_and_die(1);
  const RankWatch watch(ranks_, 3, 60);
  EXPECT_EQ(loss(watch, {1}), "");
  const RankFolder again = sign_in(1, true);
  EXPECT_EQ(loss(watch, {1}), "");
}

TEST_F(RankWatchTest, ARankOfANewRunFindsNoFolder) {
  { sign_in(1); }
  EXPECT_THROW(sign_in(1), InputError);
  const RankFolder resumed = sign_in(1, true);
  EXPECT_THROW(sign_in(1, true), InputError) << "while another process writes";
}

}  // namespace
}  // namespace espalier
