// Which instruction sets the kernels of this folder exist for, and which of them this machine can run. The one place
// that asks the processor.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace espalier {

enum class Isa {
  avx2,     // x86-64-v3, the baseline of x86 builds
  avx512,   // AVX-512 F, BW, DQ, VL and VNNI
  neon,     // Armv8.2-A, the baseline of Arm builds
  dotprod,  // and sdot
  i8mm,     // and smmla
};

// "avx512" and so on, as --isa spells them.
std::string_view name(Isa isa);
std::optional<Isa> parse_isa(std::string_view text);

// Those this build has and this machine runs (processor and operating system), the fastest last; never empty.
std::vector<Isa> supported_isas();

}  // namespace espalier
