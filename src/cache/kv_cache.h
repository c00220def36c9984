// KV memory as a transaction over a pool of fixed-size blocks. Speaks of slots and positions, knows no tokens and no
// trees.
//
// A slot is a row of KV memory. A table is a list of blocks: logical position p of a table lives in slot
// blocks[p / block_size] * block_size + p % block_size. A sequence is a table whose first length() positions are
// committed. Committed positions change only by a commit:
//
//   Branch branch = *cache.begin(sequence, rows);   // over the committed prefix of N positions
//   ...                                             // steps write the branch's positions [N, N + rows), nothing else
//   branch.commit_length(n);                        // keep the first n of them; or
//   branch.commit_path(positions);                  // keep these, in this order; or drop it: nothing happened
//
// How a branch is kept is nobody's business outside:
//   shared     the branch's table is the sequence's own with more blocks behind it; opening copies nothing, committing
//              moves only accepted rows that are not yet in place
//   replicate  the branch's table is a copy of the committed slots in blocks of its own: slow and obviously isolated
// A path is committed by the fast reorder, which gathers only the new segment, or by the full reorder, which gathers
// every position into fresh blocks and then exchanges the table.
//
// Invariants: a branch changes no committed position and no other branch; a committed cache holds the bits that
// computing its tokens one by one would have written; every slot is free, committed, speculative or reserved for
// padding, exactly once (check_conservation()).
// Not thread-safe: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cache/block_pool.h"
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

enum class CacheStrategy { shared, replicate };
enum class Reorder { fast, full };

struct KvOptions {
  CacheStrategy strategy = CacheStrategy::shared;
  Reorder reorder = Reorder::fast;
  bool check = false;  // check_conservation() after every operation
};

// What the cache has done so far.
struct KvCounts {
  std::int64_t branches = 0;           // opened
  std::int64_t commits = 0;            // by length or by path
  std::int64_t rollbacks = 0;          // branches dropped without a commit
  std::int64_t fast_reorders = 0;      // paths committed by moving only the new segment
  std::int64_t full_reorders = 0;      // paths committed by gathering everything
  std::int64_t reorder_fallbacks = 0;  // full although fast was asked for: the path did not keep the prefix in order
  std::int64_t bytes_branched = 0;     // copied to open branches
  std::int64_t bytes_committed = 0;    // written into committed slots by commits
};

// A sequence or an open branch: what a row of a step names as the table it belongs to. Never reused by the same cache.
using SequenceId = std::int32_t;

class KvCache;

// An open transaction. Dropping it rolls back. Must not outlive its cache.
class Branch {
 public:
  Branch(Branch&& other) noexcept;
  Branch& operator=(Branch&& other) noexcept;
  ~Branch();

  SequenceId id() const { return id_; }  // the table that the rows of the branch name
  std::int64_t prefix() const { return prefix_; }
  std::int64_t rows() const { return rows_; }
  bool open() const { return cache_ != nullptr; }

  // Each closes the branch. If one throws, the branch is still open and nothing has changed, with one exception: a
  // shared branch whose device failed while the fast reorder was moving rows in place. Nothing committed has changed
  // then either, but of its rows some have moved, so it takes the same path again, which goes on where it stopped, or a
  // rollback; any other commit is a std::logic_error.
  // The first n speculative positions, [prefix, prefix + n), become committed.
  void commit_length(std::int64_t n);
  // positions[j], a position of the branch, committed or speculative, becomes position j of the sequence. Any list of
  // pairwise distinct positions is allowed. The fast reorder needs [0, prefix) in front, unchanged, and the others
  // strictly ascending; any other list takes the full one. A cache made for the fast reorder has no blocks set aside
  // for that: if there are not enough free ones, DeviceError.
  void commit_path(std::span<const std::int32_t> positions);
  void rollback();

 private:
  friend class KvCache;
  Branch(KvCache& cache, SequenceId id, std::int64_t prefix, std::int64_t rows)
      : cache_(&cache), id_(id), prefix_(prefix), rows_(rows) {}
  void drop() noexcept;

  KvCache* cache_;
  SequenceId id_;
  std::int64_t prefix_;
  std::int64_t rows_;
};

class KvCache {
 public:
  // Room for `positions` in all, those of open branches included, in whole blocks per sequence. The pool is larger
  // where the options or the device need it: copies of branches, fresh blocks for the full reorder, padding rows of
  // devices with row buckets. So whether a branch fits does not depend on the options, and with Reorder::full a commit
  // always finds its blocks. The device must outlive the cache.
  KvCache(Device& device, const KvShape& shape, std::int64_t positions, const KvOptions& options = {});
  KvCache(const KvCache&) = delete;  // open branches point to it
  KvCache& operator=(const KvCache&) = delete;

