#include "device/cuda/early_launch.h"

#include <gtest/gtest.h>

namespace espalier::cuda {
namespace {

TEST(EarlyLaunch, WhereCardCodeAndDriverAllKnowIt) {
  EXPECT_TRUE(may_begin_early({.generation = 9, .compiled_for = 90, .driver = 12030}));
  EXPECT_TRUE(may_begin_early({.generation = 12, .compiled_for = 90, .driver = 13000}));
}

TEST(EarlyLaunch, NotWhereOneOfThemIsOlder) {
  EXPECT_FALSE(may_begin_early({.generation = 8, .compiled_for = 80, .driver = 13000}));
  EXPECT_FALSE(may_begin_early({.generation = 9, .compiled_for = 80, .driver = 13000})) << "its kernels do not wait";
  EXPECT_FALSE(may_begin_early({.generation = 9, .compiled_for = 90, .driver = 12020}));
}

TEST(LargeBlocks, WhereTheCardHasThemAndTheCodeKnowsTheirCopies) {
  constexpr std::size_t kOf90 = 227 << 10, kOf120 = 99 << 10;
  EXPECT_TRUE(has_large_blocks({.generation = 9, .compiled_for = 90, .shared_bytes = kOf90}));
  EXPECT_FALSE(has_large_blocks({.generation = 9, .compiled_for = 80, .shared_bytes = kOf90}));
  EXPECT_FALSE(has_large_blocks({.generation = 12, .compiled_for = 90, .shared_bytes = kOf120}));
}

}  // namespace
}  // namespace espalier::cuda
