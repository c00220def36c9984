#include "format/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>

#include "base/error.h"
#include "format/safetensors_file.h"
#include "format/testing/complaint.h"
#include "format/testing/gguf_builder.h"
#include "format/testing/safetensors_builder.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

std::string safetensors_complaint(std::string_view bytes) {
  const std::vector<std::byte> file = file_of(bytes);
  return complaint([&] { parse_safetensors(file, "m.st"); });
}

std::string safetensors_complaint(const SafetensorsBuilder& builder) {
  return safetensors_complaint(builder.bytes());
}

#define EXPECT_SAFETENSORS_REFUSED(file, ...) \
  EXPECT_THAT(safetensors_complaint(file), AllOf(StartsWith("m.st: "), Not(HasSubstr("\n")), __VA_ARGS__))

SafetensorsBuilder example() {
  return SafetensorsBuilder()
      .tensor("b", DType::f32, {2, 3}, bytes_of<float>({1, 2, 3, 4, 5, 6}))
      .tensor("a", DType::bf16, {2}, zeros(4))
      .metadata("format", "pt");
}

// One tensor "t" of eight bytes of data with these fields.
SafetensorsBuilder with_entry(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return SafetensorsBuilder()
      .raw_entry(fmt::format(R"("t":{{"dtype":{},"shape":{},"data_offsets":{}}})", dtype, shape, offsets))
      .raw_data(zeros(8));
}

TEST(Safetensors, ReadsTheTensorsOfAFile) {
  const TemporaryFolder folder;
  example().write(folder / "head.safetensors");
  const Safetensors file(folder / "head.safetensors");
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[0].type, DType::bf16);
  const TensorInfo* b = file.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_THAT(b->shape, ElementsAre(2, 3));
  float last = 0;
  std::memcpy(&last, b->bytes.data() + 5 * sizeof(float), sizeof(float));
  EXPECT_EQ(last, 6.0f);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.find("__metadata__"), nullptr);
}

TEST(Safetensors, ReadsEveryTypeTheEngineKnows) {
  const std::pair<const char*, DType> types[] = {{"F32", DType::f32}, {"F16", DType::f16}, {"BF16", DType::bf16},
                                                 {"I64", DType::i64}, {"I32", DType::i32}, {"U8", DType::u8},
                                                 {"BOOL", DType::u8}};
  for (const auto& [name, type] : types) {
    const auto elements = 8 / traits(type).block_bytes;
    const auto bytes = file_of(with_entry(fmt::format("\"{}\"", name), fmt::format("[{}]", elements), "[0,8]").bytes());
    EXPECT_EQ(parse_safetensors(bytes, "m.st")[0].type, type);
  }
}

TEST(Safetensors, AScalarHasNoDimensions) {
  const auto bytes = file_of(with_entry("\"I64\"", "[]", "[0,8]").bytes());
  EXPECT_THAT(parse_safetensors(bytes, "m.st")[0].shape, IsEmpty());
}

TEST(Safetensors, AFileMayHoldNothing) {
  EXPECT_EQ(safetensors_complaint(SafetensorsBuilder()), "");
}

TEST(Safetensors, DirectoryWithASingleFile) {
  const TemporaryFolder folder;
  example().write(folder / "model.safetensors");
  EXPECT_EQ(Safetensors(folder.path()).tensors().size(), 2u);
}

TEST(SafetensorsLies, MissingFileIsNamed) {
  EXPECT_THAT(complaint([] { Safetensors("no/such.safetensors"); }), HasSubstr("no/such.safetensors"));
}

TEST(SafetensorsLies, DirectoryWithoutSafetensors) {
  const TemporaryFolder folder;
  EXPECT_THAT(complaint([&] { Safetensors(folder.path()); }),
              HasSubstr("expected model.safetensors or model.safetensors.index.json in this folder"));
}

TEST(SafetensorsLies, FileShorterThanItsLengthField) {
  for (std::size_t size = 0; size < 8; ++size)
    EXPECT_SAFETENSORS_REFUSED(zeros(size), HasSubstr("expected at least 8 bytes"));
}

TEST(SafetensorsLies, HeaderLengthPastTheEnd) {
  EXPECT_SAFETENSORS_REFUSED(example().header_length(5000), HasSubstr("header of 5000 bytes ends past the file"));
}

TEST(SafetensorsLies, HeaderLengthThatIsAbsurd) {
  EXPECT_SAFETENSORS_REFUSED(example().header_length(~std::uint64_t{0}),
                             HasSubstr("expected a header of at most 100000000 bytes"));
}

TEST(SafetensorsLies, TruncatedInTheData) {
  const std::string bytes = example().bytes();
  for (std::size_t missing = 1; missing <= 28; ++missing)
    EXPECT_SAFETENSORS_REFUSED(bytes.substr(0, bytes.size() - missing), HasSubstr("past the data section"));
}

