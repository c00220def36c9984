#include "model/step_tables.h"

#include <algorithm>

#include "base/error.h"

namespace espalier {
namespace {

// More ancestors than any tree that a step can hold are never needed.
constexpr std::int64_t kMaxAncestors = 256;
constexpr std::int64_t kSmallestBlock = 16;

// A table starts on 64 bytes and leaves 32 bytes of slack behind it, as accelerators that move 32-byte blocks need
// (R3 of the Ascend contract).
std::int64_t packed_size(std::int64_t values) {
  return (values + 8 + 15) / 16 * 16;
}

std::int64_t table_words(std::int64_t rows, std::int64_t positions) {
  constexpr std::int64_t kColumns = 9;  // seven columns of the rows, two lists of row numbers
  const std::int64_t blocks = positions / kSmallestBlock + 1;
  return kColumns * packed_size(rows) + packed_size(rows * kMaxAncestors) + packed_size(rows * blocks);
}

template <typename Wanted>
void append_rows(std::span<const Row> rows, Wanted wanted, std::vector<std::int32_t>& list) {
  for (std::size_t r = 0; r < rows.size(); ++r)
    if (wanted(rows[r])) list.push_back(static_cast<std::int32_t>(r));
}

}  // namespace

std::int64_t bucket_for(const Device& device, std::int64_t n) {
  const auto buckets = device.row_buckets();
  if (buckets.empty() || n == 0) return n;
  const auto it = std::lower_bound(buckets.begin(), buckets.end(), n);
  check(it != buckets.end(), "a step of {} rows: the largest bucket is {}", n, buckets.back());
  return *it;
}

StepTables::StepTables(Device& device, std::int64_t rows, std::int64_t positions)
    : device_(&device),
      positions_(positions),
      buffer_(device.tensor(DType::i32, {table_words(bucket_for(device, rows), positions)})) {}

struct StepTables::Layout {
  std::int64_t token, position, slot, sequence, begin, end, ancestor_count, ancestors, blocks, outputs, taps;
};

StepPlan StepTables::prepare(std::span<const Row> rows, const KvCache& cache) {
  check(cache.block_size() >= kSmallestBlock || positions_ <= kSmallestBlock,
        "blocks of {} slots, expected at least {}", cache.block_size(), kSmallestBlock);
  StepPlan plan;
  packed_.clear();
  padded_ = bucket_for(*device_, static_cast<std::int64_t>(rows.size()));
  list_sequences(rows);
  plan_outputs(rows, plan);
  plan.key.tables = this;
  plan.key.cache = &cache;
  plan.key.rows = padded_;
  plan.key.sequences = static_cast<std::int64_t>(sequences_.size());
  plan.key.blocks = (positions_ + cache.block_size() - 1) / cache.block_size();
  plan.key.ancestors = 1;
  for (const Row& row : rows)
    plan.key.ancestors = std::max(plan.key.ancestors, static_cast<std::int64_t>(row.ancestors.size()));
  check(plan.key.ancestors <= kMaxAncestors, "a row with {} ancestors, expected at most {}", plan.key.ancestors,
        kMaxAncestors);

  // A padding row has token 0 at position 0, writes a slot of its own and sees nothing but itself.
  const auto zero = [](std::int64_t) { return 0; };
  Layout at{};
  at.token = pack_column(
      rows, [](const Row& row) { return row.token; }, zero);
  at.position = pack_column(
      rows, [](const Row& row) { return row.position; }, zero);
  at.slot = pack_column(
      rows, [](const Row& row) { return row.slot; }, [&](std::int64_t i) { return cache.padding_slot(i); });
  at.sequence = pack_column(
      rows, [this](const Row& row) { return sequence_index(row.sequence); }, zero);
  at.begin = pack_column(
      rows, [](const Row& row) { return row.begin; }, zero);
  at.end = pack_column(
      rows, [](const Row& row) { return row.end; }, zero);
  at.ancestor_count = pack_column(
      rows, [](const Row& row) { return static_cast<std::int32_t>(row.ancestors.size()); }, zero);
  at.ancestors = pack_ancestors(rows, plan.key.ancestors);
  at.blocks = pack_blocks(cache, plan.key.blocks);
  at.outputs = pack_row_list(outputs_, plan.key.output_rows);
  at.taps = pack_row_list(taps_, plan.key.tap_rows);

  const auto words = static_cast<std::int64_t>(packed_.size());
  check(words <= buffer_.view.dim(0), "step tables of {} words, room for {}", words, buffer_.view.dim(0));
  upload<std::int32_t>(*device_, packed_, buffer_.view.rows(0, words));
  plan.rows = {
      .token = table(at.token, padded_),
      .position = table(at.position, padded_),
      .slot = table(at.slot, padded_),
      .sequence = table(at.sequence, padded_),
      .begin = table(at.begin, padded_),
      .end = table(at.end, padded_),
      .ancestor_count = table(at.ancestor_count, padded_),
      .ancestors = table(at.ancestors, padded_ * plan.key.ancestors).reshaped({padded_, plan.key.ancestors}),
      .blocks = table(at.blocks, plan.key.sequences * plan.key.blocks).reshaped({plan.key.sequences, plan.key.blocks}),
      .mask = {}};
  if (plan.key.output_rows > 0) plan.output_rows = table(at.outputs, plan.key.output_rows);
  if (plan.key.tap_rows > 0) plan.tap_rows = table(at.taps, plan.key.tap_rows);
  return plan;
}

// The sequences of the step in the order of their first rows; a row's table entry is an index into these.
void StepTables::list_sequences(std::span<const Row> rows) {
  sequences_.clear();
  for (const Row& row : rows)
    if (std::ranges::find(sequences_, row.sequence) == sequences_.end()) sequences_.push_back(row.sequence);
}

std::int32_t StepTables::sequence_index(SequenceId id) const {
  return static_cast<std::int32_t>(std::ranges::find(sequences_, id) - sequences_.begin());
}

void StepTables::plan_outputs(std::span<const Row> rows, StepPlan& plan) {
  outputs_.clear();
  taps_.clear();
  append_rows(
      rows, [](const Row& row) { return row.wants_logits; }, outputs_);
  plan.wanted_logits = static_cast<std::int64_t>(outputs_.size());
  append_rows(
      rows, [](const Row& row) { return row.wants_hidden && !row.wants_logits; }, outputs_);
  append_rows(
      rows, [](const Row& row) { return row.wants_taps; }, taps_);
  plan.wanted_outputs = static_cast<std::int64_t>(outputs_.size());
  plan.wanted_taps = static_cast<std::int64_t>(taps_.size());
  plan.key.logit_rows = bucket_for(*device_, plan.wanted_logits);
}

std::int64_t StepTables::pack(std::span<const std::int32_t> values) {
  const auto begin = static_cast<std::int64_t>(packed_.size());
  packed_.insert(packed_.end(), values.begin(), values.end());
  packed_.resize(static_cast<std::size_t>(begin + packed_size(static_cast<std::int64_t>(values.size()))));
  return begin;
}

// One value per row; padding row i, counted from 0, gets pad(i).
template <typename Value, typename Pad>
std::int64_t StepTables::pack_column(std::span<const Row> rows, Value value, Pad pad) {
  column_.clear();
  for (const Row& row : rows) column_.push_back(value(row));
  for (std::int64_t i = 0; static_cast<std::int64_t>(column_.size()) < padded_; ++i) column_.push_back(pad(i));
  return pack(column_);
}

std::int64_t StepTables::pack_ancestors(std::span<const Row> rows, std::int64_t width) {
  column_.assign(static_cast<std::size_t>(padded_ * width), 0);
  for (std::size_t r = 0; r < rows.size(); ++r)
    std::ranges::copy(rows[r].ancestors, column_.begin() + static_cast<std::ptrdiff_t>(r) * width);
  return pack(column_);
}

std::int64_t StepTables::pack_blocks(const KvCache& cache, std::int64_t width) {
  column_.assign(sequences_.size() * static_cast<std::size_t>(width), 0);
  for (std::size_t s = 0; s < sequences_.size(); ++s) {
    const auto blocks = cache.blocks(sequences_[s]);
    check(static_cast<std::int64_t>(blocks.size()) <= width, "sequence {} has {} blocks, the step's tables hold {}",
          sequences_[s], blocks.size(), width);
    std::ranges::copy(blocks, column_.begin() + static_cast<std::ptrdiff_t>(s) * width);
  }
  return pack(column_);
}

// Row numbers, padded to a bucket with row 0; `padded` becomes their number.
std::int64_t StepTables::pack_row_list(std::span<const std::int32_t> list, std::int64_t& padded) {
  padded = bucket_for(*device_, static_cast<std::int64_t>(list.size()));
  column_.assign(list.begin(), list.end());
  column_.resize(static_cast<std::size_t>(padded));
  return pack(column_);
}

}  // namespace espalier
