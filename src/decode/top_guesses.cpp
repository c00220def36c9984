#include "decode/top_guesses.h"

#include <algorithm>

#include "base/error.h"

namespace espalier {
namespace {

// A device with row buckets computes as many rows at once as its largest bucket that is full.
std::int64_t rows_at_once(const Device& device, std::int64_t rows) {
  const auto buckets = device.row_buckets();
  if (buckets.empty()) return rows;
  check(buckets.front() <= rows, "{} rows of logits, the smallest bucket is {}", rows, buckets.front());
  return *std::prev(std::upper_bound(buckets.begin(), buckets.end(), rows));
}

}  // namespace

TopGuesses::TopGuesses(Device& device, std::int64_t rows, std::int64_t count)
    : device_(&device),
      rows_(rows),
      count_(count),
      values_(device.tensor(DType::f32, {rows * count})),
      ids_(device.tensor(DType::i32, {rows * count})),
      normaliser_(device.tensor(DType::f32, {rows})) {}

std::vector<std::vector<DraftToken>> TopGuesses::read(ConstView logits, std::int64_t count,
                                                      const Vocabulary& vocabulary) {
  check(logits.dim(0) <= rows_ && count <= count_, "{} guesses of {} rows, expected at most {} of {}", count,
        logits.dim(0), count_, rows_);
  count = std::min(count, logits.dim(1));
  std::vector<std::vector<DraftToken>> guesses;
  for (std::int64_t r = 0; r < logits.dim(0);) {
    const std::int64_t n = rows_at_once(*device_, logits.dim(0) - r);
    read_rows(logits.rows(r, n), count, vocabulary, guesses);
    r += n;
  }
  return guesses;
}

void TopGuesses::read_rows(ConstView logits, std::int64_t count, const Vocabulary& vocabulary,
                           std::vector<std::vector<DraftToken>>& guesses) {
  const std::int64_t rows = logits.dim(0), cells = rows * count;
  const View values = values_.view.rows(0, cells), ids = ids_.view.rows(0, cells);
  device_->top_k(logits, values.reshaped({rows, count}), ids.reshaped({rows, count}));
  device_->log_sum_exp(logits, vocabulary.logit_scale, normaliser_.view.rows(0, rows));
  std::vector<float> value(static_cast<std::size_t>(cells)), normaliser(static_cast<std::size_t>(rows));
  std::vector<std::int32_t> id(value.size());
  download<float>(*device_, values, value);
  download<std::int32_t>(*device_, ids, id);
  download<float>(*device_, normaliser_.view.rows(0, rows), normaliser);
  for (std::size_t r = 0; r < normaliser.size(); ++r) {
    auto& row = guesses.emplace_back();
    for (std::size_t i = r * static_cast<std::size_t>(count); i < (r + 1) * static_cast<std::size_t>(count); ++i) {
      const auto column = static_cast<std::size_t>(id[i]);
      const double scaled = vocabulary.logit_scale * value[i];
      row.push_back({vocabulary.target_ids.empty() ? id[i] : vocabulary.target_ids[column], scaled - normaliser[r]});
    }
  }
}

}  // namespace espalier
