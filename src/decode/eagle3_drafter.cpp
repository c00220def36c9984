#include "decode/eagle3_drafter.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "decode/draft_invariants.h"
#include "decode/draft_rows.h"

namespace espalier {

Eagle3Drafter::Eagle3Drafter(const Eagle3Head& head, const Eagle3DrafterOptions& options)
    : head_(&head),
      options_(options),
      step_rows_(draft_step_rows(head.device(), options.tree)),
      tree_rows_(expanded_rows(options.tree)),
      cache_(head.device(), head.kv_shape(options.kv_type), options.context + tree_rows_, options.kv),
      sequence_(cache_.create()),
      workspace_(head, cache_.memory(), step_rows_, options.context + tree_rows_, options.form,
                 std::min(step_rows_, widest_level(options.tree))),
      top_(head.device(), step_rows_, most_guesses(options.tree)),
      // Behind the features that wait: the seed's output, those of the tree, and what a padded copy overwrites.
      vectors_(head.device().tensor(
          DType::f32, {step_rows_ + 1 + tree_rows_ + bucket_for(head.device(), step_rows_), head.hidden()})),
      index_(head.device().tensor(DType::i32, {bucket_for(head.device(), step_rows_)})) {}

std::int64_t Eagle3Drafter::resumable(std::int64_t length) const {
  const std::int64_t kept = std::min(length, static_cast<std::int64_t>(tokens_.size()));
  // The last kept position is a row already: its feature is gone, and the token behind it may change.
  return cache_.length(sequence_) < kept ? kept : std::max<std::int64_t>(0, kept - 1);
}

void Eagle3Drafter::rewind(std::int64_t length) {
  branch_.reset();
  if (length < cache_.length(sequence_)) cache_.truncate(sequence_, length);
  pending_ = length - cache_.length(sequence_);
  tokens_.resize(static_cast<std::size_t>(length));
}

void Eagle3Drafter::committed(const CommittedRows& rows) {
  check(rows.begin == static_cast<std::int64_t>(tokens_.size()) && !rows.taps.empty(),
        "eagle3: position {} committed behind {}, taps {}", rows.begin, tokens_.size(), rows.taps.describe());
  const auto total = static_cast<std::int64_t>(rows.tokens.size());
  for (std::int64_t done = 0; done < total;) {
    const std::int64_t count = std::min(step_rows_, total - done);
    const auto part = rows.tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count));
    if (pending_ + count > step_rows_) run_pending(part[0], false);
    head_->fuse(rows.taps, rows.rows.subspan(static_cast<std::size_t>(done), part.size()), workspace_,
                vectors_.view.rows(pending_, bucket_for(head_->device(), count)));
    pending_ += count;
    tokens_.insert(tokens_.end(), part.begin(), part.end());
    done += count;
  }
}

void Eagle3Drafter::begin_round(std::span<const std::int32_t> tokens) {
  check(tokens.size() == tokens_.size() + 1, "eagle3: a round behind {} tokens, {} are committed", tokens.size() - 1,
        tokens_.size());
  root_ = tokens.back();
  drafted_.clear();
  rows_.clear();
}

void Eagle3Drafter::end_round(const TokenTree&, std::span<const Visit>) {
  branch_.reset();
}

std::vector<std::vector<DraftToken>> Eagle3Drafter::expand(const Candidates& candidates, std::span<const int> nodes,
                                                           int branch) {
  if (nodes[0] == 0) return seed(branch);
  if (!branch_) {
    branch_ = cache_.begin(sequence_, tree_rows_);
    check(branch_.has_value(), "eagle3: no room for a tree behind {} rows", tokens_.size());
  }
  std::vector<std::vector<DraftToken>> all;
  for (std::size_t done = 0; done < nodes.size();) {
    const auto part = nodes.subspan(done, std::min(nodes.size() - done, static_cast<std::size_t>(step_rows_)));
    const std::int64_t first = step_rows_ + 1 + static_cast<std::int64_t>(drafted_.size());
    const std::vector<Row> rows = tree_rows(candidates, part);
    const Eagle3Output output = head_->forward(rows, vectors_, workspace_, check_of_nodes(candidates, part.size()));
    keep_outputs(output, 0, static_cast<std::int64_t>(part.size()), first);
    std::ranges::move(guesses(output, branch), std::back_inserter(all));
    done += part.size();
  }
  return all;
}

std::int32_t Eagle3Drafter::context_begin(std::int64_t end) const {
  if (options_.window == 0) return 0;
  return static_cast<std::int32_t>(std::max<std::int64_t>(0, end - options_.window));
}

