#include "model/teacher_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/float16.h"
#include "device/blocks.h"
#include "device/reference/reference_device.h"
#include "format/testing/complaint.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kTeacherRows = 100, kTeacherColumns = 64;

std::vector<float> teacher_matrix(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(kTeacherRows * kTeacherColumns);
  for (float& value : values) value = std::normal_distribution<float>()(random);
  return values;
}

// The blocks of llama.cpp's q4_0: f16 scale, 16 bytes of two numbers each.
std::vector<std::byte> quantised_q4_0(std::span<const float> values) {
  std::vector<std::byte> bytes;
  for (std::size_t begin = 0; begin < values.size(); begin += 32) {
    const auto block = values.subspan(begin, 32);
    float most = 0;
    for (float value : block)
      if (std::abs(value) > std::abs(most)) most = value;
    const float scale = most / -8;
    const std::uint16_t half = f32_to_f16(scale);
    bytes.push_back(static_cast<std::byte>(half & 0xff));
    bytes.push_back(static_cast<std::byte>(half >> 8));
    const auto number = [&](float value) {
      return static_cast<unsigned>(std::clamp(std::lround(value / scale) + 8, 0L, 15L));
    };
    for (std::size_t i = 0; i < 16; ++i)
      bytes.push_back(static_cast<std::byte>(number(block[i]) | number(block[i + 16]) << 4));
  }
  return bytes;
}

std::vector<std::byte> quantised_q8_0(std::span<const float> values) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(kTeacherRows * row_bytes(DType::q8_0, kTeacherColumns)));
  quantise_row_q8_0(values, bytes);
  return bytes;
}

class TeacherRows : public ::testing::Test {
 protected:
  std::string complaint_of(std::span<const float> copy, DType type, const std::vector<std::byte>& teacher,
                           const std::vector<std::int64_t>& shape = {kTeacherRows, kTeacherColumns}) {
    const WeightPart part{type, kTeacherRows, kTeacherColumns, teacher};
    const auto weight = device_->load_weight(std::span(&part, 1));
    const TensorInfo info{.name = "e", .type = DType::f32, .shape = shape, .bytes = std::as_bytes(copy)};
    return complaint([&] { check_rows_of_teacher(*device_, info, {weight.get(), type}, "head", "embed_tokens"); });
  }
  static std::vector<std::byte> bytes_of(std::span<const float> values) {
    return {std::as_bytes(values).begin(), std::as_bytes(values).end()};
  }

  std::unique_ptr<Device> device_ = make_reference_device();
};

TEST_F(TeacherRows, OfTheSameTeacherAreKnownInAnyTypeThatItIsKeptIn) {
  const std::vector<float> own = teacher_matrix(1);
  EXPECT_EQ(complaint_of(own, DType::f32, bytes_of(own)), "");
  EXPECT_EQ(complaint_of(own, DType::q8_0, quantised_q8_0(own)), "");
  EXPECT_EQ(complaint_of(own, DType::q4_0, quantised_q4_0(own)), "");
}

TEST_F(TeacherRows, OfAnotherTeacherAreRefusedInOneLine) {
  const std::vector<float> own = teacher_matrix(1), other = teacher_matrix(2);
  for (const std::string& said :
       {complaint_of(other, DType::f32, bytes_of(own)), complaint_of(other, DType::q8_0, quantised_q8_0(own)),
        complaint_of(other, DType::q4_0, quantised_q4_0(own))})
    EXPECT_THAT(said, ::testing::AllOf(HasSubstr("head: embed_tokens: differs from the teacher's by 1.4 of its size"),
                                       HasSubstr("a head of another teacher"), ::testing::Not(HasSubstr("\n"))));
}

// A later version of the same teacher: close, but not what rounding leaves.
TEST_F(TeacherRows, OfATeacherThatWasTrainedOnAreRefused) {
  const std::vector<float> own = teacher_matrix(1), change = teacher_matrix(3);
  std::vector<float> later = own;
  for (std::size_t i = 0; i < later.size(); ++i) later[i] += 0.05f * change[i];
  EXPECT_NE(complaint_of(later, DType::f32, bytes_of(own)), "");
  EXPECT_NE(complaint_of(later, DType::q8_0, quantised_q8_0(own)), "");
}

TEST_F(TeacherRows, NotANumberIsNoRowOfATeacher) {
  const std::vector<float> own = teacher_matrix(1);
  std::vector<float> broken = own;
  for (float value : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    broken[0] = value;
    EXPECT_EQ(complaint_of(broken, DType::f32, bytes_of(own)), "head: embed_tokens: row 0: expected finite numbers");
  }
}

TEST_F(TeacherRows, MayBeFollowedByPaddingButNotBeFewerOrNarrower) {
  const std::vector<float> own = teacher_matrix(1);
  std::vector<float> longer = own;
  longer.resize(own.size() + kTeacherColumns, 7.0f);
  EXPECT_EQ(complaint_of(longer, DType::f32, bytes_of(own), {kTeacherRows + 1, kTeacherColumns}), "");
  EXPECT_THAT(complaint_of(own, DType::f32, bytes_of(own), {kTeacherRows / 2, kTeacherColumns}),
              HasSubstr("expected a copy of the teacher's [100, 64], got f32 [50, 64]"));
  EXPECT_THAT(complaint_of(own, DType::f32, bytes_of(own), {2 * kTeacherRows, kTeacherColumns / 2}),
              HasSubstr("got f32 [200, 32]"));
}

}  // namespace
}  // namespace espalier
