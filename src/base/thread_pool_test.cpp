#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace espalier {
namespace {

TEST(ThreadPool, CoversEveryIndexExactlyOnce) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (std::int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
      pool.run(count, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
      });
      for (const auto& n : seen) EXPECT_EQ(n, 1) << threads << " threads, " << count << " items";
    }
  }
}

TEST(ThreadPool, ManyShortLoopsAndPausesLongEnoughToSleep) {
  ThreadPool pool(4);
  std::int64_t expected = 0;
  std::atomic<std::int64_t> sum = 0;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 2000; ++i) {
      pool.run(i % 50 + 1, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
      expected += i % 50 + 1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (int i = 0; i < 3; ++i) {
    pool.run(8, [&](std::int64_t begin, std::int64_t end) {  // longer than the caller spins
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      sum += end - begin;
    });
    expected += 8;
  }
  EXPECT_EQ(sum, expected);
}

TEST(ThreadPool, AThreadNumberBelongsToOneThreadAtATime) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  for (int i = 0; i < 500; ++i)
    pool.run(64, [&](std::int64_t, std::int64_t, int thread) {
      EXPECT_EQ(inside[static_cast<std::size_t>(thread)]++, 0);
      --inside[static_cast<std::size_t>(thread)];
    });
}

TEST(ThreadPool, ALoopSmallerThanTwoGrainsRunsInTheCaller) {
  ThreadPool pool(4);
  int calls = 0;
  pool.run(
      15, [&](std::int64_t begin, std::int64_t end) { calls += begin == 0 && end == 15 ? 1 : 100; }, 8);
  EXPECT_EQ(calls, 1);
}

TEST(ThreadPool, RethrowsAnErrorAndStaysUsable) {
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(pool.run(9,
                          [](std::int64_t begin, std::int64_t) {
                            if (begin == 0) throw std::runtime_error("one share failed");
                          }),
                 std::runtime_error);
    std::atomic<std::int64_t> sum = 0;
    pool.run(9, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
    EXPECT_EQ(sum, 9);
  }
}

TEST(ThreadPool, IdleWorkIsDoneUntilItHasNothingLeftAndLoopsStillRun) {
  std::atomic<int> left = 0;
  ThreadPool pool(3);
  pool.set_idle_work(
      [](void* context, int thread) {
        EXPECT_LT(thread, 3);
        return static_cast<std::atomic<int>*>(context)->fetch_sub(1) > 0;
      },
      &left);
  for (int round = 0; round < 200; ++round) {
    left = 20;
    std::atomic<std::int64_t> sum = 0;
    pool.run(64, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
    EXPECT_EQ(sum, 64);
  }
}

}  // namespace
}  // namespace espalier
