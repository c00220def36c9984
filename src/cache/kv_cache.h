// KV memory as a transaction: block tables, the memories under them, and what has to happen in all of them at once.
// Speaks of slots and positions, knows no tokens and no trees. Committed positions change only by a commit:
//
//   Branch branch = *cache.begin(sequence, rows);   // over the committed prefix of N positions
//   ...                                             // steps write the branch's positions [N, N + rows), nothing else
//   branch.commit_length(n);                        // keep the first n of them; or
//   branch.commit_path(positions);                  // keep these, in this order; or drop it: nothing happened
//
// A sequence may begin with blocks of another one (fork, share); nothing that two hold is ever written.
//
// How a branch is kept is nobody's business outside:
//   shared     the branch's table is the sequence's own with more blocks behind it; opening copies nothing but what
//              others hold too, committing moves only accepted rows that are not yet in place
//   replicate  the branch's table is a copy of the committed slots in blocks of its own: slow and obviously isolated
// A path is committed by the fast reorder, which moves only the new segment, or by the full reorder, which gathers
// everything that may be written into fresh blocks and then exchanges the table.
//
// Invariants: a branch changes no committed position and no other branch; a committed cache holds the bits that
// computing its tokens one by one would have written; a block is held as often as it is counted, and every slot is
// free, cached, held, speculative or reserved for padding (check_conservation()).
// Not thread-safe: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/block_tables.h"
#include "cache/kv_memory.h"
#include "device/device.h"

namespace espalier {

struct KvOptions {
  CacheStrategy strategy = CacheStrategy::shared;
  Reorder reorder = Reorder::fast;
  bool check = false;  // check_conservation() after every operation
  // For rows that nobody reads, where they need more than those that pad the device's steps.
  std::int64_t padding_slots = 0;
};

// What the cache has done so far, all its memories together.
struct KvCounts {
  std::int64_t branches = 0;           // opened
  std::int64_t commits = 0;            // by length or by path
  std::int64_t rollbacks = 0;          // branches dropped without a commit
  std::int64_t fast_reorders = 0;      // paths committed by moving only the new segment
  std::int64_t full_reorders = 0;      // paths committed by gathering everything
  std::int64_t reorder_fallbacks = 0;  // full although fast was asked for: the path was not ascending
  std::int64_t bytes_branched = 0;     // copied to open branches, and to sequences that go on in a shared block
  std::int64_t bytes_committed = 0;    // written into committed slots by commits
};

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

  // What another memory than the first keeps when the branch is committed; nothing behind the prefix unless it is said.
  // kept.to: from the branch's first written place to its prefix; kept.end() <= the committed length.
  void keep(const KvMemory& memory, KeptRows kept);

  // Each closes the branch. If one throws, the branch is still open and nothing has changed, with one exception: a
  // shared branch whose device failed while the fast reorder was moving rows in place. Nothing committed has changed
  // then either, but of its rows some have moved, so it takes the same path again, which goes on where it stopped, or a
  // rollback; any other commit is a std::logic_error.
  // The first n speculative positions, [prefix, prefix + n), become committed.
  void commit_length(std::int64_t n);
  // positions[j], a speculative position of the branch, becomes position prefix + j of the sequence. Any list of
  // pairwise distinct ones is allowed. The fast reorder needs them ascending; any other list takes the full one. A
  // cache made for the fast reorder has no blocks set aside for that: if there are not enough free ones, DeviceError.
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
  // Room for `positions` in all, those of open branches included, in whole blocks per sequence; tables with one memory.
  // The device must outlive the cache.
  KvCache(Device& device, const KvShape& shape, std::int64_t positions, const KvOptions& options = {});
  KvCache(const KvCache&) = delete;  // open branches point to it
  KvCache& operator=(const KvCache&) = delete;

  // Another memory under the same tables, with nothing written.
  KvMemory& add_memory(const KvShape& shape);

  const BlockTables& tables() const { return tables_; }
  const KvMemory& memory(std::size_t index = 0) const { return *memories_.at(index); }
  const KvOptions& options() const { return options_; }
  const KvCounts& counts() const { return counts_; }
  std::int64_t block_size() const { return tables_.block_size(); }
  std::int64_t free_positions() const { return tables_.free_positions(); }

  SequenceId create() { return tables_.create(); }
  std::int64_t length(SequenceId sequence) const { return tables_.length(sequence); }
  std::int32_t slot(SequenceId table, std::int64_t position) const { return tables_.slot(table, position); }
  std::span<const std::int32_t> blocks(SequenceId table) const { return tables_.blocks(table); }
  SequenceId fork(SequenceId sequence, std::int64_t length);
  void release(SequenceId sequence);
  void truncate(SequenceId sequence, std::int64_t length);
  void share(SequenceId sequence, std::span<const std::int32_t> blocks);
  // False, and nothing changed, when blocks are short; nor has anything when it throws.
  [[nodiscard]] bool append_copy(SequenceId sequence, std::int32_t block, std::int64_t slots);
  void publish(std::int32_t block) { tables_.publish(block); }
  void evict(std::int32_t block);

  // Opens a branch with `rows` >= 1 speculative positions. A sequence has at most one open branch. Nothing, and nothing
  // changed, when blocks are short. written_from: some memory lacks committed places from here on, and the branch's
  // steps may write them too.
  [[nodiscard]] std::optional<Branch> begin(SequenceId sequence, std::int64_t rows,
                                            std::optional<std::int64_t> written_from = {});

  // Throws std::logic_error unless tables and blocks are in order (block_tables.h).
  void check_conservation() const { tables_.check_conservation(); }

 private:
  friend class Branch;

  // What an open branch has been told and has done so far.
  struct Pending {
    std::vector<KeptRows> kept = {};  // by memory
    // A fast reorder in place that the device interrupted: the segment it was moving and the calls that were done.
    std::vector<std::int32_t> moving = {};
    std::vector<std::int64_t> calls_done = {};  // by memory

    bool interrupted() const;
  };

  bool shared() const { return options_.strategy == CacheStrategy::shared; }
  void add_pending(SequenceId id, std::int64_t prefix);
  void copy_blocks(std::span<const BlockCopy> copies);
  void commit_length(Branch& handle, std::int64_t n);
  void commit_path(Branch& handle, std::span<const std::int32_t> positions);
  void commit_segment(Branch& handle, std::span<const std::int32_t> segment);
  void commit_everything(Branch& handle, std::span<const std::int32_t> segment);
  void move_and_close(Branch& handle, std::span<const std::int32_t> segment, std::span<std::int64_t> calls_done);
  void roll_back(Branch& handle);
  void close(Branch& handle, SequenceId sequence);
  void discard_tail(SequenceId sequence);
  void operation_done();

  Device* device_;
  KvOptions options_;
  BlockTables tables_;
  std::vector<std::unique_ptr<KvMemory>> memories_;
  std::unordered_map<SequenceId, Pending> pending_;                         // by open branch
  std::vector<std::unordered_map<SequenceId, Pending>::node_type> closed_;  // their memory, for others
  std::vector<std::int32_t> freed_;                                         // by the last operation
  KvCounts counts_;
};

}  // namespace espalier
