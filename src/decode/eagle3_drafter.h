// Drafts with an EAGLE-3 head on a KV cache of its own.
//
// Row t of that cache is the pair (g_t, x_{t+1}): the teacher's fused feature of position t and the token after it. So
// the last committed position waits for the root before it can become a row; it, and whatever else is pending, is the
// first pass of a round, and its output seeds the tree. Later passes run over the frontier, each node with its parent's
// output for a feature, on speculative rows that are dropped when the round ends: accepted nodes become rows again with
// the teacher's true features.
#pragma once

#include <map>
#include <optional>

#include "cache/kv_cache.h"
#include "decode/draft_tree.h"
#include "decode/drafter.h"
#include "decode/step_invariants.h"
#include "decode/top_guesses.h"
#include "model/eagle3_head.h"

namespace espalier {

struct Eagle3DrafterOptions {
  std::int64_t context = 0;  // positions of the teacher
  DType kv_type = DType::f16;
  std::int64_t window = 0;  // how many rows before a round's tree a row sees; 0: all
  StepForm form = {};
  KvOptions kv = {};
  TreeOptions tree = {};    // how large a tree can get
  bool invariants = false;  // check tables, masks and slots of every draft pass before its launch
};

class Eagle3Drafter final : public Drafter {
 public:
  // The head must outlive the drafter.
  Eagle3Drafter(const Eagle3Head& head, const Eagle3DrafterOptions& options);

  std::string_view name() const override { return "eagle3"; }
  FeatureWishes wishes() const override { return {.taps = head_->taps()}; }
  std::int64_t resumable(std::int64_t length) const override;
  void rewind(std::int64_t length) override;
  void committed(const CommittedRows& rows) override;
  void begin_round(std::span<const std::int32_t> tokens) override;
  std::vector<std::vector<DraftToken>> expand(const Candidates& candidates, std::span<const int> nodes,
                                              int branch) override;
  void end_round(const TokenTree& tree, std::span<const Visit> visits) override;

 private:
  // A candidate that has been a row of this round.
  struct DraftRow {
    std::int32_t vector = 0;                // the row of `vectors_` that holds its output
    std::vector<std::int32_t> places = {};  // of the rows above it and of itself
  };

  std::int32_t context_begin(std::int64_t end) const;
  // Makes rows of the pending positions; `next` is the token behind the last of them.
  Eagle3Output run_pending(std::int32_t next, bool wants_logits);
  std::vector<std::vector<DraftToken>> seed(int branch);
  StepLimits limits(std::int64_t window) const;
  StepCheck check_of_run(std::int64_t first, SequenceId branch, std::int32_t next) const;
  StepCheck check_of_nodes(const Candidates& candidates, std::size_t step_rows) const;
  std::vector<Row> tree_rows(const Candidates& candidates, std::span<const int> nodes);
  void keep_outputs(const Eagle3Output& output, std::int64_t from, std::int64_t count, std::int64_t to);
  std::vector<std::vector<DraftToken>> guesses(const Eagle3Output& output, int branch);

  const Eagle3Head* head_;
  Eagle3DrafterOptions options_;
  std::int64_t step_rows_;  // the most rows of a step
  std::int64_t tree_rows_;  // the most speculative rows of a round
  KvCache cache_;
  SequenceId sequence_;
  Eagle3Workspace workspace_;
  TopGuesses top_;
  Tensor vectors_;  // [.., hidden]: features that wait in [0, step_rows_), the seed's output, outputs of the tree
  Tensor index_;    // i32, of a copy into vectors_

  std::vector<std::int32_t> tokens_;  // committed: the first of them are rows of the cache,
  std::int64_t pending_ = 0;          // the features of the last so many wait in vectors_

  // Of the round.
  std::int32_t root_ = 0;
  std::optional<Branch> branch_;
  std::vector<int> drafted_;      // the candidates on speculative rows, in the order of their places
  std::map<int, DraftRow> rows_;  // by candidate
};

}  // namespace espalier
