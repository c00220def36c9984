// The ops over a vocabulary: argmax, top_k, log_sum_exp, and the ranking of shares of a row, which others share.
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/cuda/last_block.h"
#include "device/cuda/scalar_math.h"
#include "device/cuda/vocabulary.h"

namespace espalier::cuda {
namespace {

constexpr int kMostShareThreads = 256;
constexpr int kEach = kShare / kMostShareThreads;  // columns of a thread

// The elements of a share that a thread has, as keys; 0: none.
struct OwnKeys {
  std::uint64_t key[kEach];

  __device__ OwnKeys(const float* row, std::int64_t columns, std::int64_t first) {
    float x[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const std::int64_t c = first + i * blockDim.x;
      x[i] = c < columns ? row[c] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const std::int64_t c = first + i * blockDim.x;
      key[i] = c < columns ? order_key(x[i], c) : 0;
    }
  }

  __device__ std::uint64_t largest_below(std::uint64_t bound) const {
    std::uint64_t largest = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (key[i] < bound && key[i] > largest) largest = key[i];
    return largest;
  }
};

// The best of share blockIdx.y of row blockIdx.x, one after the other: the largest of those behind the last one.
__device__ void rank_share(ConstRows x, const VocabularyScratch& scratch, LargestOfBlock& largest) {
  const OwnKeys keys(x.data + blockIdx.x * x.stride, x.columns, std::int64_t{blockIdx.y} * kShare + threadIdx.x);
  std::uint64_t* const best = scratch.best + (std::int64_t{blockIdx.x} * scratch.shares + blockIdx.y) * scratch.kept;
  std::uint64_t last = ~std::uint64_t{0}, own = last;
  for (int i = 0; i < scratch.kept; ++i) {
    if (own == last) own = keys.largest_below(last);  // at first, and where it was taken
    last = largest(own);
    if (threadIdx.x == 0) best[i] = last;
  }
}

__global__ void __launch_bounds__(kMostShareThreads) rank_shares_kernel(ConstRows x, VocabularyScratch scratch) {
  wait_for_earlier_kernels();
  LargestOfBlock largest;
  rank_share(x, scratch, largest);
}

// value: null: not wanted
__global__ void __launch_bounds__(kMostShareThreads)
    top_k_kernel(ConstRows x, int k, VocabularyScratch scratch, float* value, std::int32_t* id) {
  wait_and_hold_the_next_back();  // which may look ids up before it waits
  LargestOfBlock largest;
  rank_share(x, scratch, largest);
  if (!arrive_last(scratch.arrived + blockIdx.x, scratch.shares)) return;
  id += std::int64_t{blockIdx.x} * k;
  merge_shares(scratch, blockIdx.x, k, largest, [&](int rank, std::uint64_t key) { id[rank] = id_of(key); });
  if (value == nullptr) return;
  __syncthreads();
  value += std::int64_t{blockIdx.x} * k;
  const float* const row = x.data + blockIdx.x * x.stride;
  for_each_of(k, [&](int i) { value[i] = rank_value(row[id[i]]); });
}

__global__ void __launch_bounds__(kMostLaneThreads)
    log_sum_exp_kernel(ConstRows x, float scale, VocabularyScratch scratch, float* y) {
  wait_for_earlier_kernels();
  LargestOfBlock largest_of_block;
  const std::int64_t r = blockIdx.x;
  const float largest = scaled_largest(scratch, r, scale, largest_of_block);
  if (!is_finite(largest)) {
    if (blockIdx.y == 0 && threadIdx.x == 0) y[r] = largest;
    return;
  }
  leave_exponentials(x, r, static_cast<int>(blockIdx.y), scale, largest, scratch);
  if (!arrive_last(scratch.arrived + r, kLaneBlocks)) return;
  const float log = log_of_sums(scratch, r, largest);
  if (threadIdx.x == 0) y[r] = log;
}

Launch blocks_of_shares(ConstRows x, const VocabularyScratch& scratch) {
  const unsigned threads = scratch.shares > 1 ? kMostShareThreads : blocks_for(x.columns, kEach * kWarp) * kWarp;
  return {{static_cast<unsigned>(x.rows), static_cast<unsigned>(scratch.shares), 1}, threads};
}

std::int64_t shares_of(ConstRows x) {
  return (x.columns + kShare - 1) / kShare;
}

std::int64_t kept_of(VocabularyRanks wanted) {
  return wanted.of_share < kShare ? wanted.of_share : kShare;
}

}  // namespace

std::int64_t vocabulary_bytes(ConstRows x, VocabularyRanks wanted) {
  constexpr std::int64_t kKeyBytes = sizeof(std::uint64_t), kSumBytes = kVocabularyLanes * sizeof(double);
  return x.rows * ((shares_of(x) * kept_of(wanted) + wanted.of_row) * kKeyBytes + kSumBytes +
                   static_cast<std::int64_t>(sizeof(std::int32_t)));
}

std::int64_t vocabulary_count_bytes(ConstRows x) {
  return x.rows * static_cast<std::int64_t>(sizeof(std::int32_t));
}

VocabularyScratch vocabulary_scratch(ConstRows x, VocabularyRanks wanted, std::byte* memory, std::byte* counts) {
  VocabularyScratch scratch;
  scratch.shares = static_cast<int>(shares_of(x));
  scratch.kept = static_cast<int>(kept_of(wanted));
  scratch.ranks = static_cast<int>(wanted.of_row);
  scratch.best = reinterpret_cast<std::uint64_t*>(memory);
  scratch.ranked = scratch.best + x.rows * scratch.shares * scratch.kept;
  scratch.sums = reinterpret_cast<double*>(scratch.ranked + x.rows * scratch.ranks);
  scratch.sizes = reinterpret_cast<std::int32_t*>(scratch.sums + x.rows * kVocabularyLanes);
  scratch.arrived = reinterpret_cast<std::int32_t*>(counts);
  return scratch;
}

void rank_shares(Queue queue, ConstRows x, const VocabularyScratch& scratch) {
  launch(queue, "ranking shares", rank_shares_kernel, blocks_of_shares(x, scratch), x, scratch);
}

void argmax(Queue queue, ConstRows x, const VocabularyScratch& scratch, std::int32_t* id) {
  top_k(queue, x, 1, scratch, nullptr, id);
}

void top_k(Queue queue, ConstRows x, std::int64_t k, const VocabularyScratch& scratch, float* value, std::int32_t* id) {
  Launch how = blocks_of_shares(x, scratch);
  how.shared_bytes = staged_bytes(scratch);
  launch(queue, "top_k", top_k_kernel, how, x, static_cast<int>(k), scratch, value, id);
}

void log_sum_exp(Queue queue, ConstRows x, float scale, const VocabularyScratch& scratch, float* y) {
  rank_shares(queue, x, scratch);
  const unsigned threads = lane_threads(x.columns);
  launch(queue, "log_sum_exp", log_sum_exp_kernel,
         {{static_cast<unsigned>(x.rows), kLaneBlocks, 1}, threads, lane_bytes(threads)}, x, scale, scratch, y);
}

}  // namespace espalier::cuda
