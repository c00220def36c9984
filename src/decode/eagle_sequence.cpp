#include "decode/eagle_sequence.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

// As many places from `first` on.
std::vector<std::int32_t> places_from(std::int64_t first, std::int64_t count) {
  std::vector<std::int32_t> places(static_cast<std::size_t>(count));
  std::iota(places.begin(), places.end(), static_cast<std::int32_t>(first));
  return places;
}

}  // namespace

// The row at the place behind the last one needs the feature of the last position, and nothing else is lacking where
// the head has the places before. While it rests it would write nothing behind them, so they are of no use.
bool EagleDrafter::Sequence::reused(std::span<const std::int32_t> tokens) {
  const std::int64_t length = std::ssize(tokens);
  start_cold(length);
  if (resting_) return false;
  const std::int64_t from = drafter_->memory_->written_from(drafter_->cache_->blocks(sequence_), length);
  if (from == length && length != 1) return false;  // before place 1 there is nothing to have
  first_ = from;
  end_ = length;
  return true;
}

// Its first feature will be that of this position.
void EagleDrafter::Sequence::start_cold(std::int64_t position) {
  first_ = end_ = position + 1;
  forget_all();
  lasting_rows_.clear();
}

void EagleDrafter::Sequence::forget_all() {
  drafter_->give_back(kept_);
  kept_.clear();
  next_.clear();
  waiting_ = 0;
}

void EagleDrafter::Sequence::rest(bool resting) {
  resting_ = resting && drafter_->starts_cold_anywhere();
}

void EagleDrafter::Sequence::committed(const CommittedRows& all) {
  CommittedRows rows = all.from(end_ - 1 + waiting_);
  if (rows.tokens.empty()) return;
  check(!rows.taps.empty(), "eagle: position {} committed without taps", rows.begin);
  const std::int64_t end = rows.begin + std::ssize(rows.tokens);
  const bool fits = waiting_ == 0 && rows.begin == end_ - 1 && std::ssize(rows.tokens) <= drafter_->waiting_rows_;
  if (rows.lasting && fits && !resting_) {
    lasting_ = rows.taps;
    lasting_rows_.assign(rows.rows.begin(), rows.rows.end());
    waiting_ = std::ssize(lasting_rows_);
    next_.assign(rows.tokens.begin() + 1, rows.tokens.end());
    return;
  }
  save_lasting();
  // Of a long text a sequence that rests only has the end.
  if (resting_) rows = rows.from(end - drafter_->waiting_rows_);
  if (rows.begin > end_ - 1 + waiting_) start_cold(rows.begin);
  while (!rows.tokens.empty()) {
    const auto count = std::min(static_cast<std::size_t>(drafter_->waiting_rows_), rows.tokens.size());
    const auto part = rows.tokens.first(count);
    if (waiting_ > std::ssize(next_)) next_.push_back(part[0]);
    make_room(std::ssize(part));
    push(rows.taps, rows.rows.first(count));
    next_.insert(next_.end(), part.begin() + 1, part.end());
    rows = rows.from(rows.begin + std::ssize(part));
  }
}

// What has to go becomes rows; where it rests, or blocks are short, it is lost.
void EagleDrafter::Sequence::make_room(std::int64_t count) {
  const std::int64_t more = waiting_ + count - drafter_->waiting_rows_;
  if (more <= 0) return;
  if (resting_ || !run_alone(waiting_)) forget(more);
}

// The oldest of what waits; the head will start cold behind it.
void EagleDrafter::Sequence::forget(std::int64_t count) {
  advance(count);
  first_ = end_;
}

// The oldest of what waits wait no more.
void EagleDrafter::Sequence::advance(std::int64_t count) {
  check(lasting_rows_.empty() || count == waiting_, "eagle: {} of {} lasting features", count, waiting_);
  lasting_rows_.clear();
  end_ += count;
  waiting_ -= count;
  oldest_ = (oldest_ + count) % drafter_->ring_rows();
  const auto gone = kept_.begin() + std::min<std::ptrdiff_t>(count, std::ssize(kept_));
  drafter_->give_back({kept_.begin(), gone});
  kept_.erase(kept_.begin(), gone);
  next_.erase(next_.begin(), next_.begin() + std::min<std::ptrdiff_t>(count, std::ssize(next_)));
}

