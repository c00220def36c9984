// What the kernels over a vocabulary share: the order of elements, the best of shares of a row, sums by lanes. A row is
// cut twice. To rank it, into shares of neighbours: a block of threads each leaves its best. To add it up, by the
// contract's 256 lanes, since within a lane the order is fixed: a block has 32 of them. For .cu files.
#pragma once

#include <cstdint>

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/cuda/scalar_math.h"

namespace espalier::cuda {

// --- order ----------------------------------------------------------------------------------------------------------

// Where an element stands: the larger key comes first. The value above, the id inverted below, so that the lowest id
// wins among equals; both zeros are equal, and NaN counts as minus infinity. No element has key 0.
__device__ inline std::uint64_t order_key(float x, std::int64_t id) {
  const float value = rank_value(x);
  const std::uint32_t bits = value == 0.0f ? 0u : __float_as_uint(value);
  const std::uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<std::uint64_t>(ordered) << 32 | (0xffffffffu - static_cast<std::uint32_t>(id));
}

__device__ inline std::int32_t id_of(std::uint64_t key) {
  return static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(key));
}

// The value that stands in a key: without the sign of a zero, which no sum and no exponential tells.
__device__ inline float value_of(std::uint64_t key) {
  const auto ordered = static_cast<std::uint32_t>(key >> 32);
  return __uint_as_float(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}

// The largest key of a warp, to all of its lanes.
__device__ inline std::uint64_t largest_of_warp(std::uint64_t key) {
  const unsigned high = __reduce_max_sync(kAllLanes, static_cast<unsigned>(key >> 32));
  const unsigned low = __reduce_max_sync(kAllLanes, key >> 32 == high ? static_cast<unsigned>(key) : 0u);
  return static_cast<std::uint64_t>(high) << 32 | low;
}

// The largest key of a block, to all of its threads, time after time.
class LargestOfBlock {
 public:
  __device__ std::uint64_t operator()(std::uint64_t key) {
    __shared__ std::uint64_t of_warp[2][kWarp];
    turn_ ^= 1;  // who still reads the last ones reads elsewhere
    key = largest_of_warp(key);
    if (threadIdx.x % kWarp == 0) of_warp[turn_][threadIdx.x / kWarp] = key;
    __syncthreads();
    return largest_of_warp(threadIdx.x % kWarp < blockDim.x / kWarp ? of_warp[turn_][threadIdx.x % kWarp] : 0);
  }

 private:
  int turn_ = 0;
};

// The largest of this thread's part of `keys` that are below `bound`; 0: there is none.
__device__ inline std::uint64_t largest_below(const std::uint64_t* keys, int count, std::uint64_t bound) {
  std::uint64_t largest = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
    if (keys[i] < bound && keys[i] > largest) largest = keys[i];
  return largest;
}

// --- shares ---------------------------------------------------------------------------------------------------------

// The best of row r, from what its shares left.
__device__ inline std::uint64_t best_of_row(const VocabularyScratch& scratch, std::int64_t r, LargestOfBlock& largest) {
  const std::uint64_t* const best = scratch.best + r * scratch.shares * scratch.kept;
  std::uint64_t own = 0;
  for (int share = static_cast<int>(threadIdx.x); share < scratch.shares; share += static_cast<int>(blockDim.x)) {
    const std::uint64_t key = best[share * scratch.kept];
    own = key > own ? key : own;
  }
  return largest(own);
}

// What is merged of a row, in shared memory; too much for that: none.
inline constexpr int kMostStaged = 4096;
__host__ __device__ inline bool is_staged(const VocabularyScratch& scratch) {
  return scratch.shares <= kMostStaged / scratch.kept;
}
inline std::size_t staged_bytes(const VocabularyScratch& scratch) {
  return is_staged(scratch) ? sizeof(std::uint64_t) * static_cast<std::size_t>(scratch.shares * scratch.kept) : 0;
}

// Calls each(rank, key) by thread 0 for the k best of row r, best first. The block has staged_bytes of shared
// memory.
template <typename Each>
__device__ void merge_shares(const VocabularyScratch& scratch, std::int64_t r, int k, LargestOfBlock& largest,
                             Each each) {
  const int count = scratch.shares * scratch.kept;
  const std::uint64_t* keys = scratch.best + r * count;
  if (is_staged(scratch)) {
    auto* const staged = shared_memory<std::uint64_t>();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
      staged[i] = __ldcg(keys + i);
    keys = staged;  // a thread reads what it wrote itself
  }
  std::uint64_t last = ~std::uint64_t{0}, own = last;
  for (int rank = 0; rank < k; ++rank) {
    if (own == last) own = largest_below(keys, count, last);  // at first, and where it was taken
    last = largest(own);
    if (threadIdx.x == 0) each(rank, last);
  }
}

// --- lanes ----------------------------------------------------------------------------------------------------------

inline constexpr int kVocabularyLanes = 256;
inline constexpr int kLaneBlocks = kVocabularyLanes / kWarp;  // of a row, which have 32 lanes each
inline constexpr int kMostLaneThreads = 1024;
inline constexpr int kTurnsOfWarp = 4;  // of the lanes that a warp computes at once

// The threads of a block, a power of two: no more than a row keeps busy.
inline unsigned lane_threads(std::int64_t columns) {
  unsigned threads = 2 * kWarp;
  while (threads < kMostLaneThreads && std::int64_t{threads} / kWarp * kTurnsOfWarp * kVocabularyLanes < columns)
    threads *= 2;
  return threads;
}

// The shared memory that sum_of_lane and add_lanes need.
inline std::size_t lane_bytes(unsigned threads) {
  const std::size_t terms = 2 * kTurnsOfWarp * threads * sizeof(float), lanes = kVocabularyLanes * sizeof(double);
  return terms > lanes ? terms : lanes;
}

// The sum of term(x[j]) over j = lane, lane + 256, ..., ascending, for lanes [32 part, 32 part + 32) of a row: to the
// lanes of the first warp. All warps compute terms, the first one adds them up. Terms are not negative; that of NaN,
// which stands for what is behind the end, is 0.
template <typename Sum, typename Term>
__device__ Sum sum_of_lane(const float* row, std::int64_t columns, int part, Term term) {
  const int warps = static_cast<int>(blockDim.x) / kWarp, at_once = warps * kTurnsOfWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const float* const first = row + part * kWarp + lane;
  const std::int64_t left = columns - part * kWarp - lane;
  const auto turns = static_cast<int>((columns + kVocabularyLanes - 1) / kVocabularyLanes);
  float x[kTurnsOfWarp];
  const auto fetch = [&](int turn) {
#pragma unroll
    for (int i = 0; i < kTurnsOfWarp; ++i) {
      const std::int64_t j = std::int64_t{turn + warp + i * warps} * kVocabularyLanes;
      x[i] = j < left ? first[j] : not_a_number();
    }
  };
  fetch(0);
  float* terms = shared_memory<float>();
  float* others = terms + at_once * kWarp;  // which the first warp may still add up
  Sum sum = 0;
  for (int turn = 0; turn < turns; turn += at_once) {
#pragma unroll
    for (int i = 0; i < kTurnsOfWarp; ++i) terms[(warp + i * warps) * kWarp + lane] = term(x[i]);
    fetch(turn + at_once);
    __syncthreads();
    if (warp == 0) {
#pragma unroll 16
      for (int i = 0; i < at_once; ++i) sum += terms[i * kWarp + lane];
    }
    float* const added = terms;
    terms = others;
    others = added;
  }
  return sum;
}

// Adds up all lanes in halves: 128, 64, ..., 1. The sum is the result of every thread. lane: shared memory
template <typename Sum>
__device__ Sum add_lanes(Sum* lane) {
  for (int half = kVocabularyLanes / 2; half >= 1; half /= 2) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < half; i += static_cast<int>(blockDim.x)) lane[i] += lane[i + half];
  }
  __syncthreads();
  return lane[0];
}

