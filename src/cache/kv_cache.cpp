#include "cache/kv_cache.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "cache/slot_census.h"

namespace espalier {
namespace {

std::int64_t size_of(std::span<const std::int32_t> list) {
  return static_cast<std::int64_t>(list.size());
}

std::span<const std::int32_t> behind(std::span<const std::int32_t> list, std::int64_t count) {
  return list.subspan(static_cast<std::size_t>(count));
}

std::int64_t blocks_holding(std::int64_t positions, std::int64_t block_size) {
  return (positions + block_size - 1) / block_size;
}

constexpr std::int64_t kMostSlots = std::numeric_limits<std::int32_t>::max();

const KvShape& checked(const KvShape& shape, std::int64_t positions) {
  check(shape.layers >= 1 && shape.kv_heads >= 1 && shape.head_size >= 1 && shape.block_size >= 1,
        "KvCache: {} layers, {} kv heads, head size {}, block size {}", shape.layers, shape.kv_heads, shape.head_size,
        shape.block_size);
  check(is_float(shape.type), "KvCache: element type {}, expected f16, bf16 or f32", name(shape.type));
  check(positions >= 1 && positions <= kMostSlots, "KvCache: {} positions", positions);
  return shape;
}

// Blocks a pool needs for each block that sequences may hold: the block itself, its copy in a branch, and a fresh one
// when everything is gathered.
std::int64_t pool_factor(const KvOptions& options) {
  return 1 + (options.strategy == CacheStrategy::replicate ? 1 : 0) + (options.reorder == Reorder::full ? 1 : 0);
}

std::int64_t checked_count(std::int64_t blocks, std::int64_t block_size) {
  check(blocks <= kMostSlots / block_size, "KvCache: {} blocks of {} slots", blocks, block_size);
  return blocks;
}

std::vector<std::int32_t> first_blocks(std::int64_t count) {
  std::vector<std::int32_t> blocks(static_cast<std::size_t>(count));
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

void check_positions(std::span<const std::int32_t> positions, std::int64_t extent) {
  std::vector<bool> taken(static_cast<std::size_t>(extent));
  for (std::size_t j = 0; j < positions.size(); ++j) {
    const std::int32_t p = positions[j];
    check(p >= 0 && p < extent, "Branch: entry {} of a path is position {}, expected one in [0, {})", j, p, extent);
    check(!taken[static_cast<std::size_t>(p)], "Branch: position {} is twice in a path", p);
    taken[static_cast<std::size_t>(p)] = true;
  }
}

void check_rows_are_whole(bool whole) {
  check(whole, "Branch: the device failed in the middle of a commit: take the same path again or roll back");
}

bool keeps_prefix_in_order(std::span<const std::int32_t> positions, std::int64_t prefix) {
  if (size_of(positions) < prefix) return false;
  for (std::int64_t p = 0; p < prefix; ++p)
    if (positions[static_cast<std::size_t>(p)] != p) return false;
  return std::ranges::is_sorted(behind(positions, prefix));  // strictly: no position is there twice
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

// --- Loan -----------------------------------------------------------------------------------------------------------

// Blocks taken from the pool that go back to it unless they find an owner.
class KvCache::Loan {
 public:
  Loan(KvCache& cache, std::int64_t count) : cache_(cache), blocks_(cache.pool_.take(count)) {}
  ~Loan() {
    cache_.pool_.give_back(blocks_);
    try {
      cache_.discard_blocks(blocks_);
    } catch (...) {  // discarding is only a hint, and another exception is on its way
    }
  }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  std::span<const std::int32_t> blocks() const { return blocks_; }
  std::vector<std::int32_t> keep() noexcept { return std::exchange(blocks_, {}); }

 private:
  KvCache& cache_;
  std::vector<std::int32_t> blocks_;
};

// --- the pool and its memory ----------------------------------------------------------------------------------------

KvCache::KvCache(Device& device, const KvShape& shape, std::int64_t positions, const KvOptions& options)
    : device_(&device),
      shape_(checked(shape, positions)),
      options_(options),
      home_limit_(blocks_for(positions)),
      padding_slots_(device.row_buckets().empty() ? 0 : device.row_buckets().back()),
      padding_blocks_(first_blocks(blocks_for(padding_slots_))),
      block_count_(checked_count(size_of(padding_blocks_) + pool_factor(options) * home_limit_, shape.block_size)),
      mover_(device, home_limit_ * shape.block_size),
      pool_(size_of(padding_blocks_), block_count_ - size_of(padding_blocks_)) {
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    for (int kv = 0; kv < 2; ++kv)
      memory_.push_back(device.tensor(shape.type, {block_count_, shape.block_size, shape.kv_heads, shape.head_size}));
    layers_.push_back({memory_[memory_.size() - 2].view, memory_.back().view});
  }
}

std::int64_t KvCache::blocks_for(std::int64_t positions) const {
  return blocks_holding(positions, shape_.block_size);
}

std::int64_t KvCache::slot_bytes() const {
  return 2 * shape_.layers * row_bytes(shape_.type, shape_.kv_heads * shape_.head_size);
}

const KvViews& KvCache::layer(std::int64_t index) const {
  check(index >= 0 && index < shape_.layers, "KvCache: layer {} of {}", index, shape_.layers);
  return layers_[static_cast<std::size_t>(index)];
}

// What sequences hold, and what is set aside for the rows of their branches.
std::int64_t KvCache::home_blocks() const {
  std::int64_t count = 0;
  for (const Sequence& s : sequences_) count += size_of(s.has_branch ? branch_of(s).home : s.blocks);
  return count;
}

std::int64_t KvCache::free_positions() const {
  return (home_limit_ - home_blocks()) * shape_.block_size;
}

std::int32_t KvCache::padding_slot(std::int64_t i) const {
  check(i >= 0 && i < padding_slots_, "KvCache: padding slot {} of {}", i, padding_slots_);
  return static_cast<std::int32_t>(i);
}

std::span<const std::int32_t> KvCache::padding_blocks() const {
  return padding_blocks_;
}

// --- tables ---------------------------------------------------------------------------------------------------------

const KvCache::Sequence* KvCache::find_sequence(SequenceId id) const {
  const auto found = std::ranges::find(sequences_, id, &Sequence::id);
  return found == sequences_.end() ? nullptr : &*found;
}

const KvCache::OpenBranch* KvCache::find_branch(SequenceId id) const {
  const auto found = std::ranges::find(branches_, id, &OpenBranch::id);
  return found == branches_.end() ? nullptr : &*found;
}

const KvCache::Sequence& KvCache::sequence(SequenceId id) const {
  const Sequence* const found = find_sequence(id);
  check(found != nullptr, "KvCache: no sequence {}", id);
  return *found;
}

KvCache::Sequence& KvCache::sequence(SequenceId id) {
  return const_cast<Sequence&>(std::as_const(*this).sequence(id));
}

KvCache::Sequence& KvCache::sequence_without_branch(SequenceId id, std::string_view operation) {
  Sequence& found = sequence(id);
  check(!found.has_branch, "KvCache: {} of sequence {}, which has an open branch", operation, id);
  return found;
}

KvCache::OpenBranch& KvCache::branch(const Branch& handle) {
  return *std::ranges::find(branches_, handle.id_, &OpenBranch::id);
}

const KvCache::OpenBranch& KvCache::branch_of(const Sequence& sequence) const {
  return *std::ranges::find(branches_, sequence.id, &OpenBranch::sequence);
}

std::int64_t KvCache::length(SequenceId id) const {
  return sequence(id).length;
}

std::int32_t KvCache::slot_in(std::span<const std::int32_t> table, std::int64_t position) const {
  const std::int32_t block = table[static_cast<std::size_t>(position / shape_.block_size)];
  return static_cast<std::int32_t>(block * shape_.block_size + position % shape_.block_size);
}

std::int32_t KvCache::slot(SequenceId table, std::int64_t position) const {
  const OpenBranch* const open = find_branch(table);
  const std::int64_t positions = open != nullptr ? open->positions() : length(table);
  check(position >= 0 && position < positions, "KvCache: position {} of table {}, which has {}", position, table,
        positions);
  return slot_in(blocks(table), position);
}

std::span<const std::int32_t> KvCache::blocks(SequenceId table) const {
  const OpenBranch* const open = find_branch(table);
  return open != nullptr ? open->table : sequence(table).blocks;
}

// --- sequences ------------------------------------------------------------------------------------------------------

SequenceId KvCache::create() {
  sequences_.push_back({.id = next_id_});
  return next_id_++;
}

void KvCache::release(SequenceId id) {
  const Sequence released = std::move(sequence_without_branch(id, "release"));
  std::erase_if(sequences_, [id](const Sequence& s) { return s.id == id; });
  pool_.give_back(released.blocks);
  discard_blocks(released.blocks);
  operation_done();
}

void KvCache::truncate(SequenceId id, std::int64_t length) {
  Sequence& shortened = sequence_without_branch(id, "truncate");
  check(length >= 0 && length <= shortened.length, "KvCache: truncate sequence {} to {} of {} positions", id, length,
        shortened.length);
  const std::span<const std::int32_t> surplus = behind(shortened.blocks, blocks_for(length));
  const std::vector<std::int32_t> released(surplus.begin(), surplus.end());
  shortened.length = length;
  shortened.blocks.resize(shortened.blocks.size() - released.size());
  pool_.give_back(released);
  discard_blocks(released);
  discard_tail(shortened);
  operation_done();
}

// --- transactions ---------------------------------------------------------------------------------------------------

std::optional<Branch> KvCache::begin(SequenceId id, std::int64_t rows) {
  Sequence& opened = sequence_without_branch(id, "begin");
  check(rows >= 1, "KvCache: a branch of {} rows", rows);
  if (rows > home_limit_ * shape_.block_size) return std::nullopt;
  const std::int64_t more = blocks_for(opened.length + rows) - size_of(opened.blocks);
  if (home_blocks() + more > home_limit_) return std::nullopt;

  branches_.reserve(branches_.size() + 1);
  Loan behind_it(*this, more);
  OpenBranch branch{.id = next_id_, .sequence = id, .prefix = opened.length, .rows = rows, .home = opened.blocks};
  branch.home.insert(branch.home.end(), behind_it.blocks().begin(), behind_it.blocks().end());
  if (shared()) {
    branch.table = branch.home;
  } else {
    Loan copy(*this, size_of(branch.home));
    copy_prefix(opened, copy.blocks());
    branch.table = copy.keep();
  }
  // From here on nothing can fail.
  behind_it.keep();
  branches_.push_back(std::move(branch));
  opened.has_branch = true;
  ++counts_.branches;
  operation_done();
  return Branch(*this, next_id_++, opened.length, rows);
}

void KvCache::copy_prefix(const Sequence& sequence, std::span<const std::int32_t> to) {
  SlotMoves moves;
  for (std::int64_t p = 0; p < sequence.length; ++p) moves.add(slot_in(sequence.blocks, p), slot_in(to, p));
  std::int64_t done = 0;
  mover_.move(moves, layers_, done);
  counts_.bytes_branched += moves.size() * slot_bytes();
}

void KvCache::commit_length(Branch& handle, std::int64_t n) {
  const OpenBranch& open = branch(handle);
  check(n >= 0 && n <= open.rows, "Branch: commit {} of {} rows", n, open.rows);
  std::vector<std::int32_t> segment(static_cast<std::size_t>(n));
  std::iota(segment.begin(), segment.end(), static_cast<std::int32_t>(open.prefix));
  commit_segment(handle, segment);
}

void KvCache::commit_path(Branch& handle, std::span<const std::int32_t> positions) {
  const OpenBranch& open = branch(handle);
  check_positions(positions, open.positions());
  const bool in_order = keeps_prefix_in_order(positions, open.prefix);
  if (in_order && options_.reorder == Reorder::fast) {
    commit_segment(handle, behind(positions, open.prefix));
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
  OpenBranch& open = branch(handle);
  check_rows_are_whole(open.calls_done == 0 || std::ranges::equal(open.moving, segment));
  const std::int64_t length = open.prefix + size_of(segment);
  SlotMoves moves;
  for (std::int64_t j = open.prefix; j < length; ++j) {
    const std::int32_t source = slot_in(open.table, segment[static_cast<std::size_t>(j - open.prefix)]);
    const std::int32_t target = slot_in(open.home, j);
    if (source != target) moves.add(source, target);
  }
  std::vector<std::int32_t> blocks(open.home.begin(), open.home.begin() + blocks_for(length));
  if (shared()) {
    // Moved in place. No later pair reads a slot that an earlier one has written, as the mover wants: for i < j,
    // target i = prefix + i <= segment[i] < segment[j] = source j.
    open.moving.assign(segment.begin(), segment.end());
    mover_.move(moves, layers_, open.calls_done);
  } else {
    std::int64_t done = 0;  // from copies that stay as they are: a failed move may be made again, or another one
    mover_.move(moves, layers_, done);
  }
  counts_.bytes_committed += moves.size() * slot_bytes();
  ++counts_.commits;
  close(handle, std::move(blocks), length, blocks_for(length));
}

// Into fresh blocks; until they are all there the old ones are what counts.
void KvCache::commit_everything(Branch& handle, std::span<const std::int32_t> positions) {
  const OpenBranch& open = branch(handle);
  check_rows_are_whole(open.calls_done == 0);
  const std::int64_t needed = blocks_for(size_of(positions));
  if (needed > pool_.free())
    device_error("KvCache: reordering {} positions needs {} free blocks, {} are free", positions.size(), needed,
                 pool_.free());
  Loan fresh(*this, needed);
  SlotMoves moves;
  for (std::int64_t j = 0; j < size_of(positions); ++j)
    moves.add(slot_in(open.table, positions[static_cast<std::size_t>(j)]), slot_in(fresh.blocks(), j));
  std::int64_t done = 0;
  mover_.move(moves, layers_, done);
  counts_.bytes_committed += moves.size() * slot_bytes();
  ++counts_.commits;
  close(handle, fresh.keep(), size_of(positions), 0);
}

void KvCache::roll_back(Branch& handle) {
  Sequence& unchanged = sequence(branch(handle).sequence);
  const std::int64_t kept = size_of(unchanged.blocks);
  ++counts_.rollbacks;
  close(handle, std::move(unchanged.blocks), unchanged.length, kept);
}

// Ends a branch: its sequence now has these blocks, of which the first `kept` of the branch's home are part, and this
// length. Only discarding, when all tables are in order, can throw.
void KvCache::close(Branch& handle, std::vector<std::int32_t> blocks, std::int64_t length, std::int64_t kept) {
  OpenBranch& open = branch(handle);
  const OpenBranch closed = std::move(open);
  branches_.erase(branches_.begin() + (&open - branches_.data()));
  handle.cache_ = nullptr;
  Sequence& changed = sequence(closed.sequence);
  changed.blocks = std::move(blocks);
  changed.length = length;
  changed.has_branch = false;
  const std::span<const std::int32_t> surplus = behind(closed.home, kept);
  const std::span<const std::int32_t> copy = shared() ? std::span<const std::int32_t>() : closed.table;
  pool_.give_back(surplus);
  pool_.give_back(copy);

  discard_blocks(surplus);
  discard_blocks(copy);
  discard_tail(changed);
  operation_done();
}

// --- what nobody needs any more -------------------------------------------------------------------------------------

void KvCache::discard_blocks(std::span<const std::int32_t> blocks) {
  for (std::int32_t block : blocks) discard_slots(block * shape_.block_size, shape_.block_size);
}

void KvCache::discard_tail(const Sequence& sequence) {
  const std::int64_t unused = size_of(sequence.blocks) * shape_.block_size - sequence.length;
  if (unused > 0) discard_slots(slot_in(sequence.blocks, sequence.length), unused);
}

void KvCache::discard_slots(std::int64_t first, std::int64_t count) {
  for (const KvViews& layer : layers_)
    for (const View& memory : {layer.k, layer.v})
      device_->discard(
          memory.reshaped({memory.dim(0) * memory.dim(1), memory.dim(2), memory.dim(3)}).rows(first, count));
}

// --- conservation ---------------------------------------------------------------------------------------------------

void KvCache::operation_done() const {
  if (options_.check) check_conservation();
}

void KvCache::check_conservation() const {
  SlotCensus census(block_count_, shape_.block_size);
  const auto claim_rest = [&](std::span<const std::int32_t> table, std::int64_t used) {
    census.claim(table, used, size_of(table) * shape_.block_size, SlotUse::free);
  };
  census.claim(padding_blocks_, SlotUse::padding);
  census.claim(pool_.free_blocks(), SlotUse::free);
  for (const Sequence& s : sequences_) {
    const std::span<const std::int32_t> home = s.has_branch ? branch_of(s).home : s.blocks;
    const std::int64_t rows = s.has_branch ? branch_of(s).rows : 0;
    census.claim(home, 0, s.length, SlotUse::committed);
    census.claim(home, s.length, s.length + rows, SlotUse::speculative);  // also where a copied branch will land
    claim_rest(home, s.length + rows);
  }
  if (!shared())
    for (const OpenBranch& open : branches_) {
      census.claim(open.table, 0, open.positions(), SlotUse::speculative);
      claim_rest(open.table, open.positions());
    }
  census.check_complete();
}

}  // namespace espalier
