// F22 to F37 and the numbers (F59): operators against simple loops in double.
#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "card_test_fixture.h"

namespace ascend_fake {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> some_floats(size_t count, float scale = 1.0f) {
  std::vector<float> values;
  uint32_t state = 12345;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    values.push_back(scale * (static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1.0f));
  }
  return values;
}

class Operators : public Card {
 protected:
  void* out_ = nullptr;
  aclTensor* out(const Dims& dims, aclDataType type = ACL_FLOAT) {
    const int64_t elements = std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
    out_ = memory(static_cast<size_t>(elements) * 8);
    return tensor(type, dims, out_);
  }
  template <typename T = float>
  std::vector<T> result(size_t count) {
    return download<T>(out_, count);
  }
  aclTensor* i32(const Dims& dims, const std::vector<int32_t>& values) {
    return tensor(ACL_INT32, dims, upload(values));
  }
  aclTensor* truths(const Dims& dims, const std::vector<uint8_t>& values) {
    return tensor(ACL_BOOL, dims, upload(values));
  }
};

TEST_F(Operators, F22GatherAndEmbeddingTakeTheRowsThatAreNamed) {
  aclTensor* table = floats({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(op(aclnnEmbeddingGetWorkspaceSize, aclnnEmbedding, table, i32({2}, {2, 0}), out({2, 2})), 0);
  EXPECT_EQ(result(4), (std::vector<float>{5, 6, 1, 2}));
  EXPECT_EQ(op(aclnnIndexSelectGetWorkspaceSize, aclnnIndexSelect, table, 1, i32({3}, {1, 1, 0}), out({3, 3})), 0);
  EXPECT_EQ(result(9), (std::vector<float>{2, 2, 1, 4, 4, 3, 6, 6, 5}));
  EXPECT_EQ(op(aclnnGatherV2GetWorkspaceSize, aclnnGatherV2, table, 0, i32({1, 2}, {1, 2}), out({1, 2, 2})), 0);
  EXPECT_EQ(result(4), (std::vector<float>{3, 4, 5, 6}));
}

TEST_F(Operators, F22AnIndexOutsideTheExtentIsALateFault) {
  aclTensor* table = floats({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(op(aclnnEmbeddingGetWorkspaceSize, aclnnEmbedding, table, i32({1}, {-1}), out({1, 2})), 0);
  EXPECT_EQ(synchronise(), 507035);
  stream = new_stream();
  EXPECT_EQ(
      op(aclnnInplaceIndexCopyGetWorkspaceSize, aclnnInplaceIndexCopy, table, 0, i32({1}, {3}), floats({1, 2}, {7, 8})),
      0);
  EXPECT_EQ(synchronise(), 507035);
}

TEST_F(Operators, F23ADuplicateIndexAndATooLargeEmbeddingIndexAreViolations) {
  aclTensor* table = floats({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(op(aclnnInplaceIndexCopyGetWorkspaceSize, aclnnInplaceIndexCopy, table, 0, i32({2}, {1, 1}),
               floats({2, 2}, {7, 8, 9, 10})),
            0);
  EXPECT_EQ(synchronise(), 0);
  expect_only(23);
  EXPECT_EQ(op(aclnnEmbeddingGetWorkspaceSize, aclnnEmbedding, table, i32({1}, {3}), out({1, 2})), 0);
  EXPECT_EQ(synchronise(), 0);
  expect_only(23);
}

TEST_F(Operators, F23DistinctRowsAreWritten) {
  void* data = upload(std::vector<float>(6, 0));
  EXPECT_EQ(op(aclnnInplaceIndexCopyGetWorkspaceSize, aclnnInplaceIndexCopy, tensor(ACL_FLOAT, {3, 2}, data), 0,
               i32({2}, {2, 0}), floats({2, 2}, {7, 8, 9, 10})),
            0);
  EXPECT_EQ(download<float>(data, 6), (std::vector<float>{9, 10, 0, 0, 7, 8}));
}

TEST_F(Operators, F24AnElementThatNobodyWroteIsAViolation) {
  aclTensor* x = tensor(ACL_FLOAT, {4}, memory(16));
  EXPECT_EQ(op(aclnnSiluGetWorkspaceSize, aclnnSilu, x, out({4})), 0);
  EXPECT_EQ(synchronise(), 0);
  expect_only(24);
}

TEST_F(Operators, F24PartsThatWereWrittenMayBeRead) {
  void* data = memory(64);
  EXPECT_EQ(aclrtMemsetAsync(data, 16, 0, 16, stream), 0);
  EXPECT_EQ(op(aclnnSiluGetWorkspaceSize, aclnnSilu, tensor(ACL_FLOAT, {4}, data), out({4})), 0);
  EXPECT_EQ(synchronise(), 0);
}

TEST_F(Operators, F26EmbeddingIntoAnotherTypeIsRefused) {
  aclTensor* table = floats({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(op(aclnnEmbeddingGetWorkspaceSize, aclnnEmbedding, table, i32({1}, {0}), out({1, 2}, ACL_FLOAT16)), 161002);
}

TEST_F(Operators, F27RmsNormNeedsItsTypesAndRstd) {
  aclTensor* x = floats({2, 4}, some_floats(8));
  aclTensor* gamma = floats({4}, {1, 2, 3, 4});
  aclTensor* rstd = tensor(ACL_FLOAT, {2, 1}, memory(8));
  aclTensor* y = out({2, 4});
  EXPECT_EQ(op(aclnnRmsNormGetWorkspaceSize, aclnnRmsNorm, x, gamma, 1e-5, y, nullptr), 161001);
  EXPECT_EQ(op(aclnnRmsNormGetWorkspaceSize, aclnnRmsNorm, x, gamma, 1e-5, y, tensor(ACL_FLOAT, {2}, memory(8))),
            161002);
  EXPECT_EQ(op(aclnnRmsNormGetWorkspaceSize, aclnnRmsNorm, x, gamma, 1e-5, y, tensor(ACL_FLOAT16, {2, 1}, memory(8))),
            161002);
  EXPECT_EQ(op(aclnnRmsNormGetWorkspaceSize, aclnnRmsNorm, x, tensor(ACL_FLOAT16, {4}, memory(8)), 1e-5, y, rstd),
            161002);
}

TEST_F(Operators, F27RmsNormTakesEveryPairOfTypesThatIsDocumented) {
  aclTensor* rstd = tensor(ACL_FLOAT, {2, 1}, memory(8));
  const std::vector<float> ones(8, 1);
  for (const aclDataType type : {ACL_FLOAT16, ACL_BF16}) {
    aclTensor* x = tensor(type, {2, 4}, cast_up(type, ones));
    for (const aclDataType gamma_type : {type, ACL_FLOAT}) {
      aclTensor* gamma = gamma_type == ACL_FLOAT ? floats({4}, {1, 1, 1, 1})
                                                 : tensor(type, {4}, cast_up(type, std::vector<float>(4, 1)));
      EXPECT_EQ(op(aclnnRmsNormGetWorkspaceSize, aclnnRmsNorm, x, gamma, 0.0, out({2, 4}, type), rstd), 0);
      EXPECT_EQ(cast_down(type, out_, 8), ones);
    }
  }
}

TEST_F(Operators, F27RmsNormIsTheFormula) {
  const std::vector<float> x = some_floats(3 * 37, 4);
  const std::vector<float> gamma = some_floats(37);
  aclTensor* rstd = tensor(ACL_FLOAT, {3, 1}, memory(12));
  EXPECT_EQ(
      op(aclnnRmsNormGetWorkspaceSize, aclnnRmsNorm, floats({3, 37}, x), floats({37}, gamma), 1e-5, out({3, 37}), rstd),
      0);
  const std::vector<float> y = result(3 * 37);
  for (size_t row = 0; row < 3; ++row) {
    double square = 0;
    for (size_t i = 0; i < 37; ++i) square += static_cast<double>(x[row * 37 + i]) * x[row * 37 + i];
    for (size_t i = 0; i < 37; ++i) {
      EXPECT_NEAR(y[row * 37 + i], x[row * 37 + i] * gamma[i] / std::sqrt(square / 37 + 1e-5), 1e-5);
    }
  }
}

TEST_F(Operators, F28MmRefusesWhatDoesNotFit) {
  aclTensor* a = floats({2, 3}, some_floats(6));
  aclTensor* b = floats({4, 2}, some_floats(8));
  EXPECT_EQ(op(aclnnMmGetWorkspaceSize, aclnnMm, a, b, out({2, 2}), KEEP_DTYPE), 161002) << "K differs";
  aclTensor* half = tensor(ACL_BF16, {3, 2}, cast_up(ACL_BF16, some_floats(6)));
  EXPECT_EQ(op(aclnnMmGetWorkspaceSize, aclnnMm, a, half, out({2, 2}), KEEP_DTYPE), 161002) << "f32 with bf16";
  aclTensor* left = tensor(ACL_BF16, {2, 3}, cast_up(ACL_BF16, some_floats(6)));
  EXPECT_EQ(op(aclnnMmGetWorkspaceSize, aclnnMm, left, half, out({2, 2}, ACL_BF16), USE_FP16), 0);
  expect_only(28);
}

TEST_F(Operators, F28AndF16AStridedOutputOfMmOrAGatherIsAViolation) {
  aclTensor* a = floats({2, 2}, {1, 2, 3, 4});
  const auto strided = [&] { return view(ACL_FLOAT, {2, 2}, {3, 1}, 0, memory(64)); };
  EXPECT_EQ(op(aclnnMmGetWorkspaceSize, aclnnMm, a, a, strided(), KEEP_DTYPE), 0);
  expect_only(28);
  EXPECT_EQ(op(aclnnIndexSelectGetWorkspaceSize, aclnnIndexSelect, a, 0, i32({2}, {1, 0}), strided()), 0);
  expect_only(16);
}

TEST_F(Operators, F28F32OutOf16BitsIsASwitchOfTheProfile) {
  const auto multiply = [&] {
    aclTensor* a = tensor(ACL_FLOAT16, {2, 3}, cast_up(ACL_FLOAT16, {1, 2, 3, 4, 5, 6}));
    aclTensor* b = tensor(ACL_FLOAT16, {3, 1}, cast_up(ACL_FLOAT16, {1, 1, 0.5f}));
    return op(aclnnMmGetWorkspaceSize, aclnnMm, a, b, out({2, 1}), KEEP_DTYPE);
  };
  EXPECT_EQ(multiply(), 0);
  EXPECT_EQ(result(2), (std::vector<float>{4.5f, 12}));
  close();
  AscendFakeOptions options = options_of_seed(0);
  options.f32_from_16_bit = 0;
  begin(options);
  EXPECT_EQ(multiply(), 161002);
}

TEST_F(Operators, F28MmIsTheFormulaForEveryTypeUnderEverySeed) {
  const std::vector<float> a = some_floats(5 * 70);
  const std::vector<float> b = some_floats(6 * 70, 0.5f);
  for (const uint64_t seed : {0, 1, 2, 3}) {
    begin(options_of_seed(seed));
    for (const aclDataType type : {ACL_FLOAT, ACL_FLOAT16, ACL_BF16}) {
      void* left = type == ACL_FLOAT ? upload(a) : cast_up(type, a);
      void* right = type == ACL_FLOAT ? upload(b) : cast_up(type, b);
      aclTensor* weight = view(type, {70, 6}, {1, 70}, 0, right);
      EXPECT_EQ(op(aclnnMmGetWorkspaceSize, aclnnMm, tensor(type, {5, 70}, left), weight, out({5, 6}), KEEP_DTYPE), 0);
      const std::vector<float> y = result(30);
      const double tolerance = 70 * (type == ACL_FLOAT ? 0x1p-22 : type == ACL_FLOAT16 ? 0x1p-10 : 0x1p-7);
      for (size_t i = 0; i < 30; ++i) {
        double expected = 0;
        for (size_t k = 0; k < 70; ++k) expected += static_cast<double>(a[i / 6 * 70 + k]) * b[i % 6 * 70 + k];
        EXPECT_NEAR(y[i], expected, tolerance) << "seed " << seed << ", type " << type;
      }
    }
    close();
  }
}

TEST_F(Operators, F28AChipMayHaveFewerTypes) {
  AscendFakeOptions options = options_of_seed(0);
  options.soc_name = "Ascend310P3";
  begin(options);
  aclTensor* a = floats({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(op(aclnnMmGetWorkspaceSize, aclnnMm, a, a, out({2, 2}), KEEP_DTYPE), 161002);
  EXPECT_EQ(op(aclnnMmGetWorkspaceSize, aclnnMm, a, a, out({2, 2}), ALLOW_FP32_DOWN_PRECISION), 0);
  EXPECT_EQ(result(4), (std::vector<float>{7, 10, 15, 22}));
  aclTensor* b = tensor(ACL_BF16, {2, 2}, cast_up(ACL_BF16, {1, 2, 3, 4}));
  EXPECT_EQ(op(aclnnMmGetWorkspaceSize, aclnnMm, b, b, out({2, 2}), ALLOW_FP32_DOWN_PRECISION), 161002);
}

TEST_F(Operators, F29BatchMatMulTakesThreeDimensions) {
  aclTensor* flat = floats({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(op(aclnnBatchMatMulGetWorkspaceSize, aclnnBatchMatMul, flat, flat, out({2, 2}), KEEP_DTYPE), 161002);
  aclTensor* a = floats({2, 1, 2}, {1, 2, 3, 4});
  aclTensor* b = floats({2, 2, 1}, {5, 6, 7, 8});
  EXPECT_EQ(op(aclnnBatchMatMulGetWorkspaceSize, aclnnBatchMatMul, a, b, out({2, 1, 1}), KEEP_DTYPE), 0);
  EXPECT_EQ(result(2), (std::vector<float>{17, 53}));
}

class Quantised : public Operators {
 protected:
  // y = x * ((w + 0) * scale) for k inputs in groups and n outputs, whose weights are all the same.
  // between: elements between the weights of two outputs
  int multiply(int64_t k, int group, int64_t scales, int64_t n = 1, int64_t between = 0) {
    aclTensor* x = tensor(ACL_FLOAT16, {1, k}, cast_up(ACL_FLOAT16, std::vector<float>(static_cast<size_t>(k), 1)));
    const int64_t stride = k + between;
    std::vector<int8_t> values(static_cast<size_t>(stride * n));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int8_t>(i % static_cast<size_t>(stride) % 5);
    aclTensor* weight = view(ACL_INT8, {k, n}, {1, stride}, 0, upload(values));
    aclTensor* scale = tensor(ACL_FLOAT16, {scales, n},
                              cast_up(ACL_FLOAT16, std::vector<float>(static_cast<size_t>(scales * n), 0.5f)));
    return op(aclnnWeightQuantBatchMatmulV2GetWorkspaceSize, aclnnWeightQuantBatchMatmulV2, x, weight, scale, nullptr,
              nullptr, nullptr, nullptr, group, out({1, n}, ACL_FLOAT16));
  }
};

TEST_F(Quantised, F30GroupsScalesExtentsAndStridesThatDoNotFitAreRefused) {
  EXPECT_EQ(multiply(64, 16, 4), 161002);
  EXPECT_EQ(multiply(64, 64, 1), 161002) << "a group is smaller than k";
  EXPECT_EQ(multiply(64, 32, 3), 161002);
  EXPECT_EQ(multiply(65536, 32, 2048), 161002) << "k is at most 65535";
  EXPECT_EQ(multiply(64, 32, 2, 65536), 161002) << "n is at most 65535";
  EXPECT_EQ(multiply(64, 32, 2, 3, 32), 161002) << "strides are those of a transposed matrix";
}

TEST_F(Quantised, F30AGroupOf32IsTheFormulaUpToTheLargestExtents) {
  float expected = 0;
  for (int i = 0; i < 64; ++i) expected += 0.5f * static_cast<float>(i % 5);
  for (const int64_t n : {1, 3, 65535}) {
    EXPECT_EQ(multiply(64, 32, 2, n), 0) << n;
    EXPECT_EQ(cast_down(ACL_FLOAT16, out_, static_cast<size_t>(n)),
              std::vector<float>(static_cast<size_t>(n), expected));
  }
  EXPECT_EQ(multiply(65535, 32, 2048), 0) << "and as many inputs";
}

TEST_F(Operators, F31TopkRefusesUnsortedAndI32AndBreaksTiesByTheSeed) {
  aclTensor* x = floats({6}, {1, 3, 3, 0, 3, 2});
  aclTensor* values = tensor(ACL_FLOAT, {2}, memory(8));
  EXPECT_EQ(op(aclnnTopkGetWorkspaceSize, aclnnTopk, x, 2, 0, true, false, values, out({2}, ACL_INT64)), 161002);
  EXPECT_EQ(op(aclnnTopkGetWorkspaceSize, aclnnTopk, x, 2, 0, true, true, values, out({2}, ACL_INT32)), 161002);
  close();
  std::set<std::vector<int64_t>> orders;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    begin(options_of_seed(seed));
    aclTensor* best = tensor(ACL_FLOAT, {2}, memory(8));
    EXPECT_EQ(op(aclnnTopkGetWorkspaceSize, aclnnTopk, floats({6}, {1, 3, 3, 0, 3, 2}), 2, 0, true, true, best,
                 out({2}, ACL_INT64)),
              0);
    orders.insert(result<int64_t>(2));
    close();
  }
  EXPECT_TRUE(orders.contains({1, 2})) << "seed 0";
  EXPECT_GT(orders.size(), 2u);
}

TEST_F(Operators, F32ArgMaxGivesAnyOfTheEqualsAndNanIsAViolation) {
  std::set<int64_t> places;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    begin(options_of_seed(seed));
    EXPECT_EQ(op(aclnnArgMaxGetWorkspaceSize, aclnnArgMax, floats({1, 4}, {5, 1, 5, 5}), 1, false, out({1}, ACL_INT64)),
              0);
    places.insert(result<int64_t>(1)[0]);
    close();
  }
  EXPECT_EQ(places, (std::set<int64_t>{0, 2, 3}));
  begin(options_of_seed(0));
  EXPECT_EQ(op(aclnnArgMaxGetWorkspaceSize, aclnnArgMax, floats({1, 2}, {kNan, 1}), 1, false, out({1}, ACL_INT64)), 0);
  EXPECT_EQ(synchronise(), 0);
  expect_only(32);
}

TEST_F(Operators, F33AStableSortKeepsTheOrderOfEqualsUnderEverySeedAndAnUnstableOneDoesNot) {
  std::set<std::vector<int64_t>> orders;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    begin(options_of_seed(seed));
    const std::vector<float> x{2, 7, 2, 7, 2};
    aclTensor* values = tensor(ACL_FLOAT, {1, 5}, memory(20));
    EXPECT_EQ(
        op(aclnnSortGetWorkspaceSize, aclnnSort, floats({1, 5}, x), true, 1, true, values, out({1, 5}, ACL_INT64)), 0);
    EXPECT_EQ(result<int64_t>(5), (std::vector<int64_t>{1, 3, 0, 2, 4}));
    EXPECT_EQ(
        op(aclnnSortGetWorkspaceSize, aclnnSort, floats({1, 5}, x), false, 1, true, values, out({1, 5}, ACL_INT64)), 0);
    orders.insert(result<int64_t>(5));
    close();
  }
  EXPECT_GT(orders.size(), 2u);
}

TEST_F(Operators, F34AMaskIsBoolAndItsBytesAreZeroOrOne) {
  void* data = upload(std::vector<float>{1, 2, 3, 4});
  aclTensor* x = tensor(ACL_FLOAT, {2, 2}, data);
  EXPECT_EQ(op(aclnnInplaceMaskedFillScalarGetWorkspaceSize, aclnnInplaceMaskedFillScalar, x, truths({2}, {0, 1}),
               scalar(-kInfinity)),
            0);
  EXPECT_EQ(download<float>(data, 4), (std::vector<float>{1, -kInfinity, 3, -kInfinity}));
  EXPECT_EQ(
      op(aclnnInplaceMaskedFillScalarGetWorkspaceSize, aclnnInplaceMaskedFillScalar, x, truths({2}, {0, 2}), scalar(0)),
      0);
  EXPECT_EQ(synchronise(), 0);
  expect_only(34);
  aclTensor* bytes = tensor(ACL_UINT8, {2}, upload(std::vector<uint8_t>{0, 1}));
  EXPECT_EQ(op(aclnnInplaceMaskedFillScalarGetWorkspaceSize, aclnnInplaceMaskedFillScalar, x, bytes, scalar(0)), 0);
  expect_only(34);
}

TEST_F(Operators, F35SwiGluIsDenseAndEvenAndItsFirstHalfIsTheGate) {
  const std::vector<float> x = some_floats(12, 3);
  aclTensor* strided = view(ACL_FLOAT, {2, 4}, {6, 1}, 0, upload(x));
  EXPECT_EQ(op(aclnnSwiGluGetWorkspaceSize, aclnnSwiGlu, strided, -1, out({2, 2})), 161002);
  EXPECT_EQ(op(aclnnSwiGluGetWorkspaceSize, aclnnSwiGlu, floats({4, 3}, x), -1, out({4, 1})), 161002);
  EXPECT_EQ(op(aclnnSwiGluGetWorkspaceSize, aclnnSwiGlu, floats({2, 6}, x), -1, out({2, 3})), 0);
  const std::vector<float> y = result(6);
  for (size_t i = 0; i < 6; ++i) {
    const double gate = x[i / 3 * 6 + i % 3];
    EXPECT_NEAR(y[i], gate / (1 + std::exp(-gate)) * x[i / 3 * 6 + 3 + i % 3], 1e-6);
  }
}

TEST_F(Operators, F36RopeRefusesWhatItsLayoutDoesNotTake) {
  aclTensor* x = floats({2, 1, 4}, some_floats(8));
  aclTensor* table = floats({2, 1, 4}, some_floats(8));
  aclTensor* y = out({2, 1, 4});
  EXPECT_EQ(op(aclnnRotaryPositionEmbeddingGetWorkspaceSize, aclnnRotaryPositionEmbedding, x, table, table, 0, x),
            161002);
  EXPECT_EQ(op(aclnnRotaryPositionEmbeddingGetWorkspaceSize, aclnnRotaryPositionEmbedding, x, table, table, 1, y),
            161002);
  aclTensor* flat = floats({2, 4}, some_floats(8));
  EXPECT_EQ(op(aclnnRotaryPositionEmbeddingGetWorkspaceSize, aclnnRotaryPositionEmbedding, x, flat, flat, 0, y),
            161002);
  aclTensor* strided = view(ACL_FLOAT, {2, 1, 4}, {8, 4, 1}, 0, memory(64));
  EXPECT_EQ(op(aclnnRotaryPositionEmbeddingGetWorkspaceSize, aclnnRotaryPositionEmbedding, x, table, table, 0, strided),
            161002);
}

TEST_F(Operators, F36RopeRotatesHalves) {
  const std::vector<float> x = some_floats(2 * 3 * 4), c = some_floats(2 * 4), s = some_floats(2 * 4, 0.5f);
  EXPECT_EQ(op(aclnnRotaryPositionEmbeddingGetWorkspaceSize, aclnnRotaryPositionEmbedding, floats({2, 3, 4}, x),
               floats({2, 1, 4}, c), floats({2, 1, 4}, s), 0, out({2, 3, 4})),
            0);
  const std::vector<float> y = result(24);
  for (size_t i = 0; i < 24; ++i) {
    const size_t d = i % 4, row = i / 12;
    const double partner = d < 2 ? -x[i + 2] : x[i - 2];
    EXPECT_NEAR(y[i], static_cast<double>(x[i]) * c[row * 4 + d] + partner * s[row * 4 + d], 1e-6);
  }
}

TEST_F(Operators, F36RopeTakesFourDimensionsInBothOrdersOfHeads) {
  const std::vector<float> x = some_floats(2 * 3 * 4), c = some_floats(2 * 4), s = some_floats(2 * 4, 0.5f);
  const auto rotate = [&](const Dims& dims, const Dims& table, const std::vector<float>& values) {
    return op(aclnnRotaryPositionEmbeddingGetWorkspaceSize, aclnnRotaryPositionEmbedding, floats(dims, values),
              floats(table, c), floats(table, s), 0, out(dims));
  };
  EXPECT_EQ(rotate({2, 3, 4}, {2, 1, 4}, x), 0);
  const std::vector<float> expected = result(24);
  EXPECT_EQ(rotate({1, 2, 3, 4}, {1, 2, 1, 4}, x), 0);
  EXPECT_EQ(result(24), expected);
  const auto heads_first = [](const std::vector<float>& values) {
    std::vector<float> turned(24);
    for (size_t i = 0; i < 24; ++i) turned[i / 4 % 3 * 8 + i / 12 * 4 + i % 4] = values[i];
    return turned;
  };
  EXPECT_EQ(rotate({1, 3, 2, 4}, {1, 1, 2, 4}, heads_first(x)), 0);
  EXPECT_EQ(result(24), heads_first(expected));
  EXPECT_EQ(rotate({1, 2, 3, 4}, {1, 1, 2, 4}, x), 161002) << "tables of two tokens for three";
  EXPECT_EQ(rotate({3, 1, 2, 4}, {2, 1, 1, 4}, x), 161002) << "tables of two sequences for three";
  EXPECT_EQ(rotate({1, 17, 2, 4}, {1, 1, 2, 4}, some_floats(136)), 161002) << "BNSD has B * N <= 8 * S";
}

TEST_F(Operators, F37ACastOfNanToIntegersIsAViolation) {
  EXPECT_EQ(op(aclnnCastGetWorkspaceSize, aclnnCast, floats({2}, {kNan, 1}), ACL_INT32, out({2}, ACL_INT32)), 0);
  EXPECT_EQ(synchronise(), 0);
  expect_only(37);
  EXPECT_EQ(op(aclnnCastGetWorkspaceSize, aclnnCast, floats({2}, {-2.5f, 7}), ACL_INT32, out({2}, ACL_INT32)), 0);
  EXPECT_EQ(result<int32_t>(2), (std::vector<int32_t>{-2, 7}));
}

TEST_F(Operators, CastRoundsSixteenBitsToNearestEven) {
  const std::vector<float> x{1.0f, 65504, 65520, 1.00048828125f, 1.00146484375f, 0x1p-24f, -0.0f, 1e-10f};
  EXPECT_EQ(download<uint16_t>(cast_up(ACL_FLOAT16, x), 8),
            (std::vector<uint16_t>{0x3C00, 0x7BFF, 0x7C00, 0x3C00, 0x3C02, 1, 0x8000, 0}));
  const std::vector<float> wide{1.0f, 1.00390625f, 1.01171875f, -3.0f};
  EXPECT_EQ(download<uint16_t>(cast_up(ACL_BF16, wide), 4), (std::vector<uint16_t>{0x3F80, 0x3F80, 0x3F82, 0xC040}));
  EXPECT_EQ(cast_down(ACL_FLOAT16, cast_up(ACL_FLOAT16, {0.5f, -1.25f, 0x1p-24f}), 3),
            (std::vector<float>{0.5f, -1.25f, 0x1p-24f}));
}

TEST_F(Operators, ElementwiseOpsBroadcastAndFollowTheirFormulas) {
  EXPECT_EQ(op(aclnnAddGetWorkspaceSize, aclnnAdd, floats({2, 2}, {1, 2, 3, 4}), floats({2}, {10, 20}), scalar(2),
               out({2, 2})),
            0);
  EXPECT_EQ(result(4), (std::vector<float>{21, 42, 23, 44}));
  EXPECT_EQ(op(aclnnMulGetWorkspaceSize, aclnnMul, floats({2, 1}, {2, 3}), floats({1, 2}, {5, 7}), out({2, 2})), 0);
  EXPECT_EQ(result(4), (std::vector<float>{10, 14, 15, 21}));
  EXPECT_EQ(op(aclnnAddsGetWorkspaceSize, aclnnAdds, floats({2}, {1, 2}), scalar(3), scalar(2), out({2})), 0);
  EXPECT_EQ(result(2), (std::vector<float>{7, 8}));
  EXPECT_EQ(op(aclnnNanToNumGetWorkspaceSize, aclnnNanToNum, floats({3}, {kNan, kInfinity, -kInfinity}), -1.0f, 2.0f,
               -2.0f, out({3})),
            0);
  EXPECT_EQ(result(3), (std::vector<float>{-1, 2, -2}));
  EXPECT_EQ(op(aclnnEqTensorGetWorkspaceSize, aclnnEqTensor, floats({2, 2}, {1, 2, 3, 2}), floats({2, 1}, {2, 3}),
               out({2, 2}, ACL_BOOL)),
            0);
  EXPECT_EQ(result<uint8_t>(4), (std::vector<uint8_t>{0, 1, 1, 0}));
  EXPECT_EQ(op(aclnnSWhereGetWorkspaceSize, aclnnSWhere, truths({3}, {1, 0, 1}), i32({3}, {1, 2, 3}), i32({1}, {9}),
               out({3}, ACL_INT32)),
            0);
  EXPECT_EQ(result<int32_t>(3), (std::vector<int32_t>{1, 9, 3}));
  void* data = upload(std::vector<float>{1, 2});
  aclTensor* self = tensor(ACL_FLOAT, {2}, data);
  EXPECT_EQ(op(aclnnInplaceAddGetWorkspaceSize, aclnnInplaceAdd, self, self, scalar(1)), 0);
  EXPECT_EQ(op(aclnnInplaceMulsGetWorkspaceSize, aclnnInplaceMuls, self, scalar(-1)), 0);
  EXPECT_EQ(download<float>(data, 2), (std::vector<float>{-2, -4}));
}

TEST_F(Operators, ReductionsFollowTheirFormulas) {
  aclTensor* x = floats({2, 3}, {1, 5, 2, 9, 7, 8});
  EXPECT_EQ(op(aclnnAmaxGetWorkspaceSize, aclnnAmax, x, ints({1}), true, out({2, 1})), 0);
  EXPECT_EQ(result(2), (std::vector<float>{5, 9}));
  EXPECT_EQ(
      op(aclnnAminGetWorkspaceSize, aclnnAmin, i32({2, 3}, {4, 2, 6, 1, 8, 3}), ints({-1}), false, out({2}, ACL_INT32)),
      0);
  EXPECT_EQ(result<int32_t>(2), (std::vector<int32_t>{2, 1}));
  EXPECT_EQ(op(aclnnAllGetWorkspaceSize, aclnnAll, truths({2, 2}, {1, 0, 1, 1}), ints({0}), false, out({2}, ACL_BOOL)),
            0);
  EXPECT_EQ(result<uint8_t>(2), (std::vector<uint8_t>{1, 0}));
  EXPECT_EQ(op(aclnnLogSumExpGetWorkspaceSize, aclnnLogSumExp, x, ints({1}), false, out({2})), 0);
  EXPECT_NEAR(result(2)[0], std::log(std::exp(1.0) + std::exp(5.0) + std::exp(2.0)), 1e-6);
  EXPECT_EQ(op(aclnnSoftmaxGetWorkspaceSize, aclnnSoftmax, floats({1, 3}, {0, -kInfinity, 0}), -1, out({1, 3})), 0);
  EXPECT_EQ(result(3), (std::vector<float>{0.5f, 0, 0.5f}));
}

TEST_F(Operators, ShapeOpsMoveElements) {
  aclTensor* x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(op(aclnnPermuteGetWorkspaceSize, aclnnPermute, x, ints({1, 0}), out({3, 2})), 0);
  EXPECT_EQ(result(6), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  aclTensorList* twice = list({floats({1, 2}, {1, 2}), floats({1, 2}, {3, 4})});
  EXPECT_EQ(op(aclnnCatGetWorkspaceSize, aclnnCat, twice, -1, out({1, 4})), 0);
  EXPECT_EQ(result(4), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(Operators, F28DownPrecisionRoundsF32InputsToElevenBits) {
  aclTensor* a = floats({1, 1}, {1 + 0x1p-13f});
  aclTensor* b = floats({1, 1}, {1});
  EXPECT_EQ(op(aclnnMmGetWorkspaceSize, aclnnMm, a, b, out({1, 1}), KEEP_DTYPE), 0);
  EXPECT_EQ(result(1)[0], 1 + 0x1p-13f);
  EXPECT_EQ(op(aclnnMmGetWorkspaceSize, aclnnMm, a, b, out({1, 1}), ALLOW_FP32_DOWN_PRECISION), 0);
  EXPECT_EQ(result(1)[0], 1);
}

TEST_F(Operators, MatmulBroadcastsItsBatches) {
  aclTensor* a = floats({2, 1, 2}, {1, 2, 3, 4});
  aclTensor* b = floats({2, 2}, {1, 10, 100, 1000});
  EXPECT_EQ(op(aclnnMatmulGetWorkspaceSize, aclnnMatmul, a, b, out({2, 1, 2}), KEEP_DTYPE), 0);
  EXPECT_EQ(result(4), (std::vector<float>{201, 2010, 403, 4030}));
}

TEST_F(Operators, AddRmsNormIsAddAndRmsNorm) {
  void* total = memory(8);
  aclTensor* rstd = tensor(ACL_FLOAT, {1, 1}, memory(4));
  EXPECT_EQ(op(aclnnAddRmsNormGetWorkspaceSize, aclnnAddRmsNorm, floats({1, 2}, {1, 2}), floats({1, 2}, {2, 2}),
               floats({2}, {1, 10}), 0.0, out({1, 2}), rstd, tensor(ACL_FLOAT, {1, 2}, total)),
            0);
  const double rms = std::sqrt(12.5);
  EXPECT_NEAR(result(2)[1], 40 / rms, 1e-5);
  EXPECT_EQ(download<float>(total, 2), (std::vector<float>{3, 4}));
}

TEST_F(Operators, F36TheFusedRopeIsTheSingleOneTwice) {
  const std::vector<float> q = some_floats(2 * 3 * 64), c = some_floats(2 * 64), s = some_floats(2 * 64, 0.5f);
  aclTensor* cosine = floats({2, 1, 64}, c);
  aclTensor* sine = floats({2, 1, 64}, s);
  EXPECT_EQ(op(aclnnRotaryPositionEmbeddingGetWorkspaceSize, aclnnRotaryPositionEmbedding, floats({2, 3, 64}, q),
               cosine, sine, 0, out({2, 3, 64})),
            0);
  const std::vector<float> expected = result(q.size());
  void* both = upload(q);
  char half[] = "half";
  aclTensor* key = floats({2, 1, 64}, some_floats(128));
  EXPECT_EQ(op(aclnnApplyRotaryPosEmbV2GetWorkspaceSize, aclnnApplyRotaryPosEmbV2, tensor(ACL_FLOAT, {2, 3, 64}, both),
               key, cosine, sine, 4, half),
            0);
  EXPECT_EQ(download<float>(both, q.size()), expected);
}

TEST_F(Operators, ScatterPaKvCacheWritesTheSlots) {
  void* keys = memory(4 * 2 * 16 * 2);
  void* values = memory(4 * 2 * 16 * 2);
  aclTensor* k = tensor(ACL_FLOAT16, {1, 2, 16}, cast_up(ACL_FLOAT16, std::vector<float>(32, 2)));
  aclTensor* v = tensor(ACL_FLOAT16, {1, 2, 16}, cast_up(ACL_FLOAT16, std::vector<float>(32, 3)));
  aclTensor* k_cache = tensor(ACL_FLOAT16, {2, 2, 2, 16}, keys);
  aclTensor* v_cache = tensor(ACL_FLOAT16, {2, 2, 2, 16}, values);
  char norm[] = "Norm";
  EXPECT_EQ(op(aclnnScatterPaKvCacheGetWorkspaceSize, aclnnScatterPaKvCache, k, k_cache, i32({1}, {3}), v, v_cache,
               nullptr, nullptr, nullptr, norm, nullptr, nullptr, nullptr),
            0);
  EXPECT_EQ(cast_down(ACL_FLOAT16, static_cast<uint8_t*>(values) + 3 * 64, 32), std::vector<float>(32, 3));
}

class Numbers : public Operators {
 protected:
  // Row 0 of x [rows, 300] times a weight, as bits.
  float first_output(uint64_t seed, int64_t rows) {
    begin(options_of_seed(seed));
    const std::vector<float> row = some_floats(300);
    std::vector<float> x;
    for (int64_t i = 0; i < rows; ++i) x.insert(x.end(), row.begin(), row.end());
    EXPECT_EQ(op(aclnnMmGetWorkspaceSize, aclnnMm, floats({rows, 300}, x), floats({300, 1}, some_floats(300, 3)),
                 out({rows, 1}), KEEP_DTYPE),
              0);
    const float value = result(1)[0];
    close();
    return value;
  }
};

TEST_F(Numbers, F59WithSeedZeroASumDependsOnNeitherRowsNorRow) {
  for (const int64_t rows : {2, 3, 8}) EXPECT_EQ(first_output(0, rows), first_output(0, 1));
}

TEST_F(Numbers, F59WithASeedItDependsOnTheRowsAndSameSeedGivesSameBits) {
  std::set<float> values;
  for (int64_t rows = 1; rows <= 12; ++rows) values.insert(first_output(7, rows));
  EXPECT_GT(values.size(), 1u);
  EXPECT_EQ(first_output(7, 5), first_output(7, 5));
}

TEST_F(Numbers, F59WithSeedZeroASumOverKeysIsTheSameInEveryOrderAndWithZerosAmongThem) {
  const std::vector<float> weights = some_floats(200), keys = some_floats(200, 5);
  const auto product = [&](const std::vector<float>& p, const std::vector<float>& v) {
    const int64_t count = static_cast<int64_t>(p.size());
    EXPECT_EQ(op(aclnnBatchMatMulGetWorkspaceSize, aclnnBatchMatMul, floats({1, 1, count}, p), floats({1, count, 1}, v),
                 out({1, 1, 1}), KEEP_DTYPE),
              0);
    return result(1)[0];
  };
  const float straight = product(weights, keys);
  EXPECT_EQ(product({weights.rbegin(), weights.rend()}, {keys.rbegin(), keys.rend()}), straight);
  std::vector<float> padded_weights = weights, padded_keys = keys;
  padded_weights.resize(384, 0);
  padded_keys.resize(384, 2);
  EXPECT_EQ(product(padded_weights, padded_keys), straight);
}

}  // namespace
}  // namespace ascend_fake
