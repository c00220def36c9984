#include "cache/kv_cache.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

TablesShape tables_shape(const Device& device, const KvShape& shape, std::int64_t positions, const KvOptions& options) {
  return {.block_size = shape.block_size,
          .positions = positions,
          .padding_slots = std::max(most_padding(device), options.padding_slots),
          .strategy = options.strategy,
          .reorder = options.reorder};
}

void check_segment(std::span<const std::int32_t> positions, std::int64_t prefix, std::int64_t extent) {
  for (std::size_t j = 0; j < positions.size(); ++j)
    check(positions[j] >= prefix && positions[j] < extent,
          "Branch: entry {} of a path is position {}, expected one in [{}, {})", j, positions[j], prefix, extent);
  if (std::ranges::is_sorted(positions, std::ranges::less_equal())) return;
  std::vector<bool> taken(static_cast<std::size_t>(extent - prefix));
  for (const std::int32_t p : positions) {
    check(!taken[static_cast<std::size_t>(p - prefix)], "Branch: position {} is twice in a path", p);
    taken[static_cast<std::size_t>(p - prefix)] = true;
  }
}

void check_rows_are_whole(bool whole) {
  check(whole, "Branch: the device failed in the middle of a commit: take the same path again or roll back");
}

}  // namespace

// --- Branch ---------------------------------------------------------------------------------------------------------

Branch::Branch(Branch&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)), id_(other.id_), prefix_(other.prefix_), rows_(other.rows_) {}

Branch& Branch::operator=(Branch&& other) noexcept {
  if (this == &other) return *this;
  drop();
  cache_ = std::exchange(other.cache_, nullptr);
  id_ = other.id_;
  prefix_ = other.prefix_;
  rows_ = other.rows_;
  return *this;
}

Branch::~Branch() {
  drop();
}

// The tables are back in order before anything can throw; what may be lost is a complaint of a checking device about
// discarded slots, or one of check_conservation(), which the next operation repeats.
void Branch::drop() noexcept {
  if (!open()) return;
  try {
    rollback();
  } catch (...) {
  }
}

void Branch::keep(const KvMemory& memory, KeptRows kept) {
  check(open(), "Branch: keep of a closed branch");
  const auto found = std::ranges::find(cache_->memories_, &memory, &std::unique_ptr<KvMemory>::get);
  check(found != cache_->memories_.end() && found != cache_->memories_.begin(),
        "Branch: keep for a memory that is the first, or none of the cache's");
  check(kept.to >= 0 && kept.to <= prefix_ && kept.end() <= prefix_ + rows_, "Branch: keep places [{}, {}) of [0, {})",
        kept.to, kept.end(), prefix_ + rows_);
  cache_->pending_.at(id_).kept[static_cast<std::size_t>(found - cache_->memories_.begin())] = std::move(kept);
}

void Branch::commit_length(std::int64_t n) {
  check(open(), "Branch: commit_length of a closed branch");
  cache_->commit_length(*this, n);
}

void Branch::commit_path(std::span<const std::int32_t> positions) {
  check(open(), "Branch: commit_path of a closed branch");
  cache_->commit_path(*this, positions);
}

void Branch::rollback() {
  check(open(), "Branch: rollback of a closed branch");
  cache_->roll_back(*this);
}

// --- tables and memories --------------------------------------------------------------------------------------------

KvCache::KvCache(Device& device, const KvShape& shape, std::int64_t positions, const KvOptions& options)
    : device_(&device), options_(options), tables_(tables_shape(device, shape, positions, options)) {
  freed_.reserve(static_cast<std::size_t>(tables_.block_count()));
  add_memory(shape);
}

KvMemory& KvCache::add_memory(const KvShape& shape) {
  check(pending_.empty(), "KvCache: another memory while branches are open");
  memories_.push_back(std::make_unique<KvMemory>(*device_, shape, tables_));
  return *memories_.back();
}

bool KvCache::Pending::interrupted() const {
  return std::ranges::any_of(calls_done, [](std::int64_t calls) { return calls > 0; });
}

