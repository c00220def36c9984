// The order of sums and the roundings that device.h fixes, pinned by values for which another order gives another
// float; and small cases worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/float16.h"
#include "base/math.h"
#include "device/conformance/random_values.h"
#include "device/reference/testing/reference_call.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using Floats = ReferenceCalls::Floats;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kBig = 0x1p24f;  // kBig + 1 rounds back to kBig, kBig + 2 does not

class ReferenceOrder : public testing::Test {
 protected:
  // A vector of n zeros but for some elements.
  static Floats sparse(std::size_t n, const std::vector<std::pair<std::size_t, float>>& elements) {
    Floats x(n);
    for (const auto& [i, value] : elements) x[i] = value;
    return x;
  }
  // Whether dot16(k, ones) is exactly `expected`: two keys share the weight equally only if their scores are equal.
  bool dot_with_ones_is(const Floats& k, float expected) {
    const Floats ones(k.size(), 1.0f), other = sparse(k.size(), {{0, expected}});
    return reference_.attend(ones, {k, other}, {Floats(k.size(), 0.0f), ones})[0] == 0.5f;
  }
  static std::vector<std::byte> q8_0_row(float scale, const std::vector<std::int8_t>& q) {
    std::vector<std::byte> bytes(34);
    const std::uint16_t half = f32_to_f16(scale);
    std::memcpy(bytes.data(), &half, 2);
    std::memcpy(bytes.data() + 2, q.data(), q.size());
    return bytes;
  }

  ReferenceCalls reference_;
};

// --- dot16 ----------------------------------------------------------------------------------------------------------

TEST_F(ReferenceOrder, Dot16KeepsSixteenLanes) {
  EXPECT_TRUE(dot_with_ones_is(sparse(48, {{0, kBig}, {1, 1}, {17, 1}}), kBig + 2)) << "one sum would lose both ones";
  EXPECT_TRUE(dot_with_ones_is(sparse(48, {{0, kBig}, {8, 1}, {24, 1}}), kBig + 2)) << "eight lanes would lose both";
  EXPECT_TRUE(dot_with_ones_is(sparse(64, {{0, kBig}, {16, 1}, {48, 1}}), kBig)) << "32 lanes would keep them";
}

TEST_F(ReferenceOrder, Dot16AddsLanesInHalves) {
  EXPECT_TRUE(dot_with_ones_is(sparse(16, {{0, kBig}, {1, 1}, {9, 1}}), kBig + 2))
      << "neighbours first would lose them";
  EXPECT_TRUE(dot_with_ones_is(sparse(16, {{0, kBig}, {8, 1}, {4, 1}}), kBig)) << "8 and 4 meet only at lane 0";
  EXPECT_TRUE(dot_with_ones_is(sparse(16, {{0, kBig}, {2, 1}, {6, 1}}), kBig + 2));
  EXPECT_TRUE(dot_with_ones_is(sparse(16, {{0, kBig}, {1, 1}, {3, 1}}), kBig + 2));
}

TEST_F(ReferenceOrder, Dot16TakesElementsAscendingWithFma) {
  EXPECT_TRUE(dot_with_ones_is(sparse(48, {{0, 1}, {16, kBig}, {32, -kBig}}), 0)) << "descending would give 1";
  // (1 + 2^-12)^2 - (1 + 2^-11) = 2^-24 with one rounding, 0 with two.
  const float a = 1 + 0x1p-12f;
  const Floats q = sparse(32, {{0, -(1 + 0x1p-11f)}, {16, a}}), k = sparse(32, {{0, 1}, {16, a}});
  // 2^24 times the score, so that 2^-24 and 0 get different weights.
  Floats scaled = k;
  for (float& x : scaled) x *= kBig;
  const Floats out = reference_.attend(q, {scaled, Floats(32)}, {Floats(32, 1.0f), Floats(32)});
  EXPECT_EQ(out[0], 1.0f / (1.0f + exp_f32(-1.0f)));
}

