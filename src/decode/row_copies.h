// Rows of device tensors that are kept: noted one by one, by those who hear of them, and copied together. Rows that lie
// side by side on both sides are one op, by a list that is on the device already; the lists of all others are uploaded
// at once. So a step of many answers costs neither an upload nor an op for each. One thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"

namespace espalier {

class RowCopies {
 public:
  // Of up to `rows` rows at once. The device must outlive this.
  RowCopies(Device& device, std::int64_t rows);

  // Row `row` of `from` becomes row `place` of `to` before the next make() has returned; until then neither moves.
  // from, to: f32 [.., dim], different buffers
  void note(ConstView from, std::int32_t row, View to, std::int32_t place);
  void make();

 private:
  // Of what is noted, whose places lie side by side.
  struct Run {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool in_order = true;  // its rows do too

    std::int64_t size() const { return static_cast<std::int64_t>(end - begin); }
  };
  std::vector<Run> runs() const;
  void copy(const Run& run);
  void forget();

  Device* device_;
  std::int64_t longest_run_;
  Tensor counting_;  // i32: 0, 1, 2, ...
  Tensor listed_;    // i32: the rows of all that is noted

  ConstView from_;
  View to_;
  std::vector<std::int32_t> rows_, places_;
};

}  // namespace espalier
