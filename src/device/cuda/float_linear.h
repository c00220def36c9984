// One linear of weights of two bytes as its kernels see it.
#pragma once

#include "device/cuda/float_fragments.h"

namespace espalier::cuda {

struct FloatLinear : LinearParts {
  TermRows x;
  const float* row_scales;  // by which sums are multiplied; null: by nothing
  int chunks;
  // Of a linear of which strands are computed apart (linear_float_rows.cu, linear_float_quads.cu): their sums, and how
  // many have come.
  float4* strand_sums;
  std::int32_t* arrived;

  __device__ int strands() const { return chunks < kStrands ? chunks : kStrands; }
  __device__ const std::uint8_t* piece_of(int group, int chunk) const {
    const Part& part = part_of(group);
    return part.packed + (std::int64_t{group - part.first_group} * chunks + chunk) * kFloatPieceBytes;
  }
  __device__ const std::uint8_t* rows_of(std::int64_t tile, int chunk) const { return x.chunk_of(tile, chunk); }
  __device__ const std::uint8_t* one_row_of(int chunk) const { return x.chunk_of(0, chunk); }
  // The sum of output `output` of a group for a row, if both are there.
  __device__ void store(int group, int output, std::int64_t r, float sum) const {
    const Part& part = part_of(group);
    const std::int64_t n = std::int64_t{group - part.first_group} * kGroup + output;
    if (n >= part.outputs || r >= rows) return;
    store_sum(part, r, n, row_scales == nullptr ? sum : sum * row_scales[r]);
  }
};

// Where a lane's sums of a group go.
class LaneOutputs {
 public:
  __device__ LaneOutputs(const FloatLinear& call, int group, int lane)
      : call_(call),
        part_(call.part_of(group)),
        n_(std::int64_t{group - part_.first_group} * kGroup + lane / 4),
        column_(lane % 4 * 2) {}

  __device__ void store(std::int64_t tile, const float (&sum)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int64_t r = tile * kRowTile + column_ + i % 2, n = n_ + i / 2 * 8;
      if (r < call_.rows && n < part_.outputs)
        store_sum(part_, r, n, call_.row_scales == nullptr ? sum[i] : sum[i] * call_.row_scales[r]);
    }
  }

 private:
  const FloatLinear& call_;
  const LinearParts::Part& part_;
  std::int64_t n_;
  int column_;
};

// linear_float_rows.cu: more than one row.
std::int64_t strand_sum_bytes(Queue queue, const FloatLinear& call);
std::int64_t strand_count_bytes(const FloatLinear& call);
void linear_float_rows(Queue queue, DType type, const FloatLinear& call);

// linear_float_quads.cu: of rows in the form for quads.
FloatScratchBytes quad_scratch_bytes(Queue queue, const FloatLinear& call);
void linear_float_quads(Queue queue, DType type, const FloatLinear& call);

}  // namespace espalier::cuda
