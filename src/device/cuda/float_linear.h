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

// Where a lane's sums of a group go: outputs g and g + 8, of tiles rows 2 t and 2 t + 1. As FloatLinear::store, for
// many.
class LaneOutputs {
 public:
  __device__ LaneOutputs(const FloatLinear& call, int group, int lane) : rows_(call.rows), scales_(call.row_scales) {
    const LinearParts::Part& part = call.part_of(group);
    const std::int64_t n = std::int64_t{group - part.first_group} * kGroup + lane / 4, left = part.outputs - n;
    column_ = lane % 4 * 2;
    outputs_ = left > 8 ? 2 : left > 0 ? 1 : 0;
    y_ = part.y + n, stride_ = part.y_stride;
    added_to_ = part.added_to == nullptr ? nullptr : part.added_to + n, added_stride_ = part.added_stride;
    has_bias_ = part.bias != nullptr;
#pragma unroll
    for (int i = 0; i < 2; ++i) bias_[i] = has_bias_ && i < outputs_ ? part.bias[n + 8 * i] : 0.0f;
  }

  __device__ void store(std::int64_t tile, const float (&sum)[4]) const {
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      const std::int64_t r = tile * kRowTile + column_ + column;
      if (r >= rows_) return;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (i >= outputs_) continue;
        const float scaled = scales_ == nullptr ? sum[2 * i + column] : sum[2 * i + column] * scales_[r];
        const float y = has_bias_ ? scaled + bias_[i] : scaled;
        y_[r * stride_ + 8 * i] = y;
        if (added_to_ == nullptr) continue;
        float* const x = added_to_ + r * added_stride_ + 8 * i;
        *x = *x + y;
      }
    }
  }

 private:
  std::int64_t rows_, stride_, added_stride_;
  const float* scales_;
  float *y_, *added_to_;
  float bias_[2];
  bool has_bias_;
  int column_, outputs_;
};

// linear_float_rows.cu: more than one row.
std::int64_t strand_sum_bytes(Queue queue, const FloatLinear& call);
std::int64_t strand_count_bytes(const FloatLinear& call);
void linear_float_rows(Queue queue, DType type, const FloatLinear& call);

// linear_float_quads.cu: of rows in the form for quads.
FloatScratchBytes quad_scratch_bytes(Queue queue, const FloatLinear& call);
void linear_float_quads(Queue queue, DType type, const FloatLinear& call);

}  // namespace espalier::cuda
