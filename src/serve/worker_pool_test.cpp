#include "serve/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace espalier {
namespace {

TEST(WorkerPool, JobsOfOneKindBeginInTheirOrder) {
  WorkerPool pool(1, 100);
  std::promise<void> gate;
  pool.write([opened = gate.get_future().share()] { opened.wait(); });
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) pool.prepare([&order, i] { order.push_back(i); });
  for (int i = 10; i < 13; ++i) pool.write([&order, i] { order.push_back(i); });
  gate.set_value();
  pool.wait_until_idle();
  EXPECT_EQ(order, (std::vector<int>{10, 11, 12, 0, 1, 2, 3, 4})) << "what is written goes first";
}

TEST(WorkerPool, WhatIsTooMuchIsDropped) {
  WorkerPool pool(2, 3);
  std::promise<void> gate, begun;
  const auto opened = gate.get_future().share();
  ASSERT_TRUE(pool.prepare([&begun, opened] {
    begun.set_value();
    opened.wait();
  }));
  begun.get_future().wait();
  int done = 0;  // one thread prepares
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.prepare([&done] { ++done; }));
  EXPECT_FALSE(pool.prepare([&done] { ++done; }));
  gate.set_value();
  pool.wait_until_idle();
  EXPECT_EQ(done, 3);
}

TEST(WorkerPool, ALongPromptDelaysNobodysStream) {
  WorkerPool pool(2, 100);
  std::promise<void> gate, written;
  const auto opened = gate.get_future().share();
  for (int i = 0; i < 4; ++i) pool.prepare([opened] { opened.wait(); });
  pool.write([&] { written.set_value(); });
  written.get_future().wait();
  gate.set_value();
  pool.wait_until_idle();
}

TEST(WorkerPool, AfterTheStopJobsAreDropped) {
  WorkerPool pool(2, 100);
  std::atomic<int> done = 0;
  pool.prepare([&] { ++done; });
  pool.wait_until_idle();
  pool.stop();
  EXPECT_FALSE(pool.prepare([&] { ++done; }));
  pool.write([&] { ++done; });
  pool.wait_until_idle();
  pool.stop();
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace espalier
