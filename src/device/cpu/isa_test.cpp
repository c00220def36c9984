#include "device/cpu/isa.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "device/cpu/cpu_device.h"

namespace espalier {
namespace {

constexpr Isa kAll[] = {Isa::avx2, Isa::avx512, Isa::neon, Isa::dotprod, Isa::i8mm};

TEST(Isa, NamesAreReadBack) {
  for (const Isa isa : kAll) EXPECT_EQ(parse_isa(name(isa)), isa);
  EXPECT_EQ(parse_isa("sse2"), std::nullopt);
  EXPECT_EQ(parse_isa(""), std::nullopt);
}

TEST(Isa, TheBaselineOfTheBuildIsAlwaysSupported) {
#if defined(__x86_64__)
  EXPECT_EQ(supported_isas().front(), Isa::avx2);
#else
  EXPECT_EQ(supported_isas().front(), Isa::neon);
#endif
}

TEST(Isa, ADeviceTakesTheFastestUnlessTold) {
  const auto supported = supported_isas();
  EXPECT_TRUE(std::is_sorted(supported.begin(), supported.end()));  // as the enumeration lists them
  EXPECT_EQ(make_cpu_device({.threads = 1})->isa(), name(supported.back()));
  for (const Isa isa : supported) EXPECT_EQ(make_cpu_device({.threads = 1, .isa = isa})->isa(), name(isa));
}

TEST(Isa, ADeviceForInstructionsThisMachineLacksIsRefused) {
  const auto supported = supported_isas();
  for (const Isa isa : kAll) {
    if (std::find(supported.begin(), supported.end(), isa) != supported.end()) {
      EXPECT_EQ(make_cpu_device({.threads = 1, .isa = isa})->name(), "cpu");
    } else {
      EXPECT_THROW(make_cpu_device({.threads = 1, .isa = isa}), InputError);
    }
  }
}

}  // namespace
}  // namespace espalier
