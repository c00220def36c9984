#include "cli/eval_suite_runs.h"

#include <algorithm>

#include "base/error.h"
#include "base/whole_file.h"
#include "experiments/round_figures.h"
#include "experiments/synthetic_prompts.h"

namespace espalier {
namespace {

// The first turns of the prompts: what longer ones are made of.
std::vector<std::string> texts_of(const PlannedPrompts& prompts) {
  std::vector<std::string> texts;
  for (const PromptSet& set : prompts.sets)
    for (const EvalPrompt& prompt : set.prompts) texts.push_back(prompt.turns.front());
  return texts;
}

// The turns that an experiment is about; those before only led there.
std::vector<TurnRecord> turns_that_count(const PlannedRun& run, const Experiment& experiment,
                                         std::vector<TurnRecord> turns) {
  if (run.length && experiment.lengthening.what == Growth::history)
    std::erase_if(turns, [&](const TurnRecord& turn) { return turn.turn != *run.length + 1; });
  return turns;
}

nlohmann::ordered_json figures_of(const PlannedRun& run, const Experiment& experiment, std::vector<TurnRecord> turns) {
  turns = turns_that_count(run, experiment, std::move(turns));
  nlohmann::ordered_json figures = run_figures(turns);
  if (experiment.kind != ExperimentKind::medusa) return figures;
  figures["turn_speed_up"] = figures["speed_up"];  // of whole turns; theirs is of the steps
  figures.update(to_json(step_economy(turns)));
  return figures;
}

}  // namespace

SuiteRuns::SuiteRuns(std::filesystem::path folder, Engine& engine, std::function<bool()> cancelled,
                     std::function<void(const std::string&, double)> announce)
    : folder_(std::move(folder)), engine_(engine), cancelled_(std::move(cancelled)), announce_(std::move(announce)) {}

std::optional<EvalOutcome> SuiteRuns::answer(EvalFlags flags, const PromptSet& data, const std::string& place,
                                             double seconds) {
  if (!std::filesystem::exists(folder_ / place / "summary.json")) announce_(place, seconds);
  flags.out = (folder_ / place).string();
  flags.resume = std::filesystem::exists(folder_ / place / "manifest.json");
  flags.trace = true;
  const SettingModes modes(engine_, flags.engine.modes);
  OpenDrafting open(flags, engine_);
  check_eval_flags(flags, open.plan);
  EvalOutcome outcome = run_evaluation(
      {.flags = flags, .data = data, .engine = engine_, .drafting = open.drafting, .cancelled = cancelled_});
  if (!outcome.finished) return std::nullopt;
  return outcome;
}

// With the modes of the suite, not those of the setting: the settings have one measure.
std::optional<std::filesystem::path> SuiteRuns::baseline(const PlannedExperiment& planned, const PlannedRun& run) {
  EvalFlags flags = run.flags;
  flags.speculation = {.draft = "none"};
  flags.engine.modes = planned.base_modes;
  flags.baseline = false;
  const std::string place = fmt::format("baselines/{}", baseline_name(planned, run));
  const PromptSet data = join(planned.prompts.sets);
  if (!answer(flags, data, place, estimate_seconds({.turns = data.turns(), .tokens = flags.sampling.max_tokens})))
    return std::nullopt;
  return folder_ / place;
}

PromptSet SuiteRuns::grown_prompts(const PlannedExperiment& planned, const PlannedRun& run, EvalFlags& flags) const {
  const Lengthening& lengthening = planned.experiment.lengthening;
  const TokenCounter count = [&](std::string_view text) {
    return static_cast<std::int64_t>(engine_.text->tokenizer->encode(text).size());
  };
  const SyntheticPrompts made =
      synthetic_prompts(lengthening.what, *run.length, lengthening.prompts, texts_of(planned.prompts), count);
  const std::filesystem::path file =
      folder_ / planned.experiment.id / "prompts" / fmt::format("{}-{}.jsonl", name(lengthening.what), *run.length);
  std::error_code ignored;
  std::filesystem::create_directories(file.parent_path(), ignored);
  write_whole_file(file, made.jsonl);
  flags.chat.system = made.system;
  return read_prompt_set(file);
}

PromptSet SuiteRuns::prompts_of(const PlannedExperiment& planned, const PlannedRun& run, EvalFlags& flags) const {
  return run.length ? grown_prompts(planned, run, flags) : join(planned.prompts.sets);
}

std::optional<SettingResult> SuiteRuns::measure(const PlannedExperiment& planned, const PlannedRun& run,
                                                const std::string& drafter) {
  const Experiment& experiment = planned.experiment;
  EvalFlags flags = run.flags;
  if (experiment.kind == ExperimentKind::sweep) {
    const std::optional<std::filesystem::path> shared = baseline(planned, run);
    if (!shared) return std::nullopt;
    flags.baseline_run = shared->string();
    flags.baseline_turns = experiment.retimed_turns;
  }
  const std::string place = fmt::format("{}/{}", experiment.id, run.name);
  const PromptSet data = prompts_of(planned, run, flags);
  const std::optional<EvalOutcome> outcome = answer(flags, data, place, estimate_seconds(run.cost));
  if (!outcome) return std::nullopt;
  SettingResult result;
  result.name = run.setting.name;
  result.drafter = drafter;
  result.flags = run.setting.flags;
  result.run = place;
  result.identity = identity_of(outcome->summary);
  result.figures = figures_of(run, experiment, outcome->turns);
  return result;
}

std::optional<ExperimentResult> SuiteRuns::measure(const PlannedExperiment& planned) {
  const std::vector<std::string>& drafters = planned.experiment.drafters;
  const bool has_ngram = std::ranges::find(drafters, "ngram") != drafters.end();
  ExperimentResult result;
  std::optional<std::string> missing;
  for (const PlannedRun& run : planned.runs) {
    if (const auto reason = missing_drafter(run, engine_)) {
      missing = reason;
      continue;
    }
    const std::string drafter = drafter_name(run, engine_);
    if (run.drafter == "head" && drafter == "ngram" && has_ngram) continue;  // no head: it would be the same run
    std::optional<SettingResult> setting = measure(planned, run, drafter);
    if (!setting) return std::nullopt;
    result.settings.push_back(std::move(*setting));
  }
  if (result.settings.empty()) result.skipped = missing;
  return result;
}

}  // namespace espalier
