// choose_tokens: the shares of each row are ranked (choices.cu), which gives its largest element. Where that is the
// choice, there is nothing more to do. Else one block of threads of the row finds and sorts its best ids, while others
// add up the weights of all of its ids, and the last to be ready cuts and draws.
#include "device/cuda/kernel.h"
#include "device/cuda/last_block.h"
#include "device/cuda/round_kernels.h"
#include "device/cuda/scalar_math.h"
#include "device/cuda/sorting.h"
#include "device/cuda/vocabulary.h"

namespace espalier::cuda {
namespace {

constexpr int kBins = 2048;
constexpr int kMostSorted = 2 * kRanks;  // ids that are sorted to find the best kRanks
constexpr int kBatch = 8;                // elements of a thread that are on their way at once

// Shared memory: the ids that are sorted and the counts of bins; then what RankedIds has, which is less.
constexpr std::size_t kRankingBytes = kMostSorted * sizeof(std::uint64_t) + kBins * sizeof(std::int32_t);
static_assert(kRanks * (sizeof(double) + sizeof(std::uint64_t) + sizeof(float)) +
                  kVocabularyLanes * (sizeof(double) + sizeof(std::int32_t)) <=
              kRankingBytes);

constexpr std::int32_t kDecided = 0, kUndecided = 1, kBroken = 2;  // RowState

// The row that a block works on.
struct TemperedRow {
  const float* x;
  int columns;
  float largest, temperature;

  __device__ float t(float element) const { return (rank_value(element) - largest) / temperature; }

