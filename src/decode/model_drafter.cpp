#include "decode/model_drafter.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "decode/draft_invariants.h"
#include "decode/draft_rows.h"

namespace espalier {

ModelDrafter::ModelDrafter(const Transformer& model, const ModelDrafterOptions& options)
    : model_(&model),
      options_(options),
      step_rows_(draft_step_rows(model.device(), options.tree)),
      tree_rows_(1 + expanded_rows(options.tree)),
      cache_(model.device(), model.kv_shape(options.kv_type), options.context + tree_rows_, options.kv),
      sequence_(cache_.create()),
      workspace_(model, cache_.memory(),
                 {.rows = step_rows_,
                  .outputs = std::min(step_rows_, widest_level(options.tree)),
                  .positions = options.context + tree_rows_,
                  .form = options.form}),
      top_(model.device(), step_rows_, most_guesses(options.tree)) {}

// What the cache holds is compared with the tokens of the next round anyway.
void ModelDrafter::rewind(std::int64_t) {
  branch_.reset();
}

// The longest part of the accepted path that has been computed here.
void ModelDrafter::committed(const CommittedRows& rows) {
  if (!branch_) return;
  // What the first step of the round caught up with, then the root.
  const auto root = static_cast<std::int64_t>(tokens_.size()) - 1;
  std::vector<std::int32_t> positions(static_cast<std::size_t>(root - stable()));
  std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(stable()));
  auto node = rows_.find(0);
  for (std::size_t i = 0; node != rows_.end(); ++i) {
    positions.push_back(node->second.places.back());
    if (i > 0) tokens_.push_back(node->second.token);
    if (i + 1 == rows.tokens.size()) break;
    const int parent = node->first;
    node = std::ranges::find_if(rows_, [&](const auto& entry) {
      return entry.first != 0 && entry.second.parent == parent && entry.second.token == rows.tokens[i + 1];
    });
  }
  branch_->commit_path(positions);
  branch_.reset();
}

void ModelDrafter::begin_round(std::span<const std::int32_t> tokens) {
  branch_.reset();
  rows_.clear();
  drafted_.clear();
  const auto known = std::span(tokens_).first(static_cast<std::size_t>(stable()));
  const auto common = std::ranges::mismatch(known, tokens).in1 - known.begin();
  cache_.truncate(sequence_, std::min<std::int64_t>(common, static_cast<std::int64_t>(tokens.size()) - 1));
  tokens_.assign(tokens.begin(), tokens.end());
  knows_text_ = std::ranges::all_of(tokens, [this](std::int32_t t) { return t < model_->config().vocabulary; });
}

std::vector<std::vector<DraftToken>> ModelDrafter::expand(const Candidates& candidates, std::span<const int> nodes,
                                                          int branch) {
  const auto prefix = static_cast<std::int64_t>(tokens_.size()) - 1;
  // Beyond its context, and about tokens without a row in its embedding, the draft model knows nothing.
  if (!knows_text_ || prefix + candidates[nodes[0]].depth >= options_.context)
    return {nodes.size(), std::vector<DraftToken>()};
  if (nodes[0] == 0) {
    catch_up();
    const std::vector<Row> rows = first_rows();
    return run(rows, check_of_run(rows), branch);
  }
  std::vector<std::vector<DraftToken>> all;
  for (std::size_t done = 0; done < nodes.size();) {
    const auto part = nodes.subspan(done, std::min(nodes.size() - done, static_cast<std::size_t>(step_rows_)));
    const std::vector<Row> rows = tree_rows(candidates, part);
    std::ranges::move(run(rows, check_of_nodes(candidates, part.size()), branch), std::back_inserter(all));
    done += part.size();
  }
  return all;
}

