#include "cache/kv_memory.h"

#include <algorithm>

#include "base/error.h"
#include "device/taking_memory.h"

namespace espalier {
namespace {

const KvShape& checked(const KvShape& shape, const BlockTables& tables) {
  check(shape.layers >= 1 && shape.kv_heads >= 1 && shape.head_size >= 1 && shape.block_size == tables.block_size(),
        "KvMemory: {} layers, {} kv heads, head size {}, blocks of {} slots under tables of {}", shape.layers,
        shape.kv_heads, shape.head_size, shape.block_size, tables.block_size());
  check(is_float(shape.type), "KvMemory: element type {}, expected f16, bf16 or f32", name(shape.type));
  return shape;
}

// What there is no memory for.
std::string pool_text(const KvShape& shape, std::int64_t blocks, std::int64_t layer) {
  const double bytes = static_cast<double>(blocks * shape.block_size * slot_bytes(shape));
  return fmt::format("KV pool of {} blocks of {} positions ({:.1f} MiB in all), layer {} of {}", blocks,
                     shape.block_size, bytes / (1 << 20), layer + 1, shape.layers);
}

}  // namespace

KvMemory::KvMemory(Device& device, const KvShape& shape, const BlockTables& tables)
    : device_(&device),
      shape_(checked(shape, tables)),
      tables_(&tables),
      mover_(device, tables.blocks_for(tables.shape().positions) * tables.block_size()),
      written_(static_cast<std::size_t>(tables.block_count())) {
  const auto tensor = [&] {
    return device.tensor(shape.type, {tables.block_count(), shape.block_size, shape.kv_heads, shape.head_size});
  };
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    for (int kv = 0; kv < 2; ++kv)
      memory_.push_back(taking_memory_for(pool_text(shape, tables.block_count(), i), tensor));
    layers_.push_back({memory_[memory_.size() - 2].view, memory_.back().view});
  }
}

std::int64_t slot_bytes(const KvShape& shape) {
  return 2 * shape.layers * row_bytes(shape.type, shape.kv_heads * shape.head_size);
}

const KvViews& KvMemory::layer(std::int64_t index) const {
  check(index >= 0 && index < shape_.layers, "KvMemory: layer {} of {}", index, shape_.layers);
  return layers_[static_cast<std::size_t>(index)];
}

// What is written of the first `slots` of a block.
SlotRange KvMemory::within(std::int32_t block, std::int64_t slots) const {
  const SlotRange range = written(block);
  return {range.begin, std::min(range.end, slots)};
}

std::int64_t KvMemory::written_from(std::span<const std::int32_t> blocks, std::int64_t end) const {
  std::int64_t from = end;
  while (from > 0) {
    const std::int64_t index = (from - 1) / shape_.block_size, before = index * shape_.block_size;
    const SlotRange range = within(blocks[static_cast<std::size_t>(index)], from - before);
    if (range.empty() || range.end != from - before) return from;
    from = before + range.begin;
    if (range.begin > 0) return from;
  }
  return from;
}

std::int64_t KvMemory::written_to(std::span<const std::int32_t> blocks, std::int64_t end) const {
  std::int64_t to = 0;
  while (to < end) {
    const std::int64_t slots = std::min(shape_.block_size, end - to);
    const SlotRange range = within(blocks[static_cast<std::size_t>(to / shape_.block_size)], slots);
    if (range.begin > 0 || range.empty()) return to;
    to += range.end;
    if (range.end < slots) return to;
  }
  return to;
}

// --- bytes ----------------------------------------------------------------------------------------------------------

std::int64_t KvMemory::copy(std::span<const BlockCopy> copies) {
  SlotMoves moves;
  for (const BlockCopy& copied : copies) {
    const SlotRange range = within(copied.from, copied.slots);
    for (std::int64_t i = range.begin; i < range.end; ++i)
      moves.add(static_cast<std::int32_t>(copied.from * shape_.block_size + i),
                static_cast<std::int32_t>(copied.to * shape_.block_size + i));
  }
  std::int64_t calls_done = 0;
  mover_.move(moves, layers_, calls_done);
  return moves.size();
}

std::int64_t KvMemory::move(const BlockTables::OpenBranch& branch, const KeptRows& kept,
                            std::span<const std::int32_t> target, std::int64_t& calls_done) {
  SlotMoves moves;
  const auto add = [&](std::int64_t from, std::int64_t to) {
    const std::int32_t source = tables_->slot_in(branch.table, from), place = tables_->slot_in(target, to);
    if (source != place) moves.add(source, place);
  };
  // Into fresh blocks everything is gathered, not the new rows alone.
  if (!branch.fresh.empty())
    for (std::size_t i = 0; i < target.size(); ++i) {
      if (target[i] == branch.home[i]) continue;
      const std::int64_t before = static_cast<std::int64_t>(i) * shape_.block_size;
      const SlotRange range = within(branch.table[i], kept.to - before);
      for (std::int64_t slot = range.begin; slot < range.end; ++slot) add(before + slot, before + slot);
    }
  for (std::size_t j = 0; j < kept.from.size(); ++j) add(kept.from[j], kept.to + static_cast<std::int64_t>(j));
  mover_.move(moves, layers_, calls_done);
  return moves.size();
}

// --- what is written ------------------------------------------------------------------------------------------------

void KvMemory::note_copies(std::span<const BlockCopy> copies) {
  for (const BlockCopy& copied : copies)
    written_[static_cast<std::size_t>(copied.to)] = within(copied.from, copied.slots);
}

void KvMemory::note_commit(const BlockTables::OpenBranch& branch, const KeptRows& kept,
                           std::span<const std::int32_t> target) {
  for (std::size_t i = 0; i < target.size(); ++i) {
    SlotRange& range = written_[static_cast<std::size_t>(target[i])];
    const std::int64_t before = static_cast<std::int64_t>(i) * shape_.block_size;
    if (target[i] != branch.home[i]) range = written(branch.table[i]);
    if (before + shape_.block_size <= std::min(kept.to, branch.prefix)) continue;
    // Behind the prefix, and behind the first row that is kept, only what is kept counts.
    range.end = std::min(range.end, std::max<std::int64_t>(0, std::min(kept.to, branch.prefix) - before));
    if (range.empty()) range = {};
    const SlotRange fresh{std::max<std::int64_t>(0, kept.to - before),
                          std::min(shape_.block_size, kept.end() - before)};
    if (fresh.empty()) continue;
    range = range.end == fresh.begin && !range.empty() ? SlotRange{range.begin, fresh.end} : fresh;
  }
}

void KvMemory::note_truncated(std::span<const std::int32_t> blocks, std::int64_t length) {
  if (length % shape_.block_size == 0) return;
  const std::int32_t last = blocks.back();
  if (tables_->writable(last)) written_[static_cast<std::size_t>(last)] = within(last, length % shape_.block_size);
}

void KvMemory::note_freed(std::span<const std::int32_t> blocks) {
  for (std::int32_t block : blocks) {
    written_[static_cast<std::size_t>(block)] = {};
    discard(block * shape_.block_size, shape_.block_size);
  }
}

void KvMemory::discard(std::int64_t first_slot, std::int64_t count) {
  if (!device_->hears_discards()) return;
  for (const KvViews& layer : layers_)
    for (const View& memory : {layer.k, layer.v})
      device_->discard(
          memory.reshaped({memory.dim(0) * memory.dim(1), memory.dim(2), memory.dim(3)}).rows(first_slot, count));
}

}  // namespace espalier