TEST_F(ReferenceOrder, RmsNormSumsSquaresInSixteenLanes) {
  Floats x(16 * 65);
  x[0] = 4096;  // its square is kBig
  for (std::size_t i = 0; i < 64; ++i) x[16 * i + 17] = 1;
  const Floats w(x.size(), 1.0f);
  const auto with_sum = [&](float sum) { return 1.0f / std::sqrt(sum / static_cast<float>(x.size())); };
  ASSERT_NE(with_sum(kBig), with_sum(kBig + 64));
  EXPECT_EQ(reference_.rms_norm(x, 1, w, 0.0f)[17], with_sum(kBig + 64));
}

TEST_F(ReferenceOrder, RmsNormScalesBeforeItWeighs) {
  RandomValues random(9);
  const Floats x = random.values(64), w = random.values(64);
  const Floats y = reference_.rms_norm(x, 1, w, 1e-5f);
  const Floats scaled = reference_.rms_norm(x, 1, Floats(64, 1.0f), 1e-5f);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], scaled[i] * w[i]);
}

TEST_F(ReferenceOrder, RmsNormByHand) {
  EXPECT_THAT(reference_.rms_norm({3, 4, 0, 0}, 1, {1, 1, 1, 1}, 0.0f), ElementsAre(1.2f, 1.6f, 0.0f, 0.0f));
  EXPECT_THAT(reference_.rms_norm({0, 0}, 1, {1, 1}, 0.25f), ElementsAre(0.0f, 0.0f));
  EXPECT_THAT(reference_.rms_norm({2, 2}, 1, {1, -3}, 12.0f), ElementsAre(0.5f, -1.5f));
}

TEST_F(ReferenceOrder, RmsNormTreatsEveryHeadAlone) {
  Device& device = *reference_.device;
  const PlacedTensor x = place(device, DType::f32, Floats{3, 4, 0, 5, 1, 1, 2, 0}, 2), y(device, DType::f32, 2, 4);
  const PlacedTensor w = place(device, DType::f32, Floats{1, 2}, 1);
  device.rms_norm(x.view().reshaped({2, 2, 2}), w.view().reshaped({2}), 0.0f, y.view().reshaped({2, 2, 2}));
  const Floats first = reference_.rms_norm({3, 4, 0, 5, 1, 1, 2, 0}, 4, {1, 2}, 0.0f);
  EXPECT_EQ(y.values<float>(), first);
}

// --- linear ---------------------------------------------------------------------------------------------------------

TEST_F(ReferenceOrder, LinearAddsProductsAscendingInOneAccumulator) {
  EXPECT_THAT(reference_.linear({1, 1, 1}, {1, kBig, -kBig}), ElementsAre(0.0f)) << "descending would give 1";
  EXPECT_THAT(reference_.linear({1, 1, 1}, {kBig, -kBig, 1}), ElementsAre(1.0f));
  EXPECT_THAT(reference_.linear({1, 1, 1, 1}, {kBig, 1, 0, 1}), ElementsAre(kBig)) << "two lanes would give kBig + 2";
}

TEST_F(ReferenceOrder, LinearFusesMultiplyAndAdd) {
  const float a = 1 + 0x1p-12f;
  EXPECT_THAT(reference_.linear({1, a}, {-(1 + 0x1p-11f), a}), ElementsAre(0x1p-24f));
}

TEST_F(ReferenceOrder, LinearAddsTheBiasAfterTheSum) {
  EXPECT_THAT(reference_.linear({1, 1}, {kBig, -kBig}, {1}), ElementsAre(1.0f));
}

TEST_F(ReferenceOrder, LinearWithFloatWeightsLetsInfinityThrough) {
  const Floats y = reference_.linear({1, kInfinity}, {1, 1, 1, 0}, {});
  EXPECT_EQ(y[0], kInfinity);
  EXPECT_TRUE(std::isnan(y[1]));
}

// Row n of the weight picks input n.
std::vector<std::byte> picking_weight() {
  std::vector<std::byte> bytes;
  for (int n = 0; n < 32; ++n) {
    std::vector<std::byte> row(34);
    const std::uint16_t one = f32_to_f16(1.0f);
    std::memcpy(row.data(), &one, 2);
    row[static_cast<std::size_t>(2 + n)] = std::byte{1};
    bytes.insert(bytes.end(), row.begin(), row.end());
  }
  return bytes;
}