  // Calls each(t, key) for ids of finite t, shared out to the threads of the block: all, or those alone that are not so
  // far below the largest that x - m < least.
  template <typename Each>
  __device__ void for_each(float least, Each each) const {
    const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    for (int first = thread; first < columns; first += kBatch * threads) {
      float element[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        element[i] = columns - first > i * threads ? x[first + i * threads] : not_a_number();
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const float below = rank_value(element[i]) - largest;
        if (below < least) continue;  // spares a division
        const float value = below / temperature;
        if (value > -infinity()) each(value, order_key(value, first + i * threads));
      }
    }
  }
};

// --- the best ids ---------------------------------------------------------------------------------------------------

// A coarse order of t <= 0, best first: 64 bins for each factor of e in the weight, and the last for all the rest.
__device__ int bin_of(float t) {
  const float steps = -64.0f * t;
  return steps < static_cast<float>(kBins - 1) ? static_cast<int>(steps) : kBins - 1;
}

// A bound below every x - m whose t is of this bin or a better one: those have t > -(bin + 1) / 64.
__device__ float least_of(int bin, float temperature) {
  if (bin == kBins - 1) return -infinity();
  const double bound = static_cast<double>(-bin - 1) / 64 * static_cast<double>(temperature);  // exact
  return __uint_as_float(__float_as_uint(static_cast<float>(bound)) + 1);  // rounded, and then the next one down
}

// Ids of one bin whose inverted keys lie in [low, high]; those before them are better.
struct Bucket {
  int bin = 0;
  std::uint64_t low = 0, high = ~std::uint64_t{0};
  int before = 0, inside = 0;
};

// Which of kBins counts has the `wanted`-th, or the last one where there are fewer.
struct FoundBin {
  int bin, before, inside, all;
};
__device__ FoundBin find_bin(const std::int32_t* counts, int wanted) {
  __shared__ std::int32_t of_warp[kMostLaneThreads / kWarp];
  __shared__ FoundBin found;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp, each = kBins / static_cast<int>(blockDim.x);
  unsigned own = 0;
  for (int i = 0; i < each; ++i) own += static_cast<unsigned>(counts[thread * each + i]);
  own = __reduce_add_sync(kAllLanes, own);
  if (thread % kWarp == 0) of_warp[warp] = static_cast<std::int32_t>(own);
  __syncthreads();
  int before = 0, all = 0;
  for (int i = 0; i < warps; ++i) {
    before += i < warp ? of_warp[i] : 0;
    all += of_warp[i];
  }
  const int sought = wanted < all ? wanted : all;
  if (before < sought && before + of_warp[warp] >= sought) {  // one warp
    for (int i = warp * kWarp * each; i < thread * each; ++i) before += counts[i];
    for (int i = thread * each; i < (thread + 1) * each; ++i) {
      if (before < sought && before + counts[i] >= sought) found = {i, before, counts[i], all};
      before += counts[i];
    }
  }
  __syncthreads();
  return found;
}

// How the ids of a bucket spread over kBins, by the digit(t, inverted key) of each; -1: it is not of the bucket.
template <typename Digit>
__device__ FoundBin spread(const TemperedRow& row, std::int32_t* counts, int wanted, Digit digit) {
  __syncthreads();  // who still reads the last ones
  for_each_of(kBins, [&](int i) { counts[i] = 0; });
  __syncthreads();
  unsigned last = 0;  // most are far down
  row.for_each(-infinity(), [&](float t, std::uint64_t key) {
    const int bin = digit(t, ~key);
    if (bin == kBins - 1)
      ++last;
    else if (bin >= 0)
      atomicAdd(counts + bin, 1);
  });
  last = __reduce_add_sync(kAllLanes, last);
  if (threadIdx.x % kWarp == 0 && last > 0) atomicAdd(counts + kBins - 1, static_cast<std::int32_t>(last));
  __syncthreads();
  return find_bin(counts, wanted);
}

// The bucket that has the kRanks-th best id, so small that it and all before it can be sorted. size: of the ids
__device__ Bucket find_bucket(const TemperedRow& row, std::int32_t* counts, int& size) {
  Bucket bucket;
  const FoundBin coarse = spread(row, counts, kRanks, [](float t, std::uint64_t) { return bin_of(t); });
  size = coarse.all;
  bucket.bin = coarse.bin;
  bucket.before = coarse.before;
  bucket.inside = coarse.inside;
  for (int shift = 53; bucket.before + bucket.inside > kMostSorted; shift = shift > 11 ? shift - 11 : 0) {
    const FoundBin fine = spread(row, counts, kRanks - bucket.before, [=](float t, std::uint64_t place) {
      const bool inside = bin_of(t) == bucket.bin && place >= bucket.low && place <= bucket.high;
      return inside ? static_cast<int>((place - bucket.low) >> shift) : -1;
    });
    bucket.low += static_cast<std::uint64_t>(fine.bin) << shift;
    bucket.high = bucket.low + ((std::uint64_t{1} << shift) - 1);
    bucket.before += fine.before;
    bucket.inside = fine.inside;
  }
  return bucket;
}

// Leaves the best kRanks ids of the row, or all, as keys of t, and how many ids there are.
__device__ void rank_ids(const TemperedRow& row, std::uint64_t* ranked, std::int32_t* size) {
  __shared__ std::int32_t gathered;
  auto* const keys = shared_memory<std::uint64_t>();
  auto* const counts = reinterpret_cast<std::int32_t*>(keys + kMostSorted);
  int ids = 0;
  const Bucket bucket = find_bucket(row, counts, ids);
  const int sorted = sorted_size(bucket.before + bucket.inside);
  if (threadIdx.x == 0) {
    gathered = 0;
    *size = ids;
  }
  for_each_of(sorted, [&](int i) { keys[i] = 0; });
  __syncthreads();
  row.for_each(least_of(bucket.bin, row.temperature), [&](float t, std::uint64_t key) {
    const int bin = bin_of(t);
    if (bin < bucket.bin || (bin == bucket.bin && ~key <= bucket.high)) keys[atomicAdd(&gathered, 1)] = key;
  });
  sort_block(
      sorted, [&](int a, int b) { return keys[a] > keys[b]; },
      [&](int a, int b) { exchange_values(keys[a], keys[b]); });
  for_each_of(ids < kRanks ? ids : kRanks, [&](int i) { ranked[i] = keys[i]; });
}

// --- the draw -------------------------------------------------------------------------------------------------------

// The ranked ids of a row, in shared memory, and the sums over them. Every method is called by all threads.
class RankedIds {
 public:
  // size: of all ids, of which the best are ranked; all_lanes: their sums of weights
  __device__ RankedIds(const std::uint64_t* ranked, int size, const double* all_lanes)
      : size_(size), known_(size < kRanks ? size : kRanks), all_lanes_(all_lanes) {
    sum_ = shared_memory<double>();
    lane_ = sum_ + kRanks;
    by_lane_ = reinterpret_cast<std::uint64_t*>(lane_ + kVocabularyLanes);
    weight_ = reinterpret_cast<float*>(by_lane_ + kRanks);
    first_of_lane_ = reinterpret_cast<std::int32_t*>(weight_ + kRanks);
    for_each_of(kRanks, [&](int rank) {
      const std::uint64_t key = rank < known_ ? __ldcg(ranked + rank) : 0;
      const auto id = static_cast<std::uint32_t>(id_of(key));
      const std::uint32_t place = rank < known_ ? id % kVocabularyLanes << 23 | id / kVocabularyLanes : 0xffffffffu;
      weight_[rank] = rank < known_ ? exp_f32(value_of(key)) : 0.0f;
      by_lane_[rank] = static_cast<std::uint64_t>(place) << 32 | static_cast<std::uint32_t>(rank);
    });
    for_each_of(kVocabularyLanes, [&](int lane) { first_of_lane_[lane] = kRanks; });
    sort_block(
        sorted_size(known_), [this](int a, int b) { return by_lane_[a] < by_lane_[b]; },
        [this](int a, int b) { exchange_values(by_lane_[a], by_lane_[b]); });
    for_each_of(known_, [&](int i) {
      if (i == 0 || lane_at(i) != lane_at(i - 1)) first_of_lane_[lane_at(i)] = i;
    });
    __syncthreads();
  }