// --- sequences ------------------------------------------------------------------------------------------------------

SequenceId KvCache::fork(SequenceId sequence, std::int64_t length) {
  const SequenceId id = tables_.fork(sequence, length);
  operation_done();
  return id;
}

void KvCache::release(SequenceId sequence) {
  tables_.release(sequence);
  operation_done();
}

void KvCache::truncate(SequenceId sequence, std::int64_t length) {
  tables_.truncate(sequence, length);
  for (const auto& memory : memories_) memory->note_truncated(blocks(sequence), length);
  discard_tail(sequence);
  operation_done();
}

void KvCache::share(SequenceId sequence, std::span<const std::int32_t> blocks) {
  tables_.share(sequence, blocks);
  operation_done();
}

bool KvCache::append_copy(SequenceId sequence, std::int32_t block, std::int64_t slots) {
  const std::int64_t before = length(sequence);
  const std::optional<BlockCopy> copied = tables_.append_copy(sequence, block, slots);
  if (!copied) return false;
  try {
    copy_blocks(std::span(&*copied, 1));
  } catch (...) {
    truncate(sequence, before);
    throw;
  }
  operation_done();
  return true;
}

void KvCache::evict(std::int32_t block) {
  tables_.evict(block);
  operation_done();
}

void KvCache::copy_blocks(std::span<const BlockCopy> copies) {
  std::int64_t bytes = 0;
  for (const auto& memory : memories_) bytes += memory->copy(copies) * memory->slot_bytes();
  for (const auto& memory : memories_) memory->note_copies(copies);
  counts_.bytes_branched += bytes;
}

// --- transactions ---------------------------------------------------------------------------------------------------

std::optional<Branch> KvCache::begin(SequenceId sequence, std::int64_t rows, std::optional<std::int64_t> written_from) {
  const std::int64_t prefix = length(sequence);
  const std::optional<SequenceId> id = tables_.begin(sequence, rows, written_from.value_or(prefix));
  if (!id) return std::nullopt;
  try {
    copy_blocks(tables_.branch(*id).copies);
    add_pending(*id, prefix);
  } catch (...) {
    tables_.roll_back(*id);
    operation_done();
    throw;
  }
  ++counts_.branches;
  operation_done();
  return Branch(*this, *id, prefix, rows);
}

// With the memory of one that is over, where there is one.
void KvCache::add_pending(SequenceId id, std::int64_t prefix) {
  closed_.reserve(pending_.size() + closed_.size() + 1);
  if (closed_.empty())
    pending_.emplace(id, Pending());
  else {
    closed_.back().key() = id;
    pending_.insert(std::move(closed_.back()));
    closed_.pop_back();
  }
  Pending& pending = pending_.at(id);
  pending.kept.resize(memories_.size());
  for (KeptRows& rows : pending.kept) rows.to = prefix, rows.from.clear();
  pending.moving.clear();
  pending.calls_done.assign(memories_.size(), 0);
}

void KvCache::commit_length(Branch& handle, std::int64_t n) {
  check(n >= 0 && n <= handle.rows_, "Branch: commit {} of {} rows", n, handle.rows_);
  std::vector<std::int32_t> segment(static_cast<std::size_t>(n));
  std::iota(segment.begin(), segment.end(), static_cast<std::int32_t>(handle.prefix_));
  commit_segment(handle, segment);
}

void KvCache::commit_path(Branch& handle, std::span<const std::int32_t> positions) {
  check_segment(positions, handle.prefix_, handle.prefix_ + handle.rows_);
  if (options_.reorder == Reorder::fast && std::ranges::is_sorted(positions)) {
    commit_segment(handle, positions);
    ++counts_.fast_reorders;
  } else {
    commit_everything(handle, positions);
    ++counts_.full_reorders;
    if (options_.reorder == Reorder::fast) ++counts_.reorder_fallbacks;
  }
}

