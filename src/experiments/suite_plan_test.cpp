#include "experiments/suite_plan.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(PaperThroughput, IsInTheRepositoryAndElsewhereThereIsNone) {
  const Places places{.roots = {std::filesystem::path(ESPALIER_TEST_DATA) / "../.."}};
  ASSERT_FALSE(paper_throughput(places).empty());
  EXPECT_FALSE(paper_throughput(places).front().rows.empty());
  EXPECT_TRUE(paper_throughput({}).empty());
}

}  // namespace
}  // namespace espalier