TEST(SafetensorsLies, EmptyHeader) {
  EXPECT_SAFETENSORS_REFUSED(SafetensorsBuilder().raw_header(""), HasSubstr("not JSON"));
}

TEST(SafetensorsLies, HeaderThatIsNotJson) {
  EXPECT_SAFETENSORS_REFUSED(SafetensorsBuilder().raw_header("{\"a\": oops}"), HasSubstr("header:1:"),
                             HasSubstr("not JSON"));
}

TEST(SafetensorsLies, HeaderThatIsNotAnObject) {
  EXPECT_SAFETENSORS_REFUSED(SafetensorsBuilder().raw_header("[1]"),
                             HasSubstr("header: expected a JSON object, got array"));
}

TEST(SafetensorsLies, HeaderNestedTooDeep) {
  EXPECT_SAFETENSORS_REFUSED(SafetensorsBuilder().raw_header(std::string(100'000, '[')), HasSubstr("nested deeper"));
}

TEST(SafetensorsLies, HeaderPaddedWithNulBytes) {
  EXPECT_SAFETENSORS_REFUSED(SafetensorsBuilder().raw_header("{}" + zeros(6)), HasSubstr("NUL byte"));
}

TEST(SafetensorsLies, DuplicateTensor) {
  const char* entry = R"("t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_SAFETENSORS_REFUSED(SafetensorsBuilder().raw_entry(entry).raw_entry(entry).raw_data(zeros(4)),
                             HasSubstr("duplicate key \"t\""));
}

TEST(SafetensorsLies, MetadataThatIsNotTextByText) {
  EXPECT_SAFETENSORS_REFUSED(SafetensorsBuilder().raw_header(R"({"__metadata__": 3})"),
                             HasSubstr("expected an object, got number"));
  EXPECT_SAFETENSORS_REFUSED(SafetensorsBuilder().raw_header(R"({"__metadata__": {"a": 1}})"),
                             HasSubstr("\"a\": expected a string, got number"));
}

TEST(SafetensorsLies, EntryThatIsNotAnObject) {
  EXPECT_SAFETENSORS_REFUSED(SafetensorsBuilder().raw_header(R"({"t": [1]})"),
                             HasSubstr("tensor \"t\": expected an object"));
}

TEST(SafetensorsLies, MissingFields) {
  EXPECT_SAFETENSORS_REFUSED(SafetensorsBuilder().raw_header(R"({"t": {"shape": [1], "data_offsets": [0, 4]}})"),
                             HasSubstr("missing field \"dtype\""));
  EXPECT_SAFETENSORS_REFUSED(SafetensorsBuilder().raw_header(R"({"t": {"dtype": "F32", "data_offsets": [0, 4]}})"),
                             HasSubstr("missing field \"shape\""));
  EXPECT_SAFETENSORS_REFUSED(SafetensorsBuilder().raw_header(R"({"t": {"dtype": "F32", "shape": [1]}})"),
                             HasSubstr("missing field \"data_offsets\""));
}

TEST(SafetensorsLies, FieldNobodyKnows) {
  EXPECT_SAFETENSORS_REFUSED(
      SafetensorsBuilder().raw_header(R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "zip": true}})"),
      HasSubstr("expected only dtype, shape and data_offsets"));
}

TEST(SafetensorsLies, TypesTheEngineLacksAreNamed) {
  for (const char* type : {"F64", "F8_E4M3", "I8", "U32", "nonsense"})
    EXPECT_SAFETENSORS_REFUSED(with_entry(fmt::format("\"{}\"", type), "[1]", "[0,8]"),
                               HasSubstr(fmt::format("tensor \"t\": dtype \"{}\" is not supported", type)));
}

TEST(SafetensorsLies, TypeThatIsNoString) {
  EXPECT_SAFETENSORS_REFUSED(with_entry("5", "[2]", "[0,8]"), HasSubstr("dtype: expected a string, got number"));
}

TEST(SafetensorsLies, ShapeThatIsNoArrayOfPositiveIntegers) {
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"F32\"", "2", "[0,8]"), HasSubstr("shape: expected an array, got number"));
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"F32\"", "[-2]", "[0,8]"),
                             HasSubstr("shape: expected integers from 0 on, got \"-2\""));
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"F32\"", "[2.0]", "[0,8]"), HasSubstr("shape: expected integers"));
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"F32\"", "[\"2\"]", "[0,8]"), HasSubstr("shape: expected integers"));
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"F32\"", "[18446744073709551616]", "[0,8]"),
                             HasSubstr("shape: expected integers"));
}

