// What a GoogleTest program says of its tests: while it runs, line by line, and at its end as JSON. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier {

struct FailedTest {
  std::string name = {};     // "Devices/RowsConformance.Embed/cuda"
  std::string message = {};  // what it said, in lines
};

struct TestResults {
  int tests = 0;    // that ran or were skipped
  int skipped = 0;  // by themselves: they do not apply here
  std::vector<FailedTest> failed = {};

  // Of tests that compare answers on a device whose rows are not independent.
  int answers_equal = 0;
  std::vector<double> near_tie_margins = {};  // of answers that part between two tokens that are nearly equal

  bool compares_answers() const { return answers_equal > 0 || !near_tie_margins.empty(); }
};

// The file of --gtest_output=json:FILE. Throws InputError where it is none.
TestResults read_test_results(std::string_view json);

// Follows the standard output of a program that is under way.
class TestOutput {
 public:
  void read(std::string_view piece);  // any part of the output behind what was read before

  double share() const;                                    // of all tests, that have ended
  const std::string& running() const { return running_; }  // the test that has begun and not ended; empty: none

 private:
  void read_line(std::string_view line);

  std::string rest_;  // of a line that has not ended
  std::string running_;
  int tests_ = 0;
  int ended_ = 0;
};

}  // namespace espalier
