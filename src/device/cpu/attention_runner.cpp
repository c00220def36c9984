#include "device/cpu/attention_runner.h"

#include <algorithm>

namespace espalier::cpu {
namespace {

constexpr std::int64_t kWaveSums = std::int64_t{1} << 19;  // 2 MiB, so that sums stay in the second-level caches

KvType kv_type(DType type) {
  return type == DType::f16 ? KvType::f16 : type == DType::bf16 ? KvType::bf16 : KvType::f32;
}

}  // namespace

AttentionRunner::AttentionRunner(const Kernels& kernels, ThreadPool& pool)
    : kernels_(kernels), pool_(pool), scratch_(static_cast<std::size_t>(pool.threads())) {}

void AttentionRunner::run(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) {
  const std::int64_t kv_heads = kv.k.dim(2);
  shape_ = {kv_type(kv.k.type()), kv.k.data(), kv.v.data(), kv.k.dim(1), kv_heads,
            q.dim(1) / kv_heads,  kv.k.dim(3), scale};
  plan_.build(rows, q.dim(0), kv.k.dim(1));
  const std::span<AttentionRows> groups = plan_.groups();
  std::int64_t most_rows = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::int64_t offset = plan_.first_row(i) * q.dim(1) * shape_.dim;
    groups[i].q = reinterpret_cast<const float*>(q.data()) + offset;
    groups[i].out = reinterpret_cast<float*>(out.data()) + offset;
    most_rows = std::max(most_rows, groups[i].row_count);
  }
  scratch_floats_ = attention_scratch_floats(shape_.dim, most_rows * shape_.group);
  for (std::size_t begin = 0; begin < groups.size();) {
    std::size_t end = begin;
    for (std::int64_t sums = 0; end < groups.size() && (end == begin || sums < kWaveSums); ++end)
      sums += sum_floats(groups[end]);
    run_wave(groups.subspan(begin, end - begin));
    begin = end;
  }
}

std::int64_t AttentionRunner::sum_floats(const AttentionRows& group) const {
  return group.tiles * shape_.kv_heads * shape_.group * group.row_count * attention_sum_floats(shape_.dim);
}

void AttentionRunner::run_wave(std::span<AttentionRows> wave) {
  std::int64_t floats = 0, most_tiles = 0;
  for (const AttentionRows& group : wave) {
    floats += sum_floats(group);
    most_tiles = std::max(most_tiles, group.tiles);
  }
  float* sums = sums_.of<float>(floats);
  for (AttentionRows& group : wave) {
    group.sums = sums;
    sums += sum_floats(group);
  }
  const auto heads = static_cast<std::int64_t>(wave.size()) * shape_.kv_heads;
  if (pool_.threads() == 1 || most_tiles == 1 || heads >= 4 * pool_.threads()) {
    run_whole_heads(wave);
  } else {
    run_tiles(wave);
  }
}

void AttentionRunner::run_whole_heads(std::span<const AttentionRows> wave) {
  pool_.run(std::ssize(wave) * shape_.kv_heads, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const AttentionRows& group = wave[static_cast<std::size_t>(unit / shape_.kv_heads)];
      const std::int64_t kv_head = unit % shape_.kv_heads;
      for (std::int64_t tile = 0; tile < group.tiles; ++tile)
        kernels_.attention_tile(shape_, group, kv_head, tile, thread_scratch(thread));
      kernels_.attention_combine(shape_, group, kv_head, thread_scratch(thread));
    }
  });
}

// The heads of a tile follow each other: they lie side by side in memory.
void AttentionRunner::run_tiles(std::span<const AttentionRows> wave) {
  std::int64_t most_tiles = 0;
  for (const AttentionRows& group : wave) most_tiles = std::max(most_tiles, group.tiles);
  const std::int64_t units = most_tiles * shape_.kv_heads;
  pool_.run(std::ssize(wave) * units, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const AttentionRows& group = wave[static_cast<std::size_t>(unit / units)];
      const std::int64_t tile = unit % units / shape_.kv_heads;
      if (tile < group.tiles)
        kernels_.attention_tile(shape_, group, unit % shape_.kv_heads, tile, thread_scratch(thread));
    }
  });
  pool_.run(std::ssize(wave) * shape_.kv_heads, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t unit = begin; unit < end; ++unit)
      kernels_.attention_combine(shape_, wave[static_cast<std::size_t>(unit / shape_.kv_heads)], unit % shape_.kv_heads,
                                 thread_scratch(thread));
  });
}

}  // namespace espalier::cpu
