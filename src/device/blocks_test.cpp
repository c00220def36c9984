#include "device/blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>

#include "base/float16.h"
#include "format/safetensors.h"

namespace espalier {
namespace {

using Bytes = std::vector<std::uint8_t>;

std::vector<float> widened(DType type, const Bytes& bytes, std::size_t elements) {
  std::vector<float> values(elements);
  widen_row(type, std::as_bytes(std::span(bytes)), values);
  return values;
}

void put_f16(Bytes& bytes, std::size_t at, float value) {
  const std::uint16_t half = f32_to_f16(value);
  std::memcpy(bytes.data() + at, &half, sizeof half);
}

// --- one block of each format, made by hand -------------------------------------------------------------------------

TEST(Blocks, PlainFloatsWidenExactly) {
  EXPECT_EQ(widened(DType::f32, {0, 0, 0x80, 0x3f}, 1), std::vector<float>({1.0f}));
  EXPECT_EQ(widened(DType::f16, {0x00, 0x3c, 0x00, 0xc1}, 2), std::vector<float>({1.0f, -2.5f}));
  EXPECT_EQ(widened(DType::bf16, {0x80, 0x3f, 0x20, 0xc0}, 2), std::vector<float>({1.0f, -2.5f}));
}

TEST(Blocks, Q4_0HoldsElementJAndJPlus16InOneByte) {
  Bytes block(18, 0x88);  // q - 8 = 0
  put_f16(block, 0, 0.5f);
  block[2] = 0xf0;       // element 0: 0 - 8, element 16: 15 - 8
  block[2 + 15] = 0x79;  // element 15: 9 - 8, element 31: 7 - 8
  const std::vector<float> w = widened(DType::q4_0, block, 32);
  EXPECT_EQ(w[0], -4.0f);
  EXPECT_EQ(w[16], 3.5f);
  EXPECT_EQ(w[15], 0.5f);
  EXPECT_EQ(w[31], -0.5f);
  EXPECT_EQ(w[1], 0.0f);
}

TEST(Blocks, Q4_1AddsAMinimum) {
  Bytes block(20, 0);
  put_f16(block, 0, 0.25f);
  put_f16(block, 2, -1.0f);
  block[4 + 3] = 0xc5;  // element 3: 5, element 19: 12
  const std::vector<float> w = widened(DType::q4_1, block, 32);
  EXPECT_EQ(w[3], 0.25f);
  EXPECT_EQ(w[19], 2.0f);
  EXPECT_EQ(w[0], -1.0f);
}

TEST(Blocks, Q5_0TakesTheFifthBitFromAWord) {
  Bytes block(22, 0);
  put_f16(block, 0, 1.0f);
  block[2 + 0] = 0x02;  // fifth bit of element 1
  block[2 + 3] = 0x80;  // and of element 31
  block[6 + 1] = 0x0f;  // low bits of element 1: 15, of element 17: 0
  const std::vector<float> w = widened(DType::q5_0, block, 32);
  EXPECT_EQ(w[1], 15.0f);
  EXPECT_EQ(w[17], -16.0f);
  EXPECT_EQ(w[31], 0.0f);
  EXPECT_EQ(w[0], -16.0f);
}

TEST(Blocks, Q5_1TakesTheFifthBitAndAddsAMinimum) {
  Bytes block(24, 0);
  put_f16(block, 0, 0.5f);
  put_f16(block, 2, 3.0f);
  block[4 + 2] = 0x01;  // fifth bit of element 16
  block[8 + 0] = 0x21;  // element 0: 1, element 16: 2
  const std::vector<float> w = widened(DType::q5_1, block, 32);
  EXPECT_EQ(w[0], 3.5f);
  EXPECT_EQ(w[16], 12.0f);
  EXPECT_EQ(w[1], 3.0f);
}

TEST(Blocks, Q8_0HoldsSignedBytes) {
  Bytes block(34, 0);
  put_f16(block, 0, 0.125f);
  block[2] = 0x80;
  block[2 + 31] = 0x7f;
  const std::vector<float> w = widened(DType::q8_0, block, 32);
  EXPECT_EQ(w[0], -16.0f);
  EXPECT_EQ(w[31], 15.875f);
}

TEST(Blocks, Q4_KPacksSixBitScalesAndMinima) {
  Bytes block(144, 0);
  put_f16(block, 0, 1.0f);
  put_f16(block, 2, 2.0f);
  block[4 + 1] = 0x80 | 3;        // scale 1 is 3; the upper bits of scale 5 are 2
  block[4 + 5] = 0x40 | 5;        // minimum 1 is 5; the upper bits of minimum 5 are 1
  block[4 + 9] = 0x7 << 4 | 0x9;  // scale 5: 2 * 16 + 9 = 41, minimum 5: 16 + 7 = 23
  block[16 + 0] = 0x40;           // element 32 (sub-block 1, first): 4
  block[16 + 64 + 31] = 0xf0;     // element 191 (sub-block 5, last): 15
  const std::vector<float> w = widened(DType::q4_k, block, 256);
  EXPECT_EQ(w[32], 3.0f * 4 - 2 * 5);
  EXPECT_EQ(w[33], -10.0f);
  EXPECT_EQ(w[191], 41.0f * 15 - 2 * 23);
  EXPECT_EQ(w[160], -46.0f);
  EXPECT_EQ(w[0], 0.0f);
}

TEST(Blocks, Q5_KTakesBitSOfByteJForSubBlockS) {
  Bytes block(176, 0);
  put_f16(block, 0, 1.0f);
  block[4 + 0] = 1;           // scale 0
  block[4 + 11] = 0x02;       // scale 7: low nibble 2
  block[16 + 7] = 0x81;       // fifth bits of element 7 in sub-blocks 0 and 7
  block[48 + 7] = 0x03;       // element 7: 3
  block[48 + 96 + 7] = 0x50;  // element 231 (sub-block 7): 5
  const std::vector<float> w = widened(DType::q5_k, block, 256);
  EXPECT_EQ(w[7], 19.0f);
  EXPECT_EQ(w[231], 2.0f * 21);
  EXPECT_EQ(w[8], 0.0f);
}

TEST(Blocks, Q6_KInterleavesFourQuartersOfEachHalf) {
  Bytes block(210, 0);
  put_f16(block, 208, 1.0f);
  for (std::size_t i = 0; i < 16; ++i) block[192 + i] = static_cast<std::uint8_t>(i + 1);
  block[192 + 15] = 0xff;              // the last scale is -1
  block[64 + 32 + 31] = 0x0b;          // low nibble of half 1, element 63 (of 128): 11; of element 127: 0
  block[128 + 32 + 31] = 0x80 | 0x04;  // high pairs of byte 31, half 1: quarter 1 (32..63) is 1, quarter 3 is 2
  const std::vector<float> w = widened(DType::q6_k, block, 256);
  EXPECT_EQ(w[128 + 63], 12.0f * (11 + 16 - 32));
  EXPECT_EQ(w[255], -1.0f * (32 - 32));
  EXPECT_EQ(w[128 + 95], 14.0f * (0 - 32));
  EXPECT_EQ(w[0], 1.0f * -32);
  EXPECT_EQ(w[16], 2.0f * -32);
}

TEST(Blocks, DecodedRowsSayWhatWidenedRowsAreMadeOf) {
  Bytes block(20, 0x31);
  put_f16(block, 0, 0.5f);
  put_f16(block, 2, -2.0f);
  QuantisedRow row;
  decode_row(DType::q4_1, std::as_bytes(std::span(block)), 32, row);
  EXPECT_EQ(row.block, 32);
  EXPECT_TRUE(row.has_minimum);
  EXPECT_EQ(row.q[0], 1);
  EXPECT_EQ(row.q[31], 3);
  EXPECT_EQ(row.scale, std::vector<float>({0.5f}));
  EXPECT_EQ(row.minimum, std::vector<float>({-2.0f}));
}

TEST(Blocks, WrongSizesAndPlainTypesAreRefused) {
  QuantisedRow row;
  const Bytes bytes(36);
  EXPECT_THROW(decode_row(DType::q4_0, std::as_bytes(std::span(bytes)), 32, row), std::logic_error);
  EXPECT_THROW(decode_row(DType::f32, std::as_bytes(std::span(bytes)), 9, row), std::logic_error);
  EXPECT_THROW(widened(DType::q4_0, bytes, 32), std::logic_error);
}

// --- quantisation to q8_0 -------------------------------------------------------------------------------------------

std::vector<std::byte> as_q8_0(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() / 32 * 34);
  quantise_row_q8_0(values, bytes);
  return bytes;
}

TEST(QuantiseQ8_0, RoundsHalvesAwayFromZeroAndKeepsSigns) {
  std::vector<float> values(32);
  values[0] = 127.0f;
  values[1] = 2.5f;
  values[2] = -2.5f;
  values[3] = -126.0f;
  const std::vector<std::byte> bytes = as_q8_0(values);
  EXPECT_EQ(static_cast<std::int8_t>(bytes[2]), 127);
  EXPECT_EQ(static_cast<std::int8_t>(bytes[3]), 3);
  EXPECT_EQ(static_cast<std::int8_t>(bytes[4]), -3);
  EXPECT_EQ(static_cast<std::int8_t>(bytes[5]), -126);
  EXPECT_EQ(static_cast<std::int8_t>(bytes[6]), 0);
}

TEST(QuantiseQ8_0, ZeroAndVanishingBlocksBecomeZero) {
  for (const float tiny : {0.0f, 1e-45f, 1e-38f}) {
    const std::vector<std::byte> bytes = as_q8_0(std::vector<float>(32, tiny));
    EXPECT_EQ(bytes[0], std::byte{0});
    EXPECT_EQ(bytes[1], std::byte{0});
  }
}

TEST(QuantiseQ8_0, ABlockWithNanOrInfinityWidensToNan) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values(64, 127.0f), back(64);
    values[5] = bad;
    widen_row(DType::q8_0, as_q8_0(values), back);
    EXPECT_TRUE(std::isnan(back[0]));
    EXPECT_EQ(back[32], 127.0f) << "the next block is untouched";
  }
}

