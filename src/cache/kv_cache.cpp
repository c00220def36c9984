#include "cache/kv_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

std::int64_t blocks_for(std::int64_t slots, std::int64_t block_size) {
  return (slots + block_size - 1) / block_size;
}

}  // namespace

KvCache::KvCache(Device& device, const KvShape& shape, std::int64_t positions) : device_(&device), shape_(shape) {
  check(shape.layers >= 1 && shape.kv_heads >= 1 && shape.head_size >= 1 && shape.block_size >= 1,
        "KvCache: {} layers, {} kv heads, head size {}, block size {}", shape.layers, shape.kv_heads, shape.head_size,
        shape.block_size);
  check(is_float(shape.type), "KvCache: element type {}, expected f16, bf16 or f32", name(shape.type));
  check(positions >= 1, "KvCache: {} positions", positions);
  if (!device.row_buckets().empty()) padding_slots_ = device.row_buckets().back();
  const std::int64_t padding_blocks = blocks_for(padding_slots_, shape.block_size);
  const std::int64_t count = padding_blocks + blocks_for(positions, shape.block_size);
  check(count <= std::numeric_limits<std::int32_t>::max() / shape.block_size, "KvCache: {} blocks of {} slots", count,
        shape.block_size);
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    for (int kv = 0; kv < 2; ++kv)
      memory_.push_back(device.tensor(shape.type, {count, shape.block_size, shape.kv_heads, shape.head_size}));
    layers_.push_back({memory_[memory_.size() - 2].view, memory_.back().view});
  }
  for (std::int64_t block = count - 1; block >= padding_blocks; --block)
    free_.push_back(static_cast<std::int32_t>(block));
}

std::int64_t KvCache::free_positions() const {
  return static_cast<std::int64_t>(free_.size()) * shape_.block_size;
}

const KvViews& KvCache::layer(std::int64_t index) const {
  check(index >= 0 && index < shape_.layers, "KvCache: layer {} of {}", index, shape_.layers);
  return layers_[static_cast<std::size_t>(index)];
}

SequenceId KvCache::create() {
  sequences_.push_back({next_id_, 0, {}});
  return next_id_++;
}

void KvCache::release(SequenceId id) {
  Sequence& sequence = find(id);
  for (std::int32_t block : sequence.blocks) give_back(block);
  std::erase_if(sequences_, [id](const Sequence& s) { return s.id == id; });
}

std::int64_t KvCache::length(SequenceId id) const {
  return find(id).length;
}

bool KvCache::reserve(SequenceId id, std::int64_t positions) {
  Sequence& sequence = find(id);
  const std::int64_t needed =
      blocks_for(positions, shape_.block_size) - static_cast<std::int64_t>(sequence.blocks.size());
  if (needed > static_cast<std::int64_t>(free_.size())) return false;
  for (std::int64_t i = 0; i < needed; ++i) {
    sequence.blocks.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

std::int32_t KvCache::slot(SequenceId id, std::int64_t position) const {
  const Sequence& sequence = find(id);
  const std::int64_t reserved = static_cast<std::int64_t>(sequence.blocks.size()) * shape_.block_size;
  check(position >= 0 && position < reserved, "KvCache: position {} of sequence {} with {} reserved", position, id,
        reserved);
  const std::int32_t block = sequence.blocks[static_cast<std::size_t>(position / shape_.block_size)];
  return static_cast<std::int32_t>(block * shape_.block_size + position % shape_.block_size);
}

std::span<const std::int32_t> KvCache::blocks(SequenceId id) const {
  return find(id).blocks;
}

void KvCache::set_length(SequenceId id, std::int64_t length) {
  Sequence& sequence = find(id);
  const std::int64_t reserved = static_cast<std::int64_t>(sequence.blocks.size()) * shape_.block_size;
  check(length >= 0 && length <= reserved, "KvCache: length {} of sequence {} with {} reserved", length, id, reserved);
  const std::int64_t old_length = std::exchange(sequence.length, length);
  while (static_cast<std::int64_t>(sequence.blocks.size()) > blocks_for(length, shape_.block_size)) {
    give_back(sequence.blocks.back());
    sequence.blocks.pop_back();
  }
  const std::int64_t kept = static_cast<std::int64_t>(sequence.blocks.size()) * shape_.block_size;
  if (length < old_length && length < kept) discard_slots(slot(id, length), kept - length);
}

std::int32_t KvCache::padding_slot(std::int64_t i) const {
  check(i >= 0 && i < padding_slots_, "KvCache: padding slot {} of {}", i, padding_slots_);
  return static_cast<std::int32_t>(i);
}

KvCache::Sequence& KvCache::find(SequenceId id) {
  return const_cast<Sequence&>(std::as_const(*this).find(id));
}

const KvCache::Sequence& KvCache::find(SequenceId id) const {
  const auto it = std::find_if(sequences_.begin(), sequences_.end(), [id](const Sequence& s) { return s.id == id; });
  check(it != sequences_.end(), "KvCache: no sequence {}", id);
  return *it;
}

void KvCache::give_back(std::int32_t block) {
  discard_slots(block * shape_.block_size, shape_.block_size);
  free_.push_back(block);
}

void KvCache::discard_slots(std::int64_t first, std::int64_t count) {
  for (const KvViews& layer : layers_)
    for (const View& memory : {layer.k, layer.v})
      device_->discard(
          memory.reshaped({memory.dim(0) * memory.dim(1), memory.dim(2), memory.dim(3)}).rows(first, count));
}

}  // namespace espalier
