#include "format/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "base/error.h"
#include "format/complaint.h"
#include "format/gguf_builder.h"
#include "format/gguf_file.h"
#include "format/temporary_folder.h"

namespace espalier {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string complaint_about(std::string_view bytes) {
  const std::vector<std::byte> file = file_of(bytes);
  return complaint([&] { parse_gguf(file, "m.gguf"); });
}

std::string complaint_about(const GgufBuilder& builder) {
  return complaint_about(builder.bytes());
}

#define EXPECT_REFUSED(file, ...) \
  EXPECT_THAT(complaint_about(file), AllOf(StartsWith("m.gguf: "), Not(HasSubstr("\n")), __VA_ARGS__))

// A valid file with every kind of metadata value and two tensors.
GgufBuilder example() {
  return GgufBuilder()
      .set("general.architecture", "llama")
      .set("a.integer", 7u)
      .set("a.bool", true)
      .set("a.float", 0.5f)
      .set("a.strings", std::vector<std::string>{"x", "", "yz"})
      .set("a.integers", std::vector<std::int16_t>{1, -2})
      .tensor("first", DType::f32, {2, 3}, bytes_of<float>({1, 2, 3, 4, 5, 6}))
      .tensor("second", DType::q4_0, {2, 64}, zeros(2 * 2 * 18));
}

const GgufValue& value_of(const GgufFile& file, std::string_view key) {
  return file.metadata.find(key)->second;
}

TEST(Gguf, ReadsMetadataAndTensorsOfAFile) {
  const TemporaryFolder folder;
  example().write(folder / "m.gguf");
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
  example().write(folder / "m.gguf");
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
  example().write(folder / "m.gguf");
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
  example().write(folder / "m.gguf");
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

TEST(GgufLies, AMissingFileIsNamed) {
  EXPECT_THAT(complaint([] { Gguf("no/such/file.gguf"); }), HasSubstr("no/such/file.gguf"));
}

TEST(GgufLies, EmptyFile) {
  EXPECT_REFUSED("", HasSubstr("file ends too early"));
}

TEST(GgufLies, WrongMagic) {
  EXPECT_REFUSED(GgufBuilder().header({.magic = "ggjt"}), HasSubstr("expected the magic \"GGUF\", got \"ggjt\""));
}

TEST(GgufLies, VersionsOneAndTwoAreRefusedByName) {
  EXPECT_REFUSED(GgufBuilder().header({.version = 1}), HasSubstr("GGUF version 1 is not supported"));
  EXPECT_REFUSED(GgufBuilder().header({.version = 2}), HasSubstr("GGUF version 2 is not supported"));
}

TEST(GgufLies, UnknownVersion) {
  EXPECT_REFUSED(GgufBuilder().header({.version = 4}), HasSubstr("unknown GGUF version 4, expected 3"));
  EXPECT_REFUSED(GgufBuilder().header({.version = 0}), HasSubstr("unknown GGUF version 0, expected 3"));
}

TEST(GgufLies, BigEndianFilesAreRefusedByName) {
  EXPECT_REFUSED(GgufBuilder().header({.version = 0x03000000}), HasSubstr("big-endian"));
  EXPECT_REFUSED(GgufBuilder().header({.magic = "FUGG"}), HasSubstr("big-endian"));
}

TEST(GgufLies, TruncatedInTheHeader) {
  const std::string bytes = example().bytes();
  for (std::size_t size = 0; size < example().metadata_begin(); ++size)
    EXPECT_REFUSED(bytes.substr(0, size), HasSubstr("the header: file ends too early"));
}

TEST(GgufLies, TruncatedInTheMetadata) {
  const std::string bytes = example().bytes();
  for (std::size_t size = example().metadata_begin(); size < example().tensors_begin(); ++size)
    EXPECT_REFUSED(bytes.substr(0, size), HasSubstr("left"));
}

TEST(GgufLies, TruncatedInTheTensorList) {
  const std::string bytes = example().bytes();
  for (std::size_t size = example().tensors_begin(); size + 32 < example().data_begin(); ++size)
    EXPECT_REFUSED(bytes.substr(0, size), HasSubstr("left"));
}

TEST(GgufLies, TruncatedInTheData) {
  const std::string bytes = example().bytes();
  for (std::size_t size = example().data_begin(); size < bytes.size(); ++size)
    EXPECT_REFUSED(bytes.substr(0, size), HasSubstr("past the data section"));
}

TEST(GgufLies, MoreTensorsThanTheFileCanHold) {
  EXPECT_REFUSED(example().header({.tensors = std::uint64_t{1} << 60}),
                 HasSubstr("the tensor list: 1152921504606846976"));
  EXPECT_REFUSED(example().header({.tensors = 3}), StartsWith("m.gguf: tensor"));
}

TEST(GgufLies, MoreKeysThanTheFileCanHold) {
  EXPECT_REFUSED(example().header({.keys = ~std::uint64_t{0}}), HasSubstr("metadata keys need at least"));
}

TEST(GgufLies, KeyLengthPastTheEnd) {
  GgufBuilder builder;
  builder.set("a", 1u);
  std::string bytes = builder.bytes();
  bytes[builder.metadata_begin() + 7] = '\x7f';
  EXPECT_REFUSED(bytes, HasSubstr("metadata key 1 of 1: string of"));
}

TEST(GgufLies, StringValueLengthPastTheEnd) {
  EXPECT_REFUSED(GgufBuilder().set_encoded("k", {GgufType::text, bytes_of<std::uint64_t>({1000})}),
                 HasSubstr("key \"k\": string of 1000 bytes"));
}

TEST(GgufLies, EmptyKey) {
  EXPECT_REFUSED(GgufBuilder().set("", 1u), HasSubstr("expected a name of 1 to 65535 bytes, got 0"));
}

TEST(GgufLies, AbsurdlyLongKey) {
  EXPECT_REFUSED(GgufBuilder().set(std::string(65536, 'k'), 1u), HasSubstr("bytes, got 65536"));
}

TEST(GgufLies, KeyThatIsNotUtf8) {
  EXPECT_REFUSED(GgufBuilder().set("k\xff", 1u), HasSubstr("expected a name in UTF-8, got \"k\\xff\""));
}

TEST(GgufLies, KeyThatWouldBreakTheLineIsEscaped) {
  EXPECT_REFUSED(GgufBuilder().set_encoded("a\nb", {GgufType{99}, ""}).set("c", 1u), HasSubstr("key \"a\\x0ab\""));
}

TEST(GgufLies, DuplicateKey) {
  EXPECT_REFUSED(GgufBuilder().set("k", 1u).set("k", 2u), HasSubstr("key \"k\": duplicate key"));
}

TEST(GgufLies, UnknownValueType) {
  EXPECT_REFUSED(GgufBuilder().set_encoded("k", {GgufType{13}, zeros(8)}), HasSubstr("unknown value type 13"));
}

TEST(GgufLies, UnknownArrayElementType) {
  EXPECT_REFUSED(GgufBuilder().set_encoded("k", gguf_array(GgufType{77}, {})), HasSubstr("unknown value type 77"));
}

TEST(GgufLies, BoolThatIsNeitherZeroNorOne) {
  EXPECT_REFUSED(GgufBuilder().set_encoded("k", {GgufType::boolean, "\x02"}), HasSubstr("bool of 0 or 1, got 2"));
  EXPECT_REFUSED(GgufBuilder().set_encoded("k", gguf_array(GgufType::boolean, {{GgufType::boolean, "\xff"}})),
                 HasSubstr("bool of 0 or 1, got 255"));
}

TEST(GgufLies, UnsignedIntegerAboveInt64) {
  EXPECT_REFUSED(GgufBuilder().set("k", std::uint64_t{1} << 63), HasSubstr("integer 9223372036854775808 is above"));
}

TEST(GgufLies, ArrayOfAbsurdCount) {
  for (std::uint64_t count : {std::uint64_t{100}, std::uint64_t{1} << 40, ~std::uint64_t{0}})
    for (std::uint32_t type = 0; type < 13; ++type) {
      const std::string array = bytes_of<std::uint32_t>({type}) + bytes_of<std::uint64_t>({count}) + zeros(40);
      EXPECT_REFUSED(GgufBuilder().set_encoded("k", {GgufType::array, array}),
                     HasSubstr("array elements need at least"));
    }
}

TEST(GgufLies, ArraysNestedTooDeep) {
  GgufEncoded value = gguf_encode(std::vector<std::int32_t>{1});
  for (int depth = 2; depth <= 4; ++depth) value = gguf_array(GgufType::array, {value});
  EXPECT_EQ(complaint_about(GgufBuilder().set_encoded("k", value)), "");
  value = gguf_array(GgufType::array, {value});
  EXPECT_REFUSED(GgufBuilder().set_encoded("k", value), HasSubstr("key \"k\": arrays nested deeper than 4 levels"));
}

TEST(GgufLies, AlignmentThatIsNoPowerOfTwoOrTooSmall) {
  for (std::uint32_t alignment : {0u, 1u, 4u, 24u, 48u, 4294967295u})
    EXPECT_REFUSED(GgufBuilder().set("general.alignment", alignment), HasSubstr("power of two"),
                   HasSubstr("got " + std::to_string(alignment)));
  EXPECT_REFUSED(GgufBuilder().set("general.alignment", std::int64_t{-32}), HasSubstr("power of two"));
  EXPECT_REFUSED(GgufBuilder().set("general.alignment", std::int64_t{1} << 62), HasSubstr("power of two"));
}

TEST(GgufLies, AlignmentThatIsNoInteger) {
  EXPECT_REFUSED(GgufBuilder().set("general.alignment", "32"), HasSubstr("expected an integer, got string"));
}

TEST(GgufLies, AlignmentLargerThanTheFile) {
  EXPECT_REFUSED(GgufBuilder().set("general.alignment", 1u << 31).raw_tensor({.data = zeros(4)}),
                 HasSubstr("past the data section of 0 bytes"));
}

TEST(GgufLies, TensorOffsetThatIsNotAligned) {
  EXPECT_REFUSED(GgufBuilder().raw_tensor({.offset = 4, .data = zeros(64)}),
                 HasSubstr("offset 4 is not a multiple of the alignment 32"));
}

TEST(GgufLies, TensorOffsetPastTheEnd) {
  EXPECT_REFUSED(GgufBuilder().raw_tensor({.offset = 4096, .data = zeros(4)}), HasSubstr("past the data section"));
  EXPECT_REFUSED(GgufBuilder().raw_tensor({.offset = ~std::uint64_t{31}, .data = zeros(64)}),
                 HasSubstr("past the data section"));
}

TEST(GgufLies, OverlappingTensors) {
  EXPECT_REFUSED(GgufBuilder()
                     .raw_tensor({.name = "a", .dimensions = {16}, .data = zeros(64)})
                     .raw_tensor({.name = "b", .dimensions = {16}, .offset = 32, .data = zeros(64)}),
                 HasSubstr("tensors \"a\" and \"b\" overlap"));
}

TEST(GgufLies, TwoTensorsInOnePlace) {
  EXPECT_REFUSED(GgufBuilder().raw_tensor({.name = "a", .data = zeros(4)}).raw_tensor({.name = "b", .offset = 0}),
                 HasSubstr("overlap"));
}

TEST(GgufLies, DuplicateTensor) {
  const TemporaryFolder folder;
  GgufBuilder().raw_tensor({.data = zeros(4)}).raw_tensor({.data = zeros(4)}).write(folder / "m.gguf");
  EXPECT_THAT(complaint([&] { Gguf(folder / "m.gguf"); }), HasSubstr("duplicate tensor \"t\""));
}

TEST(GgufLies, TensorNameThatIsEmptyOrNotUtf8) {
  EXPECT_REFUSED(GgufBuilder().raw_tensor({.name = "", .data = zeros(4)}), HasSubstr("tensor 1 of 1: expected a name"));
  EXPECT_REFUSED(GgufBuilder().raw_tensor({.name = "\x80", .data = zeros(4)}), HasSubstr("in UTF-8, got \"\\x80\""));
}

TEST(GgufLies, NoDimensionsOrTooMany) {
  EXPECT_REFUSED(GgufBuilder().raw_tensor({.dimensions = {}, .data = zeros(64)}),
                 HasSubstr("1 to 4 dimensions, got 0"));
  EXPECT_REFUSED(GgufBuilder().raw_tensor({.dimensions = {1, 1, 1, 1, 1}, .data = zeros(4)}),
                 HasSubstr("1 to 4 dimensions, got 5"));
}

TEST(GgufLies, DimensionOfZero) {
  EXPECT_REFUSED(GgufBuilder().raw_tensor({.dimensions = {4, 0}}),
                 HasSubstr("tensor \"t\": shape [0, 4]: expected dimensions of at least 1"));
}

TEST(GgufLies, NegativeDimension) {
  EXPECT_REFUSED(GgufBuilder().raw_tensor({.dimensions = {~std::uint64_t{0}}}), HasSubstr("overflows"));
}

TEST(GgufLies, SizesThatOverflow) {
  const std::uint64_t big = std::uint64_t{1} << 32;
  EXPECT_REFUSED(GgufBuilder().raw_tensor({.dimensions = {big, big}}), HasSubstr("overflows"));
  EXPECT_REFUSED(GgufBuilder().raw_tensor({.dimensions = {big, big, big, big}}), HasSubstr("overflows"));
  EXPECT_REFUSED(GgufBuilder().raw_tensor({.dimensions = {std::uint64_t{1} << 62}}), HasSubstr("overflows"));
  EXPECT_REFUSED(GgufBuilder().raw_tensor({.dimensions = {big, big >> 2}, .type = 3}), HasSubstr("data section"));
}

TEST(GgufLies, UnknownTensorType) {
  EXPECT_REFUSED(GgufBuilder().raw_tensor({.type = 200}), HasSubstr("tensor \"t\": unknown tensor type 200"));
}

TEST(GgufLies, TensorTypesTheEngineLacksAreNamed) {
  const std::pair<std::uint32_t, const char*> lacking[] = {{9, "Q8_1"},    {10, "Q2_K"}, {11, "Q3_K"},  {16, "IQ2_XXS"},
                                                           {23, "IQ4_XS"}, {28, "F64"},  {34, "TQ1_0"}, {39, "MXFP4"}};
  for (const auto& [number, name] : lacking)
    EXPECT_REFUSED(GgufBuilder().raw_tensor({.dimensions = {256}, .type = number}),
                   HasSubstr(fmt::format("tensor \"t\": tensor type {} ({}) is not supported", name, number)));
}

TEST(GgufLies, RowThatIsNotAWholeNumberOfBlocks) {
  EXPECT_REFUSED(GgufBuilder().raw_tensor({.dimensions = {48, 2}, .type = 2, .data = zeros(64)}),
                 HasSubstr("a multiple of 32 elements for q4_0, got 48"));
  EXPECT_REFUSED(GgufBuilder().raw_tensor({.dimensions = {128, 2}, .type = 12, .data = zeros(144)}),
                 HasSubstr("a multiple of 256 elements for q4_k, got 128"));
}

class SplitGguf : public testing::Test {
 protected:
  static GgufBuilder shard(std::string_view tensor, float value) {
    return GgufBuilder().tensor(tensor, DType::f32, {1}, bytes_of<float>({value}));
  }
  static std::vector<GgufBuilder> three_shards() {
    std::vector<GgufBuilder> shards = {shard("c", 3), shard("a", 1), shard("b", 2)};
    shards[0].set("general.architecture", "llama");
    return shards;
  }
  std::string complaint_about(const std::filesystem::path& path) {
    return complaint([&] { Gguf{path}; });
  }
  // Replaces shard `number` (from 0) of the three by one with these split.* values.
  void replace(int number, std::uint16_t split_no, std::uint16_t split_count, std::int32_t tensors) {
    three_shards()[static_cast<std::size_t>(number)]
        .set("split.no", split_no)
        .set("split.count", split_count)
        .set("split.tensors.count", tensors)
        .write(folder_ / fmt::format("m-{:05}-of-00003.gguf", number + 1));
  }

  TemporaryFolder folder_;
  std::filesystem::path first_ = write_split_gguf(folder_.path(), "m", three_shards());
};

TEST_F(SplitGguf, AllShardsAreReadAsOne) {
  const Gguf gguf(first_);
  EXPECT_EQ(*gguf.string("general.architecture"), "llama");
  ASSERT_EQ(gguf.tensors().size(), 3u);
  for (const auto& [name, expected] : {std::pair("a", 1.0f), std::pair("b", 2.0f), std::pair("c", 3.0f)}) {
    float value = 0;
    std::memcpy(&value, gguf.find(name)->bytes.data(), sizeof(float));
    EXPECT_EQ(value, expected);
  }
}

TEST_F(SplitGguf, AJoinedFileKeepsItsSplitKeysWithACountOfZero) {
  shard("t", 1)
      .set("split.no", std::uint16_t{0})
      .set("split.count", std::uint16_t{0})
      .set("split.tensors.count", 1)
      .write(folder_ / "joined.gguf");
  EXPECT_EQ(complaint_about(folder_ / "joined.gguf"), "");
}

TEST_F(SplitGguf, MissingShardIsNamed) {
  std::filesystem::remove(folder_ / "m-00002-of-00003.gguf");
  EXPECT_THAT(complaint_about(first_), AllOf(HasSubstr("shard 2 of 3 is missing"), HasSubstr("m-00002-of-00003.gguf")));
}

TEST_F(SplitGguf, OpeningALaterShardSaysToOpenTheFirst) {
  EXPECT_THAT(complaint_about(folder_ / "m-00003-of-00003.gguf"),
              AllOf(HasSubstr("this is shard 3 of 3, open the first one: "), HasSubstr(first_.string())));
}

TEST_F(SplitGguf, FirstShardUnderAnotherNameIsRefused) {
  std::filesystem::rename(first_, folder_ / "renamed.gguf");
  EXPECT_THAT(complaint_about(folder_ / "renamed.gguf"), HasSubstr("expected a name ending in -00001-of-00003.gguf"));
}

TEST_F(SplitGguf, ShardWithAnotherNumberIsRefused) {
  replace(1, 2, 3, 3);
  EXPECT_THAT(complaint_about(first_), HasSubstr("m-00002-of-00003.gguf: key \"split.no\": expected 1, got 2"));
}

TEST_F(SplitGguf, ShardOfAnotherCountIsRefused) {
  replace(2, 2, 4, 3);
  EXPECT_THAT(complaint_about(first_), HasSubstr("key \"split.count\": expected 3, got 4"));
}

TEST_F(SplitGguf, ShardWithoutSplitKeysIsRefused) {
  shard("b", 2).write(folder_ / "m-00003-of-00003.gguf");
  EXPECT_THAT(complaint_about(first_), HasSubstr("key \"split.no\": expected 2, but the key is missing"));
}

TEST_F(SplitGguf, ShardThatDisagreesOnTheTensorCountIsRefused) {
  replace(2, 2, 3, 5);
  EXPECT_THAT(complaint_about(first_), HasSubstr("key \"split.tensors.count\" differs from the first shard"));
}

TEST_F(SplitGguf, TensorCountThatIsNotTheSumOfTheShardsIsRefused) {
  for (int number = 0; number < 3; ++number) replace(number, static_cast<std::uint16_t>(number), 3, 5);
  EXPECT_THAT(complaint_about(first_), HasSubstr("key \"split.tensors.count\": expected 3, got 5"));
}

TEST_F(SplitGguf, NumberOutsideTheCountIsRefused) {
  replace(0, 3, 3, 3);
  EXPECT_THAT(complaint_about(first_), HasSubstr("key \"split.no\": expected 0 to 2, got 3"));
  replace(0, 1, 1, 1);
  EXPECT_THAT(complaint_about(first_), HasSubstr("expected 0 in a model of one file, got 1"));
}

TEST_F(SplitGguf, AbsurdCountIsRefused) {
  shard("t", 1).set("split.count", std::int64_t{1} << 40).write(folder_ / "x.gguf");
  EXPECT_THAT(complaint_about(folder_ / "x.gguf"), HasSubstr("key \"split.count\": expected 0 to 65535"));
  shard("t", 1).set("split.count", -1).write(folder_ / "x.gguf");
  EXPECT_THAT(complaint_about(folder_ / "x.gguf"), HasSubstr("key \"split.count\": expected 0 to 65535"));
}

TEST_F(SplitGguf, MetadataThatDisagreesBetweenShardsIsRefused) {
  auto shards = three_shards();
  shards[2].set("general.architecture", "qwen2");
  write_split_gguf(folder_.path(), "m", shards);
  EXPECT_THAT(complaint_about(first_), HasSubstr("key \"general.architecture\" differs from the first shard"));
  shards = three_shards();
  shards[1].set("llama.block_count", 2u);
  write_split_gguf(folder_.path(), "m", shards);
  EXPECT_THAT(complaint_about(first_), HasSubstr("key \"llama.block_count\" is not in the first shard"));
}

TEST_F(SplitGguf, TensorInTwoShardsIsRefused) {
  auto shards = three_shards();
  shards[2] = shard("a", 9);
  write_split_gguf(folder_.path(), "m", shards);
  EXPECT_THAT(complaint_about(first_), HasSubstr("duplicate tensor \"a\""));
}

// Random valid files. What goes in must come out.
class RandomGguf {
 public:
  explicit RandomGguf(std::uint64_t seed) : random_(seed) {
    if (below(2) == 1) builder_.alignment(8u << below(5));
    for (std::uint64_t i = 0, count = below(8); i < count; ++i) add_key(fmt::format("key.{}", i));
    for (std::uint64_t i = 0, count = below(6); i < count; ++i) add_tensor(fmt::format("tensor.{}", i));
  }

  const GgufBuilder& builder() const { return builder_; }

  void expect_equal(const GgufFile& file) const {
    for (const auto& [key, value] : metadata_) {
      const auto found = file.metadata.find(key);
      ASSERT_NE(found, file.metadata.end()) << key;
      EXPECT_EQ(found->second, value) << key;
    }
    ASSERT_EQ(file.tensors.size(), tensors_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      EXPECT_EQ(file.tensors[i].name, tensors_[i].name);
      EXPECT_EQ(file.tensors[i].type, tensors_[i].type);
      EXPECT_EQ(file.tensors[i].shape, tensors_[i].shape);
      const auto& bytes = file.tensors[i].bytes;
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), data_[i]);
    }
  }

