#include "experiments/suite.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "eval/run_folder.h"
#include "experiments/suite_folder.h"
#include "experiments/suite_looks.h"
#include "experiments/suite_probes.h"
#include "experiments/suite_ranks.h"
#include "experiments/suite_runs.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

// How much of a suite is left.
class SuiteProgress {
 public:
  SuiteProgress(const SuitePlan& plan, SuiteListener& listener) : seconds_(plan.seconds()), listener_(listener) {}

  void begin(const std::string& what, double seconds) {
    const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
    const double pace = done_ > 60 ? elapsed / done_ : 1;  // of this machine, once something is known of it
    listener_.begin_part(what, std::max(0.0, seconds_ - done_ - passed_) * pace);
    done_ += seconds;
  }
  void pass(double seconds) { passed_ += seconds; }

 private:
  using Clock = std::chrono::steady_clock;

  double seconds_;
  SuiteListener& listener_;
  double done_ = 0;    // as estimated
  double passed_ = 0;  // by an earlier process
  Clock::time_point start_ = Clock::now();
};

// The experiments one after another, as rank 0 goes through them.
class Suite {
 public:
  Suite(const SuitePlan& plan, const SuiteJob& job, SuiteFolder& folder, SuiteRanks& ranks)
      : plan_(plan), job_(job), engine_(job.engine), folder_(folder), ranks_(ranks), progress_(plan, job.listener) {}

  // Nothing: it was interrupted.
  std::optional<SuiteOutcome> run() {
    std::string tables;
    for (const PlannedExperiment& planned : plan_.experiments) {
      const std::optional<Json> result = cancelled_() ? std::nullopt : result_of(planned);
      if (!result) return std::nullopt;
      identity_.add(identity_from((*result)["identical"], planned.experiment.id));
      failed_ = failed_ || !(*result)["failure"].is_null();
      folder_.note(planned.experiment.id, *result);
      tables += result_text(planned.experiment, *result);
    }
    folder_.finish();
    return SuiteOutcome{.finished = true,
                        .holds = identity_.holds() && !failed_,
                        .text = fmt::format("{}\n{}", identity_text(identity_), tables)};
  }

 private:
  std::optional<Json> result_of(const PlannedExperiment& planned) {
    if (std::optional<Json> there = folder_.finished(planned.experiment.id)) {
      progress_.pass(planned.seconds);
      return there;
    }
    const std::optional<ExperimentResult> found = perform(planned);
    if (!found) return std::nullopt;
    const Json result = to_json(planned.experiment, *found);
    folder_.add(planned.experiment.id, result);
    return result;
  }

  std::optional<ExperimentResult> perform(const PlannedExperiment& planned) {
    if (!planned.answers_turns()) return planned.experiment.from.empty() ? probe(planned) : look(planned);
    SuiteRuns runs(
        folder_.path(), engine_, ranks_,
        [&](const std::string& place, double seconds) { progress_.begin(place, seconds); }, &job_.listener);
    return runs.measure(planned);
  }

  std::optional<ExperimentResult> probe(const PlannedExperiment& planned) {
    for (const PlannedRun& run : planned.runs)
      if (const auto missing = missing_drafter(run, engine_)) return ExperimentResult{.skipped = missing};
    progress_.begin(planned.experiment.id, planned.seconds);
    return planned.experiment.kind == ExperimentKind::mask_leakage ? probe_leakage(planned, engine_, cancelled_)
                                                                   : profile_attention(planned, engine_, cancelled_);
  }

  std::optional<ExperimentResult> look(const PlannedExperiment& planned) {
    const std::string& from = planned.experiment.from;
    const std::vector<FinishedRun> runs = earlier_runs(from);
    if (runs.empty()) return ExperimentResult{.skipped = fmt::format("{} was skipped", from)};
    if (planned.experiment.kind == ExperimentKind::stages) return stage_times(runs);
    if (job_.suite.confinement) progress_.begin(planned.experiment.id, planned.seconds);
    return pass_at_1(runs, quality_options(from));
  }

