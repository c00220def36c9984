#include "selftest/selftest_parts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "base/child_process.h"
#include "base/error.h"
#include "base/temporary_file.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

constexpr SelftestPart kParts[] = {
    {"conformance", "device_conformance_test", "*", "every op and format has the bits of the reference device"},
    {"digests", "digest_test", "*", "tiny models of every family have the bits that are pinned for all machines"},
    {"invariance", "whole_engine_test", "*Invariance*:*Isolation*",
     "a row has the same bits alone, in company, in prompts and in trees"},
    {"lossless", "lossless_test", "*", "no drafter, tree, batch or cache changes a token or a bit of the KV cache"},
};
constexpr SelftestPart kPartsOfDependentRows[] = {
    {"conformance", "device_conformance_test", "*",
     "every op and format stays within a bound on what another order of sums may change"},
    {"lossless", "near_tie_test", "*",
     "neither the device nor a drafter or tree changes a token, but between two that are nearly equal"},
};

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What a program that ended early leaves to say.
std::string early_end(const ChildResult& child, const TestOutput& output) {
  const std::string how = end_of_child(child);
  return output.running().empty() ? how : fmt::format("{} in {}", how, output.running());
}

// A program whose tests fail ends with an exit code as well; what matters is whether it ran to its end.
void read_results(const fs::path& report, const ChildResult& child, const TestOutput& output, PartResult& result) {
  const std::string json = child.problem.empty() ? read_all(report) : "";
  if (json.empty()) {
    result.problem = early_end(child, output);
    return;
  }
  try {
    result.tests = read_test_results(json);
  } catch (const InputError& error) {  // the other parts go on
    result.problem = error.what();
    return;
  }
  if (result.tests.tests == result.tests.skipped) result.problem = "no test applies to this device";
  if (!child.succeeded() && result.tests.failed.empty()) result.problem = early_end(child, output);
}

}  // namespace

std::span<const SelftestPart> selftest_parts(bool row_independent) {
  if (row_independent) return kParts;
  return kPartsOfDependentRows;
}

std::optional<SelftestPlaces> find_selftest(const fs::path& program, std::span<const SelftestPart> parts) {
  const fs::path beside = program.parent_path(), share = beside / ".." / "share" / "espalier" / "tests" / "data";
  std::error_code ignored;
  for (const fs::path& folder : {beside, beside / ".." / "libexec" / "espalier"}) {
    const bool whole = std::ranges::all_of(
        parts, [&](const SelftestPart& part) { return access((folder / part.program).c_str(), X_OK) == 0; });
    if (!whole) continue;
    SelftestPlaces places{.programs = folder.lexically_normal()};
    if (folder != beside && fs::is_directory(share, ignored)) places.data = share.lexically_normal();
    return places;
  }
  return std::nullopt;
}

std::vector<std::string> part_environment(const PartJob& job) {
  std::vector<std::string> variables;
  std::ranges::copy_if(job.environment, std::back_inserter(variables), [](const std::string& variable) {
    return variable.starts_with("ESPALIER_ASCEND_") ||  // where CANN is, and whether the fake runs beside it
           (!variable.starts_with("GTEST_") && !variable.starts_with("ESPALIER_"));
  });
  variables.push_back("ESPALIER_JUDGED_DEVICE=" + job.device);
  if (job.places.data) variables.push_back("ESPALIER_TEST_DATA=" + fs::absolute(*job.places.data).string());
  return variables;
}

std::optional<PartResult> run_part(const PartJob& job) {
  const TemporaryFile report(fs::temp_directory_path() / "espalier-selftest.json");
  TestOutput output;
  const auto hear = [&](std::string_view piece) {
    output.read(piece);
    if (job.progress) job.progress(output.share());
  };
  const auto begin = std::chrono::steady_clock::now();
  const ChildResult child = run_child(
      {.words = {(job.places.programs / job.part.program).string(), fmt::format("--gtest_filter={}", job.part.filter),
                 fmt::format("--gtest_output=json:{}", report.path().string()), "--gtest_color=no"},
       .environment = part_environment(job),
       .on_output = hear,
       .cancelled = job.cancelled});
  if (child.cancelled) return std::nullopt;
  PartResult result{.name = std::string(job.part.name), .shows = std::string(job.part.shows)};
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  read_results(report.path(), child, output, result);
  return result;
}

}  // namespace espalier
