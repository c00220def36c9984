#include "device/cpu/read_ahead.h"

#include <gtest/gtest.h>

namespace espalier::cpu {
namespace {

int calls_until_done(ReadAhead& ahead, int thread) {
  int calls = 0;
  while (ahead.fetch(thread)) ++calls;
  return calls;
}

class ReadAheadTest : public testing::Test {
 protected:
  void begin(int weight) {
    const ReadAhead::Place starts[] = {{memory_, 640}, {memory_ + 4096, 640}};
    ahead_.begin(memory_ + weight, starts);
  }

  std::uint8_t memory_[8192] = {};
  ReadAhead ahead_{2};
};

TEST_F(ReadAheadTest, NothingIsFetchedBeforeAnOrderIsKnown) {
  EXPECT_FALSE(ahead_.fetch(0));
  begin(1);
  EXPECT_FALSE(ahead_.fetch(0));
  begin(2);
  EXPECT_FALSE(ahead_.fetch(1));
}

TEST_F(ReadAheadTest, WhatFollowedLastTimeIsFetchedOnceByEachThread) {
  begin(1);
  begin(2);
  begin(1);
  EXPECT_EQ(calls_until_done(ahead_, 0), 4 * 640 / 64 / 8);  // four panels, eight lines a call
  EXPECT_EQ(calls_until_done(ahead_, 1), 4 * 640 / 64 / 8);
  EXPECT_FALSE(ahead_.fetch(0));
}

TEST_F(ReadAheadTest, ANewLinearReplacesWhatWasLeft) {
  for (int i = 0; i < 2; ++i) {
    begin(1);
    begin(2);
  }
  EXPECT_TRUE(ahead_.fetch(0));
  begin(1);
  EXPECT_EQ(calls_until_done(ahead_, 0), 4 * 640 / 64 / 8);
}

}  // namespace
}  // namespace espalier::cpu