Eagle3Output Eagle3Drafter::run_pending(std::int32_t next, bool wants_logits) {
  check(pending_ > 0, "eagle3: no feature is waiting behind {} rows", tokens_.size());
  const std::int64_t first = cache_.length(sequence_);
  std::optional<Branch> branch = cache_.begin(sequence_, pending_);
  check(branch.has_value(), "eagle3: no room for {} rows behind {}", pending_, first);
  std::vector<Row> rows;
  for (std::int64_t i = 0; i < pending_; ++i) {
    const std::int64_t t = first + i;
    const auto place = static_cast<std::int32_t>(t);
    const bool last = i + 1 == pending_;
    rows.push_back({.sequence = branch->id(),
                    .token = last ? next : tokens_[static_cast<std::size_t>(t + 1)],
                    .position = place,
                    .place = place,
                    .begin = context_begin(t),
                    .end = place,
                    .input = static_cast<std::int32_t>(i),
                    .wants_logits = last && wants_logits});
  }
  const Eagle3Output output = head_->forward(rows, vectors_, workspace_, check_of_run(first, branch->id(), next));
  branch->commit_length(pending_);
  pending_ = 0;
  return output;
}

// The first pass: the pending positions, the last of them with the root.
std::vector<std::vector<DraftToken>> Eagle3Drafter::seed(int branch) {
  const std::int64_t last = pending_ - 1;
  const Eagle3Output output = run_pending(root_, true);
  keep_outputs(output, last, 1, step_rows_);
  return guesses(output, branch);
}

std::vector<Row> Eagle3Drafter::tree_rows(const Candidates& candidates, std::span<const int> nodes) {
  const auto prefix = static_cast<std::int32_t>(tokens_.size());
  std::vector<Row> rows;
  for (int node : nodes) {
    const Candidate& candidate = candidates[node];
    const auto place = prefix + static_cast<std::int32_t>(drafted_.size());
    const auto parent = rows_.find(candidate.parent);
    DraftRow drafted;
    if (parent != rows_.end()) drafted.places = parent->second.places;
    rows.push_back({.sequence = branch_->id(),
                    .token = candidate.token,
                    .position = prefix - 1 + candidate.depth,
                    .place = place,
                    .begin = context_begin(prefix),
                    .end = prefix,
                    .ancestors = drafted.places,
                    .input = parent == rows_.end() ? static_cast<std::int32_t>(step_rows_) : parent->second.vector,
                    .wants_logits = true});
    drafted.places.push_back(place);
    drafted.vector = static_cast<std::int32_t>(step_rows_ + 1) + place - prefix;
    rows_.emplace(node, std::move(drafted));
    drafted_.push_back(node);
  }
  return rows;
}

StepLimits Eagle3Drafter::limits(std::int64_t window) const {
  return {.tree = {.vocabulary = static_cast<std::int32_t>(head_->config().teacher_vocabulary),
                   .positions = static_cast<std::int32_t>(options_.context + tree_rows_)},
          .window = static_cast<std::int32_t>(window)};
}

// Of the rows of the pending positions, `first` and those behind; `next` follows the last of them.
StepCheck Eagle3Drafter::check_of_run(std::int64_t first, SequenceId branch, std::int32_t next) const {
  if (!options_.invariants) return {};
  return [=, this](const HostTables& tables) {
    const auto behind = std::span(tokens_).subspan(static_cast<std::size_t>(first + 1));
    std::vector<std::int32_t> tokens(behind.begin(), behind.end());
    tokens.push_back(next);
    // The window does not count the row itself.
    check_draft_step(tables, DraftRun{branch, static_cast<std::int32_t>(first), tokens}, cache_.tables(),
                     limits(options_.window == 0 ? 0 : options_.window + 1));
  };
}

// Of the last `step_rows` drafted nodes.
StepCheck Eagle3Drafter::check_of_nodes(const Candidates& candidates, std::size_t step_rows) const {
  if (!options_.invariants) return {};
  return [&candidates, step_rows, this](const HostTables& tables) {
    const auto prefix = static_cast<std::int32_t>(tokens_.size());
    const DraftedNodes drafted{.candidates = &candidates,
                               .nodes = drafted_,
                               .step_rows = static_cast<std::int64_t>(step_rows),
                               .branch = branch_->id(),
                               .prefix = prefix,
                               .begin = context_begin(prefix),
                               .root_position = prefix - 1};
    check_draft_step(tables, drafted, cache_.tables(), limits(0));
  };
}

// Copies outputs where the next pass can reach them.
void Eagle3Drafter::keep_outputs(const Eagle3Output& output, std::int64_t from, std::int64_t count, std::int64_t to) {
  Device& device = head_->device();
  std::vector<std::int32_t> index(static_cast<std::size_t>(bucket_for(device, count)), static_cast<std::int32_t>(from));
  std::iota(index.begin(), index.begin() + count, static_cast<std::int32_t>(from));
  const auto padded = static_cast<std::int64_t>(index.size());
  upload<std::int32_t>(device, index, index_.view.rows(0, padded));
  device.gather_rows(output.feedback, index_.view.rows(0, padded), vectors_.view.rows(to, padded));
}

std::vector<std::vector<DraftToken>> Eagle3Drafter::guesses(const Eagle3Output& output, int branch) {
  return top_.read(output.logits, branch, {.target_ids = head_->target_ids(), .logit_scale = head_->logit_scale()});
}

}  // namespace espalier
