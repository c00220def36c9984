#include "model/step_tables.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace espalier {
namespace {

// What the tables have room for: more ancestors than any tree that a step can hold are never needed, and a table of
// blocks ends with a whole one.
constexpr std::int64_t kMaxAncestors = 256;
constexpr std::int64_t kSmallestBlock = 16;
constexpr std::int64_t kLargestBlock = 512;

std::int64_t table_words(const Device& device, std::int64_t rows, std::int64_t positions) {
  constexpr std::int64_t kColumns = 10;  // eight columns of the rows, two lists of row numbers
  const std::int64_t blocks = std::max(rows, positions) / kSmallestBlock + 1;
  return kColumns * part_elements(device, rows) + part_elements(device, rows * kMaxAncestors) +
         part_elements(device, (rows + 1) * blocks);
}

std::int64_t round_up(std::int64_t n, std::int64_t step) {
  return (n + step - 1) / step * step;
}

// Room for a mask over every place, and over the padding slots where they are more.
std::int64_t widest_mask(std::int64_t rows, std::int64_t positions) {
  return round_up(std::max(rows, positions) + kLargestBlock, kMaskColumns);
}

std::int64_t power_of_two_for(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
}

int number_of(const StepForm& form) {
  return form.attention == AttentionOp::eager ? 2 : form.mask == MaskForm::dense ? 1 : 0;
}
constexpr int kFirstPlacedForm = 16;  // of steps whose tables lie elsewhere

template <typename Wanted>
void append_rows(std::span<const Row> rows, Wanted wanted, std::vector<std::int32_t>& list) {
  for (std::size_t r = 0; r < rows.size(); ++r)
    if (wanted(rows[r])) list.push_back(static_cast<std::int32_t>(r));
}

// No row is at, or sees, a place from this one on.
std::int64_t places_used(std::span<const Row> rows) {
  std::int64_t used = 1;
  for (const Row& row : rows) used = std::max<std::int64_t>({used, row.place + 1, row.end});
  return used;
}

}  // namespace

std::int64_t mask_columns(std::span<const Row> rows) {
  return round_up(places_used(rows), kMaskColumns);
}

void write_mask(std::span<const Row> rows, std::int64_t columns, std::span<std::uint8_t> hidden) {
  const std::int64_t all = static_cast<std::int64_t>(hidden.size()) / columns, given = std::ssize(rows);
  check(std::ssize(hidden) == all * columns && all >= given && all - given <= columns && columns >= mask_columns(rows),
        "a mask of {} bytes in {} columns for {} rows, which need {} columns", hidden.size(), columns, given,
        mask_columns(rows));
  std::ranges::fill(hidden, std::uint8_t{1});
  for (std::int64_t r = 0; r < all; ++r) {
    const auto places = hidden.subspan(static_cast<std::size_t>(r * columns), static_cast<std::size_t>(columns));
    if (r >= given) {
      places[static_cast<std::size_t>(r - given)] = 0;
      continue;
    }
    const Row& row = rows[static_cast<std::size_t>(r)];
    for (std::int32_t place = row.begin; place < row.end; ++place) places[static_cast<std::size_t>(place)] = 0;
    for (std::int32_t place : row.ancestors) places[static_cast<std::size_t>(place)] = 0;
    places[static_cast<std::size_t>(row.place)] = 0;
  }
}

StepTables::StepTables(Device& device, const KvMemory& memory, std::int64_t rows, std::int64_t positions,
                       const StepForm& form)
    : device_(&device),
      memory_(&memory),
      form_(form),
      buffer_(device.tensor(DType::i32, {table_words(device, rows_of_step(device, rows), positions)})) {
  const std::int64_t padded = rows_of_step(device, rows), block_size = tables().block_size();
  check(form.attention == AttentionOp::fused || form.mask == MaskForm::dense, "eager attention needs the dense mask");
  check(block_size >= kSmallestBlock || positions <= kSmallestBlock, "blocks of {} slots, expected at least {}",
        block_size, kSmallestBlock);
  // Padding rows have a table too.
  const std::int64_t places = std::max(positions, std::min(padded, most_padding(device)));
  all_blocks_ = (places + block_size - 1) / block_size;
  if (form.mask == MaskForm::dense) mask_buffer_ = device.tensor(DType::u8, {padded * widest_mask(padded, positions)});
}

struct StepTables::Layout {
  std::int64_t token, position, slot, sequence, begin, end, ancestor_count, ancestors, blocks, input, outputs, taps;
};