  const KvShape& shape() const { return shape_; }
  const KvOptions& options() const { return options_; }
  const KvCounts& counts() const { return counts_; }
  std::int64_t block_size() const { return shape_.block_size; }
  std::int64_t slot_bytes() const;      // K and V of one position, all layers
  std::int64_t free_positions() const;  // in whole blocks that no sequence and no branch holds
  // K and V of one layer.
  const KvViews& layer(std::int64_t index) const;

  SequenceId create();
  void release(SequenceId sequence);               // gives all blocks back; no branch of it may be open
  std::int64_t length(SequenceId sequence) const;  // committed positions
  // Forgets what is committed behind `length`. No branch of it may be open.
  void truncate(SequenceId sequence, std::int64_t length);

  // Opens a branch with `rows` >= 1 speculative positions. A sequence has at most one open branch. Nothing, and nothing
  // changed, when blocks are short.
  [[nodiscard]] std::optional<Branch> begin(SequenceId sequence, std::int64_t rows);

  // Of a sequence, its committed positions; of an open branch, those and its own.
  std::int32_t slot(SequenceId table, std::int64_t position) const;
  std::span<const std::int32_t> blocks(SequenceId table) const;

  // The slot that padding row i of a step writes. Only on devices with row buckets.
  std::int32_t padding_slot(std::int64_t i) const;
  // The blocks those slots lie in: padding slot i is position i of this table. Empty on devices without row buckets.
  std::span<const std::int32_t> padding_blocks() const;

  // Throws std::logic_error with the slot and its two uses unless every slot has exactly one.
  void check_conservation() const;

 private:
  friend class Branch;
  class Loan;

  struct Sequence {
    SequenceId id = 0;
    std::int64_t length = 0;
    std::vector<std::int32_t> blocks = {};  // just enough for `length`
    bool has_branch = false;
  };
  struct OpenBranch {
    SequenceId id = 0;
    SequenceId sequence = 0;
    std::int64_t prefix = 0;
    std::int64_t rows = 0;
    std::vector<std::int32_t> home = {};   // the sequence's blocks and, behind them, blocks for all rows
    std::vector<std::int32_t> table = {};  // where the branch lives: home (shared) or its own copy (replicate)
    // A fast reorder in place that the device interrupted: the segment it was moving and the calls that were done.
    std::vector<std::int32_t> moving = {};
    std::int64_t calls_done = 0;

    std::int64_t positions() const { return prefix + rows; }
  };

  bool shared() const { return options_.strategy == CacheStrategy::shared; }
  std::int64_t blocks_for(std::int64_t positions) const;
  std::int64_t home_blocks() const;
  std::int32_t slot_in(std::span<const std::int32_t> table, std::int64_t position) const;
  const Sequence* find_sequence(SequenceId id) const;
  const OpenBranch* find_branch(SequenceId id) const;
  const Sequence& sequence(SequenceId id) const;
  Sequence& sequence(SequenceId id);
  Sequence& sequence_without_branch(SequenceId id, std::string_view operation);
  OpenBranch& branch(const Branch& handle);
  const OpenBranch& branch_of(const Sequence& sequence) const;

  void copy_prefix(const Sequence& sequence, std::span<const std::int32_t> to);
  void commit_length(Branch& handle, std::int64_t n);
  void commit_path(Branch& handle, std::span<const std::int32_t> positions);
  void roll_back(Branch& handle);
  void commit_segment(Branch& handle, std::span<const std::int32_t> segment);
  void commit_everything(Branch& handle, std::span<const std::int32_t> positions);
  void close(Branch& handle, std::vector<std::int32_t> blocks, std::int64_t length, std::int64_t kept);

  void discard_blocks(std::span<const std::int32_t> blocks);
  void discard_tail(const Sequence& sequence);
  void discard_slots(std::int64_t first, std::int64_t count);
  void operation_done() const;

  // Fixed by the constructor.
  Device* device_;
  KvShape shape_;
  KvOptions options_;
  std::int64_t home_limit_;  // blocks that sequences may hold, those behind open branches included
  std::int64_t padding_slots_;
  std::vector<std::int32_t> padding_blocks_;  // at the front of the memory
  std::int64_t block_count_;
  std::vector<Tensor> memory_;  // k and v of layer i at 2i and 2i + 1
  std::vector<KvViews> layers_;

  SlotMover mover_;
  BlockPool pool_;
  std::vector<Sequence> sequences_;
  std::vector<OpenBranch> branches_;
  SequenceId next_id_ = 0;
  KvCounts counts_;
};

}  // namespace espalier
