#include "report/report_folder.h"

#include <gmock/gmock.h>

#include <fstream>

#include "base/mapped_file.h"
#include "format/testing/complaint.h"
#include "report/testing/fake_run.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ReportFolderTest : public ReportTest {
 protected:
  void expect_refused(const std::function<void()>& action, const std::string& message) const {
    const std::string said = complaint(action);
    EXPECT_THAT(said, HasSubstr(message));
    EXPECT_THAT(said, Not(HasSubstr("\n")));
  }
};

TEST_F(ReportFolderTest, WhatIsNoRunIsRefusedInOneLine) {
  expect_refused([&] { read_sources({folder_ / "nothing"}); }, "no such directory");
  expect_refused([&] { read_sources({folder_.path()}); }, "neither manifest.json nor suite.json");
  const auto run = write("run", random_run(1, 2));
  std::ofstream(run / "turns.json") << "[{]";
  expect_refused([&] { read_sources({run}); }, "turns.json");
  std::ofstream(run / "manifest.json") << "{\"end\": null}";
  expect_refused([&] { read_sources({run}); }, "not finished");
}

TEST_F(ReportFolderTest, AFailedReportLeavesNothingBehind) {
  const auto run = write("run", random_run(1, 2));
  std::ofstream(run / "ranks/0000/trace.jsonl.zst") << "no trace";
  expect_refused([&] { make_report({run}); }, "trace.jsonl.zst");
  EXPECT_FALSE(std::filesystem::exists(out_));
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) EXPECT_EQ(entry.path().extension(), "");
}

TEST_F(ReportFolderTest, OnlyAnEarlierReportIsReplaced) {
  const auto run = write("run", random_run(1, 2));
  make_report({run});
  expect_refused([&] { ReportFolder(out_, false); }, "exists already");
  expect_refused([&] { ReportFolder(run, true); }, "no report.json");
  ReportFolder again(out_, true);
  again.add("report.json", "new");
  EXPECT_NE(read_text_file(out_ / "report.json"), "new");
  again.publish();
  EXPECT_EQ(read_text_file(out_ / "report.json"), "new");
  EXPECT_FALSE(std::filesystem::exists(out_ / "index.html"));
}

TEST_F(ReportFolderTest, APlaceThatWasTakenMeanwhileStaysAsItIs) {
  for (const bool replace : {false, true}) {
    const std::filesystem::path place = folder_ / (replace ? "replacing" : "new");
    ReportFolder report(place, replace);
    report.add("report.json", "new");
    std::filesystem::create_directory(place);
    std::ofstream(place / "precious") << "precious";
    expect_refused([&] { report.publish(); }, replace ? "no report.json" : "exists already");
    EXPECT_EQ(read_text_file(place / "precious"), "precious");
  }
}

}  // namespace
}  // namespace espalier
