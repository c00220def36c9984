#include "report/markdown.h"

#include <gmock/gmock.h>

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Table small_table() {
  Table table{.id = "t", .caption = "Means.", .columns = {"run", "speed-up", "paper"}};
  table.add({text_cell("a|b"), number_cell(1.234, {.low = 1.1, .high = 1.3}), paper_cell(1.27)});
  table.add({text_cell("c"), Cell{}, Cell{}});
  return table;
}

TEST(Markdown, ATableHasItsIntervalsAndSetsThePaperApart) {
  EXPECT_EQ(to_markdown(small_table()),
            "Means.\n\n"
            "| run | speed-up | paper |\n"
            "|---|---:|---:|\n"
            "| a\\|b | 1.23 [1.10, 1.30] | *1.27* |\n"
            "| c |  |  |\n");
}

TEST(Markdown, APageBeginsWithWhatIsIdenticalAndLeavesFoldedTablesOut) {
  Table folded = small_table();
  folded.caption = "Folded.";
  folded.folded = true;
  Page page{.title = "Runs",
            .lossless = {.compared = 2, .identical = 2},
            .sections = {{.id = "e1", .title = "Throughput", .words = {"Words."}, .tables = {small_table(), folded}}}};
  const std::string markdown = page_markdown(page);
  EXPECT_THAT(markdown, HasSubstr("# Runs\n\n**2 of 2 turns are identical"));
  EXPECT_THAT(markdown, HasSubstr("## Throughput\n\nWords.\n\nMeans.\n\n| run |"));
  EXPECT_THAT(markdown, Not(HasSubstr("Folded.")));
  page.lossless.identical = 1;
  EXPECT_THAT(page_markdown(page), HasSubstr("**FAILED:** "));
}

}  // namespace
}  // namespace espalier