StepPlan StepTables::prepare(std::span<const Row> rows, const StepCheck& check_tables) {
  StepPlan plan;
  packed_.clear();
  padded_ = rows_of_step(*device_, static_cast<std::int64_t>(rows.size()));
  list_sequences(rows);
  list_outputs(rows, plan);
  plan.key = key_of(rows, plan);
  const StepKey& key = plan.key;
  const Layout at = pack_tables(rows, key);
  const std::int64_t mask_columns = mask_columns_of(key);
  mask_.resize(static_cast<std::size_t>(padded_ * mask_columns));
  if (!mask_.empty()) write_mask(rows, mask_columns, mask_);
  if (check_tables) check_tables(host_tables(at, key));

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
      .ancestors = table(at.ancestors, padded_ * key.ancestors).reshaped({padded_, key.ancestors}),
      .blocks = table(at.blocks, key.sequences * block_columns(key)).reshaped({key.sequences, block_columns(key)}),
      .mask = {}};
  if (!mask_.empty()) {
    const View bytes = mask_buffer_.view.rows(0, padded_ * mask_columns);
    upload<std::uint8_t>(*device_, mask_, bytes);
    plan.rows.mask = bytes.reshaped({1, 1, padded_, mask_columns});
  }
  plan.input = table(at.input, padded_);
  if (key.output_rows > 0) plan.output_rows = table(at.outputs, key.output_rows);
  if (key.tap_rows > 0) plan.tap_rows = table(at.taps, key.tap_rows);
  return plan;
}

StepPlan StepTables::plan_of(const PlacedStep& step) const {
  const RowTables& rows = step.rows;
  check(form_.mask == MaskForm::list && device_->row_buckets().empty(),
        "a step that a device has placed: expected lists and no row buckets");
  check(step.number >= 0 && rows.mask.empty() && rows.token.rank() == 1 && rows.blocks.rank() == 2,
        "a step that a device has placed: tokens {}, blocks {}", rows.token, rows.blocks);
  StepPlan plan;
  plan.wanted_logits = plan.wanted_outputs = step.output_rows.empty() ? 0 : step.output_rows.dim(0);
  plan.wanted_taps = step.tap_rows.empty() ? 0 : step.tap_rows.dim(0);
  plan.key = {.rows = rows.token.dim(0),
              .output_rows = plan.wanted_outputs,
              .logit_rows = plan.wanted_logits,
              .tap_rows = plan.wanted_taps,
              .sequences = rows.blocks.dim(0),
              .ancestors = rows.ancestors.dim(1),
              .context = rows.blocks.dim(1) * tables().block_size(),
              .form = kFirstPlacedForm + step.number};
  plan.rows = rows;
  plan.input = step.input;
  plan.output_rows = step.output_rows;
  plan.tap_rows = step.tap_rows;
  return plan;
}

// Counts of rows are rounded as the device wants it, and everything else to powers of two: tables are small, and so few
// keys are better than few words.
StepKey StepTables::key_of(std::span<const Row> rows, const StepPlan& wanted) const {
  std::int64_t ancestors = 1;
  for (const Row& row : rows) ancestors = std::max(ancestors, std::ssize(row.ancestors));
  check(ancestors <= kMaxAncestors, "a row with {} ancestors, expected at most {}", ancestors, kMaxAncestors);
  return {.rows = padded_,
          .output_rows = rows_of_step(*device_, wanted.wanted_outputs),
          .logit_rows = rows_of_step(*device_, wanted.wanted_logits),
          .tap_rows = rows_of_step(*device_, wanted.wanted_taps),
          // Padding rows form a sequence of their own, so that a mask has a column for the slot each of them writes.
          .sequences = std::min(power_of_two_for(std::ssize(sequences_)), padded_) +
                       (padded_row_counts(*device_).empty() ? 0 : 1),
          .ancestors = power_of_two_for(ancestors),
          .context = context_bucket(rows),
          .form = number_of(form_)};
}

// Twice as many tiles of keys each time, up to the longest table. Whatever is padding must fit too.
std::int64_t StepTables::context_bucket(std::span<const Row> rows) const {
  const std::int64_t used = places_used(rows), all = all_blocks_ * tables().block_size();
  check(used <= all, "a step over {} places, its tables hold {}", used, all);
  const std::int64_t padding = std::min(padded_, most_padding(*device_));
  const std::int64_t tiles = round_up(std::max(used, padding), kKeyTile) / kKeyTile;
  return std::min(power_of_two_for(tiles) * kKeyTile, all);
}

std::int64_t StepTables::block_columns(const StepKey& key) const {
  return std::min(round_up(key.context, tables().block_size()) / tables().block_size(), all_blocks_);
}

// As wide as the tables; 0: none.
std::int64_t StepTables::mask_columns_of(const StepKey& key) const {
  return form_.mask == MaskForm::dense ? round_up(block_columns(key) * tables().block_size(), kMaskColumns) : 0;
}

