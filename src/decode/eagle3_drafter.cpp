#include "decode/eagle3_drafter.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "decode/draft_invariants.h"

namespace espalier {
namespace {

constexpr std::int64_t kWaitingRows = 32;

// As many places from `first` on.
std::vector<std::int32_t> places_from(std::int64_t first, std::int64_t count) {
  std::vector<std::int32_t> places(static_cast<std::size_t>(count));
  std::iota(places.begin(), places.end(), static_cast<std::int32_t>(first));
  return places;
}

}  // namespace

// What the head knows of one sequence: places [first_, end_) are written, the features of the places behind wait.
class Eagle3Drafter::Sequence final : public DraftSequence {
 public:
  Sequence(Eagle3Drafter& drafter, SequenceId sequence, int region)
      : drafter_(&drafter), sequence_(sequence), region_(region) {}
  ~Sequence() override { drafter_->free_regions_.push_back(region_); }

  bool reused(std::span<const std::int32_t> tokens) override;
  void committed(const CommittedRows& rows) override;
  std::int64_t lacks_from() const override { return end_; }
  void begin_round(const DraftRound& round) override;
  void end_round(const DraftVerdict& verdict) override;
  void settle() override;

  // The rows of the round's first pass.
  std::vector<Row> seed_rows();
  std::vector<Row> node_rows(const Candidates& candidates, std::span<const int> nodes);
  // What the tables must say of those rows, or of some of them.
  RunOfStep expected_run(const DraftPart& part) const;
  // All drafted nodes but the last `behind`; the last `rows` of them are in the step.
  DraftedNodes drafted_nodes(const Candidates& candidates, std::int64_t behind, std::int64_t rows) const;

 private:
  // A candidate that has been a row of this round.
  struct DraftRow {
    std::int32_t vector = 0;                // the row of `vectors_` that holds its output
    std::vector<std::int32_t> places = {};  // of the rows above it and of itself
  };

  std::int64_t base() const { return region_ * drafter_->region_rows_; }
  // The first place of the round's tree: the root's row stands before it.
  std::int32_t tree_place() const { return static_cast<std::int32_t>(end_ + waiting_); }
  void start_cold(std::int64_t position);
  std::int32_t next_token(std::int64_t i) const;
  std::vector<Row> waiting_rows(std::int64_t count) const;
  bool run_alone(std::int64_t count);
  std::int32_t context_begin(std::int64_t end) const;

  Eagle3Drafter* drafter_;
  SequenceId sequence_;
  int region_;
  std::int64_t first_ = 1;          // the first place of the written run
  std::int64_t end_ = 1;            // where it ends
  std::int64_t waiting_ = 0;        // features of the positions from end_ - 1 on
  std::vector<std::int32_t> next_;  // the tokens behind their positions, the last of which may not be known yet

  // Of the round.
  std::int32_t root_ = 0;
  const Branch* branch_ = nullptr;
  bool seeded_ = false;
  std::vector<int> drafted_;      // the candidates on speculative rows, in the order of their places
  std::map<int, DraftRow> rows_;  // by candidate, the root too
};

// --- a sequence -----------------------------------------------------------------------------------------------------

// The row at the place behind the last one needs the feature of the last position, and nothing else is lacking where
// the head has the places before.
bool Eagle3Drafter::Sequence::reused(std::span<const std::int32_t> tokens) {
  const std::int64_t length = std::ssize(tokens);
  const std::int64_t from = drafter_->memory_->written_from(drafter_->cache_->blocks(sequence_), length);
  start_cold(length);
  if (from == length && length != 1) return false;  // before place 1 there is nothing to have
  first_ = from;
  end_ = length;
  return true;
}

// Its first feature will be that of this position.
void Eagle3Drafter::Sequence::start_cold(std::int64_t position) {
  first_ = end_ = position + 1;
  waiting_ = 0;
  next_.clear();
}

void Eagle3Drafter::Sequence::committed(const CommittedRows& all) {
  const CommittedRows rows = all.from(end_ - 1 + waiting_);
  const std::int64_t total = std::ssize(rows.tokens);
  check(total == 0 || !rows.taps.empty(), "eagle3: position {} committed without taps", rows.begin);
  if (total > 0 && rows.begin > end_ - 1 + waiting_) start_cold(rows.begin);
  for (std::int64_t done = 0; done < total;) {
    const std::int64_t count = std::min(drafter_->waiting_rows_, total - done);
    const auto part = rows.tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count));
    if (waiting_ > std::ssize(next_)) next_.push_back(part[0]);
    if (waiting_ + count > drafter_->waiting_rows_ && !run_alone(waiting_)) start_cold(rows.begin + done);
    const Eagle3Head& head = *drafter_->head_;
    head.fuse(rows.taps, rows.rows.subspan(static_cast<std::size_t>(done), part.size()), drafter_->workspace_,
              drafter_->vectors_.view.rows(base() + waiting_, bucket_for(head.device(), count)));
    next_.insert(next_.end(), part.begin() + 1, part.end());
    waiting_ += count;
    done += count;
  }
}