 private:
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }

  std::string text() {
    std::string result(below(12), ' ');
    for (char& c : result) c = static_cast<char>(below(256));
    return result;
  }

  void add_key(const std::string& key) {
    const auto integer = static_cast<std::int32_t>(random_());
    std::vector<std::int64_t> integers(below(5));
    for (std::int64_t& value : integers) value = static_cast<std::int64_t>(random_());
    std::vector<std::string> texts(below(5));
    for (std::string& value : texts) value = text();
    switch (below(6)) {
      case 0: builder_.set(key, integer), metadata_[key] = {std::int64_t{integer}}; break;
      case 1: builder_.set(key, integer * 0.25), metadata_[key] = {integer * 0.25}; break;
      case 2: builder_.set(key, integer > 0), metadata_[key] = {integer > 0}; break;
      case 3: builder_.set(key, integers), metadata_[key] = {integers}; break;
      case 4: builder_.set(key, texts), metadata_[key] = {texts}; break;
      default: {
        const std::string value = text();
        builder_.set(key, value), metadata_[key] = {value};
      }
    }
  }

  void add_tensor(const std::string& name) {
    const DType type = kLinearTypes[below(std::size(kLinearTypes))];
    TensorInfo info{.name = name, .type = type, .shape = {}, .bytes = {}};
    for (std::uint64_t i = 0, outer = below(3); i < outer; ++i)
      info.shape.push_back(static_cast<std::int64_t>(1 + below(3)));
    info.shape.push_back(static_cast<std::int64_t>(1 + below(2)) * traits(type).block_elements);
    std::int64_t size = row_bytes(type, info.shape.back());
    for (std::size_t i = 0; i + 1 < info.shape.size(); ++i) size *= info.shape[i];
    std::string data(static_cast<std::size_t>(size), '\0');
    for (char& c : data) c = static_cast<char>(random_());
    builder_.tensor(name, type, info.shape, data);
    tensors_.push_back(info);
    data_.push_back(data);
  }

  std::mt19937_64 random_;
  GgufBuilder builder_;
  GgufMetadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::string> data_;
};

