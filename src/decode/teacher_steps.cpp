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
      logits_(model.device(), options.drawn_rows) {}

StepTimes TeacherSteps::measure_times(std::int64_t rows, const SecondsClock& clock) {
  return measure_step_times(*model_, *cache_, workspace_, {.rows = rows, .taps = taps(), .clock = clock});
}

// The rows of the answer's tree, behind the rows of the step's other trees.
void TeacherSteps::append_tree(Answer& answer, std::vector<Row>& rows) const {
  answer.stage = AnswerStage::verify;
  const auto prefix = static_cast<std::int32_t>(answer.length);
  answer.tensors = tensorize(*answer.tree, prefix);
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

// Only the last row of a prompt is drawn from, or has a hidden state that somebody may want.
void TeacherSteps::append_prompt(PromptPart& part, std::int64_t& logits, std::vector<Row>& rows) const {
  const Answer& answer = *part.answer;
  part.first_row = static_cast<std::int64_t>(rows.size());
  for (std::int64_t p = part.begin; p < part.end; ++p) {
    rows.push_back(model_->prefill_row(answer.branch->id(), p, answer.path[static_cast<std::size_t>(p)]));
    rows.back().wants_taps = taps();
  }
  rows.back().wants_logits = part.end == answer.target();
  if (rows.back().wants_logits) part.logits = logits++;
}

StepOutput TeacherSteps::run(std::span<Answer* const> answers, std::span<PromptPart> prompts) {
  Stopwatch clock(*clock_);
  std::vector<Row> rows;
  std::vector<DrawnRows> drawn;
  tables_.reset();
  for (Answer* answer : answers) {
    append_tree(*answer, rows);
    drawn.push_back(answer->drawn_rows());
  }
  auto logits = static_cast<std::int64_t>(rows.size());
  for (PromptPart& part : prompts) {
    append_prompt(part, logits, rows);
    if (part.logits) drawn.push_back(part.answer->drawn_row(*part.logits));
  }
  step_rows_ = static_cast<std::int64_t>(rows.size());
  const auto keep_and_check = [&](const HostTables& tables) {
    tables_ = tables;
    if (invariants_) check_rows(tables, answers, prompts);
  };
  const double prepare = clock.lap();
  const StepOutput output = model_->forward(rows, workspace_, std::cref(keep_and_check));
  const double verify = clock.lap();
  for (Answer* answer : answers) {
    answer->times.prepare = prepare;
    answer->times.verify = verify;
  }
  if (!drawn.empty()) logits_.begin(output, std::move(drawn));
  return output;
}

void TeacherSteps::check_rows(const HostTables& tables, std::span<Answer* const> answers,
                              std::span<const PromptPart> prompts) const {
  std::vector<TreeOfStep> trees;
  for (const Answer* answer : answers) trees.push_back({&*answer->tree, answer->tensors, answer->branch->id()});
  std::vector<RunOfStep> runs;
  for (const PromptPart& part : prompts) {
    const auto first = part.answer->path.begin();
    runs.push_back({.branch = part.answer->branch->id(),
                    .first = static_cast<std::int32_t>(part.begin),
                    .position = static_cast<std::int32_t>(part.begin),
                    .tokens = {first + part.begin, first + part.end}});
  }
  const StepLimits limits{.tree = {.vocabulary = static_cast<std::int32_t>(model_->config().vocabulary),
                                   .positions = static_cast<std::int32_t>(workspace_.shape().positions)},
                          .window = static_cast<std::int32_t>(model_->config().sliding_window)};
  check_step(tables, trees, runs, cache_->tables(), limits);
}

void TeacherSteps::score(const Branch& branch, std::int64_t first, std::span<const std::int32_t> tokens) {
  std::vector<Row> rows;
  for (std::int32_t token : tokens) {
    rows.push_back(model_->prefill_row(branch.id(), first + std::ssize(rows), token));
    rows.back().wants_logits = true;
  }
  logits_.begin(model_->forward(rows, workspace_), {{.count = std::ssize(rows)}});
}

void TeacherSteps::commit(Answer& answer, std::span<const Visit> visits) {
  const std::int32_t prefix = answer.tensors.prefix;
  std::vector<std::int32_t> positions;
  for (const Visit& visit : visits) positions.push_back(prefix + visit.node);
  const std::int64_t moved = cache_->counts().bytes_committed;
  answer.branch->commit_path(positions);
  answer.kv.committed = cache_->counts().bytes_committed - moved;
  answer.branch.reset();
  answer.length += std::ssize(visits);
}

}  // namespace espalier