TEST_F(ReferenceOrder, ActivationsRoundHalvesToEven) {
  const std::vector<std::byte> pick = picking_weight();
  const WeightPart part{DType::q8_0, 32, 32, pick};
  Floats x = sparse(32, {{0, -127}, {1, 0.5f}, {2, 1.5f}, {3, 2.5f}, {4, -0.5f}, {5, -1.5f}, {6, 0.51f}, {7, 126.5f}});
  const Floats y = reference_.linear(x, 1, {&part, 1});
  EXPECT_THAT(Floats(y.begin(), y.begin() + 9), ElementsAre(-127, 0, 2, 2, 0, -2, 1, 126, 0));
}

TEST_F(ReferenceOrder, ActivationsUseTheQuotientsOfTheContract) {
  const std::vector<std::byte> pick = picking_weight();
  const WeightPart part{DType::q8_0, 32, 32, pick};
  RandomValues random(12);
  const Floats x = random.values(32);
  float largest = 0;
  for (float v : x) largest = std::fmax(largest, std::fabs(v));
  const Floats y = reference_.linear(x, 1, {&part, 1});
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(y[i], largest / 127.0f * std::nearbyint(x[i] * (127.0f / largest)));
}

TEST_F(ReferenceOrder, ActivationBlocksBelowTwoToTheMinus100AreZero) {
  const std::vector<std::byte> pick = picking_weight();
  const WeightPart part{DType::q8_0, 32, 32, pick};
  const float limit = 0x1p-100f;
  EXPECT_EQ(reference_.linear(sparse(32, {{3, std::nextafter(limit, 0.0f)}}), 1, {&part, 1})[3], 0.0f);
  EXPECT_EQ(reference_.linear(sparse(32, {{3, limit}}), 1, {&part, 1})[3], limit / 127.0f * 127.0f);
}

