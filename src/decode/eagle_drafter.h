// Drafts with an EAGLE head, of either generation, on a memory of its own under the batch's block tables.
//
// The pair (g_t, x_{t+1}), the teacher's feature of position t and the token after it, is the row at place t + 1:
// so a place depends on the tokens up to it alone, as in every memory, and place 0 is never written. Its rotation
// position is t. The last committed position waits for the root before it can become a row; it, and whatever else
// waits, is the first pass of a round, and its output seeds the tree. Later passes run over the frontiers, each node
// with its parent's output for a feature, on speculative rows that are dropped when the round ends: accepted nodes
// become rows again with the teacher's true features.
//
// What waits is the teacher's taps as they are: they are fused when a pass needs them, those of all its sequences in
// one go. A sequence that rests only keeps the taps of its last positions, and computes nothing: those that fall out
// are lost, and its head starts cold behind them.
#pragma once

#include <memory>
#include <vector>

#include "cache/kv_cache.h"
#include "decode/draft_pass.h"
#include "decode/draft_rows.h"
#include "decode/draft_tree.h"
#include "decode/drafter.h"
#include "decode/row_copies.h"
#include "decode/step_invariants.h"
#include "decode/top_guesses.h"
#include "model/eagle_head.h"

namespace espalier {

struct EagleDrafterOptions {
  std::int64_t context = 0;  // positions of the teacher
  DType kv_type = DType::f16;
  std::int64_t window = 0;  // how many rows before a round's tree a row sees; 0: all
  StepForm form = {};
  TreeOptions tree = {};    // how large a tree can get
  int sequences = 1;        // at once
  bool invariants = false;  // check tables, masks and slots of every draft pass before its launch
};

class EagleDrafter final : public Drafter {
 public:
  // Head and cache must outlive the drafter.
  EagleDrafter(const EagleHead& head, KvCache& cache, const EagleDrafterOptions& options);
  ~EagleDrafter() override;

  std::string_view name() const override { return head_->name(); }
  FeatureWishes wishes() const override { return {.taps = head_->taps()}; }
  bool needs_every_text() const override { return !starts_cold_anywhere(); }
  std::int64_t round_rows() const override { return 1 + tree_rows_; }
  std::unique_ptr<DraftSequence> open(SequenceId sequence, std::span<const std::int32_t> prompt) override;
  std::vector<Guesses> expand(std::span<const DraftJob> jobs) override;
  ResidentDrafter* resident() override;
  void all_told() override { copies_.make(); }

 private:
  class Sequence;
  class Resident;

  std::int64_t positions() const { return options_.context + branch_rows(options_.tree); }
  bool starts_cold_anywhere() const;
  std::int64_t padding(std::int64_t rows) const;
  std::int64_t ring_rows() const { return waiting_rows_ + padding(waiting_rows_); }
  std::int64_t first_output() const { return options_.sequences * waiting_rows_ + padding(step_rows_); }
  void copy_rows(ConstView from, std::span<const std::int32_t> rows, View to, std::int64_t first);
  // Whether the device copies more rows than are wanted.
  bool pads() const { return !head_->device().row_buckets().empty(); }
  std::int32_t note_taps(ConstView taps, std::int32_t row);
  void give_back(std::span<const std::int32_t> places);
  void fuse(std::span<const std::int32_t> taps);
  Guesses run_step(std::span<const Row> rows, int branch, const StepCheck& check);
  void keep_outputs(const EagleOutput& output, std::span<const Row> rows);
  StepLimits limits(std::int64_t window) const;
  StepCheck check_of(std::span<const DraftJob> jobs, std::span<const DraftPart> parts, bool seeds) const;

  const EagleHead* head_;
  KvCache* cache_;
  EagleDrafterOptions options_;
  std::int64_t step_rows_;     // the most rows of a step
  std::int64_t tree_rows_;     // the most speculative rows of a round of one sequence
  std::int64_t waiting_rows_;  // features of one sequence that may wait
  const KvMemory* memory_;
  EagleWorkspace workspace_;
  TopGuesses top_;
  // [.., boundaries * hidden]: those that wait. Where copies are padded, for each sequence a ring; elsewhere each is at
  // a place of its own.
  Tensor taps_;
  Tensor vectors_;           // [.., hidden]: the fused features of a pass, then the outputs of the round
  Tensor index_;             // i32, of a padded copy into these
  RowCopies copies_;         // into taps and vectors, where nothing is padded
  std::vector<bool> taken_;  // by place in taps_, where nothing is padded
  std::size_t next_place_ = 0;
  std::vector<int> free_rings_;
  std::vector<Sequence*> open_;
  std::unique_ptr<Resident> resident_;
  std::int64_t outputs_ = 0;  // of the round so far
};

}  // namespace espalier
