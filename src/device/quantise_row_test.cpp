#include "device/quantise_row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "device/blocks.h"
#include "format/safetensors.h"

namespace espalier {
namespace {

constexpr DType kTypes[] = {DType::f16, DType::q8_0, DType::q4_0, DType::q4_1};

std::vector<std::byte> quantised(DType type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(row_bytes(type, static_cast<std::int64_t>(values.size()))));
  quantise_row(type, values, bytes);
  return bytes;
}

std::vector<float> there_and_back(DType type, const std::vector<float>& values) {
  std::vector<float> back(values.size());
  widen_row(type, quantised(type, values), back);
  return back;
}

TEST(QuantiseRow, Q4_0KeepsTheLargestValueWhicheverItsSign) {
  std::vector<float> values(32);
  values[3] = 4.0f;
  values[20] = -2.0f;
  EXPECT_EQ(there_and_back(DType::q4_0, values)[3], 4.0f);
  EXPECT_EQ(there_and_back(DType::q4_0, values)[20], -2.0f);
  values[20] = -4.0f;  // as large: the first decides, and the other end has one step less
  EXPECT_EQ(there_and_back(DType::q4_0, values)[3], 4.0f);
  EXPECT_EQ(there_and_back(DType::q4_0, values)[20], -3.5f);
}

TEST(QuantiseRow, Q4_1KeepsBothEnds) {
  std::vector<float> values(32, 1.0f);
  values[0] = -2.0f;
  values[31] = 5.5f;
  const std::vector<float> back = there_and_back(DType::q4_1, values);
  EXPECT_EQ(back[0], -2.0f);
  EXPECT_EQ(back[31], 5.5f);
  EXPECT_EQ(back[1], 1.0f);
}

TEST(QuantiseRow, ZeroAndVanishingBlocksBecomeZero) {
  for (DType type : kTypes)
    for (const float tiny : {0.0f, 1e-45f, 1e-38f})
      for (float value : there_and_back(type, std::vector<float>(32, tiny))) EXPECT_EQ(value, 0.0f) << name(type);
}

TEST(QuantiseRow, EveryValueIsWithinHalfAStep) {
  std::vector<float> values(64);
  for (std::size_t k = 0; k < values.size(); ++k) values[k] = std::sin(static_cast<float>(k * k));
  for (DType type : {DType::q8_0, DType::q4_0, DType::q4_1}) {
    // Values lie in [-1, 1]. A step is 1 / 127, 1 / 8 or at most 2 / 15; q4_0 may lose a whole one at its short end;
    // the f16 of scale and minimum may move each of at most 127, 8 or 15 steps and the minimum by 2^-11.
    const double step = type == DType::q8_0 ? 1.0 / 127 : type == DType::q4_0 ? 1.0 / 8 : 2.0 / 15;
    const double bound = (type == DType::q4_0 ? 1.0 : 0.5) * step + 3 * 0x1p-11;
    const std::vector<float> back = there_and_back(type, values);
    for (std::size_t k = 0; k < values.size(); ++k) EXPECT_NEAR(back[k], values[k], bound) << name(type) << " " << k;
  }
}

TEST(QuantiseRow, WhatF16CannotHoldIsNotQuantisable) {
  EXPECT_TRUE(quantisable(std::vector<float>{0.0f, 65504.0f, -65519.0f}));
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), -65520.0f})
    EXPECT_FALSE(quantisable(std::vector<float>{0.0f, bad})) << bad;
}

TEST(QuantiseRow, OtherTypesAndWrongSizesAreOurMistake) {
  std::vector<std::byte> bytes(144);
  EXPECT_THROW(quantise_row(DType::q4_k, std::vector<float>(256), bytes), std::logic_error);
  EXPECT_THROW(quantise_row(DType::q4_0, std::vector<float>(32), bytes), std::logic_error);
}

// Against the Python package gguf (train/fixtures/make_blocks.py).
TEST(QuantiseRow, EveryTypeGivesTheBytesOfTheGgufPackage) {
  const Safetensors file(std::filesystem::path(ESPALIER_TEST_DATA) / "blocks.safetensors");
  const TensorInfo* info = file.find("quantize.values");
  ASSERT_NE(info, nullptr);
  std::vector<float> values(info->bytes.size() / sizeof(float));
  std::memcpy(values.data(), info->bytes.data(), info->bytes.size());
  for (DType type : kTypes) {
    const TensorInfo* expected = file.find("quantize." + std::string(name(type)));
    ASSERT_NE(expected, nullptr) << name(type);
    const std::vector<std::byte> actual = quantised(type, values);
    ASSERT_EQ(actual.size(), expected->bytes.size()) << name(type);
    for (std::size_t i = 0; i < actual.size(); ++i)
      ASSERT_EQ(actual[i], expected->bytes[i]) << name(type) << " byte " << i;
  }
}

}  // namespace
}  // namespace espalier
