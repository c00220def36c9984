#include "device/named_device.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace espalier {
namespace {

TEST(NamedDevice, ComputesWhereItsNameSays) {
  EXPECT_EQ(make_named_device("cpu")->name(), "cpu");
  EXPECT_EQ(make_named_device("reference")->name(), "reference");
  EXPECT_EQ(make_named_device("cpu", {.threads = 2, .isa = supported_isas().front()})->isa(),
            name(supported_isas().front()));
}

TEST(NamedDevice, OfANumberThatIsNotThereIsAnErrorOfTheMachine) {
  EXPECT_THROW(make_named_device("cuda:999"), DeviceError);
}

TEST(NamedDevice, RefusesWordsThatNameNone) {
  for (const char* word : {"", "tpu", "cpu:1", "cudas", "cuda:", "cuda:x", "cuda:-1", "cuda:1x"})
    EXPECT_THROW(make_named_device(word), InputError) << word;
}

TEST(NamedDevice, HasANumberBehindTheColon) {
  EXPECT_EQ(device_number("cuda"), 0);
  EXPECT_EQ(device_number("cuda:12"), 12);
}

}  // namespace
}  // namespace espalier
