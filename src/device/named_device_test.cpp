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

TEST(NamedDevice, RefusesActivationsWhereThereIsNoChoice) {
  for (const char* word : {"cpu", "reference", "ascend"}) try {
      make_named_device(word, {.activations = Activations::bf16});
      ADD_FAILURE() << word;
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()).find("--activations bf16: only with --device cuda, on "), 0u) << error.what();
    }
}

TEST(Activations, AreNamedAsTheFlagNamesThem) {
  EXPECT_EQ(parse_activations("two-terms"), Activations::two_terms);
  EXPECT_EQ(parse_activations("bf16"), Activations::bf16);
  EXPECT_EQ(parse_activations("f32"), std::nullopt);
  EXPECT_EQ(name(Activations::two_terms), "two-terms");
}

TEST(NamedDevice, HasANumberBehindTheColon) {
  EXPECT_EQ(device_number("cuda"), 0);
  EXPECT_EQ(device_number("cuda:12"), 12);
}

}  // namespace
}  // namespace espalier
