#include "selftest/test_results.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace espalier {
namespace {

constexpr std::string_view kReport = R"({
  "tests": 4, "failures": 1, "disabled": 1, "errors": 0, "time": "0.1s", "name": "AllTests",
  "testsuites": [
    {"name": "A", "tests": 3, "testsuite": [
      {"name": "Holds/cuda", "status": "RUN", "result": "COMPLETED", "time": "0s", "classname": "A"},
      {"name": "Fails/cuda", "status": "RUN", "result": "COMPLETED", "time": "0s", "classname": "A",
       "failures": [{"failure": "a.cpp:1\nExpected", "type": ""}, {"failure": "a.cpp:2\nagain", "type": ""}]},
      {"name": "DISABLED_No", "status": "NOTRUN", "result": "SUPPRESSED", "time": "0s", "classname": "A"}]},
    {"name": "B", "tests": 1, "testsuite": [
      {"name": "DoesNotApply", "status": "RUN", "result": "SKIPPED", "time": "0s", "classname": "B"}]}]})";

TEST(TestResults, CountWhatRanAndNameWhatFailed) {
  const TestResults results = read_test_results(kReport);
  EXPECT_EQ(results.tests, 3);
  EXPECT_EQ(results.skipped, 1);
  ASSERT_EQ(results.failed.size(), 1u);
  EXPECT_EQ(results.failed[0].name, "A.Fails/cuda");
  EXPECT_EQ(results.failed[0].message, "a.cpp:1\nExpected\na.cpp:2\nagain");
}

TEST(TestResults, HaveTheAnswersThatTestsCompared) {
  const auto report = [](const std::string& recorded) {
    return R"({"testsuites": [{"testsuite": [{"name": "A", "status": "RUN", "result": "COMPLETED", "classname": "B")" +
           recorded + "}, " + R"({"name": "C", "status": "RUN", "result": "COMPLETED", "classname": "B")" + recorded +
           "}]}]}";
  };
  const TestResults results =
      read_test_results(report(R"(, "answers_equal": "7", "near_tie_margins": "0.25 0.0009765625")"));
  EXPECT_EQ(results.answers_equal, 14);
  EXPECT_EQ(results.near_tie_margins, (std::vector{0.25, 0.0009765625, 0.25, 0.0009765625}));
  EXPECT_TRUE(results.compares_answers());
  EXPECT_FALSE(read_test_results(report("")).compares_answers());
  EXPECT_FALSE(read_test_results(report(R"(, "near_tie_margins": "")")).compares_answers());
  for (const char* recorded :
       {R"(, "answers_equal": "many")", R"(, "near_tie_margins": "0.1, 0.2")", R"(, "answers_equal": 7)"})
    EXPECT_THROW(read_test_results(report(recorded)), InputError) << recorded;
}

TEST(TestResults, AreReadFromNothingElse) {
  for (const char* text : {"", "{", "[]", "{}", R"({"testsuites": 1})", R"({"testsuites": [{}]})",
                           R"({"testsuites": [{"testsuite": [{"status": "RUN"}]}]})"})
    EXPECT_THROW(read_test_results(text), InputError) << text;
}

TEST(TestOutput, KnowsHowFarAProgramIsAndWhichTestIsUnderWay) {
  TestOutput output;
  EXPECT_EQ(output.share(), 0);
  output.read("Note: Google Test filter = *\n[==========] Running 4 tests from 2 test suites.\n[ RUN      ] A.Ho");
  EXPECT_EQ(output.running(), "");
  output.read("lds/cuda\n");
  EXPECT_EQ(output.running(), "A.Holds/cuda");
  EXPECT_EQ(output.share(), 0);
  output.read("[whatever it prints]\n[       OK ] A.Holds/cuda (3 ms)\n[ RUN      ] A.Fails/cuda\n");
  EXPECT_EQ(output.share(), 0.25);
  output.read("a.cpp:1: Failure\n[  FAILED  ] A.Fails/cuda, where GetParam() = cuda (3 ms)\n[ RUN      ] B.C\n");
  EXPECT_EQ(output.share(), 0.5);
  EXPECT_EQ(output.running(), "B.C");
  output.read("[  SKIPPED ] B.C (0 ms)\n[  FAILED  ] A.Fails/cuda\n");
  EXPECT_EQ(output.share(), 0.75);
  EXPECT_EQ(output.running(), "");
}

}  // namespace
}  // namespace espalier