  __device__ int size() const { return size_; }
  // Ranks [0, known(kept)) are known of `kept` ids.
  __device__ int known(int kept) const { return kept < known_ ? kept : known_; }
  __device__ float weight(int rank) const { return weight_[rank]; }
  // Of ranks [0, rank], where sum_up_to has reached it.
  __device__ double sum(int rank) const { return sum_[rank]; }

  // The sum of the weights of the first `kept` ids by the order of lanes; all of them, or at most those that are known.
  __device__ double total(int kept) const {
    __syncthreads();  // who still reads the last one
    for_each_of(kVocabularyLanes,
                [&](int lane) { lane_[lane] = kept == size_ ? __ldcg(all_lanes_ + lane) : sum_of_first(kept, lane); });
    return add_lanes(lane_);
  }

  // Adds weights up in the order of ranks until their sum exceeds `bound`, or to `end`; returns how many sums are
  // known. Some at a time, since each waits for the one before.
  __device__ int sum_up_to(double bound, int end) {
    __shared__ int reached;
    constexpr int kAtOnce = 16;
    if (threadIdx.x == 0) {
      int summed = summed_;
      double sum = summed == 0 ? 0 : sum_[summed - 1];
      while (summed < end && (summed == 0 || !(sum > bound))) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          sum += static_cast<double>(weight_[summed + i]);
          sum_[summed + i] = sum;
        }
        summed += kAtOnce;
      }
      reached = summed;
    }
    __syncthreads();
    summed_ = reached;
    __syncthreads();
    return summed_ < end ? summed_ : end;
  }

 private:
  __device__ std::uint32_t lane_at(int i) const {
    return static_cast<std::uint32_t>(by_lane_[i] >> 55);
  }
  __device__ double sum_of_first(int kept, int lane) const {
    double sum = 0;
    for (int i = first_of_lane_[lane]; i < known_ && lane_at(i) == static_cast<std::uint32_t>(lane); ++i)
      if (const auto rank = static_cast<int>(by_lane_[i] & 0xffffffffu); rank < kept)
        sum += static_cast<double>(weight_[rank]);
    return sum;
  }

  int size_, known_;
  const double* all_lanes_;
  double *sum_, *lane_;
  std::uint64_t* by_lane_;  // lane, id and rank, ascending
  float* weight_;
  std::int32_t* first_of_lane_;
  int summed_ = 0;
};
// The first i in [0, end) for which it holds, or end.
template <typename Holds>
__device__ int first_where(int end, Holds holds) {
  __shared__ std::int32_t first;
  __syncthreads();
  if (threadIdx.x == 0) first = end;
  __syncthreads();
  for_each_of(end, [&](int i) {
    if (holds(i)) atomicMin(&first, i);
  });
  __syncthreads();
  return first;
}

struct Draw {
  float top_p, min_p;
  int top_k;
  double u;
};

__device__ Draw draw_at(const ChooseTokensCall& call, std::int64_t r, std::int64_t tree) {
  const std::uint64_t seed = static_cast<std::uint32_t>(call.seed[2 * tree]) |
                             static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.seed[2 * tree + 1])) << 32;
  return {call.top_p[tree], call.min_p[tree], call.top_k[tree],
          uniform(seed, static_cast<std::uint64_t>(call.position[r]) + 1)};
}

