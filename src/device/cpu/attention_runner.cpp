#include "device/cpu/attention_runner.h"

#include <algorithm>

namespace espalier::cpu {
namespace {

constexpr std::int64_t kWaveScores = std::int64_t{1} << 20;  // 4 MiB, so that scores stay in the second-level caches
constexpr std::int64_t kPairsPerPart = 8;                    // rows times heads that keep the sums of a kernel busy
constexpr std::int64_t kSmallWork = 256;                     // rows times columns below which a barrier costs more

KvType kv_type(DType type) {
  return type == DType::f16 ? KvType::f16 : type == DType::bf16 ? KvType::bf16 : KvType::f32;
}

std::int64_t chunks_of(const AttentionTile& tile) {
  return (tile.columns + kKeyChunk - 1) / kKeyChunk;
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

AttentionRunner::AttentionRunner(const Kernels& kernels, ThreadPool& pool)
    : kernels_(kernels), pool_(pool), scratch_(static_cast<std::size_t>(pool.threads())) {}

void AttentionRunner::run(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) {
  const std::int64_t kv_heads = kv.k.dim(2);
  shape_ = {kv_type(kv.k.type()), kv.k.data(), kv.v.data(), kv.k.dim(1), kv_heads,
            q.dim(1) / kv_heads,  kv.k.dim(3), scale};
  plan_.build(rows, q.dim(0), kv.k.dim(1));
  const std::span<AttentionTile> tiles = plan_.tiles();
  std::int64_t most_rows = 0;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const std::int64_t offset = plan_.first_row(i) * heads() * shape_.dim;
    tiles[i].q = reinterpret_cast<const float*>(q.data()) + offset;
    tiles[i].out = reinterpret_cast<float*>(out.data()) + offset;
    most_rows = std::max(most_rows, tiles[i].row_count);
  }
  scratch_floats_ = attention_scratch_floats(shape_.dim, most_rows * shape_.group);
  for (std::size_t begin = 0; begin < tiles.size();) {
    std::size_t end = begin;
    std::int64_t scores = 0;
    while (end < tiles.size() && (end == begin || scores < kWaveScores)) {
      scores += tiles[end].row_count * heads() * tiles[end].score_stride;
      ++end;
    }
    run_wave(tiles.subspan(begin, end - begin));
    begin = end;
  }
}

void AttentionRunner::run_wave(std::span<AttentionTile> wave) {
  std::int64_t lines = 0, scores = 0, work = 0;
  for (const AttentionTile& tile : wave) {
    lines += tile.row_count * heads();
    scores += tile.row_count * heads() * tile.score_stride;
    work += tile.row_count * tile.columns;
  }
  float* score = scores_.of<float>(scores);
  std::uint8_t* valid = valid_.of<std::uint8_t>(lines);
  for (AttentionTile& tile : wave) {
    tile.scores = score;
    tile.valid = valid;
    score += tile.row_count * heads() * tile.score_stride;
    valid += tile.row_count * heads();
  }
  const auto units = static_cast<std::int64_t>(wave.size()) * shape_.kv_heads;
  if (pool_.threads() == 1 || work <= kSmallWork || units >= 4 * pool_.threads()) {
    run_whole_heads(wave);
  } else {
    run_in_phases(wave);
  }
}

void AttentionRunner::run_whole_heads(std::span<const AttentionTile> wave) {
  const auto units = static_cast<std::int64_t>(wave.size()) * shape_.kv_heads;
  pool_.run(units, [&](std::int64_t begin, std::int64_t end, int thread) {
    float* const scratch = thread_scratch(thread);
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const AttentionTile& tile = wave[static_cast<std::size_t>(unit / shape_.kv_heads)];
      const std::int64_t kv_head = unit % shape_.kv_heads;
      for (std::int64_t c = 0; c < chunks_of(tile); ++c) kernels_.attention_scores(shape_, tile, kv_head, c, scratch);
      kernels_.attention_tail_scores(shape_, tile, kv_head, scratch);
      for (std::int64_t r = 0; r < tile.row_count; ++r)
        for (std::int64_t h = kv_head * shape_.group; h < (kv_head + 1) * shape_.group; ++h)
          kernels_.attention_exp(tile, heads(), r, h);
      kernels_.attention_weigh(shape_, tile, {kv_head, 0, tile.row_count, 0, shape_.dim}, scratch);
    }
  });
}

void AttentionRunner::run_in_phases(std::span<const AttentionTile> wave) {
  const auto tiles = static_cast<std::int64_t>(wave.size());
  std::int64_t most_chunks = 0, most_rows = 0;
  for (const AttentionTile& tile : wave) {
    most_chunks = std::max(most_chunks, chunks_of(tile));
    most_rows = std::max(most_rows, tile.row_count);
  }
  const auto tile_of = [&](std::int64_t unit, std::int64_t per_tile) -> const AttentionTile& {
    return wave[static_cast<std::size_t>(unit / per_tile)];
  };
  // By kv head and stretch of keys; the last stretch stands for the tails.
  const std::int64_t stretches = most_chunks + 1;
  pool_.run(tiles * shape_.kv_heads * stretches, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const AttentionTile& tile = tile_of(unit, shape_.kv_heads * stretches);
      const std::int64_t kv_head = unit / stretches % shape_.kv_heads, chunk = unit % stretches;
      if (chunk < chunks_of(tile)) kernels_.attention_scores(shape_, tile, kv_head, chunk, thread_scratch(thread));
      if (chunk == most_chunks) kernels_.attention_tail_scores(shape_, tile, kv_head, thread_scratch(thread));
    }
  });
  pool_.run(tiles * most_rows * heads(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const AttentionTile& tile = tile_of(unit, most_rows * heads());
      const std::int64_t row = unit / heads() % most_rows;
      if (row < tile.row_count) kernels_.attention_exp(tile, heads(), row, unit % heads());
    }
  });
  weigh_in_parts(wave, most_rows);
}

// By kv head, and by rows where they fill the registers of the kernel, else by dimensions: at least two units for each
// thread where possible.
void AttentionRunner::weigh_in_parts(std::span<const AttentionTile> wave, std::int64_t most_rows) {
  const auto tiles = static_cast<std::int64_t>(wave.size());
  const std::int64_t wanted = ceil_div(2 * pool_.threads(), tiles * shape_.kv_heads);
  const bool by_rows = most_rows * shape_.group >= kPairsPerPart * wanted;
  const std::int64_t rows = by_rows ? ceil_div(most_rows, wanted) : most_rows;
  const std::int64_t vectors = by_rows ? ceil_div(shape_.dim, kPanel) : ceil_div(ceil_div(shape_.dim, kPanel), wanted);
  const std::int64_t width = std::max<std::int64_t>(2, vectors) * kPanel;
  const std::int64_t row_parts = ceil_div(most_rows, rows), slices = ceil_div(shape_.dim, width);
  const std::int64_t parts = row_parts * slices;
  pool_.run(tiles * shape_.kv_heads * parts, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const AttentionTile& tile = wave[static_cast<std::size_t>(unit / (shape_.kv_heads * parts))];
      AttentionPart part;
      part.kv_head = unit / parts % shape_.kv_heads;
      part.first_row = unit % parts / slices * rows;
      part.row_count = std::min(rows, tile.row_count - part.first_row);
      part.begin = unit % slices * width;
      part.end = std::min(part.begin + width, shape_.dim);
      if (part.row_count > 0) kernels_.attention_weigh(shape_, tile, part, thread_scratch(thread));
    }
  });
}

}  // namespace espalier::cpu
