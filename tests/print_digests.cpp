// Prints what tests/data/digests.json should hold: build/bin/print_digests > tests/data/digests.json
// Do this only when the contract changes, and say so in the changelog.

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/arithmetic.h"
#include "device/reference/reference_device.h"
#include "digests.h"

int main() {
  using namespace espalier;
  const auto device = make_reference_device(2);
  testing::Digests all = testing::tiny_model_digests(*device);
  all.merge(testing::default_model_digests(*device));
  nlohmann::json file = all;
  file["arithmetic"] = kArithmetic;
  std::cout << file.dump(2) << "\n";
}
