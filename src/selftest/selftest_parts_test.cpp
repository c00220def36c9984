#include "selftest/selftest_parts.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

#include "base/temporary_file.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr SelftestPart kPart{"conformance", "some_test", "*", "something"};

// A test program in a folder of its own, as a script of the shell: "$report" is the file it is told to write.
class FakeProgram : public ::testing::Test {
 protected:
  void write(const fs::path& path, const std::string& script) {
    fs::create_directories(path.parent_path());
    std::ofstream(path)
        << "#!/bin/sh\nfor word; do case $word in --gtest_output=json:*) report=${word#*json:};; esac; done\n"
        << script;
    fs::permissions(path, fs::perms::owner_all);
  }
  PartResult run(const std::string& script) {
    write(folder_.path() / "bin" / "some_test", script);
    return run_part({.part = kPart,
                     .places = {.programs = folder_.path() / "bin"},
                     .device = "cuda:1",
                     .environment = {"PATH=/usr/bin:/bin"}})
        .value();
  }
  static std::string report(const std::string& more) {
    return R"(cat > "$report" <<'END'
{"testsuites": [{"testsuite": [{"name": "B", "classname": "A", "status": "RUN", "result": "COMPLETED")" +
           more + "}]}]}\nEND\n";
  }

  TemporaryDirectory folder_{fs::temp_directory_path() / "espalier-parts-test"};
};

TEST_F(FakeProgram, ThatPassesHolds) {
  const PartResult result = run(report(""));
  EXPECT_TRUE(result.held());
  EXPECT_EQ(result.name, "conformance");
  EXPECT_EQ(result.tests.tests, 1);
}

TEST_F(FakeProgram, ThatFailsNamesItsTests) {
  const PartResult result = run(report(R"(, "failures": [{"failure": "a.cpp:1"}])") + "exit 1\n");
  EXPECT_FALSE(result.held());
  EXPECT_EQ(result.problem, "");
  ASSERT_EQ(result.tests.failed.size(), 1u);
  EXPECT_EQ(result.tests.failed[0].name, "A.B");
}

TEST_F(FakeProgram, ThatCrashesIsReportedWithTheTestItWasIn) {
  const PartResult result = run("echo '[ RUN      ] A.B/cuda'; kill -SEGV $$\n");
  EXPECT_FALSE(result.held());
  EXPECT_EQ(result.problem, "ended by signal 11 (Segmentation fault) in A.B/cuda");
}

TEST_F(FakeProgram, ThatFailsBehindItsTestsDoesNotHold) {
  EXPECT_EQ(run(report("") + "echo leak >&2; exit 9\n").problem, "exit code 9: leak");
}

TEST_F(FakeProgram, ThatLeavesHalfAReportIsReportedAsSuch) {
  EXPECT_THAT(run("echo '{\"testsuites\": [' > \"$report\"\n").problem, HasSubstr("the report of a test program"));
}

TEST_F(FakeProgram, WithoutATestForTheDeviceShowsNothing) {
  const PartResult result = run("echo '{\"testsuites\": []}' > \"$report\"\n");
  EXPECT_FALSE(result.held());
  EXPECT_EQ(result.problem, "no test applies to this device");
}

TEST_F(FakeProgram, IsFoundBesideTheProgramOrWhereItWasInstalled) {
  const fs::path root = folder_.path();
  const std::span<const SelftestPart> parts(&kPart, 1);
  EXPECT_FALSE(find_selftest(root / "bin" / "espalier", parts));
  write(root / "libexec" / "espalier" / "some_test", "");
  fs::create_directories(root / "bin");
  fs::create_directories(root / "share" / "espalier" / "tests" / "data");
  const std::optional<SelftestPlaces> installed = find_selftest(root / "bin" / "espalier", parts);
  ASSERT_TRUE(installed);
  EXPECT_EQ(installed->programs, root / "libexec" / "espalier");
  EXPECT_EQ(installed->data, root / "share" / "espalier" / "tests" / "data");
  write(root / "bin" / "some_test", "");
  const std::optional<SelftestPlaces> built = find_selftest(root / "bin" / "espalier", parts);
  ASSERT_TRUE(built);
  EXPECT_EQ(built->programs, root / "bin");
  EXPECT_EQ(built->data, std::nullopt);
}

TEST(PartEnvironment, NamesTheDeviceAndNothingThatWouldChooseOtherTests) {
  const std::vector<std::string> variables =
      part_environment({.part = kPart,
                        .places = {.data = "/data"},
                        .device = "cuda:1",
                        .environment = {"HOME=/home", "GTEST_FILTER=x", "ESPALIER_MODE=reference"}});
  EXPECT_THAT(variables,
              ::testing::ElementsAre("HOME=/home", "ESPALIER_JUDGED_DEVICE=cuda:1", "ESPALIER_TEST_DATA=/data"));
}

TEST(PartEnvironment, SaysWhereCannIsAndWhetherTheFakeRunsBesideIt) {
  EXPECT_THAT(part_environment({.part = kPart,
                                .device = "ascend",
                                .environment = {"ESPALIER_ASCEND_LIBRARY=/fake.so", "ESPALIER_ASCEND_BESIDE=1"}}),
              ::testing::ElementsAre("ESPALIER_ASCEND_LIBRARY=/fake.so", "ESPALIER_ASCEND_BESIDE=1",
                                     "ESPALIER_JUDGED_DEVICE=ascend"));
}

TEST(SelftestParts, BeginWithTheOps) {
  EXPECT_EQ(selftest_parts().front().name, "conformance");
  EXPECT_THAT(selftest_parts().back().shows, HasSubstr("drafter"));
  const auto fewer = selftest_parts(false);
  ASSERT_EQ(fewer.size(), 2u);
  EXPECT_EQ(fewer[0].name, "conformance");
  EXPECT_EQ(fewer[1].name, "lossless");
  EXPECT_EQ(fewer[1].program, "near_tie_test");
}

}  // namespace
}  // namespace espalier
