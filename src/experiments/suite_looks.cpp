#include "experiments/suite_looks.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "experiments/humaneval.h"
#include "experiments/round_figures.h"
#include "trace/trace_file.h"

namespace espalier {
namespace {

constexpr const char* kTraceName = "trace.jsonl.zst";

std::vector<std::filesystem::path> traces_of(const std::filesystem::path& run) {
  std::vector<std::filesystem::path> traces;
  std::error_code ignored;
  for (const auto& rank : std::filesystem::directory_iterator(run / "ranks", ignored))
    if (std::filesystem::exists(rank.path() / kTraceName)) traces.push_back(rank.path() / kTraceName);
  std::ranges::sort(traces);
  return traces;
}

SettingResult look_result(const FinishedRun& run) {
  SettingResult result;
  result.name = run.name;
  result.drafter = run.drafter;
  result.run = run.place;
  return result;
}

class Judge {
 public:
  explicit Judge(const QualityOptions& options) : options_(options) {
    for (const auto& path : options.problems) {
      limits_.hidden.push_back(std::filesystem::absolute(path).string());  // it has solutions too
      for (HumanEvalProblem& problem : read_humaneval(path)) problems_.emplace(problem.task_id, std::move(problem));
    }
  }

  bool has_problems() const { return !problems_.empty(); }
  const HumanEvalProblem* problem_of(const TurnRecord& turn) const {
    const auto* id = std::get_if<std::string>(&turn.prompt_id);
    const auto found = id == nullptr ? problems_.end() : problems_.find(*id);
    return found == problems_.end() ? nullptr : &found->second;
  }

  bool passes(const HumanEvalProblem& problem, const std::string& answer) const {
    const Trial trial = trial_of(problem, answer);
    return run_sandboxed_pair(trial.judge, trial.candidate, *options_.confinement, limits_).end == SandboxEnd::finished;
  }

 private:
  const QualityOptions& options_;
  SandboxLimits limits_;
  std::map<std::string, HumanEvalProblem> problems_;
};

struct Score {
  std::int64_t problems = 0, passed = 0, passed_without = 0;
  std::vector<std::string> solved = {};

  nlohmann::ordered_json to_json() const {
    const auto share = [&](std::int64_t count) { return static_cast<double>(count) / static_cast<double>(problems); };
    return {{"problems", problems},
            {"passed", passed},
            {"baseline_passed", passed_without},
            {"pass_at_1", problems == 0 ? 0 : share(passed)},
            {"baseline_pass_at_1", problems == 0 ? 0 : share(passed_without)},
            {"solved", solved}};
  }
};

// Nothing: it was cancelled.
std::optional<Score> score(const FinishedRun& run, const Judge& judge, const QualityOptions& options) {
  Score score;
  for (const TurnRecord& turn : run.turns) {
    const HumanEvalProblem* problem = judge.problem_of(turn);
    if (problem == nullptr || !turn.baseline) continue;
    if (options.cancelled()) return std::nullopt;
    const bool passed = judge.passes(*problem, turn.text);
    const bool same = !turn.first_difference();
    ++score.problems;
    score.passed += passed ? 1 : 0;
    score.passed_without += (same ? passed : judge.passes(*problem, options.text_of(turn.baseline->tokens))) ? 1 : 0;
    if (passed) score.solved.push_back(problem->task_id);
  }
  return score;
}

}  // namespace

ExperimentResult stage_times(std::span<const FinishedRun> runs) {
  ExperimentResult result;
  for (const FinishedRun& run : runs) {
    StageTimes stages;
    for (const std::filesystem::path& path : traces_of(run.folder)) {
      TraceReader reader(path);
      while (const std::optional<TracedTurn> turn = reader.next()) stages.add(*turn);
    }
    if (stages.rounds() == 0)
      input_error("{}: no trace with rounds in ranks, expected those of its run", run.folder.string());
    SettingResult setting = look_result(run);
    const nlohmann::ordered_json figures = {{"rounds", stages.rounds()}, {"stages", stages.to_json()}};
    setting.figures = figures.dump();
    result.settings.push_back(std::move(setting));
  }
  return result;
}

std::optional<ExperimentResult> pass_at_1(std::span<const FinishedRun> runs, const QualityOptions& options) {
  ExperimentResult result;
  if (!options.confinement) {
    result.skipped = "runs code that a model wrote: --execute-model-code allows it";
    return result;
  }
  const Judge judge(options);
  if (!judge.has_problems()) {
    result.skipped = "none of the prompts has tests";
    return result;
  }
  for (const FinishedRun& run : runs) {
    const std::optional<Score> scored = score(run, judge, options);
    if (!scored) return std::nullopt;
    SettingResult setting = look_result(run);
    nlohmann::ordered_json figures = scored->to_json();
    figures["sandbox"] = *options.confinement == Confinement::namespaces ? "namespaces" : "limits only";
    setting.figures = figures.dump();
    result.settings.push_back(std::move(setting));
  }
  return result;
}

}  // namespace espalier
