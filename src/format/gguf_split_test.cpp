// A model in several GGUF files: read as one, and refused where the files disagree.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "format/gguf.h"
#include "format/testing/complaint.h"
#include "format/testing/gguf_builder.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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

}  // namespace
}  // namespace espalier
