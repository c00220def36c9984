// K and V of one network, for the slots of a set of block tables: the teacher's, a head's, a draft model's. Knows of
// every block which slots of it are written; a place that is not is never read. In every memory a place depends on the
// tokens up to it alone, so a block that is shared is right for whoever shares it. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/block_tables.h"
#include "cache/slot_mover.h"
#include "device/device.h"

namespace espalier {

struct KvShape {
  std::int64_t layers = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  DType type = DType::f16;        // f16, bf16 or f32
  std::int64_t block_size = 128;  // slots
};

std::int64_t slot_bytes(const KvShape& shape);  // K and V of one position, all layers

// Slots [begin, end) of a block; empty where they are equal.
struct SlotRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool empty() const { return begin >= end; }
  bool operator==(const SlotRange&) const = default;
};

// What a memory keeps of a branch's rows: place from[j] of the branch becomes place to + j of the sequence.
struct KeptRows {
  std::int64_t to = 0;
  std::vector<std::int32_t> from = {};

  std::int64_t end() const { return to + static_cast<std::int64_t>(from.size()); }
};

class KvMemory {
 public:
  // Device and tables must outlive the memory. block_size is that of the tables.
  KvMemory(Device& device, const KvShape& shape, const BlockTables& tables);
  KvMemory(const KvMemory&) = delete;  // workspaces point to it
  KvMemory& operator=(const KvMemory&) = delete;

  const KvShape& shape() const { return shape_; }
  const BlockTables& tables() const { return *tables_; }
  std::int64_t slot_bytes() const { return espalier::slot_bytes(shape_); }
  // K and V of one layer.
  const KvViews& layer(std::int64_t index) const;

  SlotRange written(std::int32_t block) const { return written_.at(static_cast<std::size_t>(block)); }
  // The first place of the longest written run that ends at `end`; `end` itself where there is none.
  std::int64_t written_from(std::span<const std::int32_t> blocks, std::int64_t end) const;
  // Where the written run that begins at place 0 ends, at `end` at the latest.
  std::int64_t written_to(std::span<const std::int32_t> blocks, std::int64_t end) const;

 private:
  friend class KvCache;

  // All return how many slots were copied, and throw what the device throws.
  std::int64_t copy(std::span<const BlockCopy> copies);
  // Rows of an open branch to their places in `target`, its home or its fresh blocks.
  std::int64_t move(const BlockTables::OpenBranch& branch, const KeptRows& kept, std::span<const std::int32_t> target,
                    std::int64_t& calls_done);

  // What is written where, after the bytes are in place.
  void note_copies(std::span<const BlockCopy> copies);
  void note_commit(const BlockTables::OpenBranch& branch, const KeptRows& kept, std::span<const std::int32_t> target);
  void note_truncated(std::span<const std::int32_t> blocks, std::int64_t length);
  void note_freed(std::span<const std::int32_t> blocks);
  void discard(std::int64_t first_slot, std::int64_t count);

  SlotRange within(std::int32_t block, std::int64_t slots) const;

  Device* device_;
  KvShape shape_;
  const BlockTables* tables_;
  std::vector<Tensor> memory_;  // k and v of layer i at 2i and 2i + 1
  std::vector<KvViews> layers_;
  SlotMover mover_;
  std::vector<SlotRange> written_;  // by block
};

}  // namespace espalier
