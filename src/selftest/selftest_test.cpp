#include "selftest/selftest.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Selftest, TheSpeedTableIsAPartLikeTheTests) {
  EXPECT_THAT(selftest_part_names(), ElementsAre("conformance", "digests", "invariance", "lossless", "speed"));
}

TEST(Selftest, WithoutItsTestProgramsItDoesNotBegin) {
  Listener nobody;
  const SelftestOptions options{.device = "cpu", .only = {"digests"}, .program = "/nowhere/espalier"};
  try {
    Selftest(options, nobody, [](std::string_view) {});
    FAIL() << "expected a DeviceError";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("digest_test is not there"));
  }
}

TEST(Selftest, WhatNobodyAskedForIsLeftOutAndSaid) {
  Listener nobody;
  std::string said;
  SelftestOptions options{.device = "reference", .only = {"speed"}, .program = "/nowhere/espalier"};
  Selftest selftest(options, nobody, [&](std::string_view text) { said += text; });
  EXPECT_TRUE(selftest.run([] { return false; }));
  EXPECT_THAT(selftest.report().left_out, ElementsAre("conformance", "digests", "invariance", "lossless"));
  EXPECT_THAT(said, HasSubstr("not measured: the reference device is there to be read"));
}

}  // namespace
}  // namespace espalier