TEST(SafetensorsLies, DimensionOfZero) {
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"F32\"", "[2,0]", "[0,0]"),
                             HasSubstr("shape [2, 0]: expected dimensions of at least 1"));
}

TEST(SafetensorsLies, TooManyDimensions) {
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"F32\"", "[1,1,1,1,1,1,1,1,2]", "[0,8]"),
                             HasSubstr("at most 8 dimensions, got 9"));
}

TEST(SafetensorsLies, SizesThatOverflow) {
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"F32\"", "[4294967296,4294967296]", "[0,8]"), HasSubstr("overflows"));
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"F32\"", "[4611686018427387904]", "[0,8]"), HasSubstr("overflows"));
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"U8\"", "[18446744073709551615]", "[0,8]"), HasSubstr("overflows"));
}

TEST(SafetensorsLies, OffsetsThatAreNotTwoIntegers) {
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"F32\"", "[2]", "[0]"), HasSubstr("data_offsets: expected 2 numbers, got 1"));
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"F32\"", "[2]", "[0,8,16]"),
                             HasSubstr("data_offsets: expected 2 numbers, got 3"));
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"F32\"", "[2]", "[0,8.5]"), HasSubstr("data_offsets: expected integers"));
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"F32\"", "[2]", "{}"),
                             HasSubstr("data_offsets: expected an array, got object"));
}

TEST(SafetensorsLies, OffsetsReversed) {
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"F32\"", "[2]", "[8,0]"), HasSubstr("begin 8 is after end 0"));
}

TEST(SafetensorsLies, OffsetsPastTheEnd) {
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"F32\"", "[4]", "[0,16]"),
                             HasSubstr("ends at 16, past the data section of 8 bytes"));
}

TEST(SafetensorsLies, ByteCountThatDoesNotMatchTheShape) {
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"F32\"", "[3]", "[0,8]"),
                             HasSubstr("expected 12 bytes for its shape and dtype, got 8"));
}

TEST(SafetensorsLies, OverlappingTensors) {
  EXPECT_SAFETENSORS_REFUSED(SafetensorsBuilder()
                                 .raw_entry(R"("a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]})")
                                 .raw_entry(R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]})")
                                 .raw_data(zeros(8)),
                             HasSubstr("tensor \"b\": overlaps the tensor before it"));
}

TEST(SafetensorsLies, HoleBetweenTensors) {
  EXPECT_SAFETENSORS_REFUSED(SafetensorsBuilder()
                                 .raw_entry(R"("a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]})")
                                 .raw_entry(R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]})")
                                 .raw_data(zeros(8)),
                             HasSubstr("tensor \"b\": hole before it"));
}

TEST(SafetensorsLies, HoleBeforeTheFirstTensor) {
  EXPECT_SAFETENSORS_REFUSED(with_entry("\"U8\"", "[4]", "[4,8]"), HasSubstr("tensor \"t\": hole before it"));
}

TEST(SafetensorsLies, BytesAfterTheLastTensor) {
  EXPECT_SAFETENSORS_REFUSED(example().raw_data("x"), HasSubstr("expected 28 bytes of data for its tensors, got 29"));
}

class ShardedSafetensors : public testing::Test {
 protected:
  static SafetensorsBuilder shard(std::string_view name, float value) {
    return SafetensorsBuilder().tensor(name, DType::f32, {1}, bytes_of<float>({value}));
  }
  ShardedSafetensors() {
    write_sharded_safetensors(folder_.path(), {shard("b", 2).tensor("c", DType::u8, {1}, "c"), shard("a", 1)});
  }
  void write_index(std::string_view text) { folder_.write("model.safetensors.index.json", text); }
  std::string complaint_about_folder() {
    return complaint([&] { Safetensors{folder_.path()}; });
  }

  TemporaryFolder folder_;
};

constexpr const char* kFirstShard = "model-00001-of-00002.safetensors";
constexpr const char* kSecondShard = "model-00002-of-00002.safetensors";

TEST_F(ShardedSafetensors, AllShardsAreReadAsOne) {
  const Safetensors model(folder_.path());
  ASSERT_EQ(model.tensors().size(), 3u);
  for (const auto& [name, expected] : {std::pair("a", 1.0f), std::pair("b", 2.0f)}) {
    float value = 0;
    std::memcpy(&value, model.find(name)->bytes.data(), sizeof(float));
    EXPECT_EQ(value, expected);
  }
}

TEST_F(ShardedSafetensors, MissingShardIsNamed) {
  std::filesystem::remove(folder_ / kSecondShard);
  EXPECT_THAT(complaint_about_folder(), AllOf(HasSubstr("shard is missing"), HasSubstr(kSecondShard)));
}

