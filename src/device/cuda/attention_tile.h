// One tile of 128 key ordinals for some heads of one kv head, for element types of two bytes and head sizes of 64, 96
// and 128, by a team of nine warps: eight fetch 16 keys each and compute their scores; then they add values, a warp 64
// elements of a head, while the ninth adds the weights alone. What the contract puts in order is a chain of a lane's
// own; nothing else waits for it.
#pragma once

#include "device/cuda/attention_keys.h"
#include "device/cuda/kernel.h"
#include "device/cuda/scalar_math.h"

namespace espalier::cuda {

inline constexpr int kMostHeads = 4;  // of one kv head that share a block of threads

// Scores as integers in their order, a NaN above all; 0: none.
__device__ inline std::uint32_t order_of(float score) {
  const std::uint32_t bits = __float_as_uint(score);
  return is_nan(score) ? 0xffffffffu : bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float score_of(std::uint32_t order) {
  if (order == 0xffffffffu) return not_a_number();
  return __uint_as_float(order >> 31 != 0 ? order & 0x7fffffffu : ~order);
}

template <typename Element, int dim>
class StagedTile {
 public:
  using Stored = typename Element::Stored;
  static constexpr int kKeyWarps = 8, kWarps = kKeyWarps + 1, kThreads = kWarps * kWarp;
  static constexpr int kOfWarp = kKeys / kKeyWarps;  // keys
  static constexpr int kRowBytes = dim * static_cast<int>(sizeof(Stored));
  static constexpr int kKeyBytes = kRowBytes + 32;  // so that eight neighbouring keys have banks of their own
  static constexpr int kSlices = (dim + 63) / 64;   // of a head, 64 elements each: a warp's
  static constexpr int kWeightPitch = kKeys + 4;    // of the ninth warp's, likewise
  static constexpr int kBytes = kKeys * (kKeyBytes + kRowBytes) + kMostHeads * (dim + kKeys) * 4;
  static_assert(kMostHeads * kSlices <= kKeyWarps);
  static_assert((kKeyWarps * kKeys + kMostHeads * (kWeightPitch + 2 + dim)) * 4 <= kKeys * kKeyBytes);

  __device__ explicit StagedTile(std::uint8_t* shared)
      : k_(shared),
        v_(shared + kKeys * kKeyBytes),
        q_(reinterpret_cast<float*>(v_ + kKeys * kRowBytes)),
        score_(q_ + kMostHeads * dim) {}

  // Room for the slots of its keys and their counts, until scores are there.
  __device__ std::int32_t* slots() const { return reinterpret_cast<std::int32_t*>(score_); }

  // By a warp: the keys or the values of its 16 keys. slot: of key lane % 16; below 0: not wanted. from: of this kv
  // head in slot 0; width: elements from slot to slot
  __device__ void fetch_keys(const Stored* k, std::int64_t width, std::int32_t slot, int warp) const {
    fetch(k, width, slot, k_ + warp * kOfWarp * kKeyBytes, kKeyBytes);
  }
  __device__ void fetch_values(const Stored* v, std::int64_t width, std::int32_t slot, int warp) const {
    fetch(v, width, slot, v_ + warp * kOfWarp * kRowBytes, kRowBytes);
  }
  // Both, for few of the 16: one after the other.
  __device__ void fetch_few(const Stored* k, const Stored* v, std::int64_t width, std::int32_t slot, int warp) const {
    const int lane = static_cast<int>(threadIdx.x % kWarp), piece = lane % 16 * 16;
    const bool of_v = lane >= 16;
    for (unsigned left = __ballot_sync(kAllLanes, slot >= 0 && lane < 16); left != 0; left &= left - 1) {
      const int in_warp = __ffs(static_cast<int>(left)) - 1, key = warp * kOfWarp + in_warp;
      const Stored* const from = (of_v ? v : k) + __shfl_sync(kAllLanes, slot, in_warp) * width;
      std::uint8_t* const to = of_v ? v_ + key * kRowBytes : k_ + key * kKeyBytes;
      if (piece < kRowBytes) copy_ahead(to + piece, reinterpret_cast<const std::uint8_t*>(from) + piece);
    }
  }
  __device__ void fetch_queries(const float* q, int heads, int thread) const {
    for (int i = thread * 4; i < heads * dim; i += kThreads * 4) copy_ahead(q_ + i, q + i);
  }

  // Scores of the 16 keys of a warp, of which there are `keys` in the tile; minus infinity of those that are not. Four
  // lanes have a key, and of dot16 four partial sums each.
  __device__ void compute_scores(int heads, int keys, float scale, int warp) const {
    const int lane = static_cast<int>(threadIdx.x % kWarp), quarter = lane % 4, first = warp * kOfWarp + lane / 4;
    Four key[2][dim / 16];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int c = 0; c < dim / 16; ++c)
        key[i][c] = *reinterpret_cast<const Four*>(k_ + (first + 8 * i) * kKeyBytes + c * 32 + quarter * 8);
#pragma unroll 1
    for (int h = 0; h < heads; ++h) {
      float sum[2][4] = {};
#pragma unroll
      for (int c = 0; c < dim / 16; ++c) {
        const float4 q = *reinterpret_cast<const float4*>(q_ + h * dim + c * 16 + quarter * 4);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          sum[i][0] = fmaf(q.x, Element::widen(key[i][c].element[0]), sum[i][0]);
          sum[i][1] = fmaf(q.y, Element::widen(key[i][c].element[1]), sum[i][1]);
          sum[i][2] = fmaf(q.z, Element::widen(key[i][c].element[2]), sum[i][2]);
          sum[i][3] = fmaf(q.w, Element::widen(key[i][c].element[3]), sum[i][3]);
        }
      }
      const float dot = add_up(sum, quarter);
      const int own = first + quarter / 2 * 8;
      if (quarter % 2 == 0) score_[h * kKeys + own] = own < keys ? scale * dot : -infinity();
    }
  }