void Eagle3Drafter::Sequence::settle() {
  run_alone(std::ssize(next_));
  waiting_ = 0;
}

// Makes rows of the first `count` waiting features, outside of a round. False: blocks are short.
bool Eagle3Drafter::Sequence::run_alone(std::int64_t count) {
  if (count == 0) return true;
  std::optional<Branch> branch = drafter_->cache_->begin(sequence_, 1, end_);
  if (!branch) return false;
  branch_ = &*branch;
  DraftPass pass;
  pass.add(waiting_rows(count));
  const DraftJob alone{.sequence = this};
  pass.run(drafter_->step_rows_, [&](std::span<const Row> rows, std::span<const DraftPart> parts) {
    const StepCheck check = drafter_->check_of_waiting(std::span(&alone, 1), parts);
    drafter_->head_->forward(rows, drafter_->vectors_, drafter_->workspace_, check);
    return Guesses();
  });
  branch->keep(*drafter_->memory_, {.to = end_, .from = places_from(end_, count)});
  branch->commit_length(0);
  end_ += count;
  waiting_ -= count;
  next_.clear();
  return true;
}

void Eagle3Drafter::Sequence::begin_round(const DraftRound& round) {
  check(std::ssize(round.tokens) == end_ + waiting_, "eagle3: a round behind {} tokens, {} rows and {} features",
        round.tokens.size() - 1, end_, waiting_);
  root_ = round.tokens.back();
  branch_ = round.branch;
  seeded_ = false;
  drafted_.clear();
  rows_.clear();
}

// What waited is written now; the tree's rows are not kept.
void Eagle3Drafter::Sequence::end_round(const DraftVerdict& verdict) {
  if (!seeded_) return;
  verdict.branch.keep(*drafter_->memory_, {.to = end_, .from = places_from(end_, waiting_)});
  end_ += waiting_;
  waiting_ = 0;
  next_.clear();
}

std::int32_t Eagle3Drafter::Sequence::context_begin(std::int64_t end) const {
  const std::int64_t window = drafter_->options_.window;
  return static_cast<std::int32_t>(std::max(first_, window == 0 ? 0 : end - window));
}

// The token behind the position of feature i; behind the last one stands the root.
std::int32_t Eagle3Drafter::Sequence::next_token(std::int64_t i) const {
  return i < std::ssize(next_) ? next_[static_cast<std::size_t>(i)] : root_;
}

RunOfStep Eagle3Drafter::Sequence::expected_run(const DraftPart& part) const {
  RunOfStep run{.branch = branch_->id(),
                .first = static_cast<std::int32_t>(end_ + part.begin),
                .position = static_cast<std::int32_t>(end_ + part.begin - 1),
                .begin = static_cast<std::int32_t>(first_)};
  for (std::int64_t i = part.begin; i < part.end; ++i) run.tokens.push_back(next_token(i));
  return run;
}