TEST_F(ShardedSafetensors, TensorMissingFromItsShardIsNamed) {
  shard("x", 1).write(folder_ / kSecondShard);
  EXPECT_THAT(complaint_about_folder(), AllOf(HasSubstr("tensor \"a\" is missing"), HasSubstr(kSecondShard)));
  SafetensorsBuilder().write(folder_ / kSecondShard);
  EXPECT_THAT(complaint_about_folder(), HasSubstr("tensor \"a\" is missing"));
}

TEST_F(ShardedSafetensors, TensorTheIndexDoesNotListIsNamed) {
  shard("a", 1).tensor("extra", DType::u8, {1}, "x").write(folder_ / kSecondShard);
  EXPECT_THAT(complaint_about_folder(), HasSubstr("tensor \"extra\" is not listed for this shard"));
}

TEST_F(ShardedSafetensors, TensorInTwoShardsIsRefused) {
  shard("a", 1).tensor("b", DType::u8, {1}, "x").write(folder_ / kSecondShard);
  EXPECT_THAT(complaint_about_folder(), HasSubstr("tensor \"b\" is not listed for this shard"));
}

TEST_F(ShardedSafetensors, IndexThatReachesOutsideTheFolderIsRefused) {
  for (const char* path : {"../a.safetensors", "/etc/a.safetensors", "sub/a.safetensors", "..", ".", "", "a\\u0000b"}) {
    write_index(fmt::format(R"({{"weight_map": {{"a": "{}"}}}})", path));
    EXPECT_THAT(complaint_about_folder(), HasSubstr("expected a file name without folders")) << path;
  }
}

TEST_F(ShardedSafetensors, IndexWithoutAWeightMapIsRefused) {
  for (const char* index : {"{}", R"({"weight_map": []})", R"({"weight_map": {}})"}) {
    write_index(index);
    EXPECT_THAT(complaint_about_folder(), HasSubstr("expected \"weight_map\"")) << index;
  }
  write_index("3");
  EXPECT_THAT(complaint_about_folder(), HasSubstr("expected a JSON object, got number"));
}

TEST_F(ShardedSafetensors, IndexEntryThatIsNoNameIsRefused) {
  write_index(R"({"weight_map": {"a": 1}})");
  EXPECT_THAT(complaint_about_folder(), HasSubstr("\"a\": expected a file name, got number"));
}

TEST_F(ShardedSafetensors, IndexThatListsATensorTwiceIsRefused) {
  write_index(fmt::format(R"({{"weight_map": {{"a": "{0}", "a": "{1}"}}}})", kFirstShard, kSecondShard));
  EXPECT_THAT(complaint_about_folder(), HasSubstr("duplicate key \"a\""));
}

TEST(SafetensorsProperty, RandomValidFilesRoundTrip) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SafetensorsBuilder builder;
    std::vector<TensorInfo> expected;
    std::vector<std::string> data;
    for (std::uint64_t i = 0, count = random() % 6; i < count; ++i) {
      constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8};
      TensorInfo info{.name = fmt::format("tensor.{}", i), .type = kTypes[random() % 6], .shape = {}, .bytes = {}};
      std::int64_t elements = 1;
      for (std::uint64_t d = 0, dimensions = random() % 4; d < dimensions; ++d) {
        info.shape.push_back(static_cast<std::int64_t>(1 + random() % 4));
        elements *= info.shape.back();
      }
      data.emplace_back(static_cast<std::size_t>(row_bytes(info.type, elements)), '\0');
      for (char& c : data.back()) c = static_cast<char>(random());
      builder.tensor(info.name, info.type, info.shape, data.back());
      expected.push_back(std::move(info));
    }
    const auto bytes = file_of(builder.bytes());
    const std::vector<TensorInfo> tensors = parse_safetensors(bytes, "m.st");
    ASSERT_EQ(tensors.size(), expected.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(tensors[i].name, expected[i].name);
      EXPECT_EQ(tensors[i].type, expected[i].type);
      EXPECT_EQ(tensors[i].shape, expected[i].shape);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensors[i].bytes.data()), tensors[i].bytes.size()), data[i]);
    }
  }
}

TEST(SafetensorsProperty, DamagedFilesOpenOrAreRefused) {
  std::mt19937_64 random(1);
  const std::string valid = example().bytes();
  for (int trial = 0; trial < 5000; ++trial) {
    SCOPED_TRACE(trial);
    std::string bytes = valid;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    if (trial % 4 == 0) bytes.resize(random() % bytes.size());
    const std::vector<std::byte> file = file_of(bytes);
    try {
      for (const TensorInfo& tensor : parse_safetensors(file, "m.st")) {
        EXPECT_GE(tensor.bytes.data(), file.data());
        EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(), file.data() + file.size());
      }
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    }
  }
}

}  // namespace
}  // namespace espalier
