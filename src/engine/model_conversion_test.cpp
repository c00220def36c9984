#include "engine/model_conversion.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "format/testing/gguf_builder.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

class ModelConversionTest : public ::testing::Test {
 protected:
  Gguf source() {
    GgufBuilder()
        .set("general.architecture", "llama")
        .tensor("blk.0.attn_q.weight", DType::f32, {2, 32}, bytes_of<float>(std::vector<float>(64, 0.5f)))
        .tensor("blk.0.attn_k.weight", DType::f32, {2, 3}, bytes_of<float>({1, 2, 3, 4, 5, 6}))
        .tensor("blk.0.attn_norm.weight", DType::f32, {2}, bytes_of<float>({1, 2}))
        .write(in_);
    return Gguf(in_);
  }

  // Whether it was written to its end.
  bool convert(const Gguf& from, const ConversionEvents& events = {}) {
    const auto conversions = plan_conversions(from, DType::q8_0);
    GgufWriter writer(out_, plan_converted_file(in_, from, conversions, DType::q8_0));
    ThreadPool pool(1);
    return write_converted(from, conversions, pool, events, writer);
  }

  TemporaryFolder folder_;
  const std::filesystem::path in_ = folder_ / "in.gguf", out_ = folder_ / "out.gguf";
};

TEST_F(ModelConversionTest, MatricesTakeTheTypeAndVectorsAndOddRowsDoNot) {
  ASSERT_TRUE(convert(source()));
  const Gguf made(out_);
  EXPECT_EQ(made.find("blk.0.attn_q.weight")->type, DType::q8_0);
  EXPECT_EQ(made.find("blk.0.attn_k.weight")->type, DType::f16);
  EXPECT_EQ(made.find("blk.0.attn_norm.weight")->type, DType::f32);
  EXPECT_EQ(made.integer("general.file_type"), 7);
  EXPECT_EQ(*made.string("general.architecture"), "llama");
}

TEST_F(ModelConversionTest, WhatIsCancelledLeavesNoFile) {
  EXPECT_FALSE(convert(source(), {.cancelled = [] { return true; }}));
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(ModelConversionTest, AShardOfASplitSetIsPartOfIt) {
  const auto first = folder_.write("m-00001-of-00002.gguf", ""), second = folder_.write("m-00002-of-00002.gguf", "");
  const auto other = folder_.write("n-00002-of-00002.gguf", "");
  EXPECT_TRUE(is_part_of(first, first, 0));
  EXPECT_TRUE(is_part_of(second, first, 2));
  EXPECT_FALSE(is_part_of(other, first, 2));
}

}  // namespace
}  // namespace espalier
