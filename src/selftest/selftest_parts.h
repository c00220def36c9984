// The parts of a selftest that are tests: which program shows what of a device, and how it is run. The programs are
// those of the project's own tests, told by their environment which device to judge (base/testing/judged_device.h).
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "selftest/test_results.h"

namespace espalier {

struct SelftestPart {
  std::string_view name;
  std::string_view program;
  std::string_view filter;  // of GoogleTest
  std::string_view shows;
};
// In the order in which they run. Where a row has not the same bits in any company there are fewer, none of which
// compares bits; their names are among those of the others.
std::span<const SelftestPart> selftest_parts(bool row_independent = true);

// Where the programs and their fixtures lie.
struct SelftestPlaces {
  std::filesystem::path programs = {};
  std::optional<std::filesystem::path> data = {};  // nothing: where they were built
};
// Beside the program where it was built (build/bin/espalier), or where it was installed: libexec/espalier and
// share/espalier/tests/data. program: this one's file. Nothing: not all programs of these parts are in one of them.
std::optional<SelftestPlaces> find_selftest(const std::filesystem::path& program, std::span<const SelftestPart> parts);

struct PartResult {
  std::string name = {};
  std::string shows = {};
  TestResults tests = {};
  double seconds = 0;
  std::string problem = {};  // why there are no results, or not all; empty: the program ran to its end

  bool held() const { return problem.empty() && tests.failed.empty() && tests.tests > tests.skipped; }
};

struct PartJob {
  SelftestPart part;
  SelftestPlaces places = {};
  std::string device = {};                    // as --device names it
  std::vector<std::string> environment = {};  // of this process, "NAME=value"
  std::function<void(double)> progress = {};  // share of the tests
  std::function<bool()> cancelled = {};
};
// Nothing: it was cancelled.
std::optional<PartResult> run_part(const PartJob& job);

// The environment of the test programs: without what would choose other tests, with the device and the fixtures.
std::vector<std::string> part_environment(const PartJob& job);

}  // namespace espalier
