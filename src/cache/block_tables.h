// Which block holds which positions, for sequences, for open branches and for whoever shares a block. Integers only:
// the bytes lie in memories (kv_memory.h), and several of them may follow one set of tables.
//
// A slot is a row of KV memory. A table is a list of blocks: logical position p of a table lives in slot
// blocks[p / block_size] * block_size + p % block_size. A sequence is a table whose first length() positions are
// committed. A block is held by as many sequences as references() says. One that somebody else holds too, or that is
// published, is never written: whoever is about to write into it gets a block of his own instead (copy on write). A
// published block stays when nobody holds it any more, until it is evicted.
//
// An operation that throws, for want of memory too, has changed nothing. What happens in tables and in memories at
// once, opening and committing, is kv_cache.h's business. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/block_pool.h"

namespace espalier {

enum class CacheStrategy { shared, replicate };
enum class Reorder { fast, full };

struct TablesShape {
  std::int64_t block_size = 128;   // slots
  std::int64_t positions = 0;      // that sequences may hold in all, those of open branches included
  std::int64_t padding_slots = 0;  // at the front, for rows that pad a step
  CacheStrategy strategy = CacheStrategy::shared;
  Reorder reorder = Reorder::fast;
};

// A sequence or an open branch: what a row of a step names as the table it belongs to. Never reused by the same tables.
using SequenceId = std::int64_t;

// The first slots of a block that become those of another one.
struct BlockCopy {
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::int64_t slots = 0;
};

class BlockTables {
 public:
  // The pool is larger than `positions` where the shape needs it: copies of branches, fresh blocks for the full
  // reorder, padding. So whether a branch fits does not depend on strategy and reorder.
  explicit BlockTables(const TablesShape& shape);

  const TablesShape& shape() const { return shape_; }
  std::int64_t block_size() const { return shape_.block_size; }
  std::int64_t block_count() const { return block_count_; }
  std::int64_t blocks_for(std::int64_t positions) const;
  std::int64_t free_positions() const;                    // in whole blocks that nobody holds; cached ones are not free
  std::int64_t cached_blocks() const { return cached_; }  // published, and nobody holds them

  // --- sequences ----------------------------------------------------------------------------------------------------
  SequenceId create();
  // A sequence with the first `length` positions of another one, in the same blocks. No branch of that may be open.
  SequenceId fork(SequenceId sequence, std::int64_t length);
  void release(SequenceId sequence);               // no branch of it may be open
  std::int64_t length(SequenceId sequence) const;  // committed positions
  // Forgets what is committed behind `length`. No branch of it may be open.
  void truncate(SequenceId sequence, std::int64_t length);
  // The sequence, which ends with a whole block, goes on with these full ones, published or held by somebody.
  void share(SequenceId sequence, std::span<const std::int32_t> blocks);
  // The sequence, which ends with a whole block, goes on with the first `slots` of this one, in a block of its own.
  // Nothing when blocks are short.
  std::optional<BlockCopy> append_copy(SequenceId sequence, std::int32_t block, std::int64_t slots);

  // --- blocks that are shared
  // -----------------------------------------------------------------------------------------
  std::int32_t references(std::int32_t block) const { return references_.at(static_cast<std::size_t>(block)); }
  bool published(std::int32_t block) const { return published_.at(static_cast<std::size_t>(block)); }
  // Those that are published and held by somebody, in no order.
  std::span<const std::int32_t> shared_blocks() const { return shared_; }
  // Nobody writes it from now on. Held, and not published yet.
  void publish(std::int32_t block);
  // It is free again. Published, and nobody holds it.
  void evict(std::int32_t block);
  // Whether a write by the only table that holds it is allowed.
  bool writable(std::int32_t block) const { return references(block) == 1 && !published(block); }

  // --- branches -----------------------------------------------------------------------------------------------------
  // Where an open branch lives, and where it will have lived once it is committed.
  struct OpenBranch {
    SequenceId sequence = 0;
    std::int64_t prefix = 0;
    std::int64_t rows = 0;
    std::vector<std::int32_t> home = {};   // the sequence's blocks, or copies it may write, and blocks for all rows
    std::vector<std::int32_t> table = {};  // home, or where it is replicated copies of all that may be written
    std::vector<std::int32_t> fresh = {};  // home after the full reorder; empty without one
    std::vector<BlockCopy> copies = {};    // what opening it has to copy