TEST_F(ReferenceOrder, ARowWithNanOrInfinityGivesNanToBlockWeightsAndLeavesOtherRowsAlone) {
  const std::vector<std::byte> pick = picking_weight();
  const WeightPart part{DType::q8_0, 32, 32, pick};
  Floats x(3 * 32, 127.0f);
  x[5] = kNan;
  x[32 + 31] = -kInfinity;
  const Floats y = reference_.linear(x, 3, {&part, 1});
  for (std::size_t i = 0; i < 64; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
  for (std::size_t i = 64; i < 96; ++i) EXPECT_EQ(y[i], 127.0f);
}

TEST_F(ReferenceOrder, BlocksAreAddedAscendingInOneAccumulator) {
  // Three blocks that contribute 127 * scale each: 1, kBig, -kBig up to a common factor of 127 * 2^-12.
  std::vector<std::byte> row;
  for (const float scale : {0x1p-12f, 0x1p12f, -0x1p12f}) {
    const std::vector<std::byte> block = q8_0_row(scale, {1});
    row.insert(row.end(), block.begin(), block.end());
  }
  const WeightPart part{DType::q8_0, 1, 96, row};
  const Floats x = sparse(96, {{0, 127}, {32, 127}, {64, 127}});
  const float first = 0x1p-12f * 127, big = 0x1p12f * 127;
  const float ascending = (first + big) - big;
  ASSERT_NE(ascending, first);
  EXPECT_THAT(reference_.linear(x, 1, {&part, 1}), ElementsAre(ascending));
}

// The scale's term before the minimum's, each with its own fma, d * sum rounded.
TEST_F(ReferenceOrder, TheMinimumIsAddedAfterTheProducts) {
  RandomValues random(14);
  for (int i = 0; i < 50; ++i) {
    const std::vector<std::byte> row = random.weight(DType::q4_1, 1, 64);
    const WeightPart part{DType::q4_1, 1, 64, row};
    const Floats x = random.values(64);
    QuantisedRow w;
    decode_row(DType::q4_1, row, 64, w);
    float expected = 0;
    for (std::size_t b = 0; b < 2; ++b) {
      float largest = 0;
      for (std::size_t k = b * 32; k < b * 32 + 32; ++k) largest = std::fmax(largest, std::fabs(x[k]));
      const float d = largest / 127.0f;
      int dot = 0, sum = 0;
      for (std::size_t k = b * 32; k < b * 32 + 32; ++k) {
        const int q = static_cast<int>(std::nearbyint(x[k] * (127.0f / largest)));
        dot += q * w.q[k];
        sum += q;
      }
      expected = std::fma(w.scale[b] * d, static_cast<float>(dot), expected);
      expected = std::fma(w.minimum[b], d * static_cast<float>(sum), expected);
    }
    EXPECT_THAT(reference_.linear(x, 1, {&part, 1}), ElementsAre(expected));
  }
}

// --- attention ------------------------------------------------------------------------------------------------------

// Scores of 0 and -17: weights 1 and about 4.1e-8, less than half an ulp of 1, which vanishes beside 1 but three of
// them together do not.
class ReferenceAttentionOrder : public ReferenceOrder {
 protected:
  const Floats q_ = {1.0f};
  const Floats high_ = {0.0f}, low_ = {-17.0f};
  const Floats one_ = {1.0f}, zero_ = {0.0f};
};

TEST_F(ReferenceAttentionOrder, TheDenominatorIsSummedInLogicalOrder) {
  const float e = exp_f32(-17.0f);
  const float small_first = 1.0f / (((e + e) + e) + 1.0f);
  ASSERT_NE(small_first, 1.0f);
  for (const AttentionForm form : {AttentionForm::lists, AttentionForm::mask, AttentionForm::eager})
    for (const std::int64_t ancestors : {0, 1, 2, 3}) {
      EXPECT_THAT(reference_.attend(q_, {high_, low_, low_, low_}, {one_, zero_, zero_, zero_}, ancestors, form),
                  ElementsAre(1.0f));
      EXPECT_THAT(reference_.attend(q_, {low_, low_, low_, high_}, {zero_, zero_, zero_, one_}, ancestors, form),
                  ElementsAre(small_first));
    }
}

TEST_F(ReferenceAttentionOrder, ValuesAreSummedInLogicalOrderWithFma) {
  const Floats big = {kBig}, minus_big = {-kBig};
  EXPECT_THAT(reference_.attend(q_, {high_, high_, high_}, {one_, big, minus_big}, 1), ElementsAre(0.0f));
  EXPECT_THAT(reference_.attend(q_, {high_, high_, high_}, {big, minus_big, one_}, 1), ElementsAre(1.0f / 3.0f));
  // e * v rounds; fused with the sum it does not.
  const float e = exp_f32(-1.0f), v = 1 + 0x1p-12f;
  const float fused = std::fma(e, v, -e), separate = e * v - e;
  ASSERT_NE(fused, separate);
  EXPECT_THAT(reference_.attend(q_, {high_, {-1.0f}}, {{-e}, {v}}), ElementsAre(fused / (1.0f + e)));
}

// Keys that count as 0 but for some, by their place among those seen.
class ReferenceTileOrder : public ReferenceAttentionOrder {
 protected:
  using Scores = std::vector<std::pair<std::size_t, float>>;
  static std::vector<Floats> keys(std::size_t n, const Scores& scores, float others = -1000.0f) {
    std::vector<Floats> all(n, Floats{others});
    for (const auto& [i, score] : scores) all[i] = {score};
    return all;
  }
  static std::vector<Floats> values(std::size_t n, const Scores& values) { return keys(n, values, 0.0f); }

  const float e_ = exp_f32(-17.0f);
  const float tile_apart_ = 1.0f / std::fma(e_, 3.0f, 1.0f);
};

TEST_F(ReferenceTileOrder, KeysAreSummedInTilesOf128OrdinalsHoweverTheyAreListed) {
  ASSERT_NE(tile_apart_, 1.0f);
  const Scores same = {{0, 0}, {125, -17}, {126, -17}, {127, -17}},
               apart = {{0, 0}, {128, -17}, {129, -17}, {130, -17}};
  const auto v = values(140, {{0, 1}});
  for (const AttentionForm form : {AttentionForm::lists, AttentionForm::mask, AttentionForm::eager})
    for (const std::int64_t ancestors : {0, 1, 10, 12, 13, 139}) {
      EXPECT_THAT(reference_.attend(q_, keys(140, same), v, ancestors, form), ElementsAre(1.0f));
      EXPECT_THAT(reference_.attend(q_, keys(140, apart), v, ancestors, form), ElementsAre(tile_apart_));
    }
}

TEST_F(ReferenceTileOrder, OrdinalsCountFromTheBeginningOfTheWindow) {
  const auto v = values(20, {{0, 1}});
  const Scores low = {{0, 0}, {3, -17}, {4, -17}, {5, -17}};
  for (const AttentionForm form : {AttentionForm::lists, AttentionForm::mask, AttentionForm::eager})
    for (const std::int64_t ancestors : {0, 16, 17, 19}) {
      EXPECT_THAT(reference_.attend(q_, keys(20, low), v, ancestors, form, 122), ElementsAre(1.0f));
      EXPECT_THAT(reference_.attend(q_, keys(20, low), v, ancestors, form, 125), ElementsAre(tile_apart_));
      EXPECT_THAT(reference_.attend(q_, keys(20, low), v, ancestors, form, 128), ElementsAre(1.0f));
    }
}

TEST_F(ReferenceTileOrder, AWindowThatBeginsInsideTheTreeStillCountsWhatItHides) {
  const auto v = values(20, {{0, 1}});
  const Scores low = {{0, 0}, {3, -17}, {4, -17}, {5, -17}};
  for (const AttentionForm form : {AttentionForm::lists, AttentionForm::mask, AttentionForm::eager})
    for (const std::int64_t hidden : {1, 7, 122}) {
      EXPECT_THAT(reference_.attend(q_, keys(20, low), v, 19, form, 122, hidden), ElementsAre(1.0f));
      EXPECT_THAT(reference_.attend(q_, keys(20, low), v, 19, form, 125, hidden), ElementsAre(tile_apart_));
    }
}

TEST_F(ReferenceTileOrder, TilesAreCombinedAscendingWithFma) {
  const auto k = keys(300, {{0, 0}, {128, 0}, {256, 0}});
  for (const AttentionForm form : {AttentionForm::lists, AttentionForm::mask, AttentionForm::eager}) {
    const auto attend = [&](float a, float b, float c) {
      return reference_.attend(q_, k, values(300, {{0, a}, {128, b}, {256, c}}), 0, form);
    };
    EXPECT_THAT(attend(1, kBig, -kBig), ElementsAre(0.0f));
    EXPECT_THAT(attend(kBig, -kBig, 1), ElementsAre(1.0f / 3.0f));
    // w * acc rounds; fused with the sum it does not.
    const float w = exp_f32(-1.0f), v = 1 + 0x1p-12f;
    ASSERT_NE(std::fma(w, v, -w), w * v - w);
    EXPECT_THAT(reference_.attend(q_, keys(300, {{0, 0}, {130, -1}}), values(300, {{0, -w}, {130, v}}), 0, form),
                ElementsAre(std::fma(w, v, -w) / std::fma(w, 1.0f, 1.0f)));
  }
}

TEST_F(ReferenceTileOrder, AccumulatorsStartAtPlusZeroAlsoWithOneTile) {
  for (const AttentionForm form : {AttentionForm::lists, AttentionForm::mask, AttentionForm::eager})
    EXPECT_EQ(std::bit_cast<std::uint32_t>(reference_.attend(q_, {high_}, {{-0.0f}}, 0, form)[0]), 0u);
}

TEST_F(ReferenceTileOrder, ATileWithoutAFiniteScoreDoesNotExistAndANanAnywhereIsTheResult) {
  const float kMinus = -kInfinity;
  auto v = values(300, {{0, 1}});
  for (std::size_t i = 128; i < 256; ++i) v[i] = {kNan};
  auto k = keys(300, {{0, 0}});
  for (std::size_t i = 128; i < 256; ++i) k[i] = {kMinus};
  for (const AttentionForm form : {AttentionForm::lists, AttentionForm::mask, AttentionForm::eager}) {
    EXPECT_THAT(reference_.attend(q_, k, v, 0, form), ElementsAre(1.0f));
    for (const float bad : {kNan, kInfinity})
      for (const std::size_t at : {5u, 200u, 299u}) {
        auto other = k;
        other[at] = {bad};
        EXPECT_TRUE(std::isnan(reference_.attend(q_, other, v, 0, form)[0])) << at;
      }
    EXPECT_TRUE(std::isnan(reference_.attend(q_, keys(300, {}, kMinus), v, 0, form)[0]));
  }
}

TEST_F(ReferenceAttentionOrder, OneDivisionEndsIt) {
  ASSERT_NE(5.0f / 3.0f, 5.0f * (1.0f / 3.0f));
  EXPECT_THAT(reference_.attend(q_, {high_, high_, high_}, {{1}, {1}, {3}}), ElementsAre(5.0f / 3.0f));
}

TEST_F(ReferenceAttentionOrder, ALoneKeyGivesItsValueBack) {
  EXPECT_THAT(reference_.attend({3.0f, -2.0f}, {{5.0f, 7.0f}}, {{0.1f, -0.0f}}), ElementsAre(0.1f, 0.0f));
}

TEST_F(ReferenceAttentionOrder, NanScoresAndInfiniteMaximaGiveNan) {
  for (const AttentionForm form : {AttentionForm::lists, AttentionForm::mask, AttentionForm::eager}) {
    const auto attend = [&](const Floats& a, const Floats& b) {
      return reference_.attend(q_, {a, b}, {one_, one_}, 0, form)[0];
    };
    EXPECT_TRUE(std::isnan(attend({kNan}, high_)));
    EXPECT_TRUE(std::isnan(attend(high_, {kInfinity})));
    EXPECT_TRUE(std::isnan(attend({-kInfinity}, {-kInfinity})));
    EXPECT_EQ(attend({-kInfinity}, high_), 1.0f) << "a key with weight 0 is no error";
  }
}

TEST_F(ReferenceAttentionOrder, EveryQueryHeadReadsItsGroupsKeys) {
  AttentionScenario s({.rows = 1, .sequences = 1, .longest_prefix = 0, .kv_heads = 2, .group = 3, .dim = 2}, 1);
  s.v = {{1, 2, 30, 40}};
  EXPECT_THAT(run_attention(*reference_.device, s, DType::f32, AttentionForm::lists, 1),
              ElementsAre(1, 2, 1, 2, 1, 2, 30, 40, 30, 40, 30, 40));
}

// --- the rest -------------------------------------------------------------------------------------------------------

TEST_F(ReferenceOrder, RopeByHandAndWithItsTwoRoundings) {
  EXPECT_THAT(reference_.rope({1, 2, 3, 4}, 1, 1, {1}, {9, 9, 0, 1}, {9, 9, 1, 0}, 2), ElementsAre(-3, 2, 1, 4));
  RandomValues random(15);
  const Floats x = random.values(64), c = random.values(32), s = random.values(32);
  const Floats y = reference_.rope(x, 1, 1, {0}, c, s, 1);
  for (std::size_t j = 0; j < 32; ++j) {
    EXPECT_EQ(y[j], std::fma(x[j], c[j], -(x[j + 32] * s[j])));
    EXPECT_EQ(y[j + 32], std::fma(x[j + 32], c[j], x[j] * s[j]));
  }
}

TEST_F(ReferenceOrder, SwigluByHand) {
  const Floats y = reference_.swiglu({0.0f, -0.0f, 1e30f, -100.0f, 1.0f, 3, 3, 2, 2, 0.5f});
  EXPECT_EQ(std::bit_cast<std::uint32_t>(y[0]), 0u);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(y[1]), 0x80000000u);
  EXPECT_EQ(y[2], 2e30f);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(y[3]), 0x80000000u) << "e^100 overflows: -100 / inf";
  EXPECT_EQ(y[4], 1.0f / (1.0f + exp_f32(-1.0f)) * 0.5f);
}

