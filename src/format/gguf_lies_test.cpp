// Each way a GGUF file can lie, by name: refused in one line that says what and where.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "format/gguf.h"
#include "format/testing/complaint.h"
#include "format/testing/gguf_builder.h"
#include "format/testing/gguf_example.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

#define EXPECT_GGUF_REFUSED(file, ...) \
  EXPECT_THAT(complaint_about(file), AllOf(StartsWith("m.gguf: "), Not(HasSubstr("\n")), __VA_ARGS__))

TEST(GgufLies, AMissingFileIsNamed) {
  EXPECT_THAT(complaint([] { Gguf("no/such/file.gguf"); }), HasSubstr("no/such/file.gguf"));
}

TEST(GgufLies, EmptyFile) {
  EXPECT_GGUF_REFUSED("", HasSubstr("file ends too early"));
}

TEST(GgufLies, WrongMagic) {
  EXPECT_GGUF_REFUSED(GgufBuilder().header({.magic = "ggjt"}), HasSubstr("expected the magic \"GGUF\", got \"ggjt\""));
}

TEST(GgufLies, VersionsOneAndTwoAreRefusedByName) {
  EXPECT_GGUF_REFUSED(GgufBuilder().header({.version = 1}), HasSubstr("GGUF version 1 is not supported"));
  EXPECT_GGUF_REFUSED(GgufBuilder().header({.version = 2}), HasSubstr("GGUF version 2 is not supported"));
}

TEST(GgufLies, UnknownVersion) {
  EXPECT_GGUF_REFUSED(GgufBuilder().header({.version = 4}), HasSubstr("unknown GGUF version 4, expected 3"));
  EXPECT_GGUF_REFUSED(GgufBuilder().header({.version = 0}), HasSubstr("unknown GGUF version 0, expected 3"));
}

TEST(GgufLies, BigEndianFilesAreRefusedByName) {
  EXPECT_GGUF_REFUSED(GgufBuilder().header({.version = 0x03000000}), HasSubstr("big-endian"));
  EXPECT_GGUF_REFUSED(GgufBuilder().header({.magic = "FUGG"}), HasSubstr("big-endian"));
}

TEST(GgufLies, TruncatedInTheHeader) {
  const std::string bytes = gguf_example().bytes();
  for (std::size_t size = 0; size < gguf_example().metadata_begin(); ++size)
    EXPECT_GGUF_REFUSED(bytes.substr(0, size), HasSubstr("the header: file ends too early"));
}

TEST(GgufLies, TruncatedInTheMetadata) {
  const std::string bytes = gguf_example().bytes();
  for (std::size_t size = gguf_example().metadata_begin(); size < gguf_example().tensors_begin(); ++size)
    EXPECT_GGUF_REFUSED(bytes.substr(0, size), HasSubstr("left"));
}

TEST(GgufLies, TruncatedInTheTensorList) {
  const std::string bytes = gguf_example().bytes();
  for (std::size_t size = gguf_example().tensors_begin(); size + 32 < gguf_example().data_begin(); ++size)
    EXPECT_GGUF_REFUSED(bytes.substr(0, size), HasSubstr("left"));
}

TEST(GgufLies, TruncatedInTheData) {
  const std::string bytes = gguf_example().bytes();
  for (std::size_t size = gguf_example().data_begin(); size < bytes.size(); ++size)
    EXPECT_GGUF_REFUSED(bytes.substr(0, size), HasSubstr("past the data section"));
}

TEST(GgufLies, MoreTensorsThanTheFileCanHold) {
  EXPECT_GGUF_REFUSED(gguf_example().header({.tensors = std::uint64_t{1} << 60}),
                      HasSubstr("the tensor list: 1152921504606846976"));
  EXPECT_GGUF_REFUSED(gguf_example().header({.tensors = 3}), StartsWith("m.gguf: tensor"));
}

TEST(GgufLies, MoreKeysThanTheFileCanHold) {
  EXPECT_GGUF_REFUSED(gguf_example().header({.keys = ~std::uint64_t{0}}), HasSubstr("metadata keys need at least"));
}

TEST(GgufLies, MoreKeysThanAnyModelHasAreRefusedBeforeTheyCostMemory) {
  EXPECT_GGUF_REFUSED(gguf_example().header({.keys = 2'000'000}).bytes() + std::string(2'000'000 * 32, 'x'),
                      HasSubstr("expected at most 65536 metadata keys, got 2000000"));
}

TEST(GgufLies, KeyLengthPastTheEnd) {
  GgufBuilder builder;
  builder.set("a", 1u);
  std::string bytes = builder.bytes();
  bytes[builder.metadata_begin() + 7] = '\x7f';
  EXPECT_GGUF_REFUSED(bytes, HasSubstr("metadata key 1 of 1: string of"));
}

