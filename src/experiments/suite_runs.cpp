#include "experiments/suite_runs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

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

std::string setting_place(const PlannedExperiment& planned, const PlannedRun& run) {
  return fmt::format("{}/{}", planned.experiment.id, run.name);
}

std::string baseline_place(const PlannedExperiment& planned, const PlannedRun& run) {
  return fmt::format("baselines/{}", baseline_name(planned, run));
}

}  // namespace

SuiteRuns::SuiteRuns(std::filesystem::path folder, OpenEngine& engine, SuiteRanks& ranks,
                     std::function<void(const std::string&, double)> announce, EvalListener* listener)
    : folder_(std::move(folder)), engine_(engine), ranks_(ranks), announce_(std::move(announce)), listener_(listener) {}

bool SuiteRuns::has_begun(const std::string& place) const {
  std::error_code ignored;
  return std::filesystem::exists(folder_ / place / "manifest.json", ignored);
}

std::optional<EvalOutcome> SuiteRuns::answer(EvalRequest request, const PromptSet& data, const std::string& place,
                                             double seconds) {
  if (announce_ && !std::filesystem::exists(folder_ / place / "summary.json")) announce_(place, seconds);
  request.out = (folder_ / place).string();
  request.resume = has_begun(place);
  request.trace = true;
  const SettingModes modes(engine_, request.engine.modes);
  OpenDrafting open(request, engine_);
  check_evaluation(request, open.plan);
  EvalOutcome outcome = run_evaluation({.request = request,
                                        .data = data,
                                        .engine = engine_,
                                        .drafting = open.drafting,
                                        .place = ranks_.place(),
                                        .cancelled = [this] { return ranks_.cancelled(); },
                                        .watch = ranks_.watch(),
                                        .any_baseline_world = true,
                                        .listener = listener_});
  if (!outcome.finished) return std::nullopt;
  return outcome;
}

// With the modes of the suite, not those of the setting: the settings have one measure.
std::optional<EvalOutcome> SuiteRuns::answer_baseline(const PlannedExperiment& planned, const PlannedRun& run) {
  EvalRequest request = run.request;
  request.drafting = {.draft = "none"};
  request.engine.modes = planned.base_modes;
  request.baseline = false;
  const PromptSet data = join(planned.prompts.sets);
  return answer(request, data, baseline_place(planned, run),
                estimate_seconds({.turns = data.turns(), .tokens = request.text.generate.max_tokens}));
}

std::optional<EvalOutcome> SuiteRuns::answer_setting(const PlannedExperiment& planned, const PlannedRun& run) {
  EvalRequest request = run.request;
  if (planned.experiment.kind == ExperimentKind::sweep) {
    request.baseline_run = (folder_ / baseline_place(planned, run)).string();
    request.baseline_turns = planned.experiment.retimed_turns;
  }
  const PromptSet data = prompts_of(planned, run, request);
  return answer(request, data, setting_place(planned, run), estimate_seconds(run.cost));
}

PromptSet SuiteRuns::grown_prompts(const PlannedExperiment& planned, const PlannedRun& run,
                                   EvalRequest& request) const {
  const Lengthening& lengthening = planned.experiment.lengthening;
  const TokenCounter count = [&](std::string_view text) {
    return static_cast<std::int64_t>(engine_.text->tokenizer->encode(text).size());
  };
  const SyntheticPrompts made =
      synthetic_prompts(lengthening.what, *run.length, lengthening.prompts, texts_of(planned.prompts), count);
  const std::filesystem::path file =
      folder_ / planned.experiment.id / "prompts" / fmt::format("{}-{}.jsonl", name(lengthening.what), *run.length);
  if (ranks_.leads()) {  // the others find it: it is written before the run begins
    std::error_code ignored;
    std::filesystem::create_directories(file.parent_path(), ignored);
    write_whole_file(file, made.jsonl);
  }
  request.chat.system = made.system;
  return read_prompt_set(file);
}

PromptSet SuiteRuns::prompts_of(const PlannedExperiment& planned, const PlannedRun& run, EvalRequest& request) const {
  return run.length ? grown_prompts(planned, run, request) : join(planned.prompts.sets);
}

std::optional<SettingResult> SuiteRuns::measure(const PlannedExperiment& planned, const PlannedRun& run,
                                                const std::string& drafter) {
  const Experiment& experiment = planned.experiment;
  if (experiment.kind == ExperimentKind::sweep && !answer_baseline(planned, run)) return std::nullopt;
  const std::optional<EvalOutcome> outcome = answer_setting(planned, run);
  if (!outcome) return std::nullopt;
  SettingResult result;
  result.name = run.setting.name;
  result.drafter = drafter;
  result.flags = run.setting.flags;
  result.run = setting_place(planned, run);
  result.identity = identity_of(outcome->summary);
  result.figures = figures_of(run, experiment, outcome->turns).dump();
  if (const Summary& summary = outcome->summary; summary.failed > 0)
    result.failure =
        fmt::format("{}: turns that failed: {}; the first: {}", result.run, summary.failed, *summary.failure);
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
    if (!result.failure) result.failure = setting->failure;
    result.settings.push_back(std::move(*setting));
  }
  if (result.settings.empty()) result.skipped = missing;
  return result;
}

// In the order in which rank 0 goes through them.
std::vector<SuiteRuns::Share> SuiteRuns::shares_of(const PlannedExperiment& planned) {
  std::vector<Share> shares;
  if (!planned.answers_turns()) return shares;
  for (const PlannedRun& run : planned.runs) {
    if (planned.experiment.kind == ExperimentKind::sweep)
      shares.push_back(
          {baseline_place(planned, run), [this, &planned, &run] { return answer_baseline(planned, run).has_value(); }});
    shares.push_back(
        {setting_place(planned, run), [this, &planned, &run] { return answer_setting(planned, run).has_value(); }});
  }
  return shares;
}

// Rank 0 alone decides which runs there are, and says so by beginning them: one of the others might not see a head that
// rank 0 has found. It begins a setting when the baseline is merged.
bool SuiteRuns::follow(const PlannedExperiment& planned, const std::function<bool()>& ended) {
  std::vector<Share> left = shares_of(planned);
  const auto begun = [&] {
    return std::ranges::find_if(left, [&](const Share& share) { return has_begun(share.place); });
  };
  while (true) {
    if (!ranks_.await([&] { return begun() != left.end() || ended(); })) return false;
    const auto next = begun();
    if (next == left.end()) return true;
    if (!next->answer()) return false;
    const std::string place = next->place;
    std::erase_if(left, [&](const Share& share) { return share.place == place; });
  }
}

}  // namespace espalier
