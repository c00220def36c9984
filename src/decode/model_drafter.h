// Drafts with a small language model of the same vocabulary, on a memory of its own under the batch's block tables.
// What it computed for tokens that the teacher then accepts is kept; what it lacks of a text, it computes before it
// drafts.
#pragma once

#include <memory>
#include <vector>

#include "cache/kv_cache.h"
#include "decode/draft_pass.h"
#include "decode/draft_rows.h"
#include "decode/draft_tree.h"
#include "decode/drafter.h"
#include "decode/step_invariants.h"
#include "decode/top_guesses.h"
#include "model/transformer.h"

namespace espalier {

struct ModelDrafterOptions {
  std::int64_t context = 0;  // positions; no more than the draft model was made for
  DType kv_type = DType::f16;
  StepForm form = {};
  TreeOptions tree = {};    // how large a tree can get
  int sequences = 1;        // at once
  bool invariants = false;  // check tables, masks and slots of every draft pass before its launch
};

class ModelDrafter final : public Drafter {
 public:
  // Model and cache must outlive the drafter.
  ModelDrafter(const Transformer& model, KvCache& cache, const ModelDrafterOptions& options);
  ~ModelDrafter() override;

  std::string_view name() const override { return "model"; }
  std::int64_t round_rows() const override { return tree_rows_; }
  bool follows_text() const override { return false; }
  std::unique_ptr<DraftSequence> open(SequenceId sequence, std::span<const std::int32_t> prompt) override;
  std::vector<Guesses> expand(std::span<const DraftJob> jobs) override;
  ResidentDrafter* resident() override;

 private:
  class Sequence;
  class Resident;

  std::int64_t positions() const { return options_.context + branch_rows(options_.tree); }
  bool knows(std::int32_t token) const;
  StepLimits limits() const;
  StepCheck check_of(std::span<const DraftJob> jobs, std::span<const DraftPart> parts, bool first) const;

  const Transformer* model_;
  KvCache* cache_;
  ModelDrafterOptions options_;
  std::int64_t step_rows_;
  std::int64_t tree_rows_;  // of one sequence, the root included
  const KvMemory* memory_;
  Workspace workspace_;
  TopGuesses top_;
  std::unique_ptr<Resident> resident_;
};

}  // namespace espalier
