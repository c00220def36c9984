#include <gtest/gtest.h>

#include "digests.h"
#include "testing/engine.h"

namespace espalier::testing {
namespace {

void expect_pinned(const Digests& computed) {
  const Digests pinned = pinned_digests();
  for (const auto& [name, digests] : computed)
    for (const auto& [what, digest] : digests) {
      ASSERT_TRUE(pinned.contains(name) && pinned.at(name).contains(what)) << name << ": " << what;
      EXPECT_EQ(digest, pinned.at(name).at(what)) << name << ": " << what;
    }
}

class DigestTest : public ::testing::TestWithParam<NamedDevice> {};

INSTANTIATE_TEST_SUITE_P(Devices, DigestTest, ::testing::ValuesIn(all_devices()),
                         [](const ::testing::TestParamInfo<NamedDevice>& info) { return info.param.name; });

TEST_P(DigestTest, TinyModelsHaveThePinnedBitsWithAnyThreadCount) {
  // Other tests look at the code of the slow devices.
  if (kSanitized && GetParam().name != "cpu") GTEST_SKIP() << "bits do not change under sanitizers";
  for (int threads : {1, 2, 3, 4}) {
    if (kSanitized && threads != 3) continue;
    SCOPED_TRACE("threads " + std::to_string(threads));
    const auto device = GetParam().make(threads);
    expect_pinned(tiny_model_digests(*device));
  }
}

}  // namespace
}  // namespace espalier::testing
