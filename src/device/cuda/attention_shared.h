// The keys and values of one tile for one kv head in shared memory, a key a thread: for many tiles, of which several
// share a multiprocessor (attention_tile.h has those of few). The sums are those of attention.cu, element by element.
#pragma once

#include "device/cuda/attention_keys.h"
#include "device/cuda/kernel.h"
#include "device/cuda/scalar_math.h"

namespace espalier::cuda {

template <typename Element, int dim>
class SharedTile {
 public:
  using Stored = typename Element::Stored;
  static constexpr int kRowBytes = dim * static_cast<int>(sizeof(Stored));
  static constexpr int kKeyBytes = kRowBytes + 16;  // so that threads with neighbouring keys do not meet in a bank
  static constexpr int kBytes = kKeys * (kKeyBytes + kRowBytes);

  __device__ explicit SharedTile(std::uint8_t* shared) : k_(shared), v_(shared + kKeys * kKeyBytes) {}

  // k, v: of this kv head in slot 0; width: elements from slot to slot. Two groups of copies.
  __device__ void fetch(const Stored* k, const Stored* v, std::int64_t width, const std::int32_t* slots,
                        int keys) const {
    fetch(k, width, slots, keys, k_, kKeyBytes);
    fetch(v, width, slots, keys, v_, kRowBytes);
  }

  // dot16 of q with this thread's key. q: [heads, dim] of shared memory
  template <int heads>
  __device__ void dots(const float* q, int key, float (&dot)[heads]) const {
    float lane[heads][16];
#pragma unroll
    for (int i = 0; i < 16 * heads; ++i) lane[i / 16][i % 16] = 0;
    const std::uint8_t* const row = k_ + key * kKeyBytes;
#pragma unroll
    for (int c = 0; c < dim / 8; ++c) {
      const Eight eight = reinterpret_cast<const Eight*>(row)[c];
#pragma unroll
      for (int h = 0; h < heads; ++h)
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          const float4 four = reinterpret_cast<const float4*>(q + h * dim)[2 * c + part];
          const float of_q[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& sum = lane[h][c % 2 * 8 + part * 4 + e];
            sum = fmaf(of_q[e], Element::widen(eight.element[part * 4 + e]), sum);
          }
        }
    }
#pragma unroll
    for (int h = 0; h < heads; ++h) {
      add_upper_half<8>(lane[h]);
      add_upper_half<4>(lane[h]);
      add_upper_half<2>(lane[h]);
      add_upper_half<1>(lane[h]);
      dot[h] = lane[h][0];
    }
  }

  // The weighted sums of values for elements 2 pair and 2 pair + 1, and of the weights alone, keys ascending.
  __device__ void add_values(const float* weight, int keys, int pair, float (&sum)[2], float& denominator) const {
    int j = 0;
#pragma unroll 4
    for (; j + 4 <= keys; j += 4) {
      const float4 four = *reinterpret_cast<const float4*>(weight + j);
      add_value(four.x, j, pair, sum, denominator);
      add_value(four.y, j + 1, pair, sum, denominator);
      add_value(four.z, j + 2, pair, sum, denominator);
      add_value(four.w, j + 3, pair, sum, denominator);
    }
    for (; j < keys; ++j) add_value(weight[j], j, pair, sum, denominator);
  }

 private:
  struct alignas(16) Eight {
    Stored element[8];
  };
  struct alignas(4) Two {
    Stored element[2];
  };

  template <int half>
  __device__ static void add_upper_half(float (&lane)[16]) {
#pragma unroll
    for (int j = 0; j < half; ++j) lane[j] = lane[j] + lane[j + half];
  }

  __device__ static void fetch(const Stored* from, std::int64_t width, const std::int32_t* slots, int keys,
                               std::uint8_t* to, int row_bytes) {
    constexpr int kPieces = kRowBytes / 16;
    for (int i = static_cast<int>(threadIdx.x); i < keys * kPieces; i += kKeys)
      copy_ahead(to + i / kPieces * row_bytes + i % kPieces * 16,
                 reinterpret_cast<const std::uint8_t*>(from + slots[i / kPieces] * width) + i % kPieces * 16);
    end_of_copies();
  }

  __device__ void add_value(float weight, int j, int pair, float (&sum)[2], float& denominator) const {
    const Two two = reinterpret_cast<const Two*>(v_ + j * kRowBytes)[pair];
    denominator = denominator + weight;
    sum[0] = fmaf(weight, Element::widen(two.element[0]), sum[0]);
    sum[1] = fmaf(weight, Element::widen(two.element[1]), sum[1]);
  }

  std::uint8_t *k_, *v_;
};

}  // namespace espalier::cuda
