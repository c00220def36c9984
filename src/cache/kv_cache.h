// KV memory as a pool of fixed-size blocks with a block table per sequence. Speaks of slots and positions, knows no
// tokens and no trees. A slot is a row of KV memory; logical position p of a sequence lives in slot
// blocks[p / block_size] * block_size + p % block_size. Every block is free, owned by one sequence, or reserved for
// the padding rows of devices with row buckets.
// Not thread-safe: one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"

namespace espalier {

struct KvShape {
  std::int64_t layers = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  DType type = DType::f16;        // f16, bf16 or f32
  std::int64_t block_size = 128;  // slots
};

// Stable for the life of the sequence; never reused by the same cache.
using SequenceId = std::int32_t;

class KvCache {
 public:
  // Room for `positions` in all; more memory is taken for padding rows where the device has buckets. The device must
  // outlive the cache.
  KvCache(Device& device, const KvShape& shape, std::int64_t positions);

  const KvShape& shape() const { return shape_; }
  std::int64_t block_size() const { return shape_.block_size; }
  std::int64_t free_positions() const;  // in whole free blocks
  // K and V of one layer.
  const KvViews& layer(std::int64_t index) const;

  SequenceId create();
  void release(SequenceId id);  // gives all blocks back

  std::int64_t length(SequenceId id) const;  // committed positions
  // Makes sure that logical positions [0, positions) have slots. False, and nothing changed, when blocks are short.
  [[nodiscard]] bool reserve(SequenceId id, std::int64_t positions);
  // The slot of a reserved position.
  std::int32_t slot(SequenceId id, std::int64_t position) const;
  std::span<const std::int32_t> blocks(SequenceId id) const;
  // Positions [0, length) are now what the sequence is made of; blocks behind them go back to the pool. Growing is
  // allowed up to what is reserved: the caller has written those slots.
  void set_length(SequenceId id, std::int64_t length);

  // The slot that padding row i of a step writes. Only on devices with row buckets.
  std::int32_t padding_slot(std::int64_t i) const;

 private:
  struct Sequence {
    SequenceId id;
    std::int64_t length = 0;
    std::vector<std::int32_t> blocks;
  };
  Sequence& find(SequenceId id);
  const Sequence& find(SequenceId id) const;
  void give_back(std::int32_t block);
  void discard_slots(std::int64_t first, std::int64_t count);

  Device* device_;
  KvShape shape_;
  std::vector<Tensor> memory_;  // k and v of layer i at 2i and 2i + 1
  std::vector<KvViews> layers_;
  std::int64_t padding_slots_ = 0;  // at the front of the pool

  std::vector<std::int32_t> free_;  // a stack: the block freed last is used first
  std::vector<Sequence> sequences_;
  SequenceId next_id_ = 0;
};

}  // namespace espalier