    std::int64_t positions() const { return prefix + rows; }
  };
  // Opens a branch with `rows` >= 1 positions behind the committed ones, which may write from position `from` on, and
  // tells its table. A sequence has at most one. Nothing, and nothing changed, when blocks are short.
  std::optional<SequenceId> begin(SequenceId sequence, std::int64_t rows, std::int64_t from);
  const OpenBranch& branch(SequenceId branch) const;
  // Takes blocks for all that `length` positions may have to be gathered into. False when blocks are short.
  bool take_fresh(SequenceId branch, std::int64_t length);
  void give_back_fresh(SequenceId branch);
  // The sequence has `length` positions now, in the branch's home or in the fresh blocks; the branch is closed.
  void commit(SequenceId branch, std::int64_t length);
  void roll_back(SequenceId branch);

  // --- places -------------------------------------------------------------------------------------------------------
  // Of a sequence, its committed positions; of an open branch, those and its own.
  std::int32_t slot(SequenceId table, std::int64_t position) const;
  std::span<const std::int32_t> blocks(SequenceId table) const;
  std::int32_t slot_in(std::span<const std::int32_t> blocks, std::int64_t position) const;
  // The slot that padding row i of a step writes.
  std::int32_t padding_slot(std::int64_t i) const;
  // The blocks those slots lie in: padding slot i is position i of this table.
  std::span<const std::int32_t> padding_blocks() const { return padding_blocks_; }

  // The blocks that became free since this was asked for the last time, in place of what is in `freed`.
  void take_freed(std::vector<std::int32_t>& freed) noexcept {
    freed.clear();
    freed.swap(freed_);
  }

  // Throws std::logic_error with the block or slot and its uses unless every block is held as often as it is counted
  // and every slot is free, cached, held, speculative or padding.
  void check_conservation() const;

 private:
  struct Sequence {
    std::int64_t length = 0;
    std::vector<std::int32_t> blocks = {};  // just enough for `length`
    std::optional<SequenceId> branch = {};
  };

  bool replicates() const { return shape_.strategy == CacheStrategy::replicate; }
  const Sequence& sequence(SequenceId id) const;
  Sequence& sequence(SequenceId id);
  Sequence& sequence_without_branch(SequenceId id, std::string_view operation);
  OpenBranch& open_branch(SequenceId id);

  std::int32_t take();
  void hold(std::int32_t block);
  void let_go(std::int32_t block);
  void let_go(std::span<const std::int32_t> blocks);
  void give_back(std::int32_t block);
  void add_copy(OpenBranch& branch, std::int32_t from, std::int32_t to, std::size_t index) const;
  void replicate(OpenBranch& branch, std::span<const std::int32_t> committed);
  OpenBranch& new_branch();
  void close(SequenceId id, std::span<const std::int32_t> before);
  void list_shared(std::int32_t block);
  void unlist_shared(std::int32_t block);

  // Fixed by the constructor.
  TablesShape shape_;
  std::int64_t home_limit_;                   // blocks that sequences may hold and the cache may keep
  std::vector<std::int32_t> padding_blocks_;  // at the front of the memory
  std::int64_t block_count_;

  BlockPool pool_;
  std::vector<std::int32_t> references_;       // by block
  std::vector<bool> published_;                // likewise
  std::vector<std::int32_t> shared_;           // published and held
  std::vector<std::int32_t> place_in_shared_;  // by block, of those
  std::int64_t home_blocks_ = 0;               // held or cached, without copies of branches and fresh ones
  std::int64_t cached_ = 0;
  std::vector<std::int32_t> freed_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  std::unordered_map<SequenceId, OpenBranch> branches_;
  std::vector<std::unordered_map<SequenceId, OpenBranch>::node_type> closed_;  // their memory, for others
  SequenceId next_id_ = 0;
};

}  // namespace espalier
