#include "device/blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/float16.h"

namespace espalier {
namespace {

// Files are little-endian, as are all supported machines.
float load_f16(const std::uint8_t* p) {
  std::uint16_t half;
  std::memcpy(&half, p, sizeof half);
  return f16_to_f32(half);
}

std::uint32_t load_u32(const std::uint8_t* p) {
  std::uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// One block's share of a QuantisedRow.
struct BlockOut {
  std::int8_t* q;
  float* scale;
  float* minimum;
};

// Nibbles of a 32-element block: element j in the low half of byte j, element j + 16 in the high half.
void unpack_nibbles(const std::uint8_t* packed, int offset, std::int8_t* q) {
  for (int j = 0; j < 16; ++j) {
    q[j] = static_cast<std::int8_t>((packed[j] & 0x0f) - offset);
    q[j + 16] = static_cast<std::int8_t>((packed[j] >> 4) - offset);
  }
}

// As unpack_nibbles, with a fifth bit per element from `high`.
void unpack_five_bits(const std::uint8_t* packed, std::uint32_t high, int offset, std::int8_t* q) {
  for (int j = 0; j < 16; ++j) {
    const auto low_bit = static_cast<int>(high >> j & 1u) << 4;
    const auto high_bit = static_cast<int>(high >> (j + 16) & 1u) << 4;
    q[j] = static_cast<std::int8_t>(((packed[j] & 0x0f) | low_bit) - offset);
    q[j + 16] = static_cast<std::int8_t>(((packed[j] >> 4) | high_bit) - offset);
  }
}

// f16 scale, 16 bytes of nibbles; w = d * (q - 8)
void decode_q4_0(const std::uint8_t* p, BlockOut out) {
  out.scale[0] = load_f16(p);
  unpack_nibbles(p + 2, 8, out.q);
}

// f16 scale, f16 minimum, 16 bytes of nibbles; w = d * q + m
void decode_q4_1(const std::uint8_t* p, BlockOut out) {
  out.scale[0] = load_f16(p);
  out.minimum[0] = load_f16(p + 2);
  unpack_nibbles(p + 4, 0, out.q);
}

// f16 scale, 32 fifth bits, 16 bytes of nibbles; w = d * (q - 16)
void decode_q5_0(const std::uint8_t* p, BlockOut out) {
  out.scale[0] = load_f16(p);
  unpack_five_bits(p + 6, load_u32(p + 2), 16, out.q);
}

// f16 scale, f16 minimum, 32 fifth bits, 16 bytes of nibbles; w = d * q + m
void decode_q5_1(const std::uint8_t* p, BlockOut out) {
  out.scale[0] = load_f16(p);
  out.minimum[0] = load_f16(p + 2);
  unpack_five_bits(p + 8, load_u32(p + 4), 0, out.q);
}

// f16 scale, 32 signed bytes; w = d * q
void decode_q8_0(const std::uint8_t* p, BlockOut out) {
  out.scale[0] = load_f16(p);
  std::memcpy(out.q, p + 2, 32);
}

// Eight 6-bit scales and eight 6-bit minima packed in 12 bytes: the first four of each in the low six bits of bytes
// 0-3 and 4-7; the last four have their low nibbles in bytes 8-11 and their two high bits on top of bytes 0-7.
void unpack_k_scales(const std::uint8_t* p, int scales[8], int minima[8]) {
  for (int i = 0; i < 4; ++i) {
    scales[i] = p[i] & 63;
    minima[i] = p[i + 4] & 63;
    scales[i + 4] = (p[i + 8] & 0x0f) | (p[i] >> 6) << 4;
    minima[i + 4] = (p[i + 8] >> 4) | (p[i + 4] >> 6) << 4;
  }
}

void set_k_scales(const std::uint8_t* p, BlockOut out) {
  const float d = load_f16(p);
  const float d_min = load_f16(p + 2);
  int scales[8], minima[8];
  unpack_k_scales(p + 4, scales, minima);
  for (int i = 0; i < 8; ++i) {
    out.scale[i] = d * static_cast<float>(scales[i]);
    out.minimum[i] = -(d_min * static_cast<float>(minima[i]));
  }
}

// 256 elements: f16 d, f16 dmin, 12 bytes of scales, 128 bytes: 32 bytes hold two consecutive sub-blocks, the first
// in the low nibbles; w = (d * scale) * q - dmin * minimum
void decode_q4_k(const std::uint8_t* p, BlockOut out) {
  set_k_scales(p, out);
  const std::uint8_t* packed = p + 16;
  for (int pair = 0; pair < 4; ++pair)
    for (int j = 0; j < 32; ++j) {
      const std::uint8_t byte = packed[pair * 32 + j];
      out.q[pair * 64 + j] = static_cast<std::int8_t>(byte & 0x0f);
      out.q[pair * 64 + 32 + j] = static_cast<std::int8_t>(byte >> 4);
    }
}

// As q4_k, with 32 bytes between: bit s of byte j is the fifth bit of element j of sub-block s.
void decode_q5_k(const std::uint8_t* p, BlockOut out) {
  set_k_scales(p, out);
  const std::uint8_t* fifth = p + 16;
  const std::uint8_t* packed = p + 48;
  for (int pair = 0; pair < 4; ++pair)
    for (int j = 0; j < 32; ++j) {
      const std::uint8_t byte = packed[pair * 32 + j];
      const int low = fifth[j] >> (2 * pair) & 1;
      const int high = fifth[j] >> (2 * pair + 1) & 1;
      out.q[pair * 64 + j] = static_cast<std::int8_t>((byte & 0x0f) | low << 4);
      out.q[pair * 64 + 32 + j] = static_cast<std::int8_t>((byte >> 4) | high << 4);
    }
}

// 256 elements in two halves: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, f16 d;
// w = (d * scale) * (q - 32), sub-blocks of 16
void decode_q6_k(const std::uint8_t* p, BlockOut out) {
  const std::uint8_t* low = p;
  const std::uint8_t* high = p + 128;
  const auto* scales = reinterpret_cast<const std::int8_t*>(p + 192);
  const float d = load_f16(p + 208);
  for (int i = 0; i < 16; ++i) out.scale[i] = d * static_cast<float>(scales[i]);
  for (int half = 0; half < 2; ++half)
    for (int j = 0; j < 32; ++j) {
      const std::uint8_t a = low[half * 64 + j];
      const std::uint8_t b = low[half * 64 + 32 + j];
      const std::uint8_t h = high[half * 32 + j];
      std::int8_t* q = out.q + half * 128 + j;
      q[0] = static_cast<std::int8_t>(((a & 0x0f) | (h & 3) << 4) - 32);
      q[32] = static_cast<std::int8_t>(((b & 0x0f) | (h >> 2 & 3) << 4) - 32);
      q[64] = static_cast<std::int8_t>(((a >> 4) | (h >> 4 & 3) << 4) - 32);
      q[96] = static_cast<std::int8_t>(((b >> 4) | (h >> 6 & 3) << 4) - 32);
    }
}

using Batch = void (*)(const std::uint8_t*, BlockOut);

struct BlockFormat {
  Batch decode;
  std::int64_t sub_block;
  bool has_minimum;
};

BlockFormat block_format(DType type) {
  switch (type) {
    case DType::q4_0: return {decode_q4_0, 32, false};
    case DType::q4_1: return {decode_q4_1, 32, true};
    case DType::q5_0: return {decode_q5_0, 32, false};
    case DType::q5_1: return {decode_q5_1, 32, true};
    case DType::q8_0: return {decode_q8_0, 32, false};
    case DType::q4_k: return {decode_q4_k, 32, true};
    case DType::q5_k: return {decode_q5_k, 32, true};
    case DType::q6_k: return {decode_q6_k, 16, false};
    default: throw std::logic_error(fmt::format("{} is not a block format", name(type)));
  }
}

void widen_quantised(const QuantisedRow& row, std::span<float> values) {
  for (std::size_t k = 0; k < values.size(); ++k) {
    const std::size_t b = k / static_cast<std::size_t>(row.block);
    const float product = row.scale[b] * static_cast<float>(row.q[k]);
    values[k] = row.has_minimum ? product + row.minimum[b] : product;
  }
}

void quantise_block_q8_0(std::span<const float> x, std::byte* out) {
  const bool finite = std::all_of(x.begin(), x.end(), [](float value) { return std::isfinite(value); });
  float largest = 0;
  for (float value : x) largest = std::fmax(largest, std::fabs(value));
  const float d = finite ? largest / 127.0f : std::numeric_limits<float>::quiet_NaN();
  const std::uint16_t half = f32_to_f16(d);
  std::memcpy(out, &half, sizeof half);
  // Not finite: d is NaN, or 0, or so small that f16 made it 0.
  const float inverse = 1.0f / d;
  for (std::size_t j = 0; j < x.size(); ++j) {
    const float rounded = std::isfinite(inverse) ? std::round(x[j] * inverse) : 0.0f;
    out[2 + j] = static_cast<std::byte>(static_cast<std::int8_t>(rounded));
  }
}

}  // namespace

void decode_row(DType type, std::span<const std::byte> bytes, std::int64_t inputs, QuantisedRow& row) {
  check(static_cast<std::int64_t>(bytes.size()) == row_bytes(type, inputs), "decode_row: {} bytes for {} {} elements",
        bytes.size(), inputs, name(type));
  const BlockFormat format = block_format(type);
  row.block = format.sub_block;
  row.has_minimum = format.has_minimum;
  row.q.resize(static_cast<std::size_t>(inputs));
  row.scale.resize(static_cast<std::size_t>(inputs / row.block));
  row.minimum.assign(row.scale.size(), 0.0f);
  const auto* p = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const std::int64_t step = traits(type).block_elements;
  for (std::int64_t k = 0; k < inputs; k += step, p += traits(type).block_bytes) {
    const std::int64_t b = k / row.block;
    format.decode(p, {row.q.data() + k, row.scale.data() + b, row.minimum.data() + b});
  }
}

void widen_row(DType type, std::span<const std::byte> bytes, std::span<float> values) {
  check(static_cast<std::int64_t>(bytes.size()) == row_bytes(type, static_cast<std::int64_t>(values.size())),
        "widen_row: {} bytes for {} {} elements", bytes.size(), values.size(), name(type));
  if (type == DType::f32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  } else if (type == DType::f16 || type == DType::bf16) {
    for (std::size_t k = 0; k < values.size(); ++k) {
      std::uint16_t half;
      std::memcpy(&half, bytes.data() + 2 * k, sizeof half);
      values[k] = type == DType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
    }
  } else {
    QuantisedRow row;
    decode_row(type, bytes, static_cast<std::int64_t>(values.size()), row);
    widen_quantised(row, values);
  }
}

void quantise_row_q8_0(std::span<const float> values, std::span<std::byte> bytes) {
  check(static_cast<std::int64_t>(bytes.size()) == row_bytes(DType::q8_0, static_cast<std::int64_t>(values.size())),
        "quantise_row_q8_0: {} values into {} bytes", values.size(), bytes.size());
  for (std::size_t b = 0; b < values.size() / 32; ++b)
    quantise_block_q8_0(values.subspan(b * 32, 32), bytes.data() + b * 34);
}

}  // namespace espalier
