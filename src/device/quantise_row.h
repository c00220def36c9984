// Weights turned into the formats that files are written in, with the roundings of ggml's reference code: the
// same bytes as the Python package gguf gives (tests/data/blocks.safetensors). Pure functions.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"

namespace espalier {

// f16   rounded to nearest even
// q8_0  d = absmax / 127, q = x / d rounded half away from zero
// q4_0  d = (the value of largest magnitude, the first of equals) / -8, q = trunc(x / d + 8.5), at most 15
// q4_1  d = (max - min) / 15, m = min, q = trunc((x - m) / d + 0.5), at most 15
// Blocks of 32 values; d and m are stored as f16, but q comes from d as a float. "/ d" is a product with 1 / d, and a
// block whose 1 / d is not finite (all values equal or vanishing) has q as if x / d were 0.
// Requires finite values, values.size() a multiple of the block and bytes.size() == row_bytes(type, values.size()).
void quantise_row(DType type, std::span<const float> values, std::span<std::byte> bytes);

// Whether every value can be stored: finite, and not infinite once it is an f16.
bool quantisable(std::span<const float> values);

}  // namespace espalier