  // The largest score of a head, NaN if one is; and exp(score - largest) of its keys to `weight`. By a warp
  __device__ float weigh(int h, float* weight) const {
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    const float4 of_lane = reinterpret_cast<const float4*>(score_ + h * kKeys)[lane];
    const float score[4] = {of_lane.x, of_lane.y, of_lane.z, of_lane.w};
    std::uint32_t order = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) order = order_of(score[i]) > order ? order_of(score[i]) : order;
    const float largest = score_of(largest_of_warp(order));
    float e[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) e[i] = exp_f32(score[i] - largest);
    reinterpret_cast<float4*>(weight)[lane] = make_float4(e[0], e[1], e[2], e[3]);
    return largest;
  }

  // The weighted sums of two elements of a head, keys ascending. By a warp: a pair of elements a lane
  struct Sums {
    float of[2];
  };
  __device__ Sums add_values(int h, int pair, int keys, int warp) const {
    float* const weight = weights_of(warp);
    weigh(h, weight);
    __syncwarp();
    const std::uint8_t* const v = v_ + (pair < dim / 2 ? pair : 0) * 4;
    Sums sums = {{0, 0}};
    Batch now, next;
    next.load(v, weight, 0);
#pragma unroll 2
    for (int j = 0; j < keys; j += kAtOnce) {
      now = next;
      next.load(v, weight, j + kAtOnce < kKeys ? j + kAtOnce : j);
      if (j + kAtOnce <= keys)
        now.add_to(sums, kAtOnce);
      else
        now.add_to(sums, keys - j);
    }
    return sums;
  }

  // Largest scores and sums of weights of all heads, keys ascending, to `maximum` and `denominator`: by the ninth warp.
  __device__ void add_weights(int heads) const {
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    float* const weight = weights_of(kKeyWarps);
    for (int h = 0; h < heads; ++h) {
      const float largest = weigh(h, weight + h * kWeightPitch);
      if (lane == 0) maximum(h) = largest;
    }
    __syncwarp();
    if (lane >= heads) return;
    const auto* const own = reinterpret_cast<const float4*>(weight + lane * kWeightPitch);
    float sum = 0;  // of those that are not there, zeros
#pragma unroll 8
    for (int i = 0; i < kKeys / 4; ++i) {
      sum = sum + own[i].x;
      sum = sum + own[i].y;
      sum = sum + own[i].z;
      sum = sum + own[i].w;
    }
    denominator(lane) = sum;
  }

  // Where the keys lay, once scores are there.
  __device__ float& maximum(int h) const {
    return results()[h * 2];
  }
  __device__ float& denominator(int h) const {
    return results()[h * 2 + 1];
  }
  __device__ float* sums(int h) const {
    return results() + kMostHeads * 2 + h * dim;
  }

 private:
  static constexpr int kAtOnce = 16;  // keys
  struct alignas(8) Four {
    Stored element[4];
  };
  // Values and weights of some keys on their way to a lane.
  struct Batch {
    std::uint32_t value[kAtOnce];
    float4 weight[kAtOnce / 4];

    __device__ void load(const std::uint8_t* v, const float* weights, int j) {
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) value[u] = *reinterpret_cast<const std::uint32_t*>(v + (j + u) * kRowBytes);
#pragma unroll
      for (int u = 0; u < kAtOnce / 4; ++u) weight[u] = reinterpret_cast<const float4*>(weights + j)[u];
    }
    __device__ void add_to(Sums& sums, int count) const {
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const float4& four = weight[u / 4];
        const float w = u % 4 == 0 ? four.x : u % 4 == 1 ? four.y : u % 4 == 2 ? four.z : four.w;
        if (u >= count) continue;
        sums.of[0] = fmaf(w, Element::widen(static_cast<std::uint16_t>(value[u] & 0xffffu)), sums.of[0]);
        sums.of[1] = fmaf(w, Element::widen(static_cast<std::uint16_t>(value[u] >> 16)), sums.of[1]);
      }
    }
  };

  __device__ float* weights_of(int warp) const {
    return reinterpret_cast<float*>(k_) + warp * kKeys;
  }
  __device__ float* results() const {
    return weights_of(kKeyWarps) + kMostHeads * kWeightPitch;
  }

  __device__ static void fetch(const Stored* from, std::int64_t width, std::int32_t slot, std::uint8_t* to, int pitch) {
    constexpr int kPieces = kRowBytes / 16;
    const int lane = static_cast<int>(threadIdx.x % kWarp);
#pragma unroll
    for (int n = 0; n < kPieces * kOfWarp / kWarp; ++n) {
      const int i = n * kWarp + lane, key = i / kPieces, piece = i % kPieces * 16;
      const std::int32_t there = __shfl_sync(kAllLanes, slot, key);
      if (there >= 0)
        copy_ahead(to + key * pitch + piece, reinterpret_cast<const std::uint8_t*>(from + there * width) + piece);
    }
  }

  // The dot of key quarter / 2 of the two, of partial sums 4 quarter to 4 quarter + 3 of both in each of four lanes:
  // their halves are added as dot16 does.
  __device__ static float add_up(const float (&sum)[2][4], int quarter) {
    const bool second = quarter / 2 == 1;
    float half[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float own = second ? sum[1][e] : sum[0][e], others = second ? sum[0][e] : sum[1][e];
      half[e] = own + __shfl_xor_sync(kAllLanes, others, 2);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) half[e] = half[e] + __shfl_xor_sync(kAllLanes, half[e], 1);
    return (half[0] + half[2]) + (half[1] + half[3]);
  }

  std::uint8_t *k_, *v_;
  float *q_, *score_;
};

}  // namespace espalier::cuda
