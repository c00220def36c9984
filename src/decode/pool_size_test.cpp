#include "decode/pool_size.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "decode/batch.h"
#include "decode/testing/tiny_model_test.h"
#include "device/conformance/sparing_device.h"

namespace espalier {
namespace {

class PoolSizeTest : public TinyModelTest {
 protected:
  const DecoderOptions options_{.context = 500, .parallel = 4};
  const std::int64_t position_ = kv_position_bytes(model_, DType::f16, {});

  PoolSize size(std::int64_t bytes, const Speculation& speculation = {}) const {
    return pool_of_bytes(model_, options_, speculation, {.bytes = bytes});
  }
  Batch batch(const PoolSize& size) const {
    DecoderOptions options = options_;
    options.context = size.context;
    options.cache_positions = size.positions;
    return Batch(model_, options);
  }
};

TEST_F(PoolSizeTest, APositionHasKAndVInEveryMemory) {
  const KvShape shape = model_.kv_shape(DType::f16);
  EXPECT_EQ(position_, 2 * shape.layers * shape.kv_heads * shape.head_size * 2);
  EXPECT_EQ(kv_position_bytes(model_, DType::f32, {}), 2 * position_);
  const Speculation two{.memories = {shape, {.layers = 1, .kv_heads = 1, .head_size = 8}}};
  EXPECT_EQ(kv_position_bytes(model_, DType::f16, two), 2 * position_ + 2 * 8 * 2);
  EXPECT_EQ(Batch(model_, {.context = 64}).cache().memory().slot_bytes(), position_);
}

TEST_F(PoolSizeTest, PlentyIsNoMoreThanAllContextsTogetherNeed) {
  const PoolSize whole = size(std::int64_t{1} << 40);
  EXPECT_EQ(whole.context, 500);
  EXPECT_EQ(whole.positions, 4 * 6 * 128) << "500 positions, a row and 128 more, and a block to copy into";
  EXPECT_EQ(size(whole.positions * position_).positions, whole.positions);
  EXPECT_EQ(size(whole.positions * position_ - 1).positions, whole.positions - 128) << "whole blocks";
  EXPECT_EQ(size(whole.positions * position_ - 1).context, 500);
}

TEST_F(PoolSizeTest, SlotsThatPadRoundsAreTakenFromTheBytes) {
  SparingDevice sparing(make_cpu_device({.threads = 1}), {1, 2, 4, 8, 16});
  const Transformer model = load_transformer(sparing, tiny_model());
  const DecoderOptions options{.context = 500, .parallel = 16};
  const Speculation trees{.tree = {.nodes = 16, .depth = 4}, .drafters = [](KvCache&, int) { return DrafterSet(); }};
  const auto positions = [&](const DecoderOptions& chosen) {
    return pool_of_bytes(model, chosen, trees, {.bytes = 40 * 128 * position_}).positions;
  };
  EXPECT_EQ(positions(options), (40 - 7) * 128);
  EXPECT_EQ(positions({.context = 500, .parallel = 16, .round_route = RoundRoute::host}), 39 * 128);
}

TEST_F(PoolSizeTest, TheContextIsCutToWhatThePoolHoldsBesideTheReserve) {
  for (std::int64_t blocks = 3; blocks <= 6; ++blocks) {
    const PoolSize cut = size(blocks * 128 * position_);
    EXPECT_EQ(cut.positions, blocks * 128);
    EXPECT_EQ(cut.context, std::min<std::int64_t>(500, (blocks - 1) * 128 - 1 - 128)) << blocks << " blocks";
    const Batch made = batch(cut);
    EXPECT_EQ(made.context(), cut.context);
    DecoderOptions more = options_;
    more.cache_positions = cut.positions;
    more.context = cut.context + 1;
    if (cut.context == 500) continue;
    EXPECT_THROW(Batch(model_, more), InputError) << "not one position more";
  }
}

TEST_F(PoolSizeTest, WhatIsFreeOnADeviceIsNotAllForThePool) {
  const std::int64_t free = std::int64_t{1} << 30;
  const std::int64_t bytes = pool_bytes_of_free(model_, options_, {}, free);
  EXPECT_LT(bytes, free - free / 10);
  EXPECT_GT(bytes, free / 2);
  const Speculation trees{.tree = {.nodes = 64, .depth = 6}, .drafters = [](KvCache&, int) { return DrafterSet(); }};
  EXPECT_LT(pool_bytes_of_free(model_, options_, trees, free), bytes) << "more rows have more logits";
  EXPECT_LE(pool_bytes_of_free(model_, options_, {}, 0), 0);
}

TEST_F(PoolSizeTest, ADeviceKeepsATenthOfWhatIsFreeOrWhatItNeedsForItself) {
  const auto left_to_it = [&](std::int64_t free) { return free - pool_bytes_of_free(model_, options_, {}, free); };
  const std::int64_t little = std::int64_t{1} << 30, plenty = std::int64_t{80} << 30;
  EXPECT_GE(left_to_it(little), kDeviceOwnBytes);
  EXPECT_LT(left_to_it(little), little / 2);
  EXPECT_GE(left_to_it(plenty), plenty / 10);
}

TEST_F(PoolSizeTest, MemoryThatNobodyAskedForIsNotBlamedOnAFlag) {
  for (const std::int64_t free : {std::int64_t{-5}, std::int64_t{1000}}) {
    try {
      pool_of_bytes(model_, options_, {}, {.bytes = free, .given = false});
      ADD_FAILURE() << free;
    } catch (const DeviceError& error) {
      EXPECT_EQ(
          std::string(error.what()),
          fmt::format("not enough memory for keys and values: {} bytes are needed for 384 positions, {} are free; "
                      "--kv-memory sets the size",
                      3 * 128 * position_, std::max<std::int64_t>(free, 0)));
    }
  }
}

TEST_F(PoolSizeTest, APoolWithoutRoomForAPositionIsRefused) {
  const std::int64_t least = 3 * 128 * position_;
  EXPECT_EQ(size(least).context, 127);
  for (std::int64_t bytes : {std::int64_t{0}, least - 1}) {
    try {
      size(bytes);
      ADD_FAILURE() << bytes;
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()),
                fmt::format("--kv-memory: expected {} bytes or more for 384 positions, got {}", least, bytes));
    }
  }
}

TEST_F(PoolSizeTest, WhatAWholeCacheCannotHoldIsRefusedOnArrival) {
  Batch made = batch(size(3 * 128 * position_));
  const std::vector<std::int32_t> prompt(100, 5), long_prompt(128, 5);
  EXPECT_THROW(made.submit({.prompt = long_prompt}), InputError);
  EXPECT_NO_THROW(made.submit({.prompt = prompt, .options = {.max_tokens = 27}}));
  EXPECT_NO_THROW(made.submit({.prompt = prompt, .options = {.max_tokens = 1'000'000}})) << "the context ends it";
  while (made.step()) continue;
}

}  // namespace
}  // namespace espalier
