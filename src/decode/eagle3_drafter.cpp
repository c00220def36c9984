#include "decode/eagle3_drafter.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "decode/network_sequence.h"

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

// What the head knows of one sequence: places [first_, end_) are written, the taps of the places behind wait.
class Eagle3Drafter::Sequence final : public NetworkSequence {
 public:
  Sequence(Eagle3Drafter& drafter, SequenceId sequence, int ring)
      : drafter_(&drafter), sequence_(sequence), ring_(ring) {}
  ~Sequence() override { drafter_->free_rings_.push_back(ring_); }

  bool reused(std::span<const std::int32_t> tokens) override;
  void committed(const CommittedRows& rows) override;
  void rest(bool resting) override;
  std::int64_t lacks_from() const override { return end_; }
  void begin_round(const DraftRound& round) override;
  void end_round(const DraftVerdict& verdict) override;
  void settle() override;

  // The rows of the round's first pass. Their inputs are numbers in `taps`, to which it adds where theirs wait.
  std::vector<Row> seed_rows(std::vector<std::int32_t>& taps);
  std::vector<Row> node_rows(const Candidates& candidates, std::span<const int> nodes);
  RunOfStep expected_run(const DraftPart& part) const override;

 private:
  // A candidate that has been a row of this round.
  struct DraftRow {
    std::int32_t vector = 0;                // the row of `vectors_` that holds its output
    std::vector<std::int32_t> places = {};  // of the rows above it and of itself
  };

  NodePlaces node_places() const override;
  std::int64_t first_of_ring() const;
  // The first place of the round's tree: the root's row stands before it.
  std::int32_t tree_place() const { return static_cast<std::int32_t>(end_ + waiting_); }
  void start_cold(std::int64_t position);
  void make_room(std::int64_t count);
  void forget(std::int64_t count);
  void push(ConstView taps, std::span<const std::int32_t> rows);
  void advance(std::int64_t count);
  std::int32_t next_token(std::int64_t i) const;
  std::vector<Row> waiting_rows(std::int64_t count, std::vector<std::int32_t>& taps) const;
  bool run_alone(std::int64_t count);
  std::int32_t context_begin(std::int64_t end) const;

  Eagle3Drafter* drafter_;
  SequenceId sequence_;
  int ring_;
  bool resting_ = false;
  std::int64_t first_ = 1;          // the first place of the written run
  std::int64_t end_ = 1;            // where it ends
  std::int64_t waiting_ = 0;        // taps of the positions from end_ - 1 on
  std::int64_t oldest_ = 0;         // where in the ring they begin
  std::vector<std::int32_t> next_;  // the tokens behind their positions, the last of which may not be known yet

  // Of the round.
  std::int32_t root_ = 0;
  bool seeded_ = false;
  std::map<int, DraftRow> rows_;  // by candidate, the root too
};

// --- a sequence -----------------------------------------------------------------------------------------------------