// The features in the order of their places, each with the token behind it.
std::vector<Row> Eagle3Drafter::Sequence::waiting_rows(std::int64_t count) const {
  std::vector<Row> rows;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto place = static_cast<std::int32_t>(end_ + i);
    rows.push_back({.sequence = branch_->id(),
                    .token = next_token(i),
                    .position = place - 1,
                    .place = place,
                    .begin = context_begin(place),
                    .end = place,
                    .input = static_cast<std::int32_t>(base() + i)});
  }
  return rows;
}

std::vector<Row> Eagle3Drafter::Sequence::seed_rows() {
  check(waiting_ > 0, "eagle3: no feature is waiting behind {} rows", end_);
  std::vector<Row> rows = waiting_rows(waiting_);
  rows.back().wants_logits = true;
  rows_[0].vector = static_cast<std::int32_t>(drafter_->first_output() + drafter_->outputs_++);
  seeded_ = true;
  return rows;
}

std::vector<Row> Eagle3Drafter::Sequence::node_rows(const Candidates& candidates, std::span<const int> nodes) {
  const std::int32_t first = tree_place();
  std::vector<Row> rows;
  for (int node : nodes) {
    const Candidate& candidate = candidates[node];
    const DraftRow& parent = rows_.at(candidate.parent);
    const auto place = first + static_cast<std::int32_t>(drafted_.size());
    DraftRow drafted{.places = parent.places};
    rows.push_back({.sequence = branch_->id(),
                    .token = candidate.token,
                    .position = first - 2 + candidate.depth,
                    .place = place,
                    .begin = context_begin(first),
                    .end = first,
                    .ancestors = drafted.places,
                    .input = parent.vector,
                    .wants_logits = true});
    drafted.places.push_back(place);
    drafted.vector = static_cast<std::int32_t>(drafter_->first_output() + drafter_->outputs_++);
    rows_.insert_or_assign(node, std::move(drafted));
    drafted_.push_back(node);
  }
  return rows;
}

DraftedNodes Eagle3Drafter::Sequence::drafted_nodes(const Candidates& candidates, std::int64_t behind,
                                                    std::int64_t rows) const {
  return {.candidates = &candidates,
          .nodes = std::span(drafted_).first(drafted_.size() - static_cast<std::size_t>(behind)),
          .step_rows = rows,
          .branch = branch_->id(),
          .prefix = tree_place(),
          .begin = context_begin(tree_place()),
          .root_position = tree_place() - 2};
}

// --- all sequences --------------------------------------------------------------------------------------------------

Eagle3Drafter::Eagle3Drafter(const Eagle3Head& head, KvCache& cache, const Eagle3DrafterOptions& options)
    : head_(&head),
      cache_(&cache),
      options_(options),
      step_rows_(draft_step_rows(head.device(), options.tree, options.sequences)),
      tree_rows_(expanded_rows(options.tree)),
      waiting_rows_(std::min(step_rows_, kWaitingRows)),
      region_rows_(waiting_rows_ + (head.device().row_buckets().empty() ? 0 : bucket_for(head.device(), step_rows_))),
      memory_(&cache.add_memory(head.kv_shape(options.kv_type))),
      workspace_(head, *memory_, step_rows_, positions(), options.form,
                 std::min(step_rows_, widest_level(options.tree) * options.sequences)),
      top_(head.device(), step_rows_, most_guesses(options.tree)),
      // Behind the regions: the outputs of a round, and what a padded copy overwrites.
      vectors_(head.device().tensor(
          DType::f32, {first_output() + options.sequences * (1 + tree_rows_) + bucket_for(head.device(), step_rows_),
                       head.hidden()})),
      index_(head.device().tensor(DType::i32, {bucket_for(head.device(), step_rows_)})) {
  // Rows that pad a step read vector 0, whoever's it is.
  upload<float>(head.device(), std::vector<float>(static_cast<std::size_t>(head.hidden())), vectors_.view.rows(0, 1));
  for (int region = options.sequences; region-- > 0;) free_regions_.push_back(region);
}

Eagle3Drafter::~Eagle3Drafter() = default;

