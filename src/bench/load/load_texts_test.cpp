#include "bench/load/load_texts.h"

#include <gmock/gmock.h>

#include "base/error.h"
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
  EXPECT_THROW(read_load_texts("short", Places{}, name_of), InputError);
}

TEST(LoadTexts, OursAreInTheRepository) {
  const Places places{.roots = {std::filesystem::path(ESPALIER_TEST_DATA) / "../.."}};
  EXPECT_EQ(read_load_texts("short", places, name_of).questions.size(), 2u);
}

}  // namespace
}  // namespace espalier
