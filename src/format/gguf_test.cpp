#include "format/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/error.h"
#include "format/gguf_file.h"
#include "format/testing/complaint.h"
#include "format/testing/gguf_builder.h"
#include "format/testing/gguf_example.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const GgufValue& value_of(const GgufFile& file, std::string_view key) {
  return file.metadata.find(key)->second;
}

TEST(Gguf, ReadsMetadataAndTensorsOfAFile) {
  const TemporaryFolder folder;
  gguf_example().write(folder / "m.gguf");
  const Gguf gguf(folder / "m.gguf");
  EXPECT_EQ(*gguf.string("general.architecture"), "llama");
  EXPECT_EQ(gguf.integer("a.integer"), 7);
  EXPECT_EQ(gguf.boolean("a.bool"), true);
  EXPECT_EQ(gguf.number("a.float"), 0.5);
  EXPECT_THAT(*gguf.strings("a.strings"), ElementsAre("x", "", "yz"));
  EXPECT_THAT(*gguf.integers("a.integers"), ElementsAre(1, -2));
  EXPECT_EQ(gguf.description(), (folder / "m.gguf").string());
  ASSERT_EQ(gguf.tensors().size(), 2u);
  const TensorInfo* first = gguf.find("first");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->type, DType::f32);
  EXPECT_THAT(first->shape, ElementsAre(2, 3));
  float last = 0;
  std::memcpy(&last, first->bytes.data() + 5 * sizeof(float), sizeof(float));
  EXPECT_EQ(last, 6.0f);
  EXPECT_EQ(gguf.find("second")->bytes.size(), 72u);
  EXPECT_EQ(gguf.find("third"), nullptr);
}

TEST(Gguf, TensorsStayValidWhenItIsMoved) {
  const TemporaryFolder folder;
  gguf_example().write(folder / "m.gguf");
  Gguf source(folder / "m.gguf");
  const Gguf gguf = std::move(source);
  float value = 0;
  std::memcpy(&value, gguf.find("first")->bytes.data(), sizeof(float));
  EXPECT_EQ(value, 1.0f);
}

TEST(Gguf, ShapesAreOutermostFirst) {
  const auto bytes = file_of(GgufBuilder().raw_tensor({.dimensions = {5, 3, 2}, .data = zeros(120)}).bytes());
  EXPECT_THAT(parse_gguf(bytes, "m.gguf").tensors[0].shape, ElementsAre(2, 3, 5));
}

