// rank_guesses: the shares of each row are ranked (choices.cu); then of each row one block of threads merges what they
// found, while others add up its exponentials, and the last to be ready lists the guesses.
#include "device/cuda/kernel.h"
#include "device/cuda/last_block.h"
#include "device/cuda/round_kernels.h"
#include "device/cuda/scalar_math.h"
#include "device/cuda/vocabulary.h"

namespace espalier::cuda {
namespace {

// A column as a guess; token -1: it is none.
struct Guess {
  std::int32_t token;
  double log_probability;
};

__device__ Guess guess_of(const RankGuessesCall& call, std::int64_t r, std::int32_t column, float log_sum) {
  const std::int32_t token = call.target_ids == nullptr ? column : call.target_ids[column];
  if (token < 0 || token >= call.vocabulary) return {-1, 0};
  const float scaled = call.scale * rank_value(call.logits.data[r * call.logits.stride + column]);
  const double value = static_cast<double>(scaled) - static_cast<double>(log_sum);
  return {token, value != value ? static_cast<double>(-infinity()) : 0.0 < value ? 0.0 : value};
}

// Lists the guesses of row r, as many at a time as the block has threads.
__device__ void list_guesses(const RankGuessesCall& call, std::int64_t r, const std::uint64_t* ranked, float log_sum) {
  const int k = call.guesses.k, at_once = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  std::int32_t* const token = call.guesses.token + r * k;
  double* const log_probability = call.guesses.log_probability + r * k;
  auto* const is_guess = shared_memory<std::int32_t>();
  int listed = 0;
  for (int first = 0; first < k; first += at_once) {
    const int count = k - first < at_once ? k - first : at_once;
    Guess guess{-1, 0};
    if (thread < count) guess = guess_of(call, r, id_of(__ldcg(ranked + first + thread)), log_sum);
    __syncthreads();  // who still reads what was here
    is_guess[thread] = guess.token >= 0;
    __syncthreads();
    int before = listed;
    for (int i = 0; i < count; ++i) {
      if (i < thread) before += is_guess[i];
      listed += is_guess[i];
    }
    if (guess.token < 0) continue;
    token[before] = guess.token;
    log_probability[before] = guess.log_probability;
  }
  for (int i = listed + thread; i < k; i += at_once) {
    token[i] = 0;
    log_probability[i] = static_cast<double>(-infinity());
  }
  if (thread == 0) call.guesses.count[r] = listed;
}

__global__ void __launch_bounds__(kMostLaneThreads)
    rank_guesses_kernel(const __grid_constant__ RankGuessesCall call, VocabularyScratch scratch) {
  wait_and_hold_the_next_back();
  LargestOfBlock largest_of_block;
  const std::int64_t r = blockIdx.x;
  std::uint64_t* const ranked = scratch.ranked + r * scratch.ranks;
  const float largest = scaled_largest(scratch, r, call.scale, largest_of_block);
  const bool merges = blockIdx.y == 0;
  if (merges)
    merge_shares(scratch, r, scratch.ranks, largest_of_block, [&](int rank, std::uint64_t key) { ranked[rank] = key; });
  float log_sum = largest;
  if (is_finite(largest)) {
    if (!merges) leave_exponentials(call.logits, r, static_cast<int>(blockIdx.y) - 1, call.scale, largest, scratch);
    if (!arrive_last(scratch.arrived + r, kLaneBlocks + 1)) return;
    log_sum = log_of_sums(scratch, r, largest);
  } else if (!merges) {
    return;
  }
  __syncthreads();  // the keys of this block's first thread
  list_guesses(call, r, ranked, log_sum);
}

}  // namespace

void rank_guesses(Queue queue, const RankGuessesCall& call, const VocabularyScratch& scratch) {
  rank_shares(queue, call.logits, scratch);
  const unsigned threads = lane_threads(call.logits.columns);
  const std::size_t merging = staged_bytes(scratch), adding = lane_bytes(threads);
  launch(queue, "rank_guesses", rank_guesses_kernel,
         {{static_cast<unsigned>(call.logits.rows), kLaneBlocks + 1, 1}, threads, merging > adding ? merging : adding},
         call, scratch);
}

}  // namespace espalier::cuda
