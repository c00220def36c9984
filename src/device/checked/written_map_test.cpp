#include "device/checked/written_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace espalier {
namespace {

// Against a vector of bools, too simple to be wrong.
TEST(WrittenMap, AgreesWithOneBoolPerByte) {
  constexpr std::size_t kBytes = 333;
  WrittenMap map(kBytes);
  std::vector<bool> model(kBytes);
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    const std::size_t a = random() % (kBytes + 1), b = random() % (kBytes + 1);
    const std::size_t begin = std::min(a, b), end = std::max(a, b);
    const auto first = model.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = model.begin() + static_cast<std::ptrdiff_t>(end);
    switch (random() % 4) {
      case 0:
        map.mark(begin, end);
        std::fill(first, last, true);
        break;
      case 1:
        map.clear(begin, begin + (end - begin) / 8);
        std::fill(first, first + (last - first) / 8, false);
        break;
      default:
        ASSERT_EQ(map.first_unwritten(begin, end),
                  static_cast<std::size_t>(std::find(first, last, false) - model.begin()));
    }
  }
}

TEST(WrittenMap, AFreshMapHasNothingWritten) {
  const WrittenMap map(130);
  EXPECT_EQ(map.first_unwritten(0, 130), 0u);
  EXPECT_EQ(map.first_unwritten(64, 130), 64u);
  EXPECT_EQ(map.first_unwritten(130, 130), 130u);
}

}  // namespace
}  // namespace espalier