// segment[j], a speculative position, becomes position prefix + j; segment is strictly ascending, so segment[j] >=
// prefix + j.
void KvCache::commit_segment(Branch& handle, std::span<const std::int32_t> segment) {
  Pending& pending = pending_.at(handle.id_);
  check_rows_are_whole(!pending.interrupted() || std::ranges::equal(pending.moving, segment));
  // Where a branch is shared, rows move in place. No later pair reads a slot that an earlier one has written, as the
  // mover wants: for i < j, target i = prefix + i <= segment[i] < segment[j] = source j. From a copy, which stays as it
  // is, a failed move may be made again, or another one.
  if (shared()) {
    pending.moving.assign(segment.begin(), segment.end());
    return move_and_close(handle, segment, pending.calls_done);
  }
  std::vector<std::int64_t> from_a_copy(memories_.size());
  move_and_close(handle, segment, from_a_copy);
}

// Into fresh blocks; until they are all there the old ones are what counts.
void KvCache::commit_everything(Branch& handle, std::span<const std::int32_t> segment) {
  check_rows_are_whole(!pending_.at(handle.id_).interrupted());
  const std::int64_t length = handle.prefix_ + std::ssize(segment);
  if (!tables_.take_fresh(handle.id_, length))
    device_error("KvCache: reordering {} positions needs more blocks than are free", length);
  std::vector<std::int64_t> calls_done(memories_.size());
  try {
    move_and_close(handle, segment, calls_done);
  } catch (...) {
    if (handle.open()) tables_.give_back_fresh(handle.id_);
    operation_done();
    throw;
  }
}

void KvCache::move_and_close(Branch& handle, std::span<const std::int32_t> segment,
                             std::span<std::int64_t> calls_done) {
  const BlockTables::OpenBranch& open = tables_.branch(handle.id_);
  std::vector<KeptRows>& kept = pending_.at(handle.id_).kept;
  kept[0].to = handle.prefix_;
  kept[0].from.assign(segment.begin(), segment.end());
  const std::int64_t length = kept[0].end();
  const std::vector<std::int32_t>& home = open.fresh.empty() ? open.home : open.fresh;
  const auto target = std::span(home).first(static_cast<std::size_t>(tables_.blocks_for(length)));
  for (const KeptRows& rows : kept)
    check(rows.end() <= length, "Branch: a memory keeps places up to {}, {} are committed", rows.end(), length);
  std::int64_t bytes = 0;
  for (std::size_t m = 0; m < memories_.size(); ++m)
    bytes += memories_[m]->move(open, kept[m], target, calls_done[m]) * memories_[m]->slot_bytes();
  // From here on only discarding, when all tables are in order, can throw.
  for (std::size_t m = 0; m < memories_.size(); ++m) memories_[m]->note_commit(open, kept[m], target);
  counts_.bytes_committed += bytes;
  ++counts_.commits;
  const SequenceId sequence = open.sequence;
  tables_.commit(handle.id_, length);
  close(handle, sequence);
}

void KvCache::roll_back(Branch& handle) {
  const SequenceId sequence = tables_.branch(handle.id_).sequence;
  tables_.roll_back(handle.id_);
  ++counts_.rollbacks;
  close(handle, sequence);
}

void KvCache::close(Branch& handle, SequenceId sequence) {
  closed_.push_back(pending_.extract(handle.id_));
  handle.cache_ = nullptr;
  discard_tail(sequence);
  operation_done();
}

// --- what nobody needs any more -------------------------------------------------------------------------------------

// The slots behind the last position, unless somebody else holds them.
void KvCache::discard_tail(SequenceId sequence) {
  if (!device_->hears_discards()) return;
  const std::int64_t used = length(sequence) % block_size();
  if (used == 0 || !tables_.writable(blocks(sequence).back())) return;
  for (const auto& memory : memories_)
    memory->discard(blocks(sequence).back() * block_size() + used, block_size() - used);
}

void KvCache::operation_done() {
  tables_.take_freed(freed_);
  for (const auto& memory : memories_) memory->note_freed(freed_);
  if (options_.check) check_conservation();
}

}  // namespace espalier
