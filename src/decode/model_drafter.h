// Drafts with a small language model of the same vocabulary, on a KV cache of its own. What it computed for tokens that
// the teacher then accepts is kept: its cache commits the accepted path like the teacher's.
#pragma once

#include <map>
#include <optional>

#include "cache/kv_cache.h"
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
  KvOptions kv = {};
  TreeOptions tree = {};    // how large a tree can get
  bool invariants = false;  // check tables, masks and slots of every draft pass before its launch
};

class ModelDrafter final : public Drafter {
 public:
  // The model must outlive the drafter.
  ModelDrafter(const Transformer& model, const ModelDrafterOptions& options);

  std::string_view name() const override { return "model"; }
  void rewind(std::int64_t length) override;
  void committed(const CommittedRows& rows) override;
  void begin_round(std::span<const std::int32_t> tokens) override;
  std::vector<std::vector<DraftToken>> expand(const Candidates& candidates, std::span<const int> nodes,
                                              int branch) override;

 private:
  // A candidate that has been a row of this round.
  struct DraftRow {
    int parent = 0;
    std::int32_t token = 0;
    std::vector<std::int32_t> places = {};  // of the rows above it and of itself
  };

  std::int64_t stable() const { return cache_.length(sequence_); }
  void catch_up();
  std::vector<Row> first_rows();
  std::vector<Row> tree_rows(const Candidates& candidates, std::span<const int> nodes);
  std::vector<std::vector<DraftToken>> run(std::span<const Row> rows, const StepCheck& check_tables, int branch);
  StepLimits limits() const;
  StepCheck check_of_run(std::span<const Row> rows) const;
  StepCheck check_of_nodes(const Candidates& candidates, std::size_t step_rows) const;

  const Transformer* model_;
  ModelDrafterOptions options_;
  std::int64_t step_rows_;
  std::int64_t tree_rows_;
  KvCache cache_;
  SequenceId sequence_;
  Workspace workspace_;
  TopGuesses top_;
  std::vector<std::int32_t> tokens_;  // what the cache holds, then what the round is about; the root last

  // Of the round.
  bool knows_text_ = true;
  std::optional<Branch> branch_;
  std::vector<int> drafted_;  // the candidates on rows of the branch, in the order of their places
  std::map<int, DraftRow> rows_;
};

}  // namespace espalier
