#include <gtest/gtest.h>

#include "base/testing/judged_device.h"
#include "device/cuda/emulated/emulated_cuda_device.h"
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

// Those of the other tests, and the GPU's kernels on the host.
std::vector<NamedDevice> devices() {
  std::vector<NamedDevice> all = all_devices();
  if (judged_kind().value_or("emulated_cuda") != "emulated_cuda") return all;
  if (judged_kind()) all.clear();
  if (!kSanitized)  // sanitizers do not follow a thread from stack to stack
    all.push_back({"emulated_cuda", [](int) { return make_emulated_cuda_device(); }});
  return all;
}

class DigestTest : public ::testing::TestWithParam<NamedDevice> {};

INSTANTIATE_TEST_SUITE_P(Devices, DigestTest, ::testing::ValuesIn(devices()),
                         [](const ::testing::TestParamInfo<NamedDevice>& info) { return info.param.name; });

TEST_P(DigestTest, TinyModelsHaveThePinnedBitsWithAnyThreadCount) {
  // Other tests look at the code of the slow devices.
  if (kSanitized && GetParam().name != "cpu") GTEST_SKIP() << "bits do not change under sanitizers";
  for (int threads : {1, 2, 3, 4}) {
    if (kSanitized && threads != 3) continue;
    if (GetParam().name.ends_with("cuda") && threads > 1) continue;  // none of the host's
    SCOPED_TRACE("threads " + std::to_string(threads));
    const auto device = GetParam().make(threads);
    expect_pinned(tiny_model_digests(*device));
  }
}

}  // namespace
}  // namespace espalier::testing
