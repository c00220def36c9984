#include "decode/row_copies.h"

#include <algorithm>
#include <numeric>

namespace espalier {

// With row buckets a list is a bucket long, or short of the smallest: a row for itself always is.
RowCopies::RowCopies(Device& device, std::int64_t rows)
    : device_(&device),
      longest_run_(device.row_buckets().empty() ? rows : 1),
      counting_(device.tensor(DType::i32, {rows})),
      listed_(device.tensor(DType::i32, {rows})) {
  std::vector<std::int32_t> counting(static_cast<std::size_t>(rows));
  std::iota(counting.begin(), counting.end(), 0);
  upload<std::int32_t>(device, counting, counting_);
}

void RowCopies::note(ConstView from, std::int32_t row, View to, std::int32_t place) {
  const bool others = !(from == from_) || !(to == to_);
  if (others || std::ssize(rows_) == listed_.view.dim(0)) make();
  from_ = from;
  to_ = to;
  rows_.push_back(row);
  places_.push_back(place);
}

std::vector<RowCopies::Run> RowCopies::runs() const {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const bool goes_on = i > 0 && places_[i] == places_[i - 1] + 1 && runs.back().size() < longest_run_;
    if (!goes_on) runs.push_back({.begin = i});
    runs.back().in_order = runs.back().in_order && (!goes_on || rows_[i] == rows_[i - 1] + 1);
    runs.back().end = i + 1;
  }
  return runs;
}

void RowCopies::make() {
  if (rows_.empty()) return;
  struct Forget {
    RowCopies& copies;
    ~Forget() { copies.forget(); }
  } forget_all{*this};  // what a device fails to copy is not tried again: its source may be gone by then
  const std::vector<Run> all = runs();
  if (!std::ranges::all_of(all, &Run::in_order))
    upload<std::int32_t>(*device_, rows_, listed_.view.rows(0, std::ssize(rows_)));
  for (const Run& run : all) copy(run);
}

void RowCopies::copy(const Run& run) {
  const View to = to_.rows(places_[run.begin], run.size());
  if (run.in_order) {
    device_->gather_rows(from_.rows(rows_[run.begin], run.size()), counting_.view.rows(0, run.size()), to);
  } else {
    device_->gather_rows(from_, listed_.view.rows(static_cast<std::int64_t>(run.begin), run.size()), to);
  }
}

void RowCopies::forget() {
  from_ = {};
  to_ = {};
  rows_.clear();
  places_.clear();
}

}  // namespace espalier
