// The teacher at work: its steps over prompts and over the trees of several answers, on branches of one KV cache, and
// its logits. Before and after every call a lane's committed tokens are those of its sequence in the
// cache. One thread at a time.
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
struct Lane;
struct Visit;

struct TeacherOptions {
  WorkspaceShape workspace = {};  // its positions: the context of a lane
  std::int64_t tree_rows = 1;     // the most rows of a step over trees
  bool invariants = false;        // check tables, masks and slots of every tree before its launch
};

enum class PromptLogits { last, every };

class TeacherSteps {
 public:
  // Model, cache and clock must outlive this.
  TeacherSteps(const Transformer& model, KvCache& cache, const SecondsClock& clock, const TeacherOptions& options);

  const StepForm& form() const { return workspace_.shape().form; }
  const KvCache& cache() const { return *cache_; }

  // What steps of up to `rows` rows cost, measured on a sequence of their own.
  StepTimes measure_times(std::int64_t rows, const SecondsClock& clock);

  // Computes the tokens behind the lane's committed ones up to `end`, and commits them.
  StepOutput prefill(Lane& lane, std::span<const std::int32_t> tokens, std::int64_t end, PromptLogits wanted);

  // One step over the trees of all these answers, whose branches are open afterwards. Notes what preparing and
  // launching it took in the times of each.
  StepOutput verify(std::span<Answer* const> answers);
  std::int64_t step_rows() const { return step_rows_; }  // of the last such step
  // Likewise; null before they are made.
  const HostTables* tables() const { return tables_ ? &*tables_ : nullptr; }
  // The visited path becomes the lane's, and the answer's branch closes.
  void commit(Answer& answer, std::span<const Visit> visits);

  // Of the last step of either kind, by the order of its rows that want logits. The first call waits for the step.
  LogitRow read_logits(std::int64_t row) { return logits_.row(row); }

 private:
  bool taps() const { return !workspace_.shape().tap_boundaries.empty(); }
  Branch begin(const Lane& lane, std::int64_t rows);
  void append_rows(Answer& answer, std::vector<Row>& rows);
  void check_trees(const HostTables& tables, std::span<Answer* const> answers) const;

  const Transformer* model_;
  KvCache* cache_;
  const SecondsClock* clock_;
  bool invariants_;
  Workspace workspace_;
  StepLogits logits_;
  // Of the step over trees that is being looked at.
  std::int64_t step_rows_ = 0;
  std::optional<HostTables> tables_;
};

}  // namespace espalier
