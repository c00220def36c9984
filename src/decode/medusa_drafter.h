// Drafts with Medusa heads: head d guesses the token at depth d + 1 from the teacher's hidden state before the root,
// whatever the path between; a node's score is the product of its heads' probabilities.
#pragma once

#include <memory>
#include <vector>

#include "decode/drafter.h"
#include "decode/row_copies.h"
#include "decode/top_guesses.h"
#include "model/medusa_head.h"

namespace espalier {

class MedusaDrafter final : public Drafter {
 public:
  // The head must outlive the drafter. No level is asked for more than `branch` guesses; `sequences`: at once.
  MedusaDrafter(const MedusaHead& head, int branch, int sequences = 1);
  ~MedusaDrafter() override;

  std::string_view name() const override { return "medusa"; }
  int max_depth() const override { return static_cast<int>(head_->heads()); }
  std::unique_ptr<DraftSequence> open(SequenceId sequence, std::span<const std::int32_t> prompt) override;
  std::vector<Guesses> expand(std::span<const DraftJob> jobs) override;
  ResidentDrafter* resident() override;
  void all_told() override { copies_.make(); }

 private:
  class Sequence;
  class Resident;

  void run_heads(std::span<Sequence* const> sequences);

  const MedusaHead* head_;
  int at_once_;  // sequences of one step of the device
  MedusaWorkspace workspace_;
  TopGuesses top_;
  int most_;
  Tensor hidden_;     // [sequences, hidden], of the last committed position of each
  RowCopies copies_;  // of such states
  std::vector<std::int32_t> free_rows_;
  std::vector<Sequence*> open_;
  std::unique_ptr<Resident> resident_;
};

}  // namespace espalier
