#include "decode/teacher_steps.h"

#include <algorithm>
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
      logits_(model.device(), options.logit_rows) {}

StepTimes TeacherSteps::measure_times(std::int64_t rows, const SecondsClock& clock) {
  return measure_step_times(*model_, *cache_, workspace_, {.rows = rows, .taps = taps(), .clock = clock});
}

std::int64_t PromptPart::logit_rows() const {
  return begin < answer->to_score() && answer->scored() < answer->to_score() ? rows() : 1;
}

// The rows of the answer's tree, behind the rows of the step's other trees.
void TeacherSteps::append_tree(Answer& answer, StepRows& step) const {
  answer.stage = AnswerStage::verify;
  const auto prefix = static_cast<std::int32_t>(answer.length);
  answer.tensors = tensorize(*answer.tree, prefix, std::move(answer.tensors));
  answer.first_row = std::ssize(step.rows);
  answer.first_tap = step.taps;
  const bool tapped = answer.tapped();
  for (int k = 0; k < answer.tensors.nodes; ++k) {
    std::vector<std::int32_t> above;
    for (std::int32_t ancestor : answer.tensors.ancestors(k)) above.push_back(prefix + ancestor);
    Row& row = step.rows.emplace_back(model_->tree_row(answer.branch->id(), prefix, prefix + k,
                                                       answer.tensors.token[static_cast<std::size_t>(k)], above));
    row.wants_logits = true;
    row.wants_taps = tapped;
  }
  step.logits += answer.tensors.nodes;
  step.taps += tapped ? answer.tensors.nodes : 0;
}

// Only the last row of a prompt is drawn from, or has a hidden state that somebody may want; others may be scored.
void TeacherSteps::append_prompt(PromptPart& part, StepRows& step) const {
  const Answer& answer = *part.answer;
  part.first_row = std::ssize(step.rows);
  part.first_tap = step.taps;
  const bool tapped = answer.tapped();
  step.taps += tapped ? part.rows() : 0;
  for (std::int64_t p = part.begin; p < part.end; ++p) {
    Row& row =
        step.rows.emplace_back(model_->prefill_row(answer.branch->id(), p, answer.path[static_cast<std::size_t>(p)]));
    row.wants_taps = tapped;
    if (p < answer.scored() || p >= answer.to_score()) continue;
    row.wants_logits = true;
    if (part.scores++ == 0) part.first_score = step.logits;
    ++step.logits;
  }
  if (part.end < answer.target()) return;
  step.rows.back().wants_logits = true;
  part.logits = step.logits++;
}

std::size_t TeacherSteps::rows_of(std::span<Answer* const> answers, std::span<const PromptPart> prompts) {
  std::int64_t rows = 0;
  for (const Answer* answer : answers) rows += answer->tree->size();
  for (const PromptPart& part : prompts) rows += part.rows();
  return static_cast<std::size_t>(rows);
}

// Positions before a row, on the average.
std::int64_t TeacherSteps::mean_context(std::span<Answer* const> answers, std::span<const PromptPart> prompts) const {
  std::int64_t before = 0, rows = 0;
  for (const Answer* answer : answers) {
    before += answer->tree->size() * answer->length;
    rows += answer->tree->size();
  }
  for (const PromptPart& part : prompts) {
    before += part.rows() * (part.begin + part.end) / 2;
    rows += part.rows();
  }
  return before / rows;
}

void TeacherSteps::note_step(std::int64_t rows, std::span<Answer* const> answers) {
  step_rows_ = rows;
  step_context_ = mean_context(answers, {});
  tables_.reset();
}

StepOutput TeacherSteps::run(std::span<Answer* const> answers, std::span<PromptPart> prompts) {
  Stopwatch clock(*clock_);
  StepRows step;
  std::vector<DrawnRows> drawn;
  tables_.reset();
  step.rows.reserve(rows_of(answers, prompts));
  drawn.reserve(answers.size() + 2 * prompts.size());
  for (Answer* answer : answers) {
    append_tree(*answer, step);
    drawn.push_back(answer->drawn_rows());
  }
  for (PromptPart& part : prompts) {
    append_prompt(part, step);
    if (part.scores > 0) drawn.push_back({.begin = part.first_score, .count = part.scores});
    if (part.logits) drawn.push_back(part.answer->drawn_row(*part.logits));
  }
  step_rows_ = std::ssize(step.rows);
  step_context_ = mean_context(answers, prompts);
  const auto keep_and_check = [&](const HostTables& tables) {
    tables_ = tables;
    if (invariants_) check_rows(tables, answers, prompts);
  };
  const double prepare = clock.lap();
  const StepOutput output = model_->forward(step.rows, workspace_, std::cref(keep_and_check));
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

void TeacherSteps::score(const Branch& branch, std::int64_t first, std::span<const std::int32_t> tokens, bool logits) {
  std::vector<Row> rows;
  for (std::int32_t token : tokens) {
    rows.push_back(model_->prefill_row(branch.id(), first + std::ssize(rows), token));
    rows.back().wants_logits = logits;
  }
  const StepOutput output = model_->forward(rows, workspace_);
  if (logits) logits_.begin(output, {{.count = std::ssize(rows)}});
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

void TeacherSteps::commit_in_place(Answer& answer, std::span<const Visit> visits) {
  std::int64_t moved = 0;
  for (std::size_t i = 0; i < visits.size(); ++i) moved += visits[i].node != static_cast<int>(i) ? 1 : 0;
  answer.branch->commit_length(std::ssize(visits));
  answer.kv.committed = moved * cache_->memory().slot_bytes();
  answer.branch.reset();
  answer.length += std::ssize(visits);
}

}  // namespace espalier
