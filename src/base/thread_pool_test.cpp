#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
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

}  // namespace
}  // namespace espalier