  QualityOptions quality_options(const std::string& from) const {
    QualityOptions options{.confinement = job_.suite.confinement, .cancelled = cancelled_};
    for (const PlannedExperiment& planned : plan_.experiments)
      for (const PromptSet& set : planned.prompts.sets)
        if (planned.experiment.id == from) options.problems.push_back(set.files.front().path);
    options.text_of = [&](const std::vector<std::int32_t>& tokens) { return engine_.text->tokenizer->decode(tokens); };
    return options;
  }

  std::vector<FinishedRun> earlier_runs(const std::string& id) const {
    std::vector<FinishedRun> runs;
    const Json result = folder_.result(id);
    for (const Json& setting : result.at("settings")) {
      const std::string place = setting.at("run").get<std::string>();
      runs.push_back({.name = setting.at("name").get<std::string>(),
                      .drafter = setting.at("drafter").get<std::string>(),
                      .place = place,
                      .folder = folder_.path() / place,
                      .turns = read_finished_turns(folder_.path() / place)});
    }
    return runs;
  }

  const SuitePlan& plan_;
  const SuiteJob& job_;
  OpenEngine& engine_;
  SuiteFolder& folder_;
  SuiteRanks& ranks_;
  SuiteProgress progress_;
  std::function<bool()> cancelled_ = [this] { return ranks_.cancelled(); };
  Identity identity_;
  bool failed_ = false;
};

void check_sandbox(const SuiteRequest& suite) {
  if (!suite.confinement) return;
  try {
    run_sandboxed("pass", *suite.confinement);
  } catch (const InputError& error) {
    input_error("--execute-model-code: {}; =unconfined runs it with limits alone", error.what());
  }
}

// A template that tells the date tells the same one to the end.
SuitePlan dated_plan(const SuiteJob& job, const std::string& date) {
  EvalRequest dated = job.base;
  dated.chat.date = date;
  return plan_suite(dated, job.suite);
}

// Rank 0, or the only process. `suite`: suite.json as this rank would begin it.
std::optional<SuiteOutcome> lead(const SuiteJob& job, const Json& suite) {
  SuiteFolder folder(job.base.out, suite, job.base.resume);
  SuiteRanks ranks(job.base, job.place, job.engine.threads, job.cancelled);
  const SuitePlan plan = dated_plan(job, folder.date());
  return ranks.run<SuiteOutcome>([&]() -> std::optional<SuiteOutcome> {
    if (!ranks.meet()) return std::nullopt;
    return Suite(plan, job, folder, ranks).run();
  });
}

// Another rank: its share of what rank 0 begins, until all results are there.
std::optional<SuiteOutcome> follow(const SuiteJob& job, const Json& suite) {
  const std::filesystem::path folder = job.base.out;
  const std::optional<std::string> date = join_suite(job.base, suite, job.cancelled);
  if (!date) return std::nullopt;
  SuiteRanks ranks(job.base, job.place, job.engine.threads, job.cancelled);
  const SuitePlan plan = dated_plan(job, *date);
  return ranks.run<SuiteOutcome>([&]() -> std::optional<SuiteOutcome> {
    if (!ranks.meet()) return std::nullopt;
    check_same_launch(folder, suite);
    SuiteRuns runs(folder, job.engine, ranks);
    for (const PlannedExperiment& planned : plan.experiments) {
      const auto ended = [&] { return has_result(folder, planned.experiment.id); };
      if (!ended() && !runs.follow(planned, ended)) return std::nullopt;
    }
    return SuiteOutcome{.finished = true};
  });
}

}  // namespace

void check_suite(const EvalRequest& base, const SuiteRequest& suite, const RankPlace& place) {
  if (place.rank == 0) check_sandbox(suite);
  SuiteFolder::check_place(base.out, base.resume, place);
}

SuiteOutcome run_suite(const SuiteJob& job) {
  const Json suite = new_suite({job.plan, job.base, job.suite, job.engine, job.place});
  return (job.place.rank == 0 ? lead(job, suite) : follow(job, suite)).value_or(SuiteOutcome{});
}

}  // namespace espalier
