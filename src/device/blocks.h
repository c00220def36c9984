// The block-quantised weight formats of GGUF (docs/formats.md): decoding a row into small integers with a scale and a
// minimum per block, widening it to float, and quantising to q8_0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"

namespace espalier {

// A weight row as the arithmetic contract sees it: w[k] = scale[b] * q[k] (+ minimum[b]), b = k / block.
struct QuantisedRow {
  std::int64_t block = 32;     // 32 elements, 16 for q6_k
  bool has_minimum = false;    // q4_1, q5_1, q4_k, q5_k
  std::vector<std::int8_t> q;  // [inputs]
  std::vector<float> scale;    // [inputs / block]
  std::vector<float> minimum;  // [inputs / block]; negative of what K formats store
};

// Requires a block format and bytes.size() == row_bytes(type, inputs).
void decode_row(DType type, std::span<const std::byte> bytes, std::int64_t inputs, QuantisedRow& row);

// Any linear type to float: plain widening, or scale * q, or (scale * q) + minimum, each operation rounded.
void widen_row(DType type, std::span<const std::byte> bytes, std::span<float> values);

// ggml's q8_0: per 32 elements d = absmax / 127 rounded to f16, q = round half away from zero (x * (1 / d)).
// A block with a NaN or an infinity gets the scale NaN. values.size() is a multiple of 32.
void quantise_row_q8_0(std::span<const float> values, std::span<std::byte> bytes);

}  // namespace espalier
