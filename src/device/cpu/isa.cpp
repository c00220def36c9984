#include "device/cpu/isa.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace espalier {
namespace {

struct IsaName {
  Isa isa;
  std::string_view name;
};

constexpr IsaName kNames[] = {
    {Isa::avx2, "avx2"}, {Isa::avx512, "avx512"}, {Isa::neon, "neon"}, {Isa::dotprod, "dotprod"}, {Isa::i8mm, "i8mm"}};

#if defined(__x86_64__)
bool bit(std::uint32_t word, int index) {
  return (word >> index & 1u) != 0;
}

// The register states the operating system saves: 0xe6 covers SSE, AVX and the three of AVX-512.
std::uint32_t saved_states() {
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !bit(c, 27)) return 0;
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool has_avx512_vnni() {
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool f = bit(b, 16), dq = bit(b, 17), bw = bit(b, 30), vl = bit(b, 31), vnni = bit(c, 11);
  return f && dq && bw && vl && vnni && (saved_states() & 0xe6u) == 0xe6u;
}
#endif

}  // namespace

std::string_view name(Isa isa) {
  for (const IsaName& known : kNames)
    if (known.isa == isa) return known.name;
  return "unknown";
}

std::optional<Isa> parse_isa(std::string_view text) {
  for (const IsaName& known : kNames)
    if (known.name == text) return known.isa;
  return std::nullopt;
}

std::vector<Isa> supported_isas() {
#if defined(__x86_64__)
  std::vector<Isa> found = {Isa::avx2};
  if (has_avx512_vnni()) found.push_back(Isa::avx512);
#elif defined(__aarch64__)
  std::vector<Isa> found = {Isa::neon};
  const bool dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  if (dotprod) found.push_back(Isa::dotprod);
  if (dotprod && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0) found.push_back(Isa::i8mm);
#endif
  return found;
}

}  // namespace espalier
