#include "base/math.h"

#include <array>

#include "base/error.h"

namespace espalier {
namespace {

constexpr double kLn2High = 0x1.62e42fee00000p-1;  // the upper 33 bits of ln 2: n * kLn2High is exact for |n| < 2^20
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kPiHalfHigh = 0x1.921fb54442d18p+0;
constexpr double kPiHalfMiddle = 0x1.1a62633145c07p-54;
constexpr double kPiHalfLow = -0x1.f1976b7ed8fbcp-110;

// sum of coefficients[i] * x^i by Horner's rule
template <std::size_t N>
double polynomial(const std::array<double, N>& coefficients, double x) {
  double sum = coefficients[N - 1];
  for (std::size_t i = N - 1; i-- > 0;) sum = std::fma(sum, x, coefficients[i]);
  return sum;
}

// 1/0!, 1/1!, ... : |r| <= ln2/2 needs 14 terms for the last bit.
constexpr std::array<double, 14> inverse_factorials() {
  std::array<double, 14> values{};
  double factorial = 1.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) factorial *= static_cast<double>(i);
    values[i] = 1.0 / factorial;
  }
  return values;
}

double scale_by_power_of_two(double x, int n) {
  const int half = n >> 1;
  const double a = std::bit_cast<double>(static_cast<std::uint64_t>(half + 1023) << 52);
  const double b = std::bit_cast<double>(static_cast<std::uint64_t>(n - half + 1023) << 52);
  return x * a * b;
}

// sin(r)/r - 1 and cos(r) - 1 as series in r^2, |r| <= pi/4.
double sin_reduced(double r) {
  const double z = r * r;
  const std::array<double, 8> c = {-1.0 / 6,        1.0 / 120,         -1.0 / 5040,           1.0 / 362880,
                                   -1.0 / 39916800, 1.0 / 6227020800., -1.0 / 1307674368000., 1.0 / 355687428096000.};
  return std::fma(r * z, polynomial(c, z), r);
}

double cos_reduced(double r) {
  const double z = r * r;
  const std::array<double, 9> c = {-1.0 / 2,
                                   1.0 / 24,
                                   -1.0 / 720,
                                   1.0 / 40320,
                                   -1.0 / 3628800,
                                   1.0 / 479001600.,
                                   -1.0 / 87178291200.,
                                   1.0 / 20922789888000.,
                                   -1.0 / 6402373705728000.};
  return std::fma(z, polynomial(c, z), 1.0);
}

// The sine of x + quarter_turns * pi/2.
double sin_quarter(double x, int quarter_turns) {
  check(std::fabs(x) <= 0x1p30, "sin/cos of {}: expected |x| <= 2^30", x);
  const double n = std::nearbyint(x * 0x1.45f306dc9c883p-1);
  double r = std::fma(n, -kPiHalfHigh, x);
  r = std::fma(n, -kPiHalfMiddle, r);
  r = std::fma(n, -kPiHalfLow, r);
  switch ((static_cast<std::int64_t>(n) + quarter_turns) & 3) {
    case 0: return sin_reduced(r);
    case 1: return cos_reduced(r);
    case 2: return -sin_reduced(r);
    default: return -cos_reduced(r);
  }
}

}  // namespace

double exp_f64(double x) {
  if (x != x) return x;
  if (x < -745.2) return 0.0;
  if (x > 709.79) return std::numeric_limits<double>::infinity();
  static constexpr auto kCoefficients = inverse_factorials();
  const double n = std::nearbyint(x * 0x1.71547652b82fep+0);
  const double r = std::fma(n, -kLn2Low, std::fma(n, -kLn2High, x));
  return scale_by_power_of_two(polynomial(kCoefficients, r), static_cast<int>(n));
}

double log_f64(double x) {
  if (x != x || x < 0) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return -std::numeric_limits<double>::infinity();
  if (x == std::numeric_limits<double>::infinity()) return x;
  int subnormal = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    subnormal = 54;
  }
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023 - subnormal;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 0x1.6a09e667f3bcdp+0) {  // keep m in [sqrt(1/2), sqrt(2)]
    m *= 0.5;
    ++exponent;
  }
  // log m = 2 atanh(s), s = (m-1)/(m+1), |s| < 0.172
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  static constexpr std::array<double, 12> kOddInverses = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                                                          1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};
  const double log_m = 2.0 * s * polynomial(kOddInverses, z);
  const double n = exponent;
  return std::fma(n, kLn2High, std::fma(n, kLn2Low, log_m));
}

double pow_f64(double x, double y) {
  return exp_f64(y * log_f64(x));
}

double sin_f64(double x) {
  return sin_quarter(x, 0);
}

double cos_f64(double x) {
  return sin_quarter(x, 1);
}

}  // namespace espalier