// --- against the Python package gguf (train/fixtures/make_blocks.py) ------------------------------------------------

class BlocksFixture : public testing::Test {
 protected:
  static std::vector<float> floats(const TensorInfo& tensor) {
    std::vector<float> values(tensor.bytes.size() / 4);
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
  const TensorInfo& tensor(const std::string& name) const {
    const TensorInfo* found = file_.find(name);
    if (found == nullptr) throw std::runtime_error("blocks.safetensors has no " + name);
    return *found;
  }

  Safetensors file_{std::filesystem::path(ESPALIER_TEST_DATA) / "blocks.safetensors"};
};

TEST_F(BlocksFixture, EveryFormatWidensToTheSameBits) {
  for (DType type : kLinearTypes) {
    if (is_float(type)) continue;
    const std::string prefix(name(type));
    const TensorInfo& bytes = tensor(prefix + ".bytes");
    const std::vector<float> expected = floats(tensor(prefix + ".values"));
    const std::size_t rows = static_cast<std::size_t>(bytes.shape[0]), width = expected.size() / rows;
    for (std::size_t r = 0; r < rows; ++r) {
      std::vector<float> actual(width);
      widen_row(type, bytes.bytes.subspan(r * bytes.bytes.size() / rows, bytes.bytes.size() / rows), actual);
      for (std::size_t k = 0; k < width; ++k)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(actual[k]), std::bit_cast<std::uint32_t>(expected[r * width + k]))
            << prefix << " row " << r << " element " << k << ": " << actual[k] << ", expected "
            << expected[r * width + k];
    }
  }
}

TEST_F(BlocksFixture, QuantisingToQ8_0GivesTheSameBytes) {
  const std::vector<float> values = floats(tensor("quantize_q8_0.values"));
  const TensorInfo& expected = tensor("quantize_q8_0.bytes");
  const std::vector<std::byte> actual = as_q8_0(values);
  ASSERT_EQ(actual.size(), expected.bytes.size());
  for (std::size_t i = 0; i < actual.size(); ++i) ASSERT_EQ(actual[i], expected.bytes[i]) << "byte " << i;
}

}  // namespace
}  // namespace espalier
