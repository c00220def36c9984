// A team of warps for one tile of one row and a share of heads: what it computes, and how tiles become outputs.
#pragma once

#include "device/cuda/attention_keys.h"
#include "device/cuda/attention_parts.h"
#include "device/cuda/attention_tile.h"
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"
#include "device/cuda/quantise_block.h"

namespace espalier::cuda {

inline constexpr int kTilesAtOnce = 16;  // that are on their way when they are added up

// Two neighbouring elements of a head, by one lane of a warp that has 64 of them.
struct OutputPair {
  int h, slice, pair;  // head of the share, 64 elements of it, pair of the head
};

// Sums of tiles while they are added up.
struct Total {
  float sum[2] = {0, 0}, below = 0;

  __device__ void add(float weight, float denominator, float first, float second) {
    if (weight < 0) return;
    below = fmaf(weight, denominator, below);
    sum[0] = fmaf(weight, first, sum[0]);
    sum[1] = fmaf(weight, second, sum[1]);
  }
  __device__ float result(int i, float largest) const { return is_finite(largest) ? sum[i] / below : not_a_number(); }
};

__device__ inline bool is_fresh(const AttentionCall& call, std::int32_t slot) {
  bool fresh = false;
  for (int i = 0; i < call.fresh_count; ++i) fresh = fresh || call.fresh[i] == slot;
  return fresh;
}

// What a team computes, and which team of its block of threads it is.
struct TeamPlace {
  int tile, share;
  std::int64_t row;
  int team;
};

template <typename Element, int dim>
class Team {
 public:
  using Tile = StagedTile<Element, dim>;
  using Stored = typename Tile::Stored;

  __device__ Team(const AttentionCall& call, const AttentionLeft& left, const TeamPlace& place)
      : call_(call),
        left_(left),
        heads_(head_share(call, left.heads_at_once, place.share)),
        r_(place.row),
        barrier_(1 + place.team),
        tile_(place.tile),
        thread_(static_cast<int>(threadIdx.x) - place.team * Tile::kThreads),
        warp_(thread_ / kWarp),
        lane_(thread_ % kWarp),
        staged_(shared_memory<std::uint8_t>() + place.team * Tile::kBytes) {}

  // Before the kernel ahead has ended.
  __device__ void prepare() {
    find_keys();
    early_ = call_.fresh != nullptr;
    if (!early_ || warp_ >= Tile::kKeyWarps) return;
    const bool fresh = slot_ >= 0 && is_fresh(call_, slot_);
    fetch(fresh ? -1 : slot_);
    if (!fresh) slot_ = -1;
  }
  __device__ int tile() const { return tile_; }
  __device__ int tiles() const { return keys_.tiles; }
  __device__ bool works() const { return tile_ < keys_.tiles || tile_ == 0; }

  // Leaves maxima and denominators in shared memory; of the sums a lane has two.
  __device__ void compute() {
    staged_.fetch_queries(call_.q + (r_ * call_.heads + heads_.first) * dim, heads_.count, thread_);
    if (warp_ < Tile::kKeyWarps) {
      if (early_) {
        staged_.fetch_few(keys_of(call_.k), keys_of(call_.v), call_.kv_heads * dim, slot_, warp_);
        end_of_copies();
        end_of_copies();
      } else {
        fetch(slot_);
      }
    } else {
      end_of_copies();
      end_of_copies();
    }
    wait_for_copies<1>();
    wait_at(barrier_, Tile::kThreads);
    if (warp_ < Tile::kKeyWarps) staged_.compute_scores(heads_.count, keys_.count, call_.scale, warp_);
    wait_for_copies<0>();
    wait_at(barrier_, Tile::kThreads);
    if (warp_ == Tile::kKeyWarps)
      staged_.add_weights(heads_.count);
    else if (has_outputs())
      sums_ = staged_.add_values(output().h, output().pair, keys_.count, warp_);
  }

