#include "decode/teacher_steps.h"

#include <functional>
#include <utility>

#include "base/error.h"
#include "decode/answer.h"
#include "decode/step_invariants.h"
#include "decode/step_timing.h"
#include "decode/stopwatch.h"

namespace espalier {

TeacherSteps::TeacherSteps(const Transformer& model, KvCache& cache, const SecondsClock& clock,
                           const TeacherOptions& options)
    : model_(&model),
      cache_(&cache),
      clock_(&clock),
      invariants_(options.invariants),
      workspace_(model, cache.memory(), options.workspace),
      logits_(model.device(), options.tree_rows) {}

StepTimes TeacherSteps::measure_times(std::int64_t rows, const SecondsClock& clock) {
  return measure_step_times(*model_, *cache_, workspace_, {.rows = rows, .taps = taps(), .clock = clock});
}

Branch TeacherSteps::begin(const Lane& lane, std::int64_t rows) {
  std::optional<Branch> branch = cache_->begin(lane.sequence, rows);
  check(branch.has_value(), "KV cache: no room for {} rows behind {} positions of {}", rows, lane.committed.size(),
        workspace_.shape().positions);
  return std::move(*branch);
}

StepOutput TeacherSteps::prefill(Lane& lane, std::span<const std::int32_t> tokens, std::int64_t end,
                                 PromptLogits wanted) {
  const std::int64_t begin_at = lane.length();
  Branch branch = begin(lane, end - begin_at);
  std::vector<Row> rows;
  for (std::int64_t p = begin_at; p < end; ++p) {
    rows.push_back(model_->prefill_row(branch.id(), p, tokens[static_cast<std::size_t>(p)]));
    rows.back().wants_logits = wanted == PromptLogits::every || p + 1 == std::ssize(tokens);
    rows.back().wants_taps = taps();
  }
  const StepOutput output = model_->forward(rows, workspace_);
  if (!output.logits.empty()) logits_.begin(output, {{.count = output.logits.dim(0)}});
  branch.commit_length(end - begin_at);
  for (const Row& row : rows) lane.committed.push_back(row.token);
  return output;
}

// The rows of the answer's tree, behind the rows of the step's other trees.
void TeacherSteps::append_rows(Answer& answer, std::vector<Row>& rows) {
  const auto prefix = static_cast<std::int32_t>(answer.lane.committed.size());
  answer.tensors = tensorize(*answer.tree, prefix);
  const std::int64_t copied = cache_->counts().bytes_branched;
  answer.branch = begin(answer.lane, answer.tree->size());
  answer.kv = {.branched = cache_->counts().bytes_branched - copied};
  answer.first_row = static_cast<std::int64_t>(rows.size());
  for (int k = 0; k < answer.tensors.nodes; ++k) {
    std::vector<std::int32_t> above;
    for (std::int32_t ancestor : answer.tensors.ancestors(k)) above.push_back(prefix + ancestor);
    rows.push_back(model_->tree_row(answer.branch->id(), prefix, prefix + k,
                                    answer.tensors.token[static_cast<std::size_t>(k)], above));
    rows.back().wants_logits = true;
    rows.back().wants_taps = taps();
  }
}

StepOutput TeacherSteps::verify(std::span<Answer* const> answers) {
  Stopwatch clock(*clock_);
  std::vector<Row> rows;
  tables_.reset();
  for (Answer* answer : answers) {
    answer->stage = AnswerStage::verify;
    append_rows(*answer, rows);
  }
  step_rows_ = static_cast<std::int64_t>(rows.size());
  const auto keep_and_check = [&](const HostTables& tables) {
    tables_ = tables;
    if (invariants_) check_trees(tables, answers);
  };
  const double prepare = clock.lap();
  const StepOutput output = model_->forward(rows, workspace_, std::cref(keep_and_check));
  const double verify = clock.lap();
  std::vector<DrawnRows> drawn;
  for (Answer* answer : answers) {
    drawn.push_back(answer->drawn_rows());
    answer->times.prepare = prepare;
    answer->times.verify = verify;
  }
  logits_.begin(output, std::move(drawn));
  return output;
}

void TeacherSteps::check_trees(const HostTables& tables, std::span<Answer* const> answers) const {
  std::vector<TreeOfStep> trees;
  for (const Answer* answer : answers) trees.push_back({&*answer->tree, answer->tensors, answer->branch->id()});
  const StepLimits limits{.tree = {.vocabulary = static_cast<std::int32_t>(model_->config().vocabulary),
                                   .positions = static_cast<std::int32_t>(workspace_.shape().positions)},
                          .window = static_cast<std::int32_t>(model_->config().sliding_window)};
  check_step(tables, trees, cache_->tables(), limits);
}

void TeacherSteps::commit(Answer& answer, std::span<const Visit> visits) {
  const std::int32_t prefix = answer.tensors.prefix;
  std::vector<std::int32_t> positions;
  for (const Visit& visit : visits) positions.push_back(prefix + visit.node);
  const std::int64_t moved = cache_->counts().bytes_committed;
  answer.branch->commit_path(positions);
  answer.kv.committed = cache_->counts().bytes_committed - moved;
  answer.branch.reset();
  for (const Visit& visit : visits) answer.lane.committed.push_back((*answer.tree)[visit.node].token);
}

}  // namespace espalier
