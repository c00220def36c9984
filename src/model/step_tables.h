// A step as the device sees it: the rows laid out as integer columns, padded to a row bucket where the device has
// buckets, packed into one buffer with a fixed address, and uploaded at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/kv_cache.h"
#include "device/device.h"
#include "model/rows.h"

namespace espalier {

// Views into the tables; valid until the next step.
struct StepPlan {
  StepKey key;
  RowTables rows;
  ConstView
      output_rows;  // i32 [key.output_rows]: key.logit_rows that want logits, then rows that want only the hidden state
  ConstView tap_rows;  // i32 [key.tap_rows]
  // What was asked for, without padding.
  std::int64_t wanted_logits = 0;
  std::int64_t wanted_outputs = 0;
  std::int64_t wanted_taps = 0;
};

// The smallest bucket that holds n; n itself on devices without buckets.
std::int64_t bucket_for(const Device& device, std::int64_t n);

class StepTables {
 public:
  // For steps of up to `rows` rows over sequences of up to `positions` positions. The device must outlive this.
  StepTables(Device& device, std::int64_t rows, std::int64_t positions);

  StepPlan prepare(std::span<const Row> rows, const KvCache& cache);

 private:
  // Offsets into the packed buffer.
  struct Layout;

  template <typename Value, typename Pad>
  std::int64_t pack_column(std::span<const Row> rows, Value value, Pad pad);
  std::int64_t pack_ancestors(std::span<const Row> rows, std::int64_t width);
  std::int64_t pack_blocks(const KvCache& cache, std::int64_t width);
  std::int64_t pack_row_list(std::span<const std::int32_t> list, std::int64_t& padded);
  std::int64_t pack(std::span<const std::int32_t> values);
  void list_sequences(std::span<const Row> rows);
  std::int32_t sequence_index(SequenceId id) const;
  void plan_outputs(std::span<const Row> rows, StepPlan& plan);
  ConstView table(std::int64_t at, std::int64_t size) const { return buffer_.view.rows(at, size); }

  Device* device_;
  std::int64_t positions_;
  Tensor buffer_;  // i32

  // Scratch of prepare(), kept to avoid allocating in every step.
  std::int64_t padded_ = 0;
  std::vector<std::int32_t> packed_, column_, outputs_, taps_;
  std::vector<SequenceId> sequences_;
};

}  // namespace espalier