// --- log_sum_exp ----------------------------------------------------------------------------------------------------

// m = max scale * x[r,:]: rounding keeps the order, so that it is the best element's.
__device__ inline float scaled_largest(const VocabularyScratch& scratch, std::int64_t r, float scale,
                                       LargestOfBlock& largest) {
  return rank_value(scale * value_of(best_of_row(scratch, r, largest)));
}

// The sums of exp(scale * x - m) of 32 lanes. The block has lane_bytes of shared memory.
__device__ inline void leave_exponentials(ConstRows x, std::int64_t r, int part, float scale, float largest,
                                          const VocabularyScratch& scratch) {
  const float sum = sum_of_lane<float>(x.data + r * x.stride, x.columns, part,
                                       [=](float element) { return exp_f32(rank_value(scale * element) - largest); });
  if (threadIdx.x < kWarp) scratch.sums[r * kVocabularyLanes + part * kWarp + threadIdx.x] = sum;
}

// log(sum of all lanes) + m, once they are there, to every thread.
__device__ inline float log_of_sums(const VocabularyScratch& scratch, std::int64_t r, float largest) {
  auto* const lane = shared_memory<float>();
  for (int i = static_cast<int>(threadIdx.x); i < kVocabularyLanes; i += static_cast<int>(blockDim.x))
    lane[i] = static_cast<float>(__ldcg(scratch.sums + r * kVocabularyLanes + i));
  return static_cast<float>(static_cast<double>(largest) + log_f64(add_lanes(lane)));
}

}  // namespace espalier::cuda