TEST(GgufProperty, RandomValidFilesRoundTrip) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const RandomGguf random(seed);
    const auto bytes = file_of(random.builder().bytes());
    random.expect_equal(parse_gguf(bytes, "m.gguf"));
  }
}

// Whatever a damaged file says, it opens with tensors inside the file or is refused in one line.
void expect_opens_or_refuses(std::string_view bytes) {
  const std::vector<std::byte> file = file_of(bytes);
  try {
    for (const TensorInfo& tensor : parse_gguf(file, "m.gguf").tensors) {
      EXPECT_GE(tensor.bytes.data(), file.data());
      EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(), file.data() + file.size());
    }
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
  }
}

TEST(GgufProperty, DamagedFilesOpenOrAreRefused) {
  std::mt19937_64 random(1);
  const std::string valid = example().bytes();
  for (int trial = 0; trial < 5000; ++trial) {
    SCOPED_TRACE(trial);
    std::string bytes = valid;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    if (trial % 4 == 0) bytes.resize(random() % bytes.size());
    expect_opens_or_refuses(bytes);
  }
}

TEST(GgufProperty, EveryByteBeforeTheDataMayTakeAnExtremeValue) {
  const std::string valid = example().bytes();
  for (std::size_t i = 0; i < example().data_begin(); ++i)
    for (char value : {'\0', '\x01', '\x7f', '\x80', '\xff'}) {
      std::string bytes = valid;
      bytes[i] = value;
      SCOPED_TRACE(i);
      expect_opens_or_refuses(bytes);
    }
}

}  // namespace
}  // namespace espalier
