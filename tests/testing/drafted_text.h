// One text of a batch with one drafter, as the loop goes through it; the teacher's memory holds nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "cache/kv_cache.h"
#include "decode/drafter.h"

namespace espalier::testing {

class DraftedText {
 public:
  using Tokens = std::vector<std::int32_t>;

  // Cache and drafter must outlive the text.
  DraftedText(KvCache& cache, Drafter& drafter, SequenceId sequence)
      : cache_(cache), drafter_(drafter), sequence_(sequence), draft_(drafter.open(sequence, {})) {}
  DraftedText(KvCache& cache, Drafter& drafter) : DraftedText(cache, drafter, cache.create()) {}

  SequenceId sequence() const { return sequence_; }
  std::int64_t length() const { return cache_.length(sequence_); }
  std::int64_t lacks_from() const { return draft_->lacks_from(); }
  bool reused(const Tokens& tokens) {
    return draft_->reused(std::span(tokens).first(static_cast<std::size_t>(length())));
  }
  void rest(bool resting) { draft_->rest(resting); }
  void settle() { draft_->settle(); }
  // Tells of the positions [begin, end), after those that are new are committed. Nobody else is in the step.
  void commit(const Tokens& tokens, ConstView features, std::int64_t begin, std::int64_t end) {
    commit_with_others(tokens, features, begin, end);
    drafter_.all_told();
  }
  // The same where others are.
  void commit_with_others(const Tokens& tokens, ConstView features, std::int64_t begin, std::int64_t end) {
    if (end > length()) {
      std::optional<Branch> branch = cache_.begin(sequence_, end - length(), std::min(begin, length()));
      check(branch.has_value(), "no room for the text");
      branch->commit_length(end - length());
    }
    Tokens rows(static_cast<std::size_t>(end - begin));
    std::iota(rows.begin(), rows.end(), static_cast<std::int32_t>(begin));
    draft_->committed({.begin = begin,
                       .tokens = std::span(tokens).subspan(static_cast<std::size_t>(begin), rows.size()),
                       .taps = features,
                       .rows = rows,
                       .hidden = {}});
  }

  void begin_round(const Tokens& tokens) {
    tokens_ = tokens;
    branch_ = cache_.begin(sequence_, std::max<std::int64_t>(1, drafter_.round_rows()),
                           std::min(draft_->lacks_from(), length()));
    check(branch_.has_value(), "no room for a round");
    draft_->begin_round({.tokens = tokens_, .branch = &*branch_});
  }
  DraftJob job(const Candidates& candidates, std::span<const int> nodes, int branch) const {
    return {.sequence = draft_.get(), .candidates = &candidates, .nodes = nodes, .branch = branch};
  }
  // The teacher takes the root and nothing else.
  void end_round() {
    const Visit root{.node = 0, .token = 0};
    draft_->end_round({TokenTree(tokens_.back()), std::span(&root, 1), *branch_});
    branch_->commit_length(1);
    branch_.reset();
  }

 private:
  KvCache& cache_;
  Drafter& drafter_;
  SequenceId sequence_;
  std::unique_ptr<DraftSequence> draft_;
  Tokens tokens_;
  std::optional<Branch> branch_;
};

}  // namespace espalier::testing
