// The input of a linear in tiles (kernels.h), over the vector type of a simd_*.h, which must be included before: rows
// quantised in blocks or left as floats, and loops over the tiles of a call. Internal linkage.
#pragma once

#include "device/cpu/kernels.h"
#include "device/cpu/row_kernels.h"

namespace espalier::cpu {
namespace {

struct QuantisedBlock {
  std::int8_t q[kBlock];
  float d;
  std::int32_t half_sum[2];
};

inline QuantisedBlock quantise_block(const float* x) {
  const F32 low = load(x), high = load(x + kPanel);
  const std::int32_t bits = reduce_max(max(magnitude_bits(low), magnitude_bits(high)));
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof largest);
  const bool finite = largest < kInfinity;
  if (!finite || largest < 0x1p-100f) return {{}, finite ? 0.0f : __builtin_nanf(""), {}};
  const F32 inverse = broadcast(127.0f / largest);
  const I32 q_low = to_int(mul(low, inverse)), q_high = to_int(mul(high, inverse));
  QuantisedBlock block;
  block.d = largest / 127.0f;
  block.half_sum[0] = store_as_bytes(block.q, q_low);
  block.half_sum[1] = store_as_bytes(block.q + kPanel, q_high);
  return block;
}

template <int R>
inline void put_row(const QuantisedBlock& block, int r, BlockActivations<R>& tile) {
  for (int g = 0; g < kBlock / 4; ++g) __builtin_memcpy(&tile.q[g][r], block.q + 4 * g, 4);
  const std::int32_t sum = block.half_sum[0] + block.half_sum[1];
  tile.d[r] = block.d;
  tile.d_sum[r] = block.d * static_cast<float>(sum);
  tile.negative_sum[r] = -sum;
  tile.negative_half_sum[0][r] = -block.half_sum[0];
  tile.negative_half_sum[1][r] = -block.half_sum[1];
}

// A row count as a type, for lambdas over it.
template <int R>
struct Rows {
  static constexpr int kCount = R;
};

// Calls body(Rows<rows>), 1 <= rows <= kTileRows.
template <int R = kTileRows, typename Body>
inline void with_rows(std::int64_t rows, const Body& body) {
  if (rows == R) {
    body(Rows<R>());
  } else if constexpr (R > 1) {
    with_rows<R - 1>(rows, body);
  }
}

// A group of four elements within a block, likewise.
template <int g>
struct Group {};
template <int kCount, int g = 0, typename Body>
inline void for_each_group(const Body& body) {
  if constexpr (g < kCount) {
    body(Group<g>());
    for_each_group<kCount, g + 1>(body);
  }
}

// Calls body(Rows<R>, first) for each tile of the rows: full ones and one rest.
template <typename Body>
inline void for_each_tile(std::int64_t rows, const Body& body) {
  std::int64_t first = 0;
  for (; first + kTileRows <= rows; first += kTileRows) body(Rows<kTileRows>(), first);
  if (first < rows) with_rows<kTileRows - 1>(rows - first, [&](auto rest) { body(rest, first); });
}

template <int R>
void quantise_tile(const float* x, std::int64_t stride, std::int64_t begin, std::int64_t end,
                   BlockActivations<R>* blocks) {
  for (std::int64_t b = begin; b < end; ++b)
    for (int r = 0; r < R; ++r) put_row<R>(quantise_block(x + r * stride + b * kBlock), r, blocks[b]);
}

template <int R>
void interleave_tile(const float* x, std::int64_t stride, std::int64_t begin, std::int64_t end, float* values) {
  for (std::int64_t k = begin; k < end; ++k)
    for (int r = 0; r < R; ++r) values[k * R + r] = x[r * stride + k];
}

// A tile of R rows takes R times the space of one row, so its place follows from its first row.
template <int R>
inline const BlockActivations<R>* block_tile(const void* tiles, std::int64_t first, std::int64_t blocks) {
  const auto* const rows = static_cast<const BlockActivations<1>*>(tiles) + first * blocks;
  return reinterpret_cast<const BlockActivations<R>*>(rows);
}

void quantise(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t blocks, std::int64_t begin,
              std::int64_t end, void* tiles) {
  for_each_tile(rows, [&](auto count, std::int64_t first) {
    constexpr int R = decltype(count)::kCount;
    auto* const tile = const_cast<BlockActivations<R>*>(block_tile<R>(tiles, first, blocks));
    quantise_tile<R>(x + first * stride, stride, begin, end, tile);
  });
}

void interleave(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t inputs, std::int64_t begin,
                std::int64_t end, float* tiles) {
  for_each_tile(rows, [&](auto count, std::int64_t first) {
    constexpr int R = decltype(count)::kCount;
    interleave_tile<R>(x + first * stride, stride, begin, end, tiles + first * inputs);
  });
}

}  // namespace
}  // namespace espalier::cpu
