// The teacher at work: its steps over trees and prompts of several answers, on branches of one KV cache, and its
// logits. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/kv_cache.h"
#include "decode/step_logits.h"
#include "decode/step_times.h"
#include "model/transformer.h"

namespace espalier {

struct Answer;
struct Visit;

struct TeacherOptions {
  WorkspaceShape workspace = {};  // its positions: of a sequence with an open branch
  std::int64_t logit_rows = 1;    // the most rows of a step that want logits
  bool invariants = false;        // check tables, masks and slots of every step before its launch
};

// Prompt rows of one answer in a step: the positions from `begin` on, up to `end`, on its open branch.
struct PromptPart {
  Answer* answer = nullptr;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  // Made by the step:
  std::int64_t first_row = 0;               // in it
  std::int64_t first_tap = 0;               // likewise, among the rows that want taps
  std::optional<std::int64_t> logits = {};  // of the last row, among those that want logits; nothing inside a prompt
  std::int64_t scores = 0;                  // rows that are scored
  std::int64_t first_score = 0;             // the first of them, among those that want logits

  std::int64_t rows() const { return end - begin; }
  // Those that want logits, at most.
  std::int64_t logit_rows() const;
};

class TeacherSteps {
 public:
  // Model, cache and clock must outlive this.
  TeacherSteps(const Transformer& model, KvCache& cache, const SecondsClock& clock, const TeacherOptions& options);

  const StepForm& form() const { return workspace_.shape().form; }
  const KvCache& cache() const { return *cache_; }
  Workspace& workspace() { return workspace_; }

  // What steps of up to `rows` rows cost, measured on a sequence of their own.
  StepTimes measure_times(std::int64_t rows, const SecondsClock& clock);

  // One step over the trees of these answers and these parts of prompts, all of whose branches are open. Notes what
  // preparing and launching it took in the times of each tree.
  StepOutput run(std::span<Answer* const> answers, std::span<PromptPart> prompts);
  std::int64_t step_rows() const { return step_rows_; }                 // of the last such step
  void note_step(std::int64_t rows, std::span<Answer* const> answers);  // one that somebody else ran
  std::int64_t step_context() const { return step_context_; }  // likewise: positions before a row, on the average
  // Likewise; null before they are made.
  const HostTables* tables() const { return tables_ ? &*tables_ : nullptr; }
  // The visited path becomes the sequence's, and the answer's branch closes.
  void commit(Answer& answer, std::span<const Visit> visits);
  // The same where the rows of the path lie in their places already.
  void commit_in_place(Answer& answer, std::span<const Visit> visits);

  // A step over text behind `first` positions, on an open branch, all of whose rows want logits, or none.
  void score(const Branch& branch, std::int64_t first, std::span<const std::int32_t> tokens, bool logits);

  // Of the last step, by the order of its rows that want logits. The first call waits for the step.
  LogitRow read_logits(std::int64_t row) { return logits_.row(row); }

 private:
  std::int64_t mean_context(std::span<Answer* const> answers, std::span<const PromptPart> prompts) const;
  bool taps() const { return !workspace_.shape().tap_boundaries.empty(); }
  // The rows of a step, and how many of them want what.
  struct StepRows {
    std::vector<Row> rows = {};
    std::int64_t logits = 0, taps = 0;
  };
  void append_tree(Answer& answer, StepRows& step) const;
  void append_prompt(PromptPart& part, StepRows& step) const;
  static std::size_t rows_of(std::span<Answer* const> answers, std::span<const PromptPart> prompts);
  void check_rows(const HostTables& tables, std::span<Answer* const> answers,
                  std::span<const PromptPart> prompts) const;

  const Transformer* model_;
  KvCache* cache_;
  const SecondsClock* clock_;
  bool invariants_;
  Workspace workspace_;
  StepLogits logits_;
  // Of the step that is being looked at.
  std::int64_t step_rows_ = 0;
  std::int64_t step_context_ = 0;
  std::optional<HostTables> tables_;
};

}  // namespace espalier
