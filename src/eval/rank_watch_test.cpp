#include "eval/rank_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/mapped_file.h"
#include "eval/rank_folder.h"
#include "format/testing/temporary_folder.h"

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

TEST_F(RankWatchTest, AFailureFromBeforeTheFirstLookCountsOnceItIsRepeated) {
  RankFolder rank = sign_in(1);
  rank.fail("no more memory");
  const RankWatch watch(ranks_, 3, 60);
  EXPECT_EQ(loss(watch, {1}), "") << "it may be of an earlier launch";
  rank.show_life();
  EXPECT_THAT(loss(watch, {1}), HasSubstr("rank 1: no more memory"));
}

TEST_F(RankWatchTest, ARankIsWaitedForOnlySoLong) {
  RankWatch watch(ranks_, 3, 60);
  EXPECT_FALSE(watch.await(1, 0.01));
  const RankFolder rank = sign_in(1);
  EXPECT_TRUE(watch.await(1, 60));
}

TEST_F(RankWatchTest, RanksThatSignedInAreGivenTimeToEnd) {
  const auto has_ended = [&] {
    return nlohmann::json::parse(read_text_file(path(1) / kLifeName)).at("ended").get<bool>();
  };
  RankFolder rank = sign_in(1);
  sign_in_and_die(0);
  await_ends(ranks_, 3, 0.01);
  EXPECT_FALSE(has_ended());
  std::thread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    rank.end();
  });
  await_ends(ranks_, 3, 60);
  EXPECT_TRUE(has_ended());
  end.join();
}

TEST_F(RankWatchTest, ARankOfANewRunFindsNoFolder) {
  { sign_in(1); }
  EXPECT_THROW(sign_in(1), InputError);
  const RankFolder resumed = sign_in(1, true);
  EXPECT_THROW(sign_in(1, true), InputError) << "while another process writes";
}

TEST_F(RankWatchTest, ARankHasComeOnceItShowsLifeThatWasNotThereBefore) {
  const RankFolder early = sign_in(1);
  RankWatch watch(ranks_, 3, 60);
  EXPECT_FALSE(watch.has_come(1)) << "it may be of an earlier launch";
  EXPECT_FALSE(watch.has_come(2));
  early.show_life();
  const RankFolder late = sign_in(2);
  EXPECT_TRUE(watch.has_come(1));
  EXPECT_TRUE(watch.has_come(2));
}

TEST_F(RankWatchTest, WhatIsMissingIsNamedAsTheOneWhoWaitsCallsIt) {
  RankWatch watch(ranks_, 3, 60);
  sign_in_and_die(0);
  try {
    watch.wait([] { return std::vector{0}; }, {}, "results");
    FAIL() << "rank 0 is gone";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), testing::ContainsRegex("run: results are missing: rank 0: process [0-9]+ is gone"));
  }
}

TEST_F(RankWatchTest, BeforeAnybodySignsInTheFileOfRank0IsWaitedFor) {
  EXPECT_FALSE(await_rank_0(folder_ / "suite.json", 60, [] { return true; }));
  EXPECT_THROW(await_rank_0(folder_ / "suite.json", 0, {}), DeviceError);
  EXPECT_TRUE(await_rank_0(folder_.write("suite.json", "{}"), 0, {}));
}

}  // namespace
}  // namespace espalier
