// Drafts with Medusa heads: head d guesses the token at depth d + 1 from the teacher's hidden state before the root,
// whatever the path between; a node's score is the product of its heads' probabilities.
#pragma once

#include "decode/drafter.h"
#include "decode/top_guesses.h"
#include "model/medusa_head.h"

namespace espalier {

class MedusaDrafter final : public Drafter {
 public:
  // The head must outlive the drafter. No level is asked for more than `branch` guesses.
  MedusaDrafter(const MedusaHead& head, int branch);

  std::string_view name() const override { return "medusa"; }
  int max_depth() const override { return static_cast<int>(head_->heads()); }
  void rewind(std::int64_t length) override;
  void committed(const CommittedRows& rows) override;
  void begin_round(std::span<const std::int32_t> tokens) override;
  std::vector<std::vector<DraftToken>> expand(const Candidates& candidates, std::span<const int> nodes,
                                              int branch) override;

 private:
  const MedusaHead* head_;
  MedusaWorkspace workspace_;
  TopGuesses top_;
  int most_;
  Tensor hidden_;  // [1, hidden], of the last committed position
  Tensor index_;   // i32 [1]
  bool has_hidden_ = false;
  std::vector<std::vector<DraftToken>> guesses_;  // of every head in this round
};

}  // namespace espalier
