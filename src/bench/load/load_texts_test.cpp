#include "bench/load/load_texts.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace espalier {
namespace {

TEST(LoadTexts, OursAreFoundInTheRepositoryAndOtherFilesByTheirName) {
  const Places places{.roots = {std::filesystem::path(ESPALIER_TEST_DATA) / "../.."}};
  const LoadTexts ours = read_load_texts("short", places);
  EXPECT_FALSE(ours.questions.empty());
  EXPECT_FALSE(ours.readings.empty());
  const std::string file = (places.roots[0] / "data/eval/rewrite.jsonl").string();
  EXPECT_EQ(read_load_texts(file, places).questions, ours.readings);
  EXPECT_THROW(read_load_texts("no-such-file.jsonl", places), InputError);
  EXPECT_THROW(read_load_texts("short", Places{}), InputError);
}

}  // namespace
}  // namespace espalier