TEST_F(ReferenceOrder, SiluIsTheFirstHalfOfSwiglu) {
  RandomValues random(18);
  Floats x = random.values(200);
  for (std::size_t i = 0; i < x.size(); i += 3) x[i] *= 40;
  x.insert(x.end(), {0.0f, -0.0f, 1e30f, -100.0f, 1e-42f, kInfinity});
  Floats with_ones = x;
  with_ones.resize(2 * x.size(), 1.0f);
  EXPECT_EQ(reference_.silu(x), reference_.swiglu(with_ones));
  EXPECT_EQ(reference_.silu({1.0f})[0], 1.0f / (1.0f + exp_f32(-1.0f)));
  EXPECT_TRUE(std::isnan(reference_.silu({kNan})[0]));
  EXPECT_TRUE(std::isnan(reference_.silu({-kInfinity})[0])) << "-inf / inf";
}

// Terms of 1 and of about 4.1e-8, less than half an ulp of 1: lost one by one beside the 1, kept in lanes of their own.
class ReferenceLogSumExpOrder : public ReferenceOrder {
 protected:
  // n terms that count as 0 but for some.
  static Floats terms(std::size_t n, const std::vector<std::pair<std::size_t, float>>& elements) {
    Floats x(n, -1000.0f);
    for (const auto& [i, value] : elements) x[i] = value;
    return x;
  }
  static float log_of(float sum) { return static_cast<float>(log_f64(double{sum})); }

