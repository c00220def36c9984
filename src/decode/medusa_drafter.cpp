#include "decode/medusa_drafter.h"

#include <algorithm>

#include "base/error.h"

namespace espalier {

MedusaDrafter::MedusaDrafter(const MedusaHead& head, int branch)
    : head_(&head),
      workspace_(head),
      top_(head.device(), bucket_for(head.device(), head.heads()), branch),
      most_(branch),
      hidden_(head.device().tensor(DType::f32, {1, head.hidden()})),
      index_(head.device().tensor(DType::i32, {1})) {}

// The state that comes next belongs to another position: the loop always computes the last token again.
void MedusaDrafter::rewind(std::int64_t) {
  has_hidden_ = false;
}

void MedusaDrafter::committed(const CommittedRows& rows) {
  has_hidden_ = !rows.hidden.empty();
  if (!has_hidden_) return;
  const auto row = static_cast<std::int32_t>(rows.hidden_row);
  upload<std::int32_t>(head_->device(), std::span(&row, 1), index_);
  head_->device().gather_rows(rows.hidden, index_, hidden_);
}

void MedusaDrafter::begin_round(std::span<const std::int32_t>) {
  guesses_.clear();
}

std::vector<std::vector<DraftToken>> MedusaDrafter::expand(const Candidates& candidates, std::span<const int> nodes,
                                                           int branch) {
  if (guesses_.empty() && has_hidden_) {
    guesses_ = top_.read(head_->forward(hidden_, 0, workspace_), most_,
                         {.target_ids = head_->target_ids(), .logit_scale = head_->logit_scale()});
    guesses_.resize(static_cast<std::size_t>(head_->heads()));
  }
  std::vector<std::vector<DraftToken>> all;
  for (int node : nodes) {
    const auto depth = static_cast<std::size_t>(candidates[node].depth);
    auto& guesses = all.emplace_back();
    if (depth < guesses_.size()) guesses = guesses_[depth];
    if (static_cast<int>(guesses.size()) > branch) guesses.resize(static_cast<std::size_t>(branch));
  }
  return all;
}

}  // namespace espalier
