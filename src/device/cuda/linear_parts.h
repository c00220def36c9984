// The parts of a linear as its kernels see them: of one type, with the same rows and inputs, their outputs in groups of
// 16, counted through all parts.
#pragma once

#include "device/cuda/kernels.h"

namespace espalier::cuda {

inline constexpr int kGroup = 16;  // outputs

struct LinearParts {
  struct Part {
    const std::uint8_t* packed;
    const float* bias;  // null: none
    float* y;
    std::int64_t y_stride;
    std::int64_t outputs;
    int first_group;  // of all
    float* added_to;  // null: nothing
    std::int64_t added_stride;
  };
  Part parts[kMostParts];
  int count;
  std::int64_t rows;
  int groups;  // of all parts

  __device__ const Part& part_of(int group) const {
    int i = 0;
    while (i + 1 < count && group >= parts[i + 1].first_group) ++i;
    return parts[i];
  }
};

inline void set_parts(LinearParts& all, const LinearPart* parts, int count) {
  all.count = count;
  all.rows = parts[0].y.rows;
  all.groups = 0;
  for (int i = 0; i < count; ++i) {
    const LinearPart& from = parts[i];
    all.parts[i] = {reinterpret_cast<const std::uint8_t*>(from.packed),
                    from.bias,
                    from.y.data,
                    from.y.stride,
                    from.outputs,
                    all.groups,
                    from.added_to,
                    from.added_stride};
    all.groups += static_cast<int>((from.outputs + kGroup - 1) / kGroup);
  }
}

// The sum of an output of a part for a row.
__device__ inline void store_sum(const LinearParts::Part& part, std::int64_t r, std::int64_t n, float sum) {
  const float y = part.bias == nullptr ? sum : sum + part.bias[n];
  part.y[r * part.y_stride + n] = y;
  if (part.added_to != nullptr) {
    float* const x = part.added_to + r * part.added_stride + n;
    *x = *x + y;
  }
}

}  // namespace espalier::cuda