std::int64_t EagleDrafter::Sequence::first_of_ring() const {
  return ring_ * (drafter_->ring_rows() + drafter_->padding(drafter_->waiting_rows_));
}

void EagleDrafter::Sequence::push(ConstView taps, std::span<const std::int32_t> rows) {
  if (drafter_->pads()) return push_padded(taps, rows);
  for (const std::int32_t row : rows) kept_.push_back(drafter_->note_taps(taps, row));
  waiting_ += std::ssize(rows);
}

// A padded copy overwrites rows behind those it is for: rows of the ring that nothing waits in, or those behind it.
void EagleDrafter::Sequence::push_padded(ConstView taps, std::span<const std::int32_t> rows) {
  while (!rows.empty()) {
    const std::int64_t at = (oldest_ + waiting_) % drafter_->ring_rows();
    const std::int64_t count = std::min(std::ssize(rows), drafter_->ring_rows() - at);
    const auto part = rows.first(static_cast<std::size_t>(count));
    drafter_->copy_rows(taps, part, drafter_->taps_, first_of_ring() + at);
    for (std::int64_t i = 0; i < count; ++i) kept_.push_back(static_cast<std::int32_t>(first_of_ring() + at + i));
    waiting_ += count;
    rows = rows.subspan(part.size());
  }
}

void EagleDrafter::Sequence::save_lasting() {
  if (lasting_rows_.empty()) return;
  waiting_ = 0;
  push(lasting_, std::exchange(lasting_rows_, {}));
}

void EagleDrafter::Sequence::settle() {
  save_lasting();
  if (!resting_) run_alone(std::ssize(next_));
  forget_all();
}

// Makes rows of the first `count` of what waits, on the open branch.
void EagleDrafter::Sequence::run_rows(std::int64_t count) {
  DraftPass pass;
  std::vector<std::int32_t> taps;
  pass.add(waiting_rows(count, taps));
  drafter_->fuse(taps);
  const DraftJob alone{.sequence = this};
  pass.run(drafter_->step_rows_, [&](std::span<const Row> rows, std::span<const DraftPart> parts) {
    const StepCheck check = drafter_->check_of(std::span(&alone, 1), parts, true);
    drafter_->head_->forward(rows, drafter_->vectors_, drafter_->workspace_, check);
    return Guesses();
  });
}

// The same outside of a round. False: blocks are short.
bool EagleDrafter::Sequence::run_alone(std::int64_t count) {
  if (count == 0) return true;
  std::optional<Branch> branch = drafter_->cache_->begin(sequence_, 1, end_);
  if (!branch) return false;
  branch_ = &*branch;
  run_rows(count);
  branch->keep(*drafter_->memory_, {.to = end_, .from = places_from(end_, count)});
  branch->commit_length(0);
  advance(count);
  return true;
}

void EagleDrafter::Sequence::begin_round(const DraftRound& round) {
  check(std::ssize(round.tokens) == end_ + waiting_, "eagle: a round behind {} tokens, {} rows and {} features",
        round.tokens.size() - 1, end_, waiting_);
  root_ = round.tokens.back();
  branch_ = round.branch;
  seeded_ = false;
  drafted_.clear();
  rows_.clear();
}

// What waited is written now; the tree's rows are not kept.
void EagleDrafter::Sequence::end_round(const DraftVerdict& verdict) {
  if (!seeded_) return;
  verdict.branch.keep(*drafter_->memory_, {.to = end_, .from = places_from(end_, waiting_)});
  advance(waiting_);
}

std::int32_t EagleDrafter::Sequence::context_begin(std::int64_t end) const {
  const std::int64_t window = drafter_->options_.window;
  return static_cast<std::int32_t>(std::max(first_, window == 0 ? 0 : end - window));
}