TEST(GgufLies, StringValueLengthPastTheEnd) {
  EXPECT_GGUF_REFUSED(GgufBuilder().set_encoded("k", {GgufType::text, bytes_of<std::uint64_t>({1000})}),
                      HasSubstr("key \"k\": string of 1000 bytes"));
}

TEST(GgufLies, EmptyKey) {
  EXPECT_GGUF_REFUSED(GgufBuilder().set("", 1u), HasSubstr("expected a name of 1 to 65535 bytes, got 0"));
}

TEST(GgufLies, AbsurdlyLongKey) {
  EXPECT_GGUF_REFUSED(GgufBuilder().set(std::string(65536, 'k'), 1u), HasSubstr("bytes, got 65536"));
}

TEST(GgufLies, KeyThatIsNotUtf8) {
  EXPECT_GGUF_REFUSED(GgufBuilder().set("k\xff", 1u), HasSubstr("expected a name in UTF-8, got \"k\\xff\""));
}

TEST(GgufLies, KeyThatWouldBreakTheLineIsEscaped) {
  EXPECT_GGUF_REFUSED(GgufBuilder().set_encoded("a\nb", {GgufType{99}, ""}).set("c", 1u), HasSubstr("key \"a\\x0ab\""));
}

TEST(GgufLies, DuplicateKey) {
  EXPECT_GGUF_REFUSED(GgufBuilder().set("k", 1u).set("k", 2u), HasSubstr("key \"k\": duplicate key"));
}

TEST(GgufLies, UnknownValueType) {
  EXPECT_GGUF_REFUSED(GgufBuilder().set_encoded("k", {GgufType{13}, zeros(8)}), HasSubstr("unknown value type 13"));
}

TEST(GgufLies, UnknownArrayElementType) {
  EXPECT_GGUF_REFUSED(GgufBuilder().set_encoded("k", gguf_array(GgufType{77}, {})), HasSubstr("unknown value type 77"));
}

TEST(GgufLies, BoolThatIsNeitherZeroNorOne) {
  EXPECT_GGUF_REFUSED(GgufBuilder().set_encoded("k", {GgufType::boolean, "\x02"}), HasSubstr("bool of 0 or 1, got 2"));
  EXPECT_GGUF_REFUSED(GgufBuilder().set_encoded("k", gguf_array(GgufType::boolean, {{GgufType::boolean, "\xff"}})),
                      HasSubstr("bool of 0 or 1, got 255"));
}

TEST(GgufLies, UnsignedIntegerAboveInt64) {
  EXPECT_GGUF_REFUSED(GgufBuilder().set("k", std::uint64_t{1} << 63),
                      HasSubstr("integer 9223372036854775808 is above"));
}

TEST(GgufLies, ArrayOfAbsurdCount) {
  for (std::uint64_t count : {std::uint64_t{100}, std::uint64_t{1} << 40, ~std::uint64_t{0}})
    for (std::uint32_t type = 0; type < 13; ++type) {
      const std::string array = bytes_of<std::uint32_t>({type}) + bytes_of<std::uint64_t>({count}) + zeros(40);
      EXPECT_GGUF_REFUSED(GgufBuilder().set_encoded("k", {GgufType::array, array}),
                          HasSubstr("array elements need at least"));
    }
}

TEST(GgufLies, ArraysNestedTooDeep) {
  GgufEncoded value = gguf_encode(std::vector<std::int32_t>{1});
  for (int depth = 2; depth <= 4; ++depth) value = gguf_array(GgufType::array, {value});
  EXPECT_EQ(complaint_about(GgufBuilder().set_encoded("k", value)), "");
  value = gguf_array(GgufType::array, {value});
  EXPECT_GGUF_REFUSED(GgufBuilder().set_encoded("k", value),
                      HasSubstr("key \"k\": arrays nested deeper than 4 levels"));
}

TEST(GgufLies, AlignmentThatIsNoPowerOfTwoOrTooSmall) {
  for (std::uint32_t alignment : {0u, 1u, 4u, 24u, 48u, 4294967295u})
    EXPECT_GGUF_REFUSED(GgufBuilder().set("general.alignment", alignment), HasSubstr("power of two"),
                        HasSubstr("got " + std::to_string(alignment)));
  EXPECT_GGUF_REFUSED(GgufBuilder().set("general.alignment", std::int64_t{-32}), HasSubstr("power of two"));
  EXPECT_GGUF_REFUSED(GgufBuilder().set("general.alignment", std::int64_t{1} << 62), HasSubstr("power of two"));
}