std::unique_ptr<DraftSequence> Eagle3Drafter::open(SequenceId sequence, std::span<const std::int32_t>) {
  check(!free_regions_.empty(), "eagle3: more than {} sequences at once", options_.sequences);
  const int region = free_regions_.back();
  free_regions_.pop_back();
  return std::make_unique<Sequence>(*this, sequence, region);
}

std::vector<Guesses> Eagle3Drafter::expand(std::span<const DraftJob> jobs) {
  const auto sequence = [&](std::size_t job) { return static_cast<Sequence*>(jobs[job].sequence); };
  const bool seeds = jobs[0].nodes[0] == 0;
  if (seeds) outputs_ = 0;
  const std::int64_t before = outputs_;
  DraftPass pass;
  int branch = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    pass.add(seeds ? sequence(i)->seed_rows() : sequence(i)->node_rows(*jobs[i].candidates, jobs[i].nodes));
    branch = std::max(branch, jobs[i].branch);
  }
  outputs_ = before;  // the rows know their outputs' places; now come the outputs, in the same order
  Guesses flat = pass.run(step_rows_, [&](std::span<const Row> rows, std::span<const DraftPart> parts) {
    return run_step(rows, branch, seeds ? check_of_waiting(jobs, parts) : check_of_nodes(jobs, parts));
  });
  return guesses_by_job(jobs, std::vector(jobs.size(), true), std::move(flat));
}

Guesses Eagle3Drafter::run_step(std::span<const Row> rows, int branch, const StepCheck& check) {
  const Eagle3Output output = head_->forward(rows, vectors_, workspace_, check);
  if (output.logits.empty()) return {};
  keep_outputs(output, rows);
  return top_.read(output.logits, branch, {.target_ids = head_->target_ids(), .logit_scale = head_->logit_scale()});
}

// Copies the outputs of rows that want logits, in their order, where the next pass can reach them.
void Eagle3Drafter::keep_outputs(const Eagle3Output& output, std::span<const Row> rows) {
  std::vector<std::int32_t> index;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].wants_logits) index.push_back(static_cast<std::int32_t>(i));
  const std::int64_t to = first_output() + outputs_;
  outputs_ += std::ssize(index);
  Device& device = head_->device();
  index.resize(static_cast<std::size_t>(bucket_for(device, std::ssize(index))), index[0]);
  const std::int64_t padded = std::ssize(index);
  upload<std::int32_t>(device, index, index_.view.rows(0, padded));
  device.gather_rows(output.feedback, index_.view.rows(0, padded), vectors_.view.rows(to, padded));
}

// --- invariants -----------------------------------------------------------------------------------------------------

StepLimits Eagle3Drafter::limits(std::int64_t window) const {
  return {.tree = {.vocabulary = static_cast<std::int32_t>(head_->config().teacher_vocabulary),
                   .positions = static_cast<std::int32_t>(positions())},
          .window = static_cast<std::int32_t>(window)};
}

StepCheck Eagle3Drafter::check_of_waiting(std::span<const DraftJob> jobs, std::span<const DraftPart> parts) const {
  if (!options_.invariants) return {};
  return [=, this](const HostTables& tables) {
    std::vector<RunOfStep> runs;
    for (const DraftPart& part : parts)
      runs.push_back(static_cast<const Sequence*>(jobs[part.job].sequence)->expected_run(part));
    // The window does not count the row itself.
    check_draft_step(tables, runs, cache_->tables(), limits(options_.window == 0 ? 0 : options_.window + 1));
  };
}

StepCheck Eagle3Drafter::check_of_nodes(std::span<const DraftJob> jobs, std::span<const DraftPart> parts) const {
  if (!options_.invariants) return {};
  return [=, this](const HostTables& tables) {
    std::vector<DraftedNodes> drafted;
    for (const DraftPart& part : parts) {
      const DraftJob& job = jobs[part.job];
      drafted.push_back(static_cast<const Sequence*>(job.sequence)
                            ->drafted_nodes(*job.candidates, std::ssize(job.nodes) - part.end, part.end - part.begin));
    }
    check_draft_step(tables, drafted, cache_->tables(), limits(0));
  };
}

}  // namespace espalier