constexpr int kNotKnown = -1;

// How many of the best ids are kept, or kNotKnown.
__device__ int kept_ids(const Draw& draw, RankedIds& ids) {
  int kept = ids.size();
  if (draw.top_k > 0 && draw.top_k < kept) {
    if (draw.top_k > ids.known(kept)) return kNotKnown;
    kept = draw.top_k;
  }
  if (draw.top_p < 1.0f) {
    const double enough = static_cast<double>(draw.top_p) * ids.total(kept);
    const int summed = ids.sum_up_to(enough, ids.known(kept));
    const int last = first_where(summed, [&](int rank) { return !(ids.sum(rank) < enough); });
    if (last == summed && kept > summed) return kNotKnown;
    kept = last == summed ? kept : last + 1;
  }
  if (draw.min_p > 0.0f) {
    const int known = ids.known(kept);
    const int count = first_where(known, [&](int rank) {
      return rank > 0 && static_cast<double>(ids.weight(rank)) < static_cast<double>(draw.min_p);
    });
    if (count == known && kept > known) return kNotKnown;
    kept = count;
  }
  return kept;
}

// The rank of the choice, or kNotKnown.
__device__ int drawn_rank(const Draw& draw, RankedIds& ids) {
  const int kept = kept_ids(draw, ids);
  if (kept == kNotKnown) return kNotKnown;
  const double target = draw.u * ids.total(kept);
  const int summed = ids.sum_up_to(target, ids.known(kept));
  const int end = first_where(summed, [&](int rank) { return ids.sum(rank) > target || ids.weight(rank) == 0.0f; });
  if (end == summed) return kept > summed ? kNotKnown : summed - 1;
  return ids.weight(end) == 0.0f && end > 0 ? end - 1 : end;
}

// --- all of it ------------------------------------------------------------------------------------------------------

__global__ void __launch_bounds__(kMostLaneThreads)
    choose_tokens_kernel(const __grid_constant__ ChooseTokensCall call, VocabularyScratch scratch) {
  wait_and_hold_the_next_back();
  LargestOfBlock largest;
  const std::int64_t r = blockIdx.x, tree = r / call.tree_rows;
  const std::uint64_t best = best_of_row(scratch, r, largest);
  const TemperedRow row{call.logits.data + r * call.logits.stride, static_cast<int>(call.logits.columns),
                        value_of(best), call.temperature[tree]};
  const bool ranks = blockIdx.y == 0;
  const auto choose = [&](std::int32_t token, std::int32_t state) {
    if (threadIdx.x != 0) return;
    call.token[r] = token;
    call.state[r] = state;
  };
  if (!is_finite(row.largest) || !(row.temperature > 0.0f)) {
    if (ranks) choose(id_of(best), is_finite(row.largest) ? kDecided : kBroken);
    return;
  }
  std::uint64_t* const ranked = scratch.ranked + r * scratch.ranks;
  double* const sums = scratch.sums + r * kVocabularyLanes;
  if (ranks) {
    rank_ids(row, ranked, scratch.sizes + r);
  } else {
    const int part = static_cast<int>(blockIdx.y) - 1;
    const double sum = sum_of_lane<double>(row.x, row.columns, part, [=](float element) {
      const float t = row.t(element);
      return t > -infinity() ? exp_f32(t) : 0.0f;
    });
    if (threadIdx.x < kWarp) sums[part * kWarp + threadIdx.x] = sum;
  }
  if (!arrive_last(scratch.arrived + r, kLaneBlocks + 1)) return;
  RankedIds ids(ranked, __ldcg(scratch.sizes + r), sums);
  const int rank = drawn_rank(draw_at(call, r, tree), ids);
  if (rank == kNotKnown)
    choose(id_of(best), kUndecided);
  else
    choose(id_of(__ldcg(ranked + rank)), kDecided);
}

}  // namespace

void choose_tokens(Queue queue, const ChooseTokensCall& call, const VocabularyScratch& scratch) {
  rank_shares(queue, call.logits, scratch);
  const unsigned threads = lane_threads(call.logits.columns);
  const std::size_t adding = lane_bytes(threads);
  launch(queue, "choose_tokens", choose_tokens_kernel,
         {{static_cast<unsigned>(call.logits.rows), kLaneBlocks + 1, 1},
          threads,
          kRankingBytes > adding ? kRankingBytes : adding},
         call, scratch);
}

}  // namespace espalier::cuda
