#include "model/weight_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "device/reference/reference_device.h"
#include "format/safetensors.h"
#include "format/testing/gguf_builder.h"
#include "format/testing/safetensors_builder.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Files with 0, 1, 2, ... in every tensor.
class WeightReaderTest : public ::testing::Test {
 protected:
  struct NamedShape {
    std::string name;
    std::vector<std::int64_t> shape;
  };

  Safetensors source(const std::vector<NamedShape>& tensors) {
    SafetensorsBuilder builder;
    for (const auto& [name, shape] : tensors) {
      std::int64_t count = 1;
      for (std::int64_t extent : shape) count *= extent;
      std::vector<float> values(static_cast<std::size_t>(count));
      std::iota(values.begin(), values.end(), 0.0f);
      builder.tensor(name, DType::f32, shape, bytes_of(values));
    }
    builder.write(folder_ / "model.safetensors");
    return Safetensors(folder_ / "model.safetensors");
  }

  // The matrix as the device widens it.
  std::vector<float> rows_of(const Weight& weight) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(weight.outputs()));
    std::iota(all.begin(), all.end(), 0);
    const Tensor token = device_->tensor(DType::i32, {weight.outputs()});
    const Tensor y = device_->tensor(DType::f32, {weight.outputs(), weight.inputs()});
    upload<std::int32_t>(*device_, all, token);
    device_->embed(weight, token, y);
    return downloaded(y);
  }
  std::vector<float> downloaded(ConstView view) {
    std::vector<float> values(static_cast<std::size_t>(view.elements()));
    download<float>(*device_, view, values);
    return values;
  }

  TemporaryFolder folder_;
  std::unique_ptr<Device> device_ = make_reference_device();
};

TEST_F(WeightReaderTest, SomeRowsOfAMatrixAreLoadedInTheOrderGiven) {
  const Safetensors file = source({{"m", {4, 2}}, {"wide", {2, 32}}});
  WeightReader read(*device_, file, WeightMode::stored);
  const std::int32_t rows[] = {3, 0};
  EXPECT_THAT(rows_of(*read.matrix_rows("m", 4, 2, rows)), ElementsAre(6, 7, 0, 1));
  EXPECT_THAT(read.unread(), ElementsAre("wide"));
  EXPECT_THROW(read.matrix_rows("m", 2, 2, std::span(rows, 1)), std::logic_error);
  EXPECT_THROW(read.matrix_rows("m", 5, 2, rows), InputError);
  WeightReader quantise(*device_, file, WeightMode::q8_0);
  const std::int32_t last[] = {1};
  EXPECT_NEAR(rows_of(*quantise.matrix_rows("wide", 2, 32, last)).back(), 63, 0.01);  // a q8_0 scale is an f16
}

TEST_F(WeightReaderTest, InterleavedRowsComeBackInHalves) {
  const Safetensors file = source({{"q", {8, 1}}, {"b", {8}}});
  WeightReader read(*device_, file, WeightMode::stored);
  const HeadRows interleaved{.heads = 2, .head_size = 4, .interleaved = true};
  EXPECT_THAT(rows_of(*read.rotated_matrix("q", interleaved, 1)), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(downloaded(read.rotated_vector("b", interleaved)), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  const HeadRows halves{.heads = 2, .head_size = 4};
  EXPECT_THAT(downloaded(read.rotated_vector("b", halves)), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(WeightReaderTest, StackedMatricesAreOneBehindTheOther) {
  const Safetensors file = source({{"gate", {2, 2}}, {"up", {2, 2}}});
  WeightReader read(*device_, file, WeightMode::stored);
  EXPECT_THAT(rows_of(*read.stacked("gate", "up", 2, 2)), ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
}

TEST_F(WeightReaderTest, RowsThatAreNotWholeBlocksAreRefusedOrKeptAsStored) {
  const Safetensors file = source({{"narrow", {2, 3}}, {"wide", {1, 32}}});
  WeightReader strict(*device_, file, WeightMode::q8_0);
  try {
    strict.matrix("narrow", 2, 3);
    FAIL() << "loaded";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("tensor narrow: 3 columns cannot be quantised to q8_0"));
  }
  WeightReader lenient(*device_, file, WeightMode::q8_0, OddRows::keep_as_stored);
  EXPECT_THAT(rows_of(*lenient.matrix("narrow", 2, 3)), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_NE(rows_of(*lenient.matrix("wide", 1, 32))[1], 1.0f) << "quantised";
}

TEST_F(WeightReaderTest, WhatNobodyReadIsListed) {
  const Safetensors file = source({{"a", {2}}, {"b", {2}}, {"c", {2}}});
  WeightReader read(*device_, file, WeightMode::f32);
  read.vector("b", 2);
  EXPECT_THAT(read.unread(), ElementsAre("a", "c"));
}

}  // namespace
}  // namespace espalier
