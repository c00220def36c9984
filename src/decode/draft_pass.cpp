#include "decode/draft_pass.h"

#include <iterator>
#include <utility>

#include "base/error.h"

namespace espalier {

void DraftPass::add(std::span<const Row> rows) {
  rows_.insert(rows_.end(), rows.begin(), rows.end());
  ends_.push_back(std::ssize(rows_));
}

Guesses DraftPass::run(std::int64_t step_rows, const Step& step) const {
  check(step_rows >= 1, "a draft pass in steps of {} rows", step_rows);
  Guesses all;
  const std::int64_t total = std::ssize(rows_);
  for (std::int64_t begin = 0; begin < total; begin += step_rows) {
    const std::int64_t end = std::min(total, begin + step_rows);
    const auto rows = std::span(rows_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    std::ranges::move(step(rows, parts(begin, end)), std::back_inserter(all));
  }
  return all;
}

std::vector<DraftPart> DraftPass::parts(std::int64_t begin, std::int64_t end) const {
  std::vector<DraftPart> found;
  std::int64_t first = 0;
  for (std::size_t job = 0; job < ends_.size(); first = ends_[job++]) {
    const std::int64_t from = std::max(begin, first), to = std::min(end, ends_[job]);
    if (from < to) found.push_back({job, from - first, to - first});
  }
  return found;
}

std::vector<Guesses> guesses_by_job(std::span<const DraftJob> jobs, const std::vector<bool>& had_rows, Guesses flat) {
  std::vector<Guesses> all;
  auto next = flat.begin();
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    Guesses& own = all.emplace_back(jobs[i].nodes.size());
    if (!had_rows[i]) continue;
    check(flat.end() - next >= std::ssize(own), "a draft pass: {} lists of guesses, expected more", flat.size());
    for (auto& list : own) list = std::move(*next++);
  }
  check(next == flat.end(), "a draft pass: {} lists of guesses, expected fewer", flat.size());
  return all;
}

}  // namespace espalier