// The token behind the position of feature i; behind the last one stands the root.
std::int32_t EagleDrafter::Sequence::next_token(std::int64_t i) const {
  return i < std::ssize(next_) ? next_[static_cast<std::size_t>(i)] : root_;
}

RunOfStep EagleDrafter::Sequence::expected_run(const DraftPart& part) const {
  RunOfStep run{.branch = branch_->id(),
                .first = static_cast<std::int32_t>(end_ + part.begin),
                .position = static_cast<std::int32_t>(end_ + part.begin - 1),
                .begin = static_cast<std::int32_t>(first_)};
  for (std::int64_t i = part.begin; i < part.end; ++i) run.tokens.push_back(next_token(i));
  return run;
}

// The features in the order of their places, each with the token behind it.
std::vector<Row> EagleDrafter::Sequence::waiting_rows(std::int64_t count, std::vector<std::int32_t>& taps) const {
  std::vector<Row> rows;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto place = static_cast<std::int32_t>(end_ + i);
    rows.push_back({.sequence = branch_->id(),
                    .token = next_token(i),
                    .position = place - 1,
                    .place = place,
                    .begin = context_begin(place),
                    .end = place,
                    .input = static_cast<std::int32_t>(taps.size())});
    if (lasting_rows_.empty()) taps.push_back(kept_[static_cast<std::size_t>(i)]);
  }
  return rows;
}

std::vector<Row> EagleDrafter::Sequence::seed_rows(std::vector<std::int32_t>& taps) {
  check(waiting_ > 0, "eagle: no feature is waiting behind {} rows", end_);
  save_lasting();
  std::vector<Row> rows = waiting_rows(waiting_, taps);
  rows.back().wants_logits = true;
  rows_[0].vector = static_cast<std::int32_t>(drafter_->first_output() + drafter_->outputs_++);
  seeded_ = true;
  return rows;
}

std::vector<Row> EagleDrafter::Sequence::resident_rows(std::int64_t most, const LastingFeatures& features,
                                                       std::int64_t entry) {
  check(waiting_ > 0, "eagle: no feature is waiting behind {} rows", end_);
  if (std::ssize(lasting_rows_) > most) save_lasting();
  seeded_ = true;
  std::vector<std::int32_t> taps;
  std::vector<Row> rows;
  if (lasting_rows_.empty()) {
    if (waiting_ > 1) run_rows(waiting_ - 1);
    rows = waiting_rows(waiting_, taps);
    drafter_->copies_.note(drafter_->taps_, taps.back(), features.taps, static_cast<std::int32_t>(entry));
    rows.erase(rows.begin(), rows.end() - 1);
    rows[0].input = static_cast<std::int32_t>(entry);
    return rows;
  }
  rows = waiting_rows(waiting_, taps);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].input = lasting_rows_[i];
  return rows;
}

std::vector<Row> EagleDrafter::Sequence::node_rows(const Candidates& candidates, std::span<const int> nodes) {
  const std::int32_t first = tree_place();
  std::vector<Row> rows;
  for (int node : nodes) {
    const Candidate& candidate = candidates[node];
    const DraftRow& parent = rows_.at(candidate.parent);
    const auto place = first + static_cast<std::int32_t>(drafted_.size());
    DraftRow drafted{.places = parent.places};
    rows.push_back({.sequence = branch_->id(),
                    .token = candidate.token,
                    .position = first - 2 + candidate.depth,
                    .place = place,
                    .begin = context_begin(first),
                    .end = first,
                    .ancestors = drafted.places,
                    .input = parent.vector,
                    .wants_logits = true});
    drafted.places.push_back(place);
    drafted.vector = static_cast<std::int32_t>(drafter_->first_output() + drafter_->outputs_++);
    rows_.insert_or_assign(node, std::move(drafted));
    drafted_.push_back(node);
  }
  return rows;
}

EagleDrafter::Sequence::NodePlaces EagleDrafter::Sequence::node_places() const {
  return {.prefix = tree_place(), .begin = context_begin(tree_place()), .root_position = tree_place() - 2};
}

}  // namespace espalier
