#include "format/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/error.h"
#include "format/gguf.h"
#include "format/testing/complaint.h"
#include "format/testing/gguf_builder.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

std::span<const std::byte> as_data(std::string_view bytes) {
  return std::as_bytes(std::span(bytes));
}

// Every type of value, tensors whose sizes are no multiple of the alignment.
GgufBuilder example(std::uint32_t alignment) {
  GgufBuilder builder;
  if (alignment != kDefaultGgufAlignment) builder.alignment(alignment);
  return builder.set("a.u8", std::uint8_t{200})
      .set("a.i16", std::int16_t{-3})
      .set("a.u64", std::uint64_t{1} << 40)
      .set("a.f64", 0.1)
      .set("a.text", std::string("b\0c", 3))
      .set("a.numbers", std::vector<std::uint16_t>{1, 2, 3})
      .set("a.nested", std::vector<std::vector<float>>{{1.5f}, {}})
      .tensor("first", DType::f32, {3}, bytes_of<float>({1, 2, 3}))
      .tensor("second", DType::q8_0, {2, 32}, std::string(68, 'x'));
}

// Writes what the builder's file holds, through the writer.
void copy_file(const std::filesystem::path& from, const std::filesystem::path& to, std::uint64_t alignment) {
  const MappedFile mapped(from);
  GgufPlan plan{.metadata = read_gguf_entries(mapped.bytes(), "m.gguf"), .alignment = alignment};
  const Gguf source(from);
  for (const TensorInfo& tensor : source.tensors()) plan.tensors.push_back({tensor.name, tensor.type, tensor.shape});
  GgufWriter writer(to, plan);
  for (const TensorInfo& tensor : source.tensors()) writer.tensor(tensor.bytes);
  writer.finish();
}

TEST(GgufWriter, ACopyHasTheSameBytesUpToThePaddingOfTheLastTensor) {
  for (const std::uint32_t alignment : {8u, 32u, 256u}) {
    const TemporaryFolder folder;
    example(alignment).write(folder / "in.gguf");
    copy_file(folder / "in.gguf", folder / "out.gguf", alignment);
    std::string expected = contents(folder / "in.gguf");
    expected.resize(gguf_aligned(expected.size(), alignment));
    EXPECT_EQ(contents(folder / "out.gguf"), expected) << alignment;
    EXPECT_EQ(Gguf(folder / "out.gguf").metadata(), Gguf(folder / "in.gguf").metadata());
  }
}

TEST(GgufWriter, EntriesComeInFileOrder) {
  const std::string bytes = GgufBuilder().set("z", 1u).set("a", "text").bytes();
  std::vector<std::string> keys;
  for (const GgufEntry& entry : read_gguf_entries(as_data(bytes), "m.gguf")) keys.push_back(entry.key);
  EXPECT_THAT(keys, ElementsAre("z", "a"));
}

TEST(GgufWriter, TheFileHasItsNameOnlyWhenItIsComplete) {
  const TemporaryFolder folder;
  {
    GgufWriter writer(folder / "m.gguf", {.tensors = {{"t", DType::f32, {2}}}});
    EXPECT_FALSE(std::filesystem::exists(folder / "m.gguf"));
    EXPECT_EQ(names_in(folder.path()).size(), 1u);
    writer.tensor(as_data("12345678"));
    EXPECT_FALSE(std::filesystem::exists(folder / "m.gguf"));
    writer.finish();
    EXPECT_THAT(names_in(folder.path()), ElementsAre("m.gguf"));
  }
  EXPECT_EQ(Gguf(folder / "m.gguf").tensors().size(), 1u);
}

TEST(GgufWriter, AnUnfinishedFileIsTakenAway) {
  const TemporaryFolder folder;
  { const GgufWriter writer(folder / "m.gguf", {.tensors = {{"t", DType::f32, {2}}}}); }
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

TEST(GgufWriter, AFolderThatIsNotThereIsNamed) {
  try {
    const GgufWriter writer("no/such/folder/m.gguf", {});
    FAIL() << "the file opened";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no/such/folder/m.gguf: no such directory as no/such/folder"));
  }
}

TEST(GgufWriter, DataOfAnotherSizeOrNumberIsOurMistake) {
  const TemporaryFolder folder;
  GgufWriter writer(folder / "m.gguf", {.tensors = {{"t", DType::f32, {2}}}});
  EXPECT_THROW(writer.tensor(as_data("123")), std::logic_error);
  EXPECT_THROW(writer.finish(), std::logic_error);
  writer.tensor(as_data("12345678"));
  EXPECT_THROW(writer.tensor(as_data("12345678")), std::logic_error);
}

}  // namespace
}  // namespace espalier