  const float small_ = exp_f32(-17.0f);
};

TEST_F(ReferenceLogSumExpOrder, TermsGoTo256LanesAscending) {
  const Floats same_lane = terms(1024, {{0, 0}, {256, -17}, {512, -17}, {768, -17}});
  const Floats small_first = terms(1024, {{0, -17}, {256, -17}, {512, -17}, {768, 0}});
  const Floats lane_of_their_own = terms(1024, {{0, 0}, {1, -17}, {257, -17}, {513, -17}});
  ASSERT_NE(log_of(((small_ + small_) + small_) + 1.0f), 0.0f);
  EXPECT_EQ(reference_.log_sum_exp(same_lane), 0.0f);
  EXPECT_EQ(reference_.log_sum_exp(small_first), log_of(((small_ + small_) + small_) + 1.0f));
  EXPECT_EQ(reference_.log_sum_exp(lane_of_their_own), log_of(1.0f + ((small_ + small_) + small_)));
}

TEST_F(ReferenceLogSumExpOrder, LanesAreAddedInHalves) {
  const float together = log_of(1.0f + ((small_ + small_) + (small_ + small_)));
  ASSERT_NE(together, 0.0f);
  EXPECT_EQ(reference_.log_sum_exp(terms(256, {{0, 0}, {1, -17}, {129, -17}, {3, -17}, {131, -17}})), together);
  Floats each_alone = terms(256, {{0, 0}});
  for (std::size_t half = 128; half >= 1; half /= 2) each_alone[half] = -17;
  EXPECT_EQ(reference_.log_sum_exp(each_alone), 0.0f) << "each meets lane 0 alone";
}

