#include "report/report_table.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace espalier {
namespace {

using ::testing::HasSubstr;

Table table_of(std::vector<std::vector<Cell>> rows) {
  Table table{.id = "e2-settings", .caption = "Means.", .columns = {"nodes", "speed-up", "paper"}};
  for (auto& row : rows) table.add(std::move(row));
  return table;
}

const Table kTable = table_of({{text_cell("16, \"wide\""), number_cell(1.0 / 3, Interval{0.25, 0.5}), paper_cell(1.48)},
                               {text_cell("<b>"), Cell{}, Cell{}}});

TEST(ReportTable, PeopleSeeRoundedNumbersWithTheirIntervals) {
  const std::string html = to_html(kTable);
  EXPECT_THAT(html, HasSubstr("<td class=\"number\">0.33 <span class=\"interval\">[0.25, 0.50]</span></td>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"number paper\">1.48</td>"));
  EXPECT_THAT(html, HasSubstr("<tr><th scope=\"row\">&lt;b&gt;</th><td class=\"text\"></td>"));
}

TEST(ReportTable, RowsOfAPaperAreSetApartFromThoseThatWereMeasured) {
  const Table table = table_of({{text_cell("16"), number_cell(1.5), paper_cell(1.48)},
                                {text_cell("Table 1"), {.text = "paper", .paper = true}, paper_cell(1.27)}});
  EXPECT_THAT(to_html(table), HasSubstr("<tr><th scope=\"row\">16</th>"));
  EXPECT_THAT(to_html(table), HasSubstr("<tr class=\"paper\"><th scope=\"row\">Table 1</th>"));
}

TEST(ReportTable, FilesHaveTheNumbersToTheLastBit) {
  EXPECT_EQ(to_csv(kTable),
            "nodes,speed-up,speed-up low,speed-up high,paper\n"
            "\"16, \"\"wide\"\"\",0.3333333333333333,0.25,0.5,1.48\n"
            "<b>,,,,\n");
  const nlohmann::ordered_json json = to_json(kTable);
  EXPECT_EQ(json["rows"][0][1]["value"], 1.0 / 3);
  EXPECT_EQ(json["rows"][0][1]["interval"][1], 0.5);
  EXPECT_EQ(json["rows"][0][2], 1.48);
  EXPECT_TRUE(json["rows"][1][1].is_null());
}

TEST(ReportTable, ARowHasACellForEveryColumn) {
  EXPECT_THROW(table_of({{text_cell("16")}}), std::logic_error);
}

}  // namespace
}  // namespace espalier