// Commits what is not in the cache yet, up to what fits the first step of the tree.
void ModelDrafter::catch_up() {
  const auto prefix = static_cast<std::int64_t>(tokens_.size()) - 1;
  while (prefix - stable() >= step_rows_) {
    const std::int64_t begin = stable();
    std::optional<Branch> chunk = cache_.begin(sequence_, step_rows_);
    check(chunk.has_value(), "draft model: no room for {} rows behind {}", step_rows_, begin);
    std::vector<Row> rows;
    for (std::int64_t p = begin; p < begin + step_rows_; ++p)
      rows.push_back(model_->prefill_row(chunk->id(), p, tokens_[static_cast<std::size_t>(p)]));
    model_->forward(rows, workspace_, check_of_run(rows));
    chunk->commit_length(step_rows_);
  }
}

// Opens the branch of the round: the tokens that are still missing, then the root.
std::vector<Row> ModelDrafter::first_rows() {
  const auto prefix = static_cast<std::int64_t>(tokens_.size()) - 1;
  branch_ = cache_.begin(sequence_, prefix - stable() + tree_rows_);
  check(branch_.has_value(), "draft model: no room for a tree behind {} positions", prefix);
  std::vector<Row> rows;
  for (std::int64_t p = stable(); p <= prefix; ++p)
    rows.push_back(model_->prefill_row(branch_->id(), p, tokens_[static_cast<std::size_t>(p)]));
  rows.back().wants_logits = true;
  rows_[0] = {.token = tokens_.back(), .places = {static_cast<std::int32_t>(prefix)}};
  drafted_ = {0};
  return rows;
}

std::vector<Row> ModelDrafter::tree_rows(const Candidates& candidates, std::span<const int> nodes) {
  const auto prefix = static_cast<std::int32_t>(tokens_.size()) - 1;
  std::vector<Row> rows;
  for (int node : nodes) {
    const Candidate& candidate = candidates[node];
    DraftRow drafted{candidate.parent, candidate.token, rows_.at(candidate.parent).places};
    const std::int32_t place = prefix + static_cast<std::int32_t>(drafted_.size());
    drafted_.push_back(node);
    rows.push_back(model_->tree_row(branch_->id(), prefix, place, candidate.token, drafted.places));
    rows.back().wants_logits = true;
    drafted.places.push_back(place);
    rows_.insert_or_assign(node, std::move(drafted));
  }
  return rows;
}

std::vector<std::vector<DraftToken>> ModelDrafter::run(std::span<const Row> rows, const StepCheck& check_tables,
                                                       int branch) {
  return top_.read(model_->forward(rows, workspace_, check_tables).logits, branch, {});
}

StepLimits ModelDrafter::limits() const {
  return {.tree = {.vocabulary = static_cast<std::int32_t>(model_->config().vocabulary),
                   .positions = static_cast<std::int32_t>(options_.context + tree_rows_)},
          .window = static_cast<std::int32_t>(model_->config().sliding_window)};
}

// Of rows of the text behind what the cache holds.
StepCheck ModelDrafter::check_of_run(std::span<const Row> rows) const {
  if (!options_.invariants) return {};
  return [rows, first = stable(), this](const HostTables& tables) {
    const auto tokens = std::span(tokens_).subspan(static_cast<std::size_t>(first), rows.size());
    check_draft_step(tables, DraftRun{rows[0].sequence, static_cast<std::int32_t>(first), tokens}, cache_.tables(),
                     limits());
  };
}

// Of the last `step_rows` drafted nodes.
StepCheck ModelDrafter::check_of_nodes(const Candidates& candidates, std::size_t step_rows) const {
  if (!options_.invariants) return {};
  return [&candidates, step_rows, this](const HostTables& tables) {
    const auto prefix = static_cast<std::int32_t>(tokens_.size()) - 1;
    const DraftedNodes drafted{.candidates = &candidates,
                               .nodes = drafted_,
                               .step_rows = static_cast<std::int64_t>(step_rows),
                               .branch = branch_->id(),
                               .prefix = prefix,
                               .root_position = prefix};
    check_draft_step(tables, drafted, cache_.tables(), limits());
  };
}

}  // namespace espalier
