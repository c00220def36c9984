#include "cache/block_tables.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "cache/slot_census.h"

namespace espalier {
namespace {

constexpr std::int64_t kMostSlots = std::numeric_limits<std::int32_t>::max();

const TablesShape& checked(const TablesShape& shape) {
  check(shape.block_size >= 1 && shape.padding_slots >= 0, "BlockTables: block size {}, {} padding slots",
        shape.block_size, shape.padding_slots);
  check(shape.positions >= 1 && shape.positions <= kMostSlots, "BlockTables: {} positions", shape.positions);
  return shape;
}

// Blocks a pool needs for each block that sequences may hold: the block itself, its copy in a branch, and a fresh one
// when everything is gathered.
std::int64_t pool_factor(const TablesShape& shape) {
  return 1 + (shape.strategy == CacheStrategy::replicate ? 1 : 0) + (shape.reorder == Reorder::full ? 1 : 0);
}

std::int64_t checked_count(std::int64_t blocks, std::int64_t block_size) {
  check(blocks <= kMostSlots / block_size, "BlockTables: {} blocks of {} slots", blocks, block_size);
  return blocks;
}

std::vector<std::int32_t> first_blocks(std::int64_t count) {
  std::vector<std::int32_t> blocks(static_cast<std::size_t>(count));
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

// Tables of one sequence hold a block at one index only: whether `table` has this one there.
bool holds(std::span<const std::int32_t> table, std::size_t index, std::int32_t block) {
  return index < table.size() && table[index] == block;
}

// Of `table`, what `other` does not have.
std::vector<std::int32_t> apart_from(std::span<const std::int32_t> table, std::span<const std::int32_t> other) {
  std::vector<std::int32_t> own;
  for (std::size_t i = 0; i < table.size(); ++i)
    if (!holds(other, i, table[i])) own.push_back(table[i]);
  return own;
}

}  // namespace

BlockTables::BlockTables(const TablesShape& shape)
    : shape_(checked(shape)),
      home_limit_(blocks_for(shape.positions)),
      padding_blocks_(first_blocks(blocks_for(shape.padding_slots))),
      block_count_(checked_count(std::ssize(padding_blocks_) + pool_factor(shape) * home_limit_, shape.block_size)),
      pool_(std::ssize(padding_blocks_), block_count_ - std::ssize(padding_blocks_)),
      references_(static_cast<std::size_t>(block_count_)),
      published_(static_cast<std::size_t>(block_count_)),
      place_in_shared_(static_cast<std::size_t>(block_count_)) {
  for (auto* list : {&freed_, &shared_}) list->reserve(static_cast<std::size_t>(block_count_));
}

std::int64_t BlockTables::blocks_for(std::int64_t positions) const {
  return (positions + shape_.block_size - 1) / shape_.block_size;
}

std::int64_t BlockTables::free_positions() const {
  return (home_limit_ - home_blocks_) * shape_.block_size;
}

// --- tables ---------------------------------------------------------------------------------------------------------

const BlockTables::Sequence& BlockTables::sequence(SequenceId id) const {
  const auto found = sequences_.find(id);
  check(found != sequences_.end(), "BlockTables: no sequence {}", id);
  return found->second;
}

BlockTables::Sequence& BlockTables::sequence(SequenceId id) {
  return const_cast<Sequence&>(std::as_const(*this).sequence(id));
}

BlockTables::Sequence& BlockTables::sequence_without_branch(SequenceId id, std::string_view operation) {
  Sequence& found = sequence(id);
  check(!found.branch, "BlockTables: {} of sequence {}, which has an open branch", operation, id);
  return found;
}

const BlockTables::OpenBranch& BlockTables::branch(SequenceId id) const {
  const auto found = branches_.find(id);
  check(found != branches_.end(), "BlockTables: no open branch {}", id);
  return found->second;
}

BlockTables::OpenBranch& BlockTables::open_branch(SequenceId id) {
  return const_cast<OpenBranch&>(branch(id));
}

std::int64_t BlockTables::length(SequenceId id) const {
  return sequence(id).length;
}

std::int32_t BlockTables::slot_in(std::span<const std::int32_t> blocks, std::int64_t position) const {
  const std::int32_t block = blocks[static_cast<std::size_t>(position / shape_.block_size)];
  return static_cast<std::int32_t>(block * shape_.block_size + position % shape_.block_size);
}

std::int32_t BlockTables::slot(SequenceId table, std::int64_t position) const {
  const auto open = branches_.find(table);
  const std::int64_t positions = open != branches_.end() ? open->second.positions() : length(table);
  check(position >= 0 && position < positions, "BlockTables: position {} of table {}, which has {}", position, table,
        positions);
  return slot_in(blocks(table), position);
}

std::span<const std::int32_t> BlockTables::blocks(SequenceId table) const {
  const auto open = branches_.find(table);
  return open != branches_.end() ? open->second.table : sequence(table).blocks;
}

std::int32_t BlockTables::padding_slot(std::int64_t i) const {
  check(i >= 0 && i < shape_.padding_slots, "BlockTables: padding slot {} of {}", i, shape_.padding_slots);
  return static_cast<std::int32_t>(i);
}

// --- blocks ---------------------------------------------------------------------------------------------------------

// Its one holder is whoever asked.
std::int32_t BlockTables::take() {
  const std::int32_t block = pool_.take();
  references_[static_cast<std::size_t>(block)] = 1;
  return block;
}

void BlockTables::hold(std::int32_t block) {
  check(references(block) > 0 || published(block), "BlockTables: block {}, which is free, cannot be shared", block);
  if (references_[static_cast<std::size_t>(block)]++ > 0) return;
  --cached_;
  list_shared(block);
}

void BlockTables::let_go(std::int32_t block) {
  if (--references_[static_cast<std::size_t>(block)] > 0) return;
  if (published(block)) {
    ++cached_;
    unlist_shared(block);
  } else {
    --home_blocks_;
    give_back(block);
  }
}

void BlockTables::let_go(std::span<const std::int32_t> blocks) {
  for (std::int32_t block : blocks) let_go(block);
}

void BlockTables::give_back(std::int32_t block) {
  references_[static_cast<std::size_t>(block)] = 0;
  pool_.give_back(std::span(&block, 1));
  freed_.push_back(block);
}

void BlockTables::publish(std::int32_t block) {
  check(references(block) > 0 && !published(block), "BlockTables: block {} cannot be published: {}", block,
        published(block) ? "it is" : "nobody holds it");
  published_[static_cast<std::size_t>(block)] = true;
  list_shared(block);
}

void BlockTables::list_shared(std::int32_t block) {
  place_in_shared_[static_cast<std::size_t>(block)] = static_cast<std::int32_t>(shared_.size());
  shared_.push_back(block);
}

// The last one takes its place.
void BlockTables::unlist_shared(std::int32_t block) {
  const std::int32_t place = place_in_shared_[static_cast<std::size_t>(block)];
  shared_[static_cast<std::size_t>(place)] = shared_.back();
  place_in_shared_[static_cast<std::size_t>(shared_.back())] = place;
  shared_.pop_back();
}

void BlockTables::evict(std::int32_t block) {
  check(references(block) == 0 && published(block), "BlockTables: block {} cannot be evicted: {}", block,
        published(block) ? "somebody holds it" : "it is not published");
  published_[static_cast<std::size_t>(block)] = false;
  --cached_;
  --home_blocks_;
  give_back(block);
}

// --- sequences ------------------------------------------------------------------------------------------------------

SequenceId BlockTables::create() {
  sequences_.emplace(next_id_, Sequence());
  return next_id_++;
}

SequenceId BlockTables::fork(SequenceId id, std::int64_t length) {
  const Sequence& forked = sequence_without_branch(id, "fork");
  check(length >= 0 && length <= forked.length, "BlockTables: fork sequence {} at {} of {} positions", id, length,
        forked.length);
  Sequence copy{
      .length = length, .blocks = {forked.blocks.begin(), forked.blocks.begin() + blocks_for(length)}, .branch = {}};
  const auto forked_at = sequences_.emplace(next_id_, std::move(copy)).first;
  for (std::int32_t block : forked_at->second.blocks) hold(block);
  return next_id_++;
}

void BlockTables::release(SequenceId id) {
  const Sequence released = std::move(sequence_without_branch(id, "release"));
  sequences_.erase(id);
  let_go(released.blocks);
}

void BlockTables::truncate(SequenceId id, std::int64_t length) {
  Sequence& shortened = sequence_without_branch(id, "truncate");
  check(length >= 0 && length <= shortened.length, "BlockTables: truncate sequence {} to {} of {} positions", id,
        length, shortened.length);
  const auto kept = static_cast<std::size_t>(blocks_for(length));
  let_go(std::span(shortened.blocks).subspan(kept));
  shortened.blocks.resize(kept);
  shortened.length = length;
}

void BlockTables::share(SequenceId id, std::span<const std::int32_t> blocks) {
  Sequence& longer = sequence_without_branch(id, "share");
  check(longer.length % shape_.block_size == 0, "BlockTables: sequence {} ends inside a block, after {} positions", id,
        longer.length);
  longer.blocks.reserve(longer.blocks.size() + blocks.size());
  for (std::int32_t block : blocks) {
    hold(block);
    longer.blocks.push_back(block);
    longer.length += shape_.block_size;
  }
}

std::optional<BlockCopy> BlockTables::append_copy(SequenceId id, std::int32_t block, std::int64_t slots) {
  Sequence& longer = sequence_without_branch(id, "append_copy");
  check(longer.length % shape_.block_size == 0, "BlockTables: sequence {} ends inside a block, after {} positions", id,
        longer.length);
  check(slots >= 1 && slots <= shape_.block_size, "BlockTables: {} slots of a block of {}", slots, shape_.block_size);
  check(references(block) > 0 || published(block), "BlockTables: block {}, which is free, cannot be copied", block);
  if (home_blocks_ + 1 > home_limit_) return std::nullopt;
  longer.blocks.reserve(longer.blocks.size() + 1);
  longer.blocks.push_back(take());
  ++home_blocks_;
  longer.length += slots;
  return BlockCopy{block, longer.blocks.back(), slots};
}

// --- branches -------------------------------------------------------------------------------------------------------

// All memory is there before the first block is taken: where it is short nothing has changed.
std::optional<SequenceId> BlockTables::begin(SequenceId id, std::int64_t rows, std::int64_t from) {
  Sequence& opened = sequence_without_branch(id, "begin");
  check(rows >= 1, "BlockTables: a branch of {} rows", rows);
  check(from >= 0 && from <= opened.length, "BlockTables: a branch that writes from {} on behind {} positions", from,
        opened.length);
  if (rows > home_limit_ * shape_.block_size) return std::nullopt;
  const auto old_blocks = opened.blocks.size(), first = static_cast<std::size_t>(from / shape_.block_size);
  std::vector<std::size_t> not_writable;
  for (std::size_t i = first; i < old_blocks; ++i)
    if (!writable(opened.blocks[i])) not_writable.push_back(i);
  const auto all_blocks = static_cast<std::size_t>(blocks_for(opened.length + rows));
  const std::int64_t more = static_cast<std::int64_t>(all_blocks - old_blocks) + std::ssize(not_writable);
  if (home_blocks_ + more > home_limit_) return std::nullopt;

  OpenBranch& branch = new_branch();
  try {
    branch.home.reserve(all_blocks);
    branch.table.reserve(all_blocks);
    branch.copies.reserve(replicates() ? 2 * all_blocks : not_writable.size());
  } catch (...) {
    branches_.erase(next_id_);
    throw;
  }
  branch.sequence = id;
  branch.prefix = opened.length;
  branch.rows = rows;
  branch.home.assign(opened.blocks.begin(), opened.blocks.end());
  home_blocks_ += more;
  for (std::size_t index : not_writable) {
    branch.home[index] = take();
    add_copy(branch, opened.blocks[index], branch.home[index], index);
  }
  while (branch.home.size() < all_blocks) branch.home.push_back(take());
  branch.table = branch.home;
  if (replicates()) replicate(branch, opened.blocks);
  opened.branch = next_id_;
  return next_id_++;
}

// With the memory of one that was closed, where there is one: rounds open and close branches all the time.
BlockTables::OpenBranch& BlockTables::new_branch() {
  closed_.reserve(branches_.size() + closed_.size() + 1);
  if (closed_.empty()) return branches_.emplace(next_id_, OpenBranch()).first->second;
  closed_.back().key() = next_id_;
  OpenBranch& branch = branches_.insert(std::move(closed_.back())).position->second;
  closed_.pop_back();
  return branch;
}

// The committed slots of block `index` go from one to the other.
void BlockTables::add_copy(OpenBranch& branch, std::int32_t from, std::int32_t to, std::size_t index) const {
  const std::int64_t before = static_cast<std::int64_t>(index) * shape_.block_size;
  const std::int64_t slots = std::min(shape_.block_size, branch.prefix - before);
  if (slots > 0) branch.copies.push_back({from, to, slots});
}

// A copy of every block that could be written; the others are as safe where they are.
void BlockTables::replicate(OpenBranch& branch, std::span<const std::int32_t> committed) {
  for (std::size_t i = 0; i < branch.table.size(); ++i) {
    if (!writable(branch.home[i])) continue;
    branch.table[i] = take();
    if (i < committed.size()) add_copy(branch, committed[i], branch.table[i], i);
  }
}

bool BlockTables::take_fresh(SequenceId id, std::int64_t length) {
  OpenBranch& open = open_branch(id);
  check(open.fresh.empty(), "BlockTables: branch {} has fresh blocks already", id);
  std::vector<std::int32_t> fresh(open.home.begin(), open.home.begin() + blocks_for(length));
  const std::int64_t needed = std::ranges::count_if(fresh, [this](std::int32_t block) { return writable(block); });
  if (needed > pool_.free()) return false;
  for (std::int32_t& block : fresh)
    if (writable(block)) block = take();
  open.fresh = std::move(fresh);
  return true;
}

void BlockTables::give_back_fresh(SequenceId id) {
  OpenBranch& open = open_branch(id);
  for (std::size_t i = 0; i < open.fresh.size(); ++i)
    if (!holds(open.home, i, open.fresh[i])) give_back(open.fresh[i]);
  open.fresh.clear();
}

void BlockTables::commit(SequenceId id, std::int64_t length) {
  const OpenBranch& open = branch(id);
  check(length >= open.prefix && length <= open.positions(), "BlockTables: commit {} of {} to {} positions", length,
        open.prefix, open.positions());
  const std::span<const std::int32_t> home = open.fresh.empty() ? open.home : open.fresh;
  const auto committed = home.first(static_cast<std::size_t>(blocks_for(length)));
  Sequence& changed = sequence(open.sequence);
  if (std::ranges::equal(committed, changed.blocks)) {
    changed.length = length;
    return close(id, changed.blocks);
  }
  std::vector<std::int32_t> blocks(committed.begin(), committed.end());
  changed.blocks.swap(blocks);
  changed.length = length;
  close(id, blocks);
}

void BlockTables::roll_back(SequenceId id) {
  close(id, sequence(branch(id).sequence).blocks);
}

// Ends a branch: what was held for it and for its sequence, which had these blocks before, is let go where the sequence
// does not have it now. Takes no memory, so it cannot fail.
void BlockTables::close(SequenceId id, std::span<const std::int32_t> before) {
  closed_.push_back(branches_.extract(id));
  OpenBranch& closed = closed_.back().mapped();
  Sequence& changed = sequence(closed.sequence);
  changed.branch.reset();
  const std::span<const std::int32_t> after = changed.blocks;

  for (std::size_t i = 0; i < closed.table.size(); ++i)
    if (!holds(closed.home, i, closed.table[i])) give_back(closed.table[i]);
  for (std::size_t i = 0; i < closed.fresh.size(); ++i) {
    if (holds(closed.home, i, closed.fresh[i])) continue;
    if (holds(after, i, closed.fresh[i]))
      ++home_blocks_;
    else
      give_back(closed.fresh[i]);
  }
  for (std::size_t i = 0; i < closed.home.size(); ++i)
    if (!holds(before, i, closed.home[i]) && !holds(after, i, closed.home[i])) let_go(closed.home[i]);
  for (std::size_t i = 0; i < before.size(); ++i)
    if (!holds(after, i, before[i])) let_go(before[i]);
  for (auto* list : {&closed.home, &closed.table, &closed.fresh}) list->clear();
  closed.copies.clear();
}

// --- conservation ---------------------------------------------------------------------------------------------------

void BlockTables::check_conservation() const {
  std::vector<std::int32_t> held(static_cast<std::size_t>(block_count_));
  SlotCensus census(block_count_, shape_.block_size);
  const auto count = [&](std::span<const std::int32_t> blocks) {
    for (std::int32_t block : blocks) ++held.at(static_cast<std::size_t>(block));
  };
  census.claim(padding_blocks_, SlotUse::padding);
  census.claim(pool_.free_blocks(), SlotUse::free);
  for (const auto& [id, sequence] : sequences_) {
    count(sequence.blocks);
    census.claim(sequence.blocks, 0, sequence.length, SlotUse::held);
  }
  for (const auto& [id, open] : branches_) {
    const auto& blocks = sequence(open.sequence).blocks;
    count(apart_from(open.home, blocks));
    count(apart_from(open.table, open.home));
    count(apart_from(open.fresh, open.home));
    // Also where a copied branch will land. What it copied it holds, and may write again.
    census.claim(open.home, open.prefix, open.positions(), SlotUse::speculative);
    const std::vector<std::int32_t> copies = apart_from(open.home, blocks);
    census.fill(copies, SlotUse::speculative);
    census.fill(apart_from(open.table, open.home), SlotUse::speculative);
    census.fill(apart_from(open.fresh, open.home), SlotUse::speculative);
  }
  std::int64_t cached = 0, shared = 0;
  for (std::int32_t block = 0; block < block_count_; ++block) {
    check(held[static_cast<std::size_t>(block)] == references(block),
          "KV blocks: block {} is held {} times, counted {}", block, held[static_cast<std::size_t>(block)],
          references(block));
    if (references(block) > 0) census.fill(std::span(&block, 1), SlotUse::free);
    shared += references(block) > 0 && published(block) ? 1 : 0;
    if (references(block) > 0 || !published(block)) continue;
    census.claim(std::span(&block, 1), SlotUse::cached);
    ++cached;
  }
  check(cached == cached_, "KV blocks: {} are cached, counted {}", cached, cached_);
  check(shared == std::ssize(shared_) &&
            std::ranges::all_of(shared_, [&](std::int32_t block) { return references(block) > 0 && published(block); }),
        "KV blocks: {} are published and held, {} are listed", shared, shared_.size());
  census.check_complete();
}

}  // namespace espalier
