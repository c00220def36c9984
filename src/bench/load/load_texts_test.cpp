#include "bench/load/load_texts.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "format/testing/complaint.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> name_of(const std::filesystem::path& file) {
  return {file.filename().string()};
}

TEST(LoadTexts, OursAreFoundBelowARootAndOtherFilesByTheirName) {
  const TemporaryFolder root;
  std::filesystem::create_directories(root / "data/eval");
  for (const char* name : {"mt_bench.jsonl", "outside.jsonl", "rewrite.jsonl"})
    root.write(std::string("data/eval/") + name, "");
  const Places places{.roots = {root.path()}};
  for (const char* kind : {"short", "long"}) {
    const LoadTexts ours = read_load_texts(kind, places, name_of);
    EXPECT_THAT(ours.questions, ElementsAre("mt_bench.jsonl", "outside.jsonl"));
    EXPECT_THAT(ours.readings, ElementsAre("rewrite.jsonl"));
  }
  EXPECT_THAT(read_load_texts("elsewhere/own.jsonl", places, name_of).questions, ElementsAre("own.jsonl"));
}

TEST(LoadTexts, OneThatIsNotThereIsNamed) {
  const TemporaryFolder root;
  std::filesystem::create_directories(root / "data/eval");
  const Places places{.roots = {root.path()}};
  for (const char* name : {"mt_bench.jsonl", "outside.jsonl", "rewrite.jsonl"}) {
    EXPECT_EQ(complaint([&] { read_load_texts("short", places, name_of); }),
              fmt::format("data/eval/{}: not found; --prompts FILE names other prompts", name));
    root.write(fmt::format("data/eval/{}", name), "");
  }
  EXPECT_EQ(complaint([&] { read_load_texts("own.jsonl", Places{}, name_of); }),
            "data/eval/rewrite.jsonl: not found; --prompts FILE names other prompts");
}

// That they can be read is shown where prompt sets are (eval/prompt_set_test.cpp).
TEST(LoadTexts, OursAreInTheRepository) {
  const Places places{.roots = {std::filesystem::path(ESPALIER_TEST_DATA) / "../.."}};
  const LoadTexts ours = read_load_texts("short", places, name_of);
  EXPECT_THAT(ours.questions, ElementsAre("mt_bench.jsonl", "outside.jsonl"));
  EXPECT_THAT(ours.readings, ElementsAre("rewrite.jsonl"));
}

}  // namespace
}  // namespace espalier