TEST_F(ReferenceLogSumExpOrder, TheLogarithmAndItsSumWithTheMaximumAreDouble) {
  EXPECT_EQ(reference_.log_sum_exp({5, 5, 5}), static_cast<float>(5.0 + log_f64(3.0)));
  const float m = 3.3f;
  int otherwise = 0;  // sums for which a float logarithm would give another result
  for (std::size_t n = 1; n <= 200; ++n) {
    const auto terms = static_cast<float>(n);
    const auto expected = static_cast<float>(double{m} + log_f64(double{terms}));
    EXPECT_EQ(reference_.log_sum_exp(Floats(n, m)), expected) << n;
    if (m + log_of(terms) != expected) ++otherwise;
  }
  EXPECT_GT(otherwise, 0);
}

TEST_F(ReferenceLogSumExpOrder, TheScaledValueIsRoundedBeforeItIsUsed) {
  RandomValues random(19);
  for (int i = 0; i < 50; ++i) {
    const Floats x = random.values(random.between(1, 60));
    const float scale = 0.01f + std::fabs(random.value());
    Floats scaled = x;
    for (float& value : scaled) value *= scale;
    EXPECT_EQ(reference_.log_sum_exp(x, scale), reference_.log_sum_exp(scaled));
  }
}

TEST_F(ReferenceLogSumExpOrder, NanCountsAsMinusInfinityAndAMaximumThatIsNotFiniteIsTheResult) {
  EXPECT_EQ(reference_.log_sum_exp({3.5f}), 3.5f);
  EXPECT_EQ(reference_.log_sum_exp({kNan, 3.5f, -kInfinity}), 3.5f);
  EXPECT_EQ(reference_.log_sum_exp({kNan, kNan}), -kInfinity);
  EXPECT_EQ(reference_.log_sum_exp({-kInfinity}), -kInfinity);
  EXPECT_EQ(reference_.log_sum_exp({1, kInfinity, kNan}), kInfinity);
  EXPECT_EQ(reference_.log_sum_exp({3e38f, 0}, 2.0f), kInfinity) << "the product overflows";
}