  // The threads of this team only.
  __device__ void meet() const { wait_at(barrier_, Tile::kThreads); }
  // Whether this team, the only one of its block of threads, is the last of `teams` that arrive here (last_block.h).
  __device__ bool arrives_last(std::int32_t* arrived, int teams) const {
    __shared__ bool last;
    meet();
    if (thread_ == 0) {
      last = count_in_order(arrived) + 1 == teams;
      if (last) *arrived = 0;
    }
    meet();
    return last;
  }

  // Whether this warp has outputs, and which of them this lane has.
  __device__ bool has_outputs() const { return warp_ < heads_.count * Tile::kSlices; }
  __device__ OutputPair output() const {
    const int slice = warp_ % Tile::kSlices;
    return {warp_ / Tile::kSlices, slice, slice * kWarp + lane_};
  }
  __device__ bool is_there(const OutputPair& at) const { return at.pair < dim / 2; }

  // To shared memory, for the first team.
  __device__ void leave_sums() const {
    if (warp_ >= Tile::kKeyWarps || !has_outputs() || !is_there(output())) return;
    float* const to = staged_.sums(output().h) + 2 * output().pair;
    to[0] = sums_.of[0], to[1] = sums_.of[1];
  }
  // To memory, for the last block.
  __device__ void leave_tile() const {
    if (warp_ == Tile::kKeyWarps) {
      if (lane_ < heads_.count)
        store_pair(tile_of(lane_) + tile_ * kTileFloats, staged_.maximum(lane_), staged_.denominator(lane_));
    } else if (has_outputs() && is_there(output())) {
      store_pair(tile_of(output().h) + tile_ * kTileFloats + kTileHead + 2 * output().pair, sums_.of[0], sums_.of[1]);
    }
  }

  // The outputs of tiles that lie in this block: this team's, and the next one's where there are two.
  __device__ void finish_here() const {
    if (warp_ >= Tile::kKeyWarps || !has_outputs()) return;
    const OutputPair at = output();
    const Tile second(shared_memory<std::uint8_t>() + Tile::kBytes);
    const bool two = keys_.tiles > 1;
    const float m[2] = {staged_.maximum(at.h), two ? second.maximum(at.h) : -infinity()};
    const std::uint32_t order[2] = {order_of(m[0]), order_of(m[1])};
    const float largest = score_of(order[0] > order[1] ? order[0] : order[1]);
    Total total;
    total.add(tile_weight(m[0], largest), staged_.denominator(at.h), sums_.of[0], sums_.of[1]);
    if (two) {
      const float* const sums = second.sums(at.h) + 2 * (is_there(at) ? at.pair : 0);
      total.add(tile_weight(m[1], largest), second.denominator(at.h), sums[0], sums[1]);
    }
    store(at, total.result(0, largest), total.result(1, largest));
  }

  // The same of all tiles of the row, which lie in memory.
  __device__ void finish_all() const {
    if (warp_ >= Tile::kKeyWarps || !has_outputs()) return;
    const OutputPair at = output();
    const float* const tiles = tile_of(at.h);
    const float* const sums = tiles + kTileHead + 2 * (is_there(at) ? at.pair : 0);
    float2 batch[kTilesAtOnce];
    load_batch(sums, 0, batch);
    float2 own = head_of_tile(tiles, lane_);
    std::uint32_t order = order_of(own.x);
    for (int t = lane_ + kWarp; t < keys_.tiles; t += kWarp) {
      const std::uint32_t other = order_of(head_of_tile(tiles, t).x);
      order = other > order ? other : order;
    }
    const float largest = score_of(largest_of_warp(order));
    Total total;
    for (int begin = 0; begin < keys_.tiles; begin += kTilesAtOnce) {
      if (begin > 0) load_batch(sums, begin, batch);
      if (begin > 0 && begin % kWarp == 0) own = head_of_tile(tiles, begin + lane_);
      const float weight = begin / kWarp * kWarp + lane_ < keys_.tiles ? tile_weight(own.x, largest) : -1.0f;
#pragma unroll
      for (int u = 0; u < kTilesAtOnce; ++u) {
        const int lane = begin % kWarp + u;
        total.add(__shfl_sync(kAllLanes, weight, lane), __shfl_sync(kAllLanes, own.y, lane), batch[u].x, batch[u].y);
      }
    }
    store(at, total.result(0, largest), total.result(1, largest));
  }