StepTables::Layout StepTables::pack_tables(std::span<const Row> rows, const StepKey& key) {
  // A padding row has token 0 at position 0, writes a slot of its own and sees nothing but itself.
  const auto zero = [](std::int64_t) { return 0; };
  const auto padding_sequence = static_cast<std::int32_t>(sequences_.size());
  Layout at{};
  at.token = pack_column(
      rows, [](const Row& row) { return row.token; }, zero);
  at.position = pack_column(
      rows, [](const Row& row) { return row.position; }, zero);
  at.slot = pack_column(
      rows, [&](const Row& row) { return tables().slot(row.sequence, row.place); },
      [&](std::int64_t i) { return tables().padding_slot(i); });
  sequence_of_.resize(static_cast<std::size_t>(padded_), padding_sequence);
  at.sequence = pack(sequence_of_);
  at.begin = pack_column(
      rows, [](const Row& row) { return row.begin; }, zero);
  at.end = pack_column(
      rows, [](const Row& row) { return row.end; }, zero);
  at.ancestor_count = pack_column(
      rows, [](const Row& row) { return static_cast<std::int32_t>(row.ancestors.size()); }, zero);
  at.ancestors = pack_ancestors(rows, key.ancestors);
  at.blocks = pack_blocks(block_columns(key), key.sequences);
  at.input = pack_column(
      rows, [](const Row& row) { return row.input; }, zero);
  at.outputs = pack_row_list(outputs_, key.output_rows);
  at.taps = pack_row_list(taps_, key.tap_rows);
  return at;
}

void StepTables::attend(ConstView q, const KvViews& kv, const StepPlan& step, float scale, View out) const {
  if (form_.attention == AttentionOp::eager) {
    device_->attention_eager(q, kv, step.rows, scale, out);
  } else {
    device_->attention(q, kv, step.rows, scale, out);
  }
}

HostTables StepTables::host_tables(const Layout& at, const StepKey& key) const {
  const auto column = [this](std::int64_t begin, std::int64_t size) {
    return std::span(packed_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size));
  };
  HostTables tables;
  tables.rows = padded_;
  tables.token = column(at.token, padded_);
  tables.position = column(at.position, padded_);
  tables.slot = column(at.slot, padded_);
  tables.sequence = column(at.sequence, padded_);
  tables.begin = column(at.begin, padded_);
  tables.end = column(at.end, padded_);
  tables.ancestor_count = column(at.ancestor_count, padded_);
  tables.ancestors = column(at.ancestors, padded_ * key.ancestors);
  tables.ancestor_columns = key.ancestors;
  tables.blocks = column(at.blocks, key.sequences * block_columns(key));
  tables.block_columns = block_columns(key);
  tables.mask = mask_;
  tables.mask_columns = mask_columns_of(key);
  return tables;
}

// The sequences of the step in the order of their first rows; a row's table entry is an index into these.
void StepTables::list_sequences(std::span<const Row> rows) {
  sequences_.clear();
  sequence_of_.clear();
  for (const Row& row : rows) {
    const bool more = !sequences_.empty() && row.sequence == sequences_.back();
    const auto found = more ? std::prev(sequences_.end()) : std::ranges::find(sequences_, row.sequence);
    sequence_of_.push_back(static_cast<std::int32_t>(found - sequences_.begin()));
    if (found == sequences_.end()) sequences_.push_back(row.sequence);
  }
}

void StepTables::list_outputs(std::span<const Row> rows, StepPlan& plan) {
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
}

std::int64_t StepTables::pack(std::span<const std::int32_t> values) {
  const auto begin = static_cast<std::int64_t>(packed_.size());
  packed_.insert(packed_.end(), values.begin(), values.end());
  packed_.resize(static_cast<std::size_t>(begin + part_elements(*device_, std::ssize(values))));
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
    std::ranges::transform(rows[r].ancestors, column_.begin() + static_cast<std::ptrdiff_t>(r) * width,
                           [&](std::int32_t place) { return tables().slot(rows[r].sequence, place); });
  return pack(column_);
}

std::int64_t StepTables::pack_blocks(std::int64_t width, std::int64_t sequences) {
  column_.assign(static_cast<std::size_t>(sequences * width), 0);
  const auto copy = [&](std::span<const std::int32_t> blocks, std::size_t s) {
    std::copy_n(blocks.begin(), std::min(width, std::ssize(blocks)),
                column_.begin() + static_cast<std::ptrdiff_t>(s) * width);
  };
  for (std::size_t s = 0; s < sequences_.size(); ++s) copy(tables().blocks(sequences_[s]), s);
  if (!padded_row_counts(*device_).empty()) copy(tables().padding_blocks(), sequences_.size());
  return pack(column_);
}

// Row numbers, padded with row 0.
std::int64_t StepTables::pack_row_list(std::span<const std::int32_t> list, std::int64_t padded) {
  column_.assign(list.begin(), list.end());
  column_.resize(static_cast<std::size_t>(padded));
  return pack(column_);
}

}  // namespace espalier