TEST_F(ReferenceOrder, KvCopyByHand) {
  Device& device = *reference_.device;
  const PlacedTensor k = place(device, DType::f32, Floats{0, 1, 2, 3, 4, 5}, 6);
  const PlacedTensor v = place(device, DType::f32, Floats{10, 11, 12, 13, 14, 15}, 6);
  const KvViews kv{k.view().reshaped({3, 2, 1, 1}), v.view().reshaped({3, 2, 1, 1})};
  const PlacedTensor from = place(device, DType::i32, std::vector<std::int32_t>{5, 0, 0}, 1);
  const PlacedTensor to = place(device, DType::i32, std::vector<std::int32_t>{0, 5, 3}, 1);
  device.kv_copy({&kv, 1}, from.view().reshaped({3}), to.view().reshaped({3}));
  EXPECT_THAT(k.values<float>(), ElementsAre(5, 1, 2, 0, 4, 0));
  EXPECT_THAT(v.values<float>(), ElementsAre(15, 11, 12, 10, 14, 10));
}

TEST_F(ReferenceOrder, EmbedAndGatherCopyRows) {
  Device& device = *reference_.device;
  const Floats table = {1, 2, 3, 4, 5, 6};
  const WeightPart part{DType::f32, 3, 2, std::as_bytes(std::span(table))};
  const auto weight = device.load_weight({&part, 1});
  const PlacedTensor index = place(device, DType::i32, std::vector<std::int32_t>{2, 0, 2}, 1);
  const PlacedTensor embedded(device, DType::f32, 3, 2), gathered(device, DType::f32, 3, 2);
  device.embed(*weight, index.view().reshaped({3}), embedded);
  device.gather_rows(place(device, DType::f32, table, 3), index.view().reshaped({3}), gathered);
  EXPECT_THAT(embedded.values<float>(), ElementsAre(5, 6, 1, 2, 5, 6));
  EXPECT_THAT(gathered.values<float>(), ElementsAre(5, 6, 1, 2, 5, 6));
}

TEST_F(ReferenceOrder, ArgmaxTakesTheLowestIdAmongEqualsAndIgnoresNan) {
  EXPECT_THAT(reference_.argmax({1, 3, 3, 2}, 1), ElementsAre(1));
  EXPECT_THAT(reference_.argmax({kNan, -5, kNan, -5}, 1), ElementsAre(1));
  EXPECT_THAT(reference_.argmax({-0.0f, 0.0f}, 1), ElementsAre(0));
  EXPECT_THAT(reference_.argmax({kNan, kNan}, 1), ElementsAre(0));
  EXPECT_THAT(reference_.argmax({kNan, -kInfinity, 1, kInfinity}, 2), ElementsAre(0, 1));
}

TEST_F(ReferenceOrder, TopKSortsByValueThenIdAndWritesNanAsMinusInfinity) {
  const auto top = reference_.top_k({1, 3, kNan, 3, -kInfinity, 2}, 6);
  EXPECT_THAT(top.id, ElementsAre(1, 3, 5, 0, 2, 4));
  EXPECT_THAT(top.value, ElementsAre(3, 3, 2, 1, -kInfinity, -kInfinity));
  EXPECT_THAT(reference_.top_k({0, 0, 0, 0}, 2).id, ElementsAre(0, 1));
}

TEST_F(ReferenceOrder, TopKAgreesWithASort) {
  RandomValues random(16);
  for (int i = 0; i < 20; ++i) {
    Floats x = random.values(random.between(1, 200));
    for (float& value : x) value = std::nearbyint(value * 4);  // many ties
    std::vector<std::pair<float, std::int32_t>> order;
    for (std::size_t c = 0; c < x.size(); ++c) order.push_back({-x[c], static_cast<std::int32_t>(c)});
    std::sort(order.begin(), order.end());
    const auto top = reference_.top_k(x, random.between(1, static_cast<std::int64_t>(x.size())));
    for (std::size_t j = 0; j < top.id.size(); ++j) {
      ASSERT_EQ(top.id[j], order[j].second);
      ASSERT_EQ(top.value[j], -order[j].first);
    }
  }
}

}  // namespace
}  // namespace espalier
