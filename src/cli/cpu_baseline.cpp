// The rest of the program is compiled for a baseline instruction set (cmake/espalier.cmake); this file is not, and runs
// before anything else: a CPU without the baseline gets one clear line instead of an illegal instruction.

#include <unistd.h>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace {

#if defined(__x86_64__)
constexpr char kMessage[] = "espalier: this CPU is too old: expected x86-64-v3 (AVX2, FMA, BMI2)\n";
bool has_baseline() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
#elif defined(__aarch64__)
constexpr char kMessage[] = "espalier: this CPU is too old: expected Armv8.2 (atomics)\n";
bool has_baseline() {
  return (getauxval(AT_HWCAP) & HWCAP_ATOMICS) != 0;
}
#endif

// Priority 101 is the first that programs may use: before every static constructor of ours.
__attribute__((constructor(101))) void refuse_old_cpu() {
  if (has_baseline()) return;
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  _exit(1);
}

}  // namespace
