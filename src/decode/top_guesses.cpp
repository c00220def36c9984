#include "decode/top_guesses.h"

#include <algorithm>

#include "base/error.h"

namespace espalier {
namespace {

// A device with row buckets computes as many rows at once as its largest bucket that is full. Fewer than the smallest
// one holds are computed as they are: only steps are bound to buckets.
std::int64_t rows_at_once(const Device& device, std::int64_t rows) {
  const auto buckets = device.row_buckets();
  if (buckets.empty()) return rows;
  if (rows < buckets.front()) return rows;
  return *std::prev(std::upper_bound(buckets.begin(), buckets.end(), rows));
}

}  // namespace

TopGuesses::TopGuesses(Device& device, std::int64_t rows, std::int64_t count)
    : device_(&device),
      rows_(rows),
      count_(count),
      values_(device.tensor(DType::f32, {rows * part_elements(device, count)})),
      ids_(device.tensor(DType::i32, {rows * part_elements(device, count)})),
      normaliser_(device.tensor(DType::f32, {rows * part_elements(device, 1)})) {}

std::vector<std::vector<DraftToken>> TopGuesses::read(ConstView logits, std::int64_t count,
                                                      const Vocabulary& vocabulary) {
  check(logits.dim(0) <= rows_ && count <= count_, "{} guesses of {} rows, expected at most {} of {}", count,
        logits.dim(0), count_, rows_);
  count = std::min(count, logits.dim(1));
  const auto [value, id, normaliser] = find(logits, count, vocabulary.logit_scale);
  std::vector<std::vector<DraftToken>> guesses;
  for (std::size_t r = 0; r < normaliser.size(); ++r) {
    auto& row = guesses.emplace_back();
    for (std::size_t i = r * static_cast<std::size_t>(count); i < (r + 1) * static_cast<std::size_t>(count); ++i) {
      const auto column = static_cast<std::size_t>(id[i]);
      const double scaled = vocabulary.logit_scale * value[i];
      row.push_back({vocabulary.target_ids.empty() ? id[i] : vocabulary.target_ids[column], scaled - normaliser[r]});
    }
  }
  return guesses;
}

// As many ops as the device's buckets ask for, then one download of all they wrote.
TopGuesses::Found TopGuesses::find(ConstView logits, std::int64_t count, float logit_scale) {
  const auto rows = static_cast<std::size_t>(logits.dim(0)), guesses = static_cast<std::size_t>(count);
  Found found{std::vector<float>(rows * guesses), std::vector<std::int32_t>(rows * guesses), std::vector<float>(rows)};
  std::vector<Download> parts;
  for (std::int64_t r = 0; r < logits.dim(0);) {
    const std::int64_t n = rows_at_once(*device_, logits.dim(0) - r);
    const View values = values_.view.rows(r * part_elements(*device_, count), n * count);
    const View ids = ids_.view.rows(r * part_elements(*device_, count), n * count);
    const View normaliser = normaliser_.view.rows(r * part_elements(*device_, 1), n);
    device_->top_k(logits.rows(r, n), values.reshaped({n, count}), ids.reshaped({n, count}));
    device_->log_sum_exp(logits.rows(r, n), logit_scale, normaliser);
    const auto first = static_cast<std::size_t>(r), many = static_cast<std::size_t>(n);
    parts.push_back(part_of_download(values, std::span(found.value).subspan(first * guesses, many * guesses)));
    parts.push_back(part_of_download(ids, std::span(found.id).subspan(first * guesses, many * guesses)));
    parts.push_back(part_of_download(normaliser, std::span(found.normaliser).subspan(first, many)));
    r += n;
  }
  device_->download(parts);
  return found;
}

}  // namespace espalier
