#include "device/conformance/random_values.h"

#include <cstring>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/float16.h"

namespace espalier {
namespace {

void store_u16(std::byte* to, std::uint16_t value) {
  std::memcpy(to, &value, sizeof value);
}

// Byte offsets of the f16 scale and minimum of a block; -1: none.
struct ScaleOffsets {
  int scale;
  int minimum;
};

ScaleOffsets scale_offsets(DType type) {
  switch (type) {
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k: return {0, 2};
    case DType::q6_k: return {208, -1};
    default: return {0, -1};
  }
}

}  // namespace

float RandomValues::value() {
  const float unit = static_cast<float>(bits() >> 40) * 0x1p-23f - 1.0f;  // [-1, 1)
  static constexpr float kMagnitudes[] = {0x1p-4f, 0x1p-3f, 0x1p-2f, 0x1p-1f, 1, 2, 4};
  return unit * kMagnitudes[below(std::ssize(kMagnitudes))];
}

std::vector<float> RandomValues::values(std::int64_t n) {
  std::vector<float> result(static_cast<std::size_t>(n));
  for (float& x : result) x = value();
  return result;
}

std::vector<std::uint8_t> RandomValues::bytes(std::int64_t n) {
  std::vector<std::uint8_t> result(static_cast<std::size_t>(n));
  for (std::uint8_t& byte : result) byte = static_cast<std::uint8_t>(bits());
  return result;
}

std::vector<std::int32_t> RandomValues::permutation(std::int64_t n) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t i = n - 1; i > 0; --i)
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(below(i + 1))]);
  return order;
}

void RandomValues::weight_block(DType type, std::byte* block) {
  if (type == DType::f32) {
    const float x = value();
    std::memcpy(block, &x, sizeof x);
  } else if (type == DType::f16 || type == DType::bf16) {
    store_u16(block, type == DType::f16 ? f32_to_f16(value()) : f32_to_bf16(value()));
  } else {
    for (std::int64_t i = 0; i < traits(type).block_bytes; ++i) block[i] = static_cast<std::byte>(bits());
    const ScaleOffsets offsets = scale_offsets(type);
    store_u16(block + offsets.scale, f32_to_f16(value() * 0.125f));
    if (offsets.minimum >= 0) store_u16(block + offsets.minimum, f32_to_f16(value() * 0.125f));
  }
}

std::vector<std::byte> RandomValues::weight(DType type, std::int64_t outputs, std::int64_t inputs) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(outputs * row_bytes(type, inputs)));
  const auto step = static_cast<std::size_t>(traits(type).block_bytes);
  for (std::size_t i = 0; i < bytes.size(); i += step) weight_block(type, bytes.data() + i);
  return bytes;
}

}  // namespace espalier