TEST(GgufLies, AlignmentThatIsNoInteger) {
  EXPECT_GGUF_REFUSED(GgufBuilder().set("general.alignment", "32"), HasSubstr("expected an integer, got string"));
}

TEST(GgufLies, AlignmentLargerThanTheFile) {
  EXPECT_GGUF_REFUSED(GgufBuilder().set("general.alignment", 1u << 31).raw_tensor({.data = zeros(4)}),
                      HasSubstr("past the data section of 0 bytes"));
}

TEST(GgufLies, TensorOffsetThatIsNotAligned) {
  EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.offset = 4, .data = zeros(64)}),
                      HasSubstr("offset 4 is not a multiple of the alignment 32"));
}

TEST(GgufLies, TensorOffsetPastTheEnd) {
  EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.offset = 4096, .data = zeros(4)}), HasSubstr("past the data section"));
  EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.offset = ~std::uint64_t{31}, .data = zeros(64)}),
                      HasSubstr("past the data section"));
}

TEST(GgufLies, OverlappingTensors) {
  EXPECT_GGUF_REFUSED(GgufBuilder()
                          .raw_tensor({.name = "a", .dimensions = {16}, .data = zeros(64)})
                          .raw_tensor({.name = "b", .dimensions = {16}, .offset = 32, .data = zeros(64)}),
                      HasSubstr("tensors \"a\" and \"b\" overlap"));
}

TEST(GgufLies, TwoTensorsInOnePlace) {
  EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.name = "a", .data = zeros(4)}).raw_tensor({.name = "b", .offset = 0}),
                      HasSubstr("overlap"));
}

TEST(GgufLies, DuplicateTensor) {
  const TemporaryFolder folder;
  GgufBuilder().raw_tensor({.data = zeros(4)}).raw_tensor({.data = zeros(4)}).write(folder / "m.gguf");
  EXPECT_THAT(complaint([&] { Gguf(folder / "m.gguf"); }), HasSubstr("duplicate tensor \"t\""));
}

TEST(GgufLies, TensorNameThatIsEmptyOrNotUtf8) {
  EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.name = "", .data = zeros(4)}),
                      HasSubstr("tensor 1 of 1: expected a name"));
  EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.name = "\x80", .data = zeros(4)}),
                      HasSubstr("in UTF-8, got \"\\x80\""));
}

TEST(GgufLies, NoDimensionsOrTooMany) {
  EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.dimensions = {}, .data = zeros(64)}),
                      HasSubstr("1 to 4 dimensions, got 0"));
  EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.dimensions = {1, 1, 1, 1, 1}, .data = zeros(4)}),
                      HasSubstr("1 to 4 dimensions, got 5"));
}

TEST(GgufLies, DimensionOfZero) {
  EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.dimensions = {4, 0}}),
                      HasSubstr("tensor \"t\": shape [0, 4]: expected dimensions of at least 1"));
}

TEST(GgufLies, NegativeDimension) {
  EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.dimensions = {~std::uint64_t{0}}}), HasSubstr("overflows"));
}

TEST(GgufLies, SizesThatOverflow) {
  const std::uint64_t big = std::uint64_t{1} << 32;
  EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.dimensions = {big, big}}), HasSubstr("overflows"));
  EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.dimensions = {big, big, big, big}}), HasSubstr("overflows"));
  EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.dimensions = {std::uint64_t{1} << 62}}), HasSubstr("overflows"));
  EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.dimensions = {big, big >> 2}, .type = 3}), HasSubstr("data section"));
}

TEST(GgufLies, UnknownTensorType) {
  EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.type = 200}), HasSubstr("tensor \"t\": unknown tensor type 200"));
}

TEST(GgufLies, TensorTypesTheEngineLacksAreNamed) {
  const std::pair<std::uint32_t, const char*> lacking[] = {{9, "Q8_1"},    {10, "Q2_K"}, {11, "Q3_K"},  {16, "IQ2_XXS"},
                                                           {23, "IQ4_XS"}, {28, "F64"},  {34, "TQ1_0"}, {39, "MXFP4"}};
  for (const auto& [number, name] : lacking)
    EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.dimensions = {256}, .type = number}),
                        HasSubstr(fmt::format("tensor \"t\": tensor type {} ({}) is not supported", name, number)));
}

TEST(GgufLies, RowThatIsNotAWholeNumberOfBlocks) {
  EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.dimensions = {48, 2}, .type = 2, .data = zeros(64)}),
                      HasSubstr("a multiple of 32 elements for q4_0, got 48"));
  EXPECT_GGUF_REFUSED(GgufBuilder().raw_tensor({.dimensions = {128, 2}, .type = 12, .data = zeros(144)}),
                      HasSubstr("a multiple of 256 elements for q4_k, got 128"));
}

}  // namespace
}  // namespace espalier
