#include "decode/eagle_drafter.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "decode/eagle_resident.h"
#include "decode/eagle_sequence.h"

namespace espalier {
namespace {

constexpr std::int64_t kWaitingRows = 32;

}  // namespace

EagleDrafter::EagleDrafter(const EagleHead& head, KvCache& cache, const EagleDrafterOptions& options)
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
          DType::f32, {options.sequences * (ring_rows() + padding(waiting_rows_)) + (pads() ? 0 : step_rows_),
                       head.config().feature_width()})),
      // Behind the outputs: what a padded copy overwrites.
      vectors_(head.device().tensor(
          DType::f32, {first_output() + options.sequences * (1 + tree_rows_) + padding(step_rows_), head.hidden()})),
      index_(head.device().tensor(DType::i32, {bucket_for(head.device(), step_rows_)})),
      copies_(head.device(), step_rows_),
      taken_(static_cast<std::size_t>(taps_.view.dim(0))) {
  // Rows that pad a step read vector 0, whoever's it is.
  upload<float>(head.device(), std::vector<float>(static_cast<std::size_t>(head.hidden())), vectors_.view.rows(0, 1));
  for (int ring = options.sequences; ring-- > 0;) free_rings_.push_back(ring);
}

EagleDrafter::~EagleDrafter() = default;

ResidentDrafter* EagleDrafter::resident() {
  if (!resident_) resident_ = std::make_unique<Resident>(*this);
  return resident_.get();
}

std::unique_ptr<DraftSequence> EagleDrafter::open(SequenceId sequence, std::span<const std::int32_t>) {
  check(!free_rings_.empty(), "{}: more than {} sequences at once", name(), options_.sequences);
  const int ring = free_rings_.back();
  free_rings_.pop_back();
  return std::make_unique<Sequence>(*this, sequence, ring);
}

// With further layers a place depends on what the rows before it saw, and so on where the head started.
bool EagleDrafter::starts_cold_anywhere() const {
  return memory_->shape().layers == 1;
}

// The most rows behind so many that a padded copy overwrites.
std::int64_t EagleDrafter::padding(std::int64_t rows) const {
  return head_->device().row_buckets().empty() ? 0 : bucket_for(head_->device(), rows);
}

// Rows of `from` become those of `to` from `first` on; rows behind are overwritten up to the bucket.
void EagleDrafter::copy_rows(ConstView from, std::span<const std::int32_t> rows, View to, std::int64_t first) {
  if (!pads()) {
    for (const std::int32_t row : rows) copies_.note(from, row, to, static_cast<std::int32_t>(first++));
    return copies_.make();
  }
  Device& device = head_->device();
  std::vector<std::int32_t> index(rows.begin(), rows.end());
  index.resize(static_cast<std::size_t>(bucket_for(device, std::ssize(index))), index[0]);
  const std::int64_t padded = std::ssize(index);
  upload<std::int32_t>(device, index, index_.view.rows(0, padded));
  device.gather_rows(from, index_.view.rows(0, padded), to.rows(first, padded));
}

// The place where that row will be kept. They follow each other, so that those of a step lie side by side where they
// can.
std::int32_t EagleDrafter::note_taps(ConstView taps, std::int32_t row) {
  while (taken_[next_place_ % taken_.size()]) ++next_place_;  // there are more of them than can wait
  next_place_ %= taken_.size();
  taken_[next_place_] = true;
  copies_.note(taps, row, taps_, static_cast<std::int32_t>(next_place_));
  return static_cast<std::int32_t>(next_place_++);
}

void EagleDrafter::give_back(std::span<const std::int32_t> places) {
  if (pads()) return;  // they are those of a ring
  for (const std::int32_t place : places) taken_[static_cast<std::size_t>(place)] = false;
}

// Vector i becomes the feature of row taps[i] of those that were kept.
void EagleDrafter::fuse(std::span<const std::int32_t> taps) {
  copies_.make();
  for (std::int64_t done = 0; !taps.empty();) {
    const std::int64_t count = std::min(step_rows_, std::ssize(taps));
    head_->fuse(taps_, taps.first(static_cast<std::size_t>(count)), workspace_,
                vectors_.view.rows(done, bucket_for(head_->device(), count)));
    taps = taps.subspan(static_cast<std::size_t>(count));
    done += count;
  }
}

std::vector<Guesses> EagleDrafter::expand(std::span<const DraftJob> jobs) {
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

Guesses EagleDrafter::run_step(std::span<const Row> rows, int branch, const StepCheck& check) {
  const EagleOutput output = head_->forward(rows, vectors_, workspace_, check);
  if (output.logits.empty()) return {};
  keep_outputs(output, rows);
  return top_.read(output.logits, branch, {.target_ids = head_->target_ids(), .logit_scale = head_->logit_scale()});
}

// Copies the outputs of rows that want logits, in their order, where the next pass can reach them.
void EagleDrafter::keep_outputs(const EagleOutput& output, std::span<const Row> rows) {
  std::vector<std::int32_t> index;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].wants_logits) index.push_back(static_cast<std::int32_t>(i));
  copy_rows(output.feedback, index, vectors_, first_output() + outputs_);
  outputs_ += std::ssize(index);
}

// --- invariants -----------------------------------------------------------------------------------------------------

StepLimits EagleDrafter::limits(std::int64_t window) const {
  return {.tree = {.vocabulary = static_cast<std::int32_t>(head_->config().teacher_vocabulary),
                   .positions = static_cast<std::int32_t>(positions())},
          .window = static_cast<std::int32_t>(window)};
}

// The window of the first pass does not count the row itself; later ones begin where the drafter says.
StepCheck EagleDrafter::check_of(std::span<const DraftJob> jobs, std::span<const DraftPart> parts, bool seeds) const {
  if (!options_.invariants) return {};
  if (!seeds) return check_of_nodes(jobs, parts, cache_->tables(), limits(0));
  return check_of_first_pass(jobs, parts, cache_->tables(), limits(options_.window == 0 ? 0 : options_.window + 1));
}

}  // namespace espalier