 private:
  static constexpr int kTileFloats = dim + kTileHead;

  // This lane's slot of the 16 of its warp; -1: there is no such key.
  __device__ void find_keys() {
    const int key = warp_ * Tile::kOfWarp + lane_ % Tile::kOfWarp;
    if (call_.tables.mask != nullptr) {
      std::int32_t* const slots = staged_.slots();
      keys_ = mask_slots(call_, r_, tile_, thread_, Tile::kThreads, barrier_, slots, slots + kKeys);
      slot_ = key < keys_.count ? slots[key] : -1;
    } else {
      const ListedKeys listed(call_, r_);
      keys_ = listed.of_tile(tile_);
      slot_ = key < keys_.count ? listed.slot(call_, r_, keys_.first + key) : -1;
    }
  }

  __device__ const Stored* keys_of(const std::byte* memory) const {
    return reinterpret_cast<const Stored*>(memory) + heads_.kv_head * dim;
  }
  // Two groups of copies: keys, and values.
  __device__ void fetch(std::int32_t slot) const {
    staged_.fetch_keys(keys_of(call_.k), call_.kv_heads * dim, slot, warp_);
    end_of_copies();
    staged_.fetch_values(keys_of(call_.v), call_.kv_heads * dim, slot, warp_);
    end_of_copies();
  }

  __device__ float* tile_of(int h) const {
    return left_.tiles + (r_ * call_.heads + heads_.first + h) * left_.most_tiles * kTileFloats;
  }
  __device__ float2 head_of_tile(const float* tiles, int t) const {
    return __ldcg(reinterpret_cast<const float2*>(tiles + (t < keys_.tiles ? t : 0) * kTileFloats));
  }
  __device__ void load_batch(const float* sums, int begin, float2 (&batch)[kTilesAtOnce]) const {
#pragma unroll
    for (int u = 0; u < kTilesAtOnce; ++u)
      batch[u] =
          __ldcg(reinterpret_cast<const float2*>(sums + (begin + u < keys_.tiles ? begin + u : 0) * kTileFloats));
  }
  __device__ static void store_pair(float* to, float first, float second) {
    *reinterpret_cast<float2*>(to) = make_float2(first, second);
  }

  // A pair of each lane, as it is and in the forms that are wanted.
  __device__ void store(const OutputPair& at, float first, float second) const {
    const std::int64_t width = call_.heads * dim, column = (heads_.first + at.h) * dim + 2 * at.pair;
    if (is_there(at)) store_pair(call_.out + r_ * width + column, first, second);
    if (left_.quantised.data != nullptr) {
      const std::int64_t block = ((heads_.first + at.h) * dim + at.slice * 64) / kBlock;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int from = half * (kWarp / 2) + lane_ / 2;
        const float a = __shfl_sync(kAllLanes, first, from), b = __shfl_sync(kAllLanes, second, from);
        if (at.slice * 64 + half * kBlock < dim)
          quantise_block(lane_ % 2 == 0 ? a : b, r_, block + half, left_.quantised);
      }
    }
    if (left_.terms.data != nullptr && is_there(at)) {
      store_terms<Bf16Element>(first, r_, column, left_.terms);
      store_terms<Bf16Element>(second, r_, column + 1, left_.terms);
    }
  }

  const AttentionCall& call_;
  const AttentionLeft& left_;
  HeadShare heads_;
  std::int64_t r_;
  int barrier_, tile_, thread_, warp_, lane_;
  Tile staged_;
  TileKeys keys_;
  std::int32_t slot_ = -1;
  bool early_ = false;
  typename Tile::Sums sums_ = {{0, 0}};
};

}  // namespace espalier::cuda
