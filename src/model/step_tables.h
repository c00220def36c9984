// A step as the device sees it: the rows laid out as integer columns, padded where the device has row buckets or
// records steps of some row counts alone, packed into one buffer with a fixed address, and uploaded at once; with the
// attention mask as bytes where the step's form asks for it. Shapes and places of the tables follow from the step's key
// alone, so that a device may replay what it recorded under the key: counts are rounded up there, and nobody reads what
// stands behind.
//
// For a step over trees these are the accelerator-safe tensors of EAGLE-Pangu (arXiv 2603.08088): fixed shapes, every
// index in range also where nobody reads it, no sentinel. They are made here and not from one tree, because a step
// holds rows of several trees and of prompts: padding stands once behind all of them, an ancestor is the slot it was
// given, and what is valid is said by the counts.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cache/kv_memory.h"
#include "device/device.h"
#include "model/rows.h"

namespace espalier {

enum class AttentionOp { fused, eager };
enum class MaskForm { list, dense };

// How the steps of a workspace attend. Results are the same, bit for bit, on devices of the arithmetic contract.
struct StepForm {
  AttentionOp attention = AttentionOp::fused;
  MaskForm mask = MaskForm::list;  // eager attention needs the dense one
};

// The tables of a step on the host, as they are about to be uploaded, padding rows included.
struct HostTables {
  std::int64_t rows = 0;
  std::span<const std::int32_t> token, position, slot, sequence, begin, end, ancestor_count;  // [rows]
  std::span<const std::int32_t> ancestors;  // [rows, ancestor_columns], slots
  std::int64_t ancestor_columns = 0;
  std::span<const std::int32_t> blocks;  // [sequences, block_columns]
  std::int64_t block_columns = 0;
  std::span<const std::uint8_t> mask;  // [rows, mask_columns], 1 = hidden; empty with lists alone
  std::int64_t mask_columns = 0;
};
// Looks at the tables of a step before it is launched, and throws if it does not like them.
using StepCheck = std::function<void(const HostTables&)>;

// Views into the tables; valid until the next step.
struct StepPlan {
  StepKey key;
  RowTables rows;   // shapes as the key says
  ConstView input;  // i32 [rows]
  // i32 [key.output_rows]: key.logit_rows that want logits, then rows that want only the hidden state
  ConstView output_rows;
  ConstView tap_rows;  // i32 [key.tap_rows]
  // What was asked for, without padding.
  std::int64_t wanted_logits = 0;
  std::int64_t wanted_outputs = 0;
  std::int64_t wanted_taps = 0;
};

// A step whose rows a device has placed itself (device/round_ops.h): its tables lie in buffers of the caller, and the
// host knows their shapes alone. Only with lists, and on devices without row buckets.
struct PlacedStep {
  // Which of the caller's steps on this workspace it is: steps of one number and shape have the same views.
  int number = 0;
  RowTables rows;           // no mask
  ConstView input = {};     // i32 [rows], of draft rows
  ConstView output_rows;    // i32 [n]: those that want logits
  ConstView tap_rows = {};  // i32 [t], or empty
};

// The mask of a step, [hidden.size() / columns, columns] with 1 = hidden: column c is place c of the row's table. Rows
// behind `rows` are padding, each of which sees the place of its slot among the padding blocks.
void write_mask(std::span<const Row> rows, std::int64_t columns, std::span<std::uint8_t> hidden);
// The smallest number of columns that holds what these rows see.
std::int64_t mask_columns(std::span<const Row> rows);

class StepTables {
 public:
  // For steps of up to `rows` rows on this memory, over tables of up to `positions` positions. Device and memory must
  // outlive this.
  StepTables(Device& device, const KvMemory& memory, std::int64_t rows, std::int64_t positions,
             const StepForm& form = {});

  const KvMemory& memory() const { return *memory_; }
  StepPlan prepare(std::span<const Row> rows, const StepCheck& check = {});
  // Of a step that needs no tables from here: nothing is uploaded.
  StepPlan plan_of(const PlacedStep& step) const;
  // The attention op of the step's form.
  void attend(ConstView q, const KvViews& kv, const StepPlan& step, float scale, View out) const;

 private:
  // Offsets into the packed buffer.
  struct Layout;

  StepKey key_of(std::span<const Row> rows, const StepPlan& wanted) const;
  std::int64_t context_bucket(std::span<const Row> rows) const;
  std::int64_t block_columns(const StepKey& key) const;
  std::int64_t mask_columns_of(const StepKey& key) const;
  template <typename Value, typename Pad>
  std::int64_t pack_column(std::span<const Row> rows, Value value, Pad pad);
  std::int64_t pack_ancestors(std::span<const Row> rows, std::int64_t width);
  std::int64_t pack_blocks(std::int64_t width, std::int64_t sequences);
  std::int64_t pack_row_list(std::span<const std::int32_t> list, std::int64_t padded);
  std::int64_t pack(std::span<const std::int32_t> values);
  void list_sequences(std::span<const Row> rows);
  void list_outputs(std::span<const Row> rows, StepPlan& plan);
  Layout pack_tables(std::span<const Row> rows, const StepKey& key);
  ConstView table(std::int64_t at, std::int64_t size) const { return buffer_.view.rows(at, size); }
  HostTables host_tables(const Layout& at, const StepKey& key) const;

  const BlockTables& tables() const { return memory_->tables(); }

  Device* device_;
  const KvMemory* memory_;
  std::int64_t all_blocks_;  // of the longest table
  StepForm form_;
  Tensor buffer_;       // i32
  Tensor mask_buffer_;  // u8; empty with lists alone

  // Scratch of prepare(), kept to avoid allocating in every step.
  std::int64_t padded_ = 0;
  std::vector<std::int32_t> packed_, column_, outputs_, taps_;
  std::vector<std::uint8_t> mask_;
  std::vector<SequenceId> sequences_;
  std::vector<std::int32_t> sequence_of_;  // by row, an index into these
};

}  // namespace espalier
