#include "decode/step_logits.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace espalier {

StepLogits::StepLogits(Device& device, std::int64_t rows)
    : device_(&device),
      largest_(device.tensor(DType::f32, {rows_of_step(device, rows), 1})),
      best_(device.tensor(DType::i32, {rows_of_step(device, rows), 1})) {}

void StepLogits::begin(const StepOutput& output, std::vector<DrawnRows> drawn) {
  output_ = output;
  drawn_ = std::move(drawn);
  lent_ = {};
  read_ = false;
}

LogitRow StepLogits::row(std::int64_t row) {
  const auto behind = std::ranges::upper_bound(drawn_, row, {}, &DrawnRows::begin);
  const auto rows = behind == drawn_.begin() ? drawn_.end() : std::prev(behind);
  check(rows != drawn_.end() && row < rows->begin + rows->count, "logits of row {}, which nobody asked for", row);
  if (!read_) read();
  const auto at = static_cast<std::size_t>(row), width = static_cast<std::size_t>(output_.logits.dim(1));
  if (ranked_ && rows->largest_decides) return {.largest = values_[at], .best = ids_[at]};
  return {.all = (lent_.empty() ? std::span<const float>(logits_) : lent_).subspan(at * width, width)};
}

void StepLogits::read() {
  const auto alone = [](const DrawnRows& rows) { return rows.count == 1 && rows.largest_decides; };
  if (!std::ranges::all_of(drawn_, alone)) {
    const std::span<const std::byte> lent = device_->lend(output_.logits);
    lent_ = {reinterpret_cast<const float*>(lent.data()), lent.size() / sizeof(float)};
  }
  ranked_ = lent_.empty() && std::ranges::any_of(drawn_, &DrawnRows::largest_decides);
  if (lent_.empty()) {
    std::vector<Download> parts;
    if (ranked_) rank(parts);
    for (const DrawnRows& rows : drawn_)
      if (!rows.largest_decides)
        parts.push_back(
            part_of_download(output_.logits.rows(rows.begin, rows.count), host_rows(rows.begin, rows.count)));
    device_->download(parts);
  }
  read_ = true;
}

// All rows in one op, those that pad the step too.
void StepLogits::rank(std::vector<Download>& parts) {
  const std::int64_t rows = output_.logits.dim(0), padded = output_.padded_logits.dim(0);
  check(padded <= largest_.view.dim(0), "the largest logits of {} rows, expected at most {}", padded,
        largest_.view.dim(0));
  device_->top_k(output_.padded_logits, largest_.view.rows(0, padded), best_.view.rows(0, padded));
  values_.resize(static_cast<std::size_t>(rows));
  ids_.resize(values_.size());
  parts.push_back(part_of_download(largest_.view.rows(0, rows), std::span(values_)));
  parts.push_back(part_of_download(best_.view.rows(0, rows), std::span(ids_)));
}

// Never shrinks: memory that was touched once is not cleared again.
std::span<float> StepLogits::host_rows(std::int64_t begin, std::int64_t count) {
  const std::int64_t width = output_.logits.dim(1);
  const auto size = static_cast<std::size_t>(output_.logits.elements());
  if (logits_.size() < size) logits_.resize(size);
  return std::span(logits_).subspan(static_cast<std::size_t>(begin * width), static_cast<std::size_t>(count * width));
}

}  // namespace espalier
