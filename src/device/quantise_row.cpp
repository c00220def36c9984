#include "device/quantise_row.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/float16.h"
#include "device/blocks.h"

namespace espalier {
namespace {

constexpr std::size_t kBlock = 32;
constexpr float kBeyondF16 = 65520.0f;  // from here on f16 rounds to infinity

void store_f16(float value, std::byte* to) {
  const std::uint16_t half = f32_to_f16(value);
  std::memcpy(to, &half, sizeof half);
}

float inverse_or_zero(float d) {
  const float inverse = 1.0f / d;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

// Element j in the low half of byte j, element j + 16 in the high half.
template <typename Quantise>
void pack_nibbles(std::span<const float> x, Quantise quantise, std::byte* to) {
  const auto nibble = [&](float value) { return std::min(15u, static_cast<unsigned>(quantise(value))); };
  for (std::size_t j = 0; j < kBlock / 2; ++j)
    to[j] = static_cast<std::byte>(nibble(x[j]) | nibble(x[j + kBlock / 2]) << 4);
}

void quantise_block_q4_0(std::span<const float> x, std::byte* to) {
  const float largest =
      *std::max_element(x.begin(), x.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const float d = largest / -8.0f, inverse = inverse_or_zero(d);
  store_f16(d, to);
  pack_nibbles(
      x, [&](float value) { return value * inverse + 8.5f; }, to + 2);
}

void quantise_block_q4_1(std::span<const float> x, std::byte* to) {
  const auto [smallest, largest] = std::minmax_element(x.begin(), x.end());
  const float minimum = *smallest, d = (*largest - minimum) / 15.0f, inverse = inverse_or_zero(d);
  store_f16(d, to);
  store_f16(minimum, to + 2);
  pack_nibbles(
      x, [&](float value) { return (value - minimum) * inverse + 0.5f; }, to + 4);
}

template <typename Block>
void for_each_block(DType type, std::span<const float> values, std::span<std::byte> bytes, Block block) {
  std::byte* to = bytes.data();
  for (std::size_t k = 0; k < values.size(); k += kBlock, to += traits(type).block_bytes)
    block(values.subspan(k, kBlock), to);
}

}  // namespace

void quantise_row(DType type, std::span<const float> values, std::span<std::byte> bytes) {
  check(static_cast<std::int64_t>(bytes.size()) == row_bytes(type, static_cast<std::int64_t>(values.size())),
        "quantise_row: {} values into {} bytes of {}", values.size(), bytes.size(), name(type));
  switch (type) {
    case DType::f16:
      for (std::size_t k = 0; k < values.size(); ++k) store_f16(values[k], bytes.data() + 2 * k);
      return;
    case DType::q8_0: return quantise_row_q8_0(values, bytes);
    case DType::q4_0: return for_each_block(type, values, bytes, quantise_block_q4_0);
    case DType::q4_1: return for_each_block(type, values, bytes, quantise_block_q4_1);
    default: check(false, "quantise_row: {} is not a type to write", name(type));
  }
}

bool quantisable(std::span<const float> values) {
  // False for NaN.
  return std::all_of(values.begin(), values.end(), [](float value) { return std::fabs(value) < kBeyondF16; });
}

}  // namespace espalier
