#include "decode/medusa_drafter.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace espalier {

// One row of hidden states, and what the heads say of it.
class MedusaDrafter::Sequence final : public DraftSequence {
 public:
  Sequence(MedusaDrafter& drafter, std::int32_t row) : drafter_(&drafter), row_(row) {}
  ~Sequence() override { drafter_->free_rows_.push_back(row_); }

  // The state that comes next belongs to another position: the last token before a round is always computed.
  bool reused(std::span<const std::int32_t>) override { return has_hidden_ = false; }
  void committed(const CommittedRows& rows) override;
  void begin_round(const DraftRound&) override { guesses_.clear(); }

  bool has_hidden() const { return has_hidden_; }
  std::int32_t row() const { return row_; }
  void hear(Guesses guesses) { guesses_ = std::move(guesses); }
  Guesses expand(const DraftJob& job) const;

 private:
  MedusaDrafter* drafter_;
  std::int32_t row_;
  bool has_hidden_ = false;
  Guesses guesses_;  // of every head in this round
};

void MedusaDrafter::Sequence::committed(const CommittedRows& rows) {
  has_hidden_ = !rows.hidden.empty();
  if (!has_hidden_) return;
  Device& device = drafter_->head_->device();
  const auto row = static_cast<std::int32_t>(rows.hidden_row);
  upload<std::int32_t>(device, std::span(&row, 1), drafter_->index_);
  device.gather_rows(rows.hidden, drafter_->index_, drafter_->hidden_.view.rows(row_, 1));
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
      top_(head.device(), bucket_for(head.device(), head.heads() * bucket_for(head.device(), at_once_)), branch),
      most_(branch),
      hidden_(head.device().tensor(DType::f32, {sequences, head.hidden()})),
      index_(head.device().tensor(DType::i32, {1})) {
  for (int row = sequences; row-- > 0;) free_rows_.push_back(row);
}

MedusaDrafter::~MedusaDrafter() = default;

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
  for (const Sequence* sequence : sequences) rows.push_back(sequence->row());
  Guesses guesses = top_.read(head_->forward(hidden_, rows, workspace_), most_,
                              {.target_ids = head_->target_ids(), .logit_scale = head_->logit_scale()});
  const auto stride = static_cast<std::size_t>(bucket_for(head_->device(), std::ssize(rows)));
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Guesses own;
    for (std::int64_t k = 0; k < head_->heads(); ++k)
      own.push_back(std::move(guesses[static_cast<std::size_t>(k) * stride + i]));
    sequences[i]->hear(std::move(own));
  }
}

}  // namespace espalier
