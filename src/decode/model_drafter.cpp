#include "decode/model_drafter.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "decode/model_resident.h"
#include "decode/model_sequence.h"

namespace espalier {

bool ModelDrafter::Sequence::reused(std::span<const std::int32_t> tokens) {
  written_ = drafter_->memory_->written_to(drafter_->cache_->blocks(sequence_), std::ssize(tokens));
  known_ = 0;
  return false;
}

void ModelDrafter::Sequence::begin_round(const DraftRound& round) {
  tokens_ = round.tokens;
  branch_ = round.branch;
  drafted_.clear();
  rows_.clear();
  knows_text_ = knows_all(tokens_);
}

bool ModelDrafter::Sequence::knows_all(std::span<const std::int32_t> tokens) {
  while (known_ < tokens.size() && drafter_->knows(tokens[known_])) ++known_;
  return known_ == tokens.size();
}

int ModelDrafter::Sequence::levels_behind(std::span<const std::int32_t> tokens) {
  const std::int64_t room = drafter_->options_.context - (std::ssize(tokens) - 1);
  return knows_all(tokens) ? static_cast<int>(std::max<std::int64_t>(0, room)) : 0;
}

bool ModelDrafter::Sequence::knows(int depth) const {
  return knows_text_ && prefix() + depth < drafter_->options_.context;
}

// The text, and the longest part of the accepted path that has been computed here.
void ModelDrafter::Sequence::end_round(const DraftVerdict& verdict) {
  if (drafted_.empty()) return;
  std::vector<std::int32_t> places(static_cast<std::size_t>(prefix() + 1 - written_));
  std::iota(places.begin(), places.end(), static_cast<std::int32_t>(written_));
  const auto visited = verdict.drafted.empty() ? std::span<const Visit>() : verdict.visits.subspan(1);
  for (const Visit& visit : visited) {
    const std::int32_t row = verdict.drafted[static_cast<std::size_t>(visit.node)];
    if (row == 0) break;
    places.push_back(static_cast<std::int32_t>(prefix()) + row - 1);
  }
  int above = 0;
  for (std::int32_t token : verdict.drafted.empty() ? verdict.accepted() : std::vector<std::int32_t>()) {
    const auto node = std::ranges::find_if(rows_, [&](const auto& entry) {
      return entry.first != 0 && entry.second.parent == above && entry.second.token == token;
    });
    if (node == rows_.end()) break;
    places.push_back(node->second.places.back());
    above = node->first;
  }
  const std::int64_t kept = std::ssize(places);
  verdict.branch.keep(*drafter_->memory_, {.to = written_, .from = std::move(places)});
  written_ += kept;
}

std::vector<Row> ModelDrafter::Sequence::first_rows() {
  std::vector<Row> rows;
  for (std::int64_t p = written_; p <= prefix(); ++p)
    rows.push_back(drafter_->model_->prefill_row(branch_->id(), p, tokens_[static_cast<std::size_t>(p)]));
  rows.back().wants_logits = true;
  rows_[0] = {.token = tokens_.back(), .places = {static_cast<std::int32_t>(prefix())}};
  drafted_ = {0};
  return rows;
}

std::vector<Row> ModelDrafter::Sequence::resident_rows(std::int64_t most) {
  std::vector<Row> rows = first_rows();
  const std::int64_t before = std::max<std::int64_t>(0, std::ssize(rows) - most);
  for (std::int64_t done = 0; done < before;) {
    const std::int64_t count = std::min(before - done, drafter_->step_rows_);
    drafter_->model_->forward(std::span(rows).subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count)),
                              drafter_->workspace_);
    done += count;
  }
  rows.erase(rows.begin(), rows.begin() + before);
  return rows;
}

RunOfStep ModelDrafter::Sequence::expected_run(const DraftPart& part) const {
  const auto first = static_cast<std::int32_t>(written_ + part.begin);
  const auto tokens = tokens_.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(part.end - part.begin));
  return {.branch = branch_->id(), .first = first, .position = first, .tokens = {tokens.begin(), tokens.end()}};
}

