#include "device/cpu/packed_weight.h"

#include <gtest/gtest.h>

#include <cstring>

#include "device/blocks.h"
#include "device/conformance/random_values.h"

namespace espalier::cpu {
namespace {

// Every row of every part, partly filled panels included, through the panels and back.
TEST(PackedWeight, RowsComeBackAsTheFileHasThem) {
  RandomValues random(3);
  WeightArena arena;
  ThreadPool pool(2);
  for (const DType type : kLinearTypes) {
    const std::int64_t inputs = 768, first = 37, second = 16;
    const auto a = random.weight(type, first, inputs), b = random.weight(type, second, inputs);
    const WeightPart parts[] = {{type, first, inputs, a}, {type, second, inputs, b}};
    const PackedWeight packed(parts, arena, pool);
    ASSERT_EQ(packed.outputs(), first + second);
    const auto bytes = static_cast<std::size_t>(row_bytes(type, inputs));
    std::vector<float> expected(static_cast<std::size_t>(inputs)), got(expected.size());
    for (std::int64_t n = 0; n < first + second; ++n) {
      const auto& file = n < first ? a : b;
      const auto row = static_cast<std::size_t>(n < first ? n : n - first);
      widen_row(type, std::span(file).subspan(row * bytes, bytes), expected);
      packed.widen_row(n, got);
      ASSERT_EQ(std::memcmp(expected.data(), got.data(), expected.size() * sizeof(float)), 0)
          << name(type) << " row " << n;
    }
  }
}

TEST(PackedWeight, PanelsBeginOnCacheLines) {
  RandomValues random(4);
  WeightArena arena;
  ThreadPool pool(1);
  for (const DType type : kLinearTypes) {
    const std::int64_t inputs = is_float(type) ? 5 : 256;
    const auto bytes = random.weight(type, 33, inputs);
    const WeightPart part{type, 33, inputs, bytes};
    const PackedWeight packed(std::span(&part, 1), arena, pool);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(packed.parts()[0].memory.get()) % 64, 0u);
    EXPECT_EQ(packed.parts()[0].panel_bytes % 64, 0);
    EXPECT_EQ(packed.parts()[0].panels, 3);
  }
}

TEST(WeightArena, APieceOutlivesTheArena) {
  std::shared_ptr<std::byte[]> piece;
  {
    WeightArena arena;
    arena.allocate(1000);
    piece = arena.allocate(100);
  }
  std::memset(piece.get(), 7, 100);
  EXPECT_EQ(piece[99], std::byte{7});
}

}  // namespace
}  // namespace espalier::cpu
