#include "decode/medusa_drafter.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "decode/medusa_resident.h"
#include "decode/medusa_sequence.h"

namespace espalier {

void MedusaDrafter::Sequence::committed(const CommittedRows& rows) {
  has_hidden_ = !rows.hidden.empty();
  lasting_row_.reset();
  if (!has_hidden_) return;
  const auto row = static_cast<std::int32_t>(rows.hidden_row);
  if (!rows.lasting) return drafter_->copies_.note(rows.hidden, row, drafter_->hidden_, row_);
  lasting_ = rows.hidden;
  lasting_row_ = row;
}

void MedusaDrafter::Sequence::save_lasting() {
  if (const auto row = std::exchange(lasting_row_, {})) drafter_->copies_.note(lasting_, *row, drafter_->hidden_, row_);
}

std::int32_t MedusaDrafter::Sequence::resident_row(const LastingFeatures& features, std::int64_t entry) {
  check(has_hidden_, "medusa: a round without a hidden state");
  if (lasting_row_) return *lasting_row_;
  drafter_->copies_.note(drafter_->hidden_, row_, features.hidden, static_cast<std::int32_t>(entry));
  return static_cast<std::int32_t>(entry);
}

Guesses MedusaDrafter::Sequence::expand(const DraftJob& job) const {
  Guesses all;
  for (int node : job.nodes) {
    const auto depth = static_cast<std::size_t>((*job.candidates)[node].depth);
    auto& guesses = all.emplace_back();
    if (depth < guesses_.size()) guesses = guesses_[depth];
    if (static_cast<int>(guesses.size()) > job.branch) guesses.resize(static_cast<std::size_t>(job.branch));
  }
  return all;
}

namespace {

// So many that all heads on all of them fit the largest step.
int sequences_at_once(const MedusaHead& head, int wanted) {
  const auto buckets = head.device().row_buckets();
  if (buckets.empty()) return wanted;
  int most = 1;
  for (std::int64_t bucket : buckets)
    if (head.heads() * bucket <= buckets.back()) most = static_cast<int>(bucket);
  return std::min(wanted, most);
}

}  // namespace

MedusaDrafter::MedusaDrafter(const MedusaHead& head, int branch, int sequences)
    : head_(&head),
      at_once_(sequences_at_once(head, sequences)),
      workspace_(head, at_once_),
      top_(head.device(), bucket_for(head.device(), head.heads() * rows_of_step(head.device(), at_once_)), branch),
      most_(branch),
      hidden_(head.device().tensor(DType::f32, {sequences, head.hidden()})),
      copies_(head.device(), sequences) {
  for (int row = sequences; row-- > 0;) free_rows_.push_back(row);
}

MedusaDrafter::~MedusaDrafter() = default;

ResidentDrafter* MedusaDrafter::resident() {
  if (!resident_) resident_ = std::make_unique<Resident>(*this);
  return resident_.get();
}

std::unique_ptr<DraftSequence> MedusaDrafter::open(SequenceId, std::span<const std::int32_t>) {
  check(!free_rows_.empty(), "medusa: more than {} sequences at once", hidden_.view.dim(0));
  const std::int32_t row = free_rows_.back();
  free_rows_.pop_back();
  return std::make_unique<Sequence>(*this, row);
}

std::vector<Guesses> MedusaDrafter::expand(std::span<const DraftJob> jobs) {
  std::vector<Sequence*> ready;
  for (const DraftJob& job : jobs)
    if (auto* const sequence = static_cast<Sequence*>(job.sequence); job.nodes[0] == 0 && sequence->has_hidden())
      ready.push_back(sequence);
  for (std::size_t done = 0; done < ready.size(); done += static_cast<std::size_t>(at_once_))
    run_heads(std::span(ready).subspan(done, std::min(ready.size() - done, static_cast<std::size_t>(at_once_))));
  std::vector<Guesses> all;
  for (const DraftJob& job : jobs) all.push_back(static_cast<const Sequence*>(job.sequence)->expand(job));
  return all;
}

// All heads on the states of these: what they say holds for every level of the round.
void MedusaDrafter::run_heads(std::span<Sequence* const> sequences) {
  std::vector<std::int32_t> rows;
  for (Sequence* sequence : sequences) {
    sequence->save_lasting();
    rows.push_back(sequence->row());
  }
  copies_.make();
  Guesses guesses = top_.read(head_->forward(hidden_, rows, workspace_), most_,
                              {.target_ids = head_->target_ids(), .logit_scale = head_->logit_scale()});
  const auto stride = static_cast<std::size_t>(rows_of_step(head_->device(), std::ssize(rows)));
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Guesses own;
    for (std::int64_t k = 0; k < head_->heads(); ++k)
      own.push_back(std::move(guesses[static_cast<std::size_t>(k) * stride + i]));
    sequences[i]->hear(std::move(own));
  }
}

}  // namespace espalier