std::vector<Row> ModelDrafter::Sequence::node_rows(const Candidates& candidates, std::span<const int> nodes) {
  std::vector<Row> rows;
  for (int node : nodes) {
    const Candidate& candidate = candidates[node];
    DraftRow drafted{candidate.parent, candidate.token, rows_.at(candidate.parent).places};
    const auto place = static_cast<std::int32_t>(prefix() + std::ssize(drafted_));
    drafted_.push_back(node);
    rows.push_back(drafter_->model_->tree_row(branch_->id(), prefix(), place, candidate.token, drafted.places));
    rows.back().wants_logits = true;
    drafted.places.push_back(place);
    rows_.insert_or_assign(node, std::move(drafted));
  }
  return rows;
}

ModelDrafter::Sequence::NodePlaces ModelDrafter::Sequence::node_places() const {
  const auto root = static_cast<std::int32_t>(prefix());
  return {.prefix = root, .root_position = root};
}

ModelDrafter::ModelDrafter(const Transformer& model, KvCache& cache, const ModelDrafterOptions& options)
    : model_(&model),
      cache_(&cache),
      options_(options),
      step_rows_(std::max(draft_step_rows(model.device(), options.tree, options.sequences),
                          largest_step(model.device(), Resident::kFirstRows * options.sequences))),
      tree_rows_(1 + expanded_rows(options.tree)),
      memory_(&cache.add_memory(model.kv_shape(options.kv_type))),
      workspace_(model, *memory_,
                 {.rows = step_rows_,
                  .outputs = std::min(step_rows_, widest_level(options.tree) * options.sequences),
                  .positions = positions(),
                  .form = options.form}),
      top_(model.device(), step_rows_, most_guesses(options.tree)) {}

ModelDrafter::~ModelDrafter() = default;

ResidentDrafter* ModelDrafter::resident() {
  if (options_.form.mask != MaskForm::list) return nullptr;
  if (!resident_) resident_ = std::make_unique<Resident>(*this);
  return resident_.get();
}

bool ModelDrafter::knows(std::int32_t token) const {
  return token < model_->config().vocabulary;
}

std::unique_ptr<DraftSequence> ModelDrafter::open(SequenceId sequence, std::span<const std::int32_t>) {
  return std::make_unique<Sequence>(*this, sequence);
}

std::vector<Guesses> ModelDrafter::expand(std::span<const DraftJob> jobs) {
  const auto sequence = [&](std::size_t job) { return static_cast<Sequence*>(jobs[job].sequence); };
  const bool first = jobs[0].nodes[0] == 0;
  DraftPass pass;
  std::vector<bool> had_rows;
  int branch = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    branch = std::max(branch, jobs[i].branch);
    had_rows.push_back(sequence(i)->knows((*jobs[i].candidates)[jobs[i].nodes[0]].depth));
    if (!had_rows.back())
      pass.add({});
    else
      pass.add(first ? sequence(i)->first_rows() : sequence(i)->node_rows(*jobs[i].candidates, jobs[i].nodes));
  }
  Guesses flat = pass.run(step_rows_, [&](std::span<const Row> rows, std::span<const DraftPart> parts) {
    const StepOutput output = model_->forward(rows, workspace_, check_of(jobs, parts, first));
    return output.logits.empty() ? Guesses() : top_.read(output.logits, branch, {});
  });
  return guesses_by_job(jobs, had_rows, std::move(flat));
}

StepLimits ModelDrafter::limits() const {
  return {.tree = {.vocabulary = static_cast<std::int32_t>(model_->config().vocabulary),
                   .positions = static_cast<std::int32_t>(positions())},
          .window = static_cast<std::int32_t>(model_->config().sliding_window)};
}

StepCheck ModelDrafter::check_of(std::span<const DraftJob> jobs, std::span<const DraftPart> parts, bool first) const {
  if (!options_.invariants) return {};
  return first ? check_of_first_pass(jobs, parts, cache_->tables(), limits())
               : check_of_nodes(jobs, parts, cache_->tables(), limits());
}

}  // namespace espalier