// The row at the place behind the last one needs the feature of the last position, and nothing else is lacking where
// the head has the places before. While it rests it would write nothing behind them, so they are of no use.
bool Eagle3Drafter::Sequence::reused(std::span<const std::int32_t> tokens) {
  const std::int64_t length = std::ssize(tokens);
  start_cold(length);
  if (resting_) return false;
  const std::int64_t from = drafter_->memory_->written_from(drafter_->cache_->blocks(sequence_), length);
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

void Eagle3Drafter::Sequence::rest(bool resting) {
  resting_ = resting && drafter_->starts_cold_anywhere();
}

void Eagle3Drafter::Sequence::committed(const CommittedRows& all) {
  CommittedRows rows = all.from(end_ - 1 + waiting_);
  if (rows.tokens.empty()) return;
  check(!rows.taps.empty(), "eagle3: position {} committed without taps", rows.begin);
  const std::int64_t end = rows.begin + std::ssize(rows.tokens);
  // Of a long text a sequence that rests only has the end.
  if (resting_) rows = rows.from(end - drafter_->waiting_rows_);
  if (rows.begin > end_ - 1 + waiting_) start_cold(rows.begin);
  while (!rows.tokens.empty()) {
    const auto count = std::min(static_cast<std::size_t>(drafter_->waiting_rows_), rows.tokens.size());
    const auto part = rows.tokens.first(count);
    if (waiting_ > std::ssize(next_)) next_.push_back(part[0]);
    make_room(std::ssize(part));
    push(rows.taps, rows.rows.first(count));
    next_.insert(next_.end(), part.begin() + 1, part.end());
    rows = rows.from(rows.begin + std::ssize(part));
  }
}

// What has to go becomes rows; where it rests, or blocks are short, it is lost.
void Eagle3Drafter::Sequence::make_room(std::int64_t count) {
  const std::int64_t more = waiting_ + count - drafter_->waiting_rows_;
  if (more <= 0) return;
  if (resting_ || !run_alone(waiting_)) forget(more);
}

// The oldest of what waits; the head will start cold behind it.
void Eagle3Drafter::Sequence::forget(std::int64_t count) {
  advance(count);
  first_ = end_;
}

// The oldest of what waits wait no more.
void Eagle3Drafter::Sequence::advance(std::int64_t count) {
  end_ += count;
  waiting_ -= count;
  oldest_ = (oldest_ + count) % drafter_->ring_rows();
  next_.erase(next_.begin(), next_.begin() + std::min<std::ptrdiff_t>(count, std::ssize(next_)));
}

std::int64_t Eagle3Drafter::Sequence::first_of_ring() const {
  return ring_ * (drafter_->ring_rows() + drafter_->padding(drafter_->waiting_rows_));
}

// A padded copy overwrites rows behind those it is for: rows of the ring that nothing waits in, or those behind it.
void Eagle3Drafter::Sequence::push(ConstView taps, std::span<const std::int32_t> rows) {
  while (!rows.empty()) {
    const std::int64_t at = (oldest_ + waiting_) % drafter_->ring_rows();
    const std::int64_t count = std::min(std::ssize(rows), drafter_->ring_rows() - at);
    const auto part = rows.first(static_cast<std::size_t>(count));
    drafter_->copy_rows(taps, part, drafter_->taps_, first_of_ring() + at);
    waiting_ += count;
    rows = rows.subspan(part.size());
  }
}

void Eagle3Drafter::Sequence::settle() {
  if (!resting_) run_alone(std::ssize(next_));
  waiting_ = 0;
  next_.clear();
}

// Makes rows of the first `count` of what waits, outside of a round. False: blocks are short.
bool Eagle3Drafter::Sequence::run_alone(std::int64_t count) {
  if (count == 0) return true;
  std::optional<Branch> branch = drafter_->cache_->begin(sequence_, 1, end_);
  if (!branch) return false;
  branch_ = &*branch;
  DraftPass pass;
  std::vector<std::int32_t> taps;
  pass.add(waiting_rows(count, taps));
  drafter_->fuse(taps);
  const DraftJob alone{.sequence = this};
  pass.run(drafter_->step_rows_, [&](std::span<const Row> rows, std::span<const DraftPart> parts) {
    const StepCheck check = drafter_->check_of(std::span(&alone, 1), parts, true);
    drafter_->head_->forward(rows, drafter_->vectors_, drafter_->workspace_, check);
    return Guesses();
  });
  branch->keep(*drafter_->memory_, {.to = end_, .from = places_from(end_, count)});
  branch->commit_length(0);
  advance(count);
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
  advance(waiting_);
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
std::vector<Row> Eagle3Drafter::Sequence::waiting_rows(std::int64_t count, std::vector<std::int32_t>& taps) const {
  std::vector<Row> rows;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto place = static_cast<std::int32_t>(end_ + i);
    rows.push_back({.sequence = branch_->id(),
                    .token = next_token(i),
                    .position = place - 1,
                    .place = place,
                    .begin = context_begin(place),
                    .end = place,
                    .input = static_cast<std::int32_t>(taps.size())});
    taps.push_back(static_cast<std::int32_t>(first_of_ring() + (oldest_ + i) % drafter_->ring_rows()));
  }
  return rows;
}

std::vector<Row> Eagle3Drafter::Sequence::seed_rows(std::vector<std::int32_t>& taps) {
  check(waiting_ > 0, "eagle3: no feature is waiting behind {} rows", end_);
  std::vector<Row> rows = waiting_rows(waiting_, taps);
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

Eagle3Drafter::Sequence::NodePlaces Eagle3Drafter::Sequence::node_places() const {
  return {.prefix = tree_place(), .begin = context_begin(tree_place()), .root_position = tree_place() - 2};
}

// --- all sequences --------------------------------------------------------------------------------------------------

Eagle3Drafter::Eagle3Drafter(const Eagle3Head& head, KvCache& cache, const Eagle3DrafterOptions& options)
    : head_(&head),
      cache_(&cache),
      options_(options),
      step_rows_(draft_step_rows(head.device(), options.tree, options.sequences)),
      tree_rows_(expanded_rows(options.tree)),
      waiting_rows_(std::min(step_rows_, kWaitingRows)),
      memory_(&cache.add_memory(head.kv_shape(options.kv_type))),
      workspace_(head, *memory_, step_rows_, positions(), options.form,
                 std::min(step_rows_, widest_level(options.tree) * options.sequences)),
      top_(head.device(), step_rows_, most_guesses(options.tree)),
      taps_(head.device().tensor(
          DType::f32, {options.sequences * (ring_rows() + padding(waiting_rows_)), head.config().feature_width()})),
      // Behind the outputs: what a padded copy overwrites.
      vectors_(head.device().tensor(
          DType::f32, {first_output() + options.sequences * (1 + tree_rows_) + padding(step_rows_), head.hidden()})),
      index_(head.device().tensor(DType::i32, {bucket_for(head.device(), step_rows_)})) {
  // Rows that pad a step read vector 0, whoever's it is.
  upload<float>(head.device(), std::vector<float>(static_cast<std::size_t>(head.hidden())), vectors_.view.rows(0, 1));
  for (int ring = options.sequences; ring-- > 0;) free_rings_.push_back(ring);
}

Eagle3Drafter::~Eagle3Drafter() = default;

std::unique_ptr<DraftSequence> Eagle3Drafter::open(SequenceId sequence, std::span<const std::int32_t>) {
  check(!free_rings_.empty(), "eagle3: more than {} sequences at once", options_.sequences);
  const int ring = free_rings_.back();
  free_rings_.pop_back();
  return std::make_unique<Sequence>(*this, sequence, ring);
}

// With further layers a place depends on what the rows before it saw, and so on where the head started.
bool Eagle3Drafter::starts_cold_anywhere() const {
  return memory_->shape().layers == 1;
}

// The most rows behind so many that a padded copy overwrites.
std::int64_t Eagle3Drafter::padding(std::int64_t rows) const {
  return head_->device().row_buckets().empty() ? 0 : bucket_for(head_->device(), rows);
}

// Rows of `from` become those of `to` from `first` on; rows behind are overwritten up to the bucket.
void Eagle3Drafter::copy_rows(ConstView from, std::span<const std::int32_t> rows, const Tensor& to,
                              std::int64_t first) {
  Device& device = head_->device();
  std::vector<std::int32_t> index(rows.begin(), rows.end());
  index.resize(static_cast<std::size_t>(bucket_for(device, std::ssize(index))), index[0]);
  const std::int64_t padded = std::ssize(index);
  upload<std::int32_t>(device, index, index_.view.rows(0, padded));
  device.gather_rows(from, index_.view.rows(0, padded), to.view.rows(first, padded));
}

// Vector i becomes the feature of row taps[i] of the rings.
void Eagle3Drafter::fuse(std::span<const std::int32_t> taps) {
  for (std::int64_t done = 0; !taps.empty();) {
    const std::int64_t count = std::min(step_rows_, std::ssize(taps));
    head_->fuse(taps_, taps.first(static_cast<std::size_t>(count)), workspace_,
                vectors_.view.rows(done, bucket_for(head_->device(), count)));
    taps = taps.subspan(static_cast<std::size_t>(count));
    done += count;
  }
}

std::vector<Guesses> Eagle3Drafter::expand(std::span<const DraftJob> jobs) {
  const auto sequence = [&](std::size_t job) { return static_cast<Sequence*>(jobs[job].sequence); };
  const bool seeds = jobs[0].nodes[0] == 0;
  if (seeds) outputs_ = 0;
  const std::int64_t before = outputs_;
  DraftPass pass;
  std::vector<std::int32_t> taps;
  int branch = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    pass.add(seeds ? sequence(i)->seed_rows(taps) : sequence(i)->node_rows(*jobs[i].candidates, jobs[i].nodes));
    branch = std::max(branch, jobs[i].branch);
  }
  fuse(taps);
  outputs_ = before;  // the rows know their outputs' places; now come the outputs, in the same order
  Guesses flat = pass.run(step_rows_, [&](std::span<const Row> rows, std::span<const DraftPart> parts) {
    return run_step(rows, branch, check_of(jobs, parts, seeds));
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
  copy_rows(output.feedback, index, vectors_, first_output() + outputs_);
  outputs_ += std::ssize(index);
}

// --- invariants -----------------------------------------------------------------------------------------------------

StepLimits Eagle3Drafter::limits(std::int64_t window) const {
  return {.tree = {.vocabulary = static_cast<std::int32_t>(head_->config().teacher_vocabulary),
                   .positions = static_cast<std::int32_t>(positions())},
          .window = static_cast<std::int32_t>(window)};
}

// The window of the first pass does not count the row itself; later ones begin where the drafter says.
StepCheck Eagle3Drafter::check_of(std::span<const DraftJob> jobs, std::span<const DraftPart> parts, bool seeds) const {
  if (!options_.invariants) return {};
  if (!seeds) return check_of_nodes(jobs, parts, cache_->tables(), limits(0));
  return check_of_first_pass(jobs, parts, cache_->tables(), limits(options_.window == 0 ? 0 : options_.window + 1));
}

}  // namespace espalier
