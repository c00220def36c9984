// Weights of two bytes, bf16 and f16, as matrix instructions want them, and the rows that they are multiplied with.
//
// Weights: outputs in groups of 16, inputs in chunks of 128; a chunk of a group is a piece of 4096 bytes, and pieces
// are ordered by group, then by chunk. A piece has eight steps of 16 inputs, 16 bytes a lane each. Which 16 of 32
// inputs are a step is chosen so that a lane's part of a row is contiguous: lane 4 g + t has in step s of a pair the
// inputs 8 t + 4 s to 8 t + 4 s + 3, two of output g, two of g + 8, and the next two of both. What is not there is
// zero.
//
// Rows: x as a sum of one or two numbers of the weights' type (its terms), in tiles of eight rows and chunks; of a
// chunk first the leading term of all inputs, then the other; of a term 32 inputs of every row, then the next 32. One
// row alone: in chunks too, the inputs of a term in their order. For quads (quad_multiply.h), 32 inputs of all tiles,
// then the next 32; of a tile first the leading term, then the other, of a term eight inputs of every row four times,
// those that stand together in an instruction. Inputs that are not there are zero.
//
// The order of sums (docs/cuda.md): chunk c belongs to strand c mod 4. A strand's sum begins at +0 and takes its chunks
// ascending; in a chunk the pairs of steps, ascending, of a pair the terms, the leading one first, of a term both
// steps, an instruction each. A result is ((s0 + s1) + s2) + s3, of the strands that there are. Nothing of this depends
// on the number of rows, on a row's place or on the card's size.
#pragma once

#include "device/cuda/kernel.h"
#include "device/cuda/linear_parts.h"
#include "device/cuda/scalar_math.h"

namespace espalier::cuda {

inline constexpr int kFloatChunk = 128;  // inputs
inline constexpr int kFloatPairs = kFloatChunk / 32;
inline constexpr int kFloatPieceBytes = kGroup * kFloatChunk * 2;
inline constexpr int kFloatRowBytes = kFloatChunk * 2;             // of a chunk of a row, for each term
inline constexpr int kFloatTileBytes = kRowTile * kFloatRowBytes;  // of a tile
inline constexpr int kStrands = 4;

__host__ __device__ constexpr std::int64_t float_chunks(std::int64_t inputs) {
  return (inputs + kFloatChunk - 1) / kFloatChunk;
}

// Where an element of a weight lies, in elements.
__host__ __device__ constexpr std::int64_t float_place(std::int64_t n, std::int64_t k, std::int64_t chunks) {
  const std::int64_t piece = n / kGroup * chunks + k / kFloatChunk;
  const std::int64_t step = k % kFloatChunk / 32 * 2 + k % 8 / 4, lane = n % 8 * 4 + k % 32 / 8;
  const std::int64_t in_lane = k % 4 / 2 * 4 + n / 8 % 2 * 2 + k % 2;
  return piece * (kGroup * kFloatChunk) + (step * kWarp + lane) * 8 + in_lane;
}

// Rows as terms, in memory.
enum class TermForm { one_row, tiles, quads };
inline constexpr int kQuadTileBytes = kRowTile * 32 * 2;  // of 32 inputs of a tile, for each term

struct TermRows {
  std::uint8_t* data = nullptr;
  std::int64_t tiles = 0, chunks = 0;
  int terms = 2;
  TermForm form = TermForm::tiles;

  __host__ __device__ std::int64_t bytes() const {
    return tiles * chunks * terms * (form == TermForm::one_row ? kFloatRowBytes : kFloatTileBytes);
  }
  // A chunk of a tile, or of the one row; not of the form for quads.
  __device__ std::uint8_t* chunk_of(std::int64_t tile, std::int64_t chunk) const {
    return data + (tile * chunks + chunk) * terms * (form == TermForm::one_row ? kFloatRowBytes : kFloatTileBytes);
  }
  // 32 inputs of the tiles from this one on, in the form for quads.
  __device__ std::uint8_t* quads_of(std::int64_t tile, std::int64_t pair) const {
    return data + (pair * tiles + tile) * terms * kQuadTileBytes;
  }
  __device__ std::uint16_t* place(std::int64_t r, std::int64_t k, int term) const {
    if (form == TermForm::quads) {
      std::uint8_t* const inputs = quads_of(r / kRowTile, k / 32) + term * kQuadTileBytes;
      return reinterpret_cast<std::uint16_t*>(inputs) + (k % 8 / 2 * kRowTile + r % kRowTile) * 8 + k % 32 / 8 * 2 +
             k % 2;
    }
    const bool one_row = form == TermForm::one_row;
    const std::int64_t in_chunk = k % kFloatChunk;
    std::uint8_t* const chunk = chunk_of(r / kRowTile, k / kFloatChunk);
    return reinterpret_cast<std::uint16_t*>(chunk + term * (one_row ? kFloatRowBytes : kFloatTileBytes)) +
           (one_row ? in_chunk : (in_chunk / 32 * kRowTile + r % kRowTile) * 32 + in_chunk % 32);
  }
};

inline TermRows term_rows(Queue queue, std::byte* data, std::int64_t rows, std::int64_t inputs) {
  const bool quads = queue.quads_from_rows > 0 && rows >= queue.quads_from_rows;
  return {reinterpret_cast<std::uint8_t*>(data), (rows + kRowTile - 1) / kRowTile, float_chunks(inputs), queue.terms,
          rows == 1 ? TermForm::one_row
          : quads   ? TermForm::quads
                    : TermForm::tiles};
}
// Behind them what sums are multiplied by, a number for each row (f16).
inline float* term_scales(const TermRows& all) {
  return reinterpret_cast<float*>(all.data + all.bytes());
}

// x as a leading term and what that leaves. An infinity or a NaN leaves nothing, so that it stays what it is; what
// would be rounded to infinity leads with the largest number there is.
template <typename Element>
__device__ inline void store_terms(float x, std::int64_t r, std::int64_t k, const TermRows& rows) {
  std::uint16_t leading = Element::round(x);
  if (is_finite(x) && !is_finite(Element::widen(leading))) --leading;
  *rows.place(r, k, 0) = leading;
  if (rows.terms == 2)
    *rows.place(r, k, 1) = is_finite(x) ? Element::round(x - Element::widen(leading)) : std::uint16_t{0};
}

// A pair of steps of a group's piece, as a lane has it.
struct WeightSteps {
  uint4 step[2];
  __device__ void load(const std::uint8_t* piece, int pair, int lane) {
#pragma unroll
    for (int s = 0; s < 2; ++s) step[s] = reinterpret_cast<const uint4*>(piece)[(2 * pair + s) * kWarp + lane];
  }
};

// The same of a term of a tile of rows, or of one row alone, which then stands in every column.
template <bool one_row>
__device__ inline uint4 row_steps(const std::uint8_t* term, int pair, int lane) {
  return reinterpret_cast<const uint4*>(term)[one_row ? pair * 4 + lane % 4 : pair * kWarp + lane];
}

template <typename Element>
__device__ inline void add_step(float (&sum)[4], const WeightSteps& weights, const uint4& rows, int s) {
  multiply_floats<Element>(sum, weights.step[s], s ? rows.z : rows.x, s ? rows.w : rows.y);
}

}  // namespace espalier::cuda
