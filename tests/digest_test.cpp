#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "digests.h"
#include "testing/engine.h"

namespace espalier::testing {
namespace {

void expect_pinned(const Digests& computed) {
  const auto pinned = nlohmann::json::parse(read_text_file(data_path("digests.json"))).get<Digests>();
  for (const auto& [name, digests] : computed)
    for (const auto& [what, digest] : digests) {
      ASSERT_TRUE(pinned.contains(name) && pinned.at(name).contains(what)) << name << ": " << what;
      EXPECT_EQ(digest, pinned.at(name).at(what)) << name << ": " << what;
    }
}

TEST(Digests, TinyModelsHaveThePinnedBitsOnEveryDeviceAndThreadCount) {
  for (const NamedDevice& named : all_devices())
    for (int threads : {1, 2, 3}) {
      SCOPED_TRACE(named.name + ", threads " + std::to_string(threads));
      const auto device = named.make(threads);
      expect_pinned(tiny_model_digests(*device));
    }
}

}  // namespace
}  // namespace espalier::testing