TEST(Gguf, ReadsEveryIntegerTypeAtItsLimits) {
  const auto file = file_of(GgufBuilder()
                                .set("u8", std::uint8_t{255})
                                .set("i8", std::int8_t{-128})
                                .set("u16", std::uint16_t{65535})
                                .set("i16", std::int16_t{-32768})
                                .set("u32", std::uint32_t{4294967295})
                                .set("i32", std::numeric_limits<std::int32_t>::min())
                                .set("u64", std::uint64_t{std::numeric_limits<std::int64_t>::max()})
                                .set("i64", std::numeric_limits<std::int64_t>::min())
                                .bytes());
  const GgufFile gguf = parse_gguf(file, "m.gguf");
  const auto integer = [&](std::string_view key) { return std::get<std::int64_t>(value_of(gguf, key).data); };
  EXPECT_EQ(integer("u8"), 255);
  EXPECT_EQ(integer("i8"), -128);
  EXPECT_EQ(integer("u16"), 65535);
  EXPECT_EQ(integer("i16"), -32768);
  EXPECT_EQ(integer("u32"), 4294967295);
  EXPECT_EQ(integer("i32"), std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(integer("u64"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(integer("i64"), std::numeric_limits<std::int64_t>::min());
}

TEST(Gguf, ReadsArraysOfEveryElementType) {
  const auto file = file_of(GgufBuilder()
                                .set("u8", std::vector<std::uint8_t>{0, 255})
                                .set("i64", std::vector<std::int64_t>{-1})
                                .set("f32", std::vector<float>{0.5f})
                                .set("f64", std::vector<double>{0.1})
                                .set("bool", std::vector<bool>{true, false, true})
                                .set("empty", std::vector<std::string>{})
                                .set("nested", std::vector<std::vector<std::int32_t>>{{1}, {}, {2, 3}})
                                .bytes());
  const GgufFile gguf = parse_gguf(file, "m.gguf");
  EXPECT_EQ(value_of(gguf, "u8"), GgufValue{(std::vector<std::int64_t>{0, 255})});
  EXPECT_EQ(value_of(gguf, "i64"), GgufValue{(std::vector<std::int64_t>{-1})});
  EXPECT_EQ(value_of(gguf, "f32"), GgufValue{(std::vector<double>{0.5})});
  EXPECT_EQ(value_of(gguf, "f64"), GgufValue{(std::vector<double>{0.1})});
  EXPECT_EQ(value_of(gguf, "bool"), GgufValue{(std::vector<bool>{true, false, true})});
  EXPECT_EQ(value_of(gguf, "empty"), GgufValue{std::vector<std::string>{}});
  const auto& nested = std::get<GgufArray>(value_of(gguf, "nested").data);
  ASSERT_EQ(nested.size(), 3u);
  EXPECT_EQ(nested[2], GgufValue{(std::vector<std::int64_t>{2, 3})});
}

TEST(Gguf, ReadsEveryTensorTypeTheEngineKnows) {
  for (DType type : {DType::f32, DType::f16, DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                     DType::q8_0, DType::q4_k, DType::q5_k, DType::q6_k, DType::i32, DType::i64}) {
    const auto size = static_cast<std::size_t>(2 * row_bytes(type, 256));
    const auto file = file_of(GgufBuilder().tensor("t", type, {2, 256}, zeros(size)).bytes());
    const GgufFile gguf = parse_gguf(file, "m.gguf");
    EXPECT_EQ(gguf.tensors[0].type, type);
    EXPECT_EQ(gguf.tensors[0].bytes.size(), size);
  }
}

TEST(Gguf, LooksUpAbsentKeysAsNothing) {
  const TemporaryFolder folder;
  gguf_example().write(folder / "m.gguf");
  const Gguf gguf(folder / "m.gguf");
  EXPECT_EQ(gguf.integer("none"), std::nullopt);
  EXPECT_EQ(gguf.number("none"), std::nullopt);
  EXPECT_EQ(gguf.boolean("none"), std::nullopt);
  EXPECT_EQ(gguf.string("none"), nullptr);
  EXPECT_EQ(gguf.strings("none"), nullptr);
  EXPECT_EQ(gguf.integers("none"), nullptr);
  EXPECT_EQ(gguf.numbers("none"), nullptr);
}

TEST(Gguf, LookUpOfAnotherTypeNamesKeyAndBothTypes) {
  const TemporaryFolder folder;
  gguf_example().write(folder / "m.gguf");
  const Gguf gguf(folder / "m.gguf");
  EXPECT_EQ(gguf.number("a.integer"), 7.0);
  EXPECT_THAT(complaint([&] { gguf.integer("a.float"); }), HasSubstr("key \"a.float\": expected integer, got number"));
  EXPECT_THAT(complaint([&] { gguf.strings("a.integers"); }),
              HasSubstr("expected array of strings, got array of integers"));
  EXPECT_THROW(gguf.number("a.bool"), InputError);
  EXPECT_THROW(gguf.boolean("a.integer"), InputError);
  EXPECT_THROW(gguf.string("a.strings"), InputError);
  EXPECT_THROW(gguf.numbers("a.strings"), InputError);
  EXPECT_THROW(gguf.integers("a.strings"), InputError);
}

TEST(Gguf, FileWithoutTensorsMayEndAfterItsMetadata) {
  EXPECT_EQ(complaint_about(GgufBuilder().set("a", 1)), "");
}

TEST(Gguf, HonoursTheAlignmentTheFileStates) {
  const auto file = file_of(GgufBuilder()
                                .alignment(128)
                                .tensor("a", DType::f32, {1}, bytes_of<float>({1}))
                                .tensor("b", DType::f32, {1}, bytes_of<float>({2}))
                                .bytes());
  const GgufFile gguf = parse_gguf(file, "m.gguf");
  EXPECT_EQ(gguf.tensors[1].bytes.data() - gguf.tensors[0].bytes.data(), 128);
}

}  // namespace
}  // namespace espalier
