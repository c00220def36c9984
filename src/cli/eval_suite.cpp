#include "cli/eval_suite.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/eval_progress.h"
#include "cli/eval_suite_folder.h"
#include "cli/eval_suite_looks.h"
#include "cli/eval_suite_probes.h"
#include "cli/eval_suite_ranks.h"
#include "cli/eval_suite_runs.h"
#include "cli/interrupt.h"
#include "eval/run_folder.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

// Where a suite is, a line on standard error for each run.
class SuiteProgress {
 public:
  explicit SuiteProgress(const SuitePlan& plan) : seconds_(plan.seconds()) {}

  void begin(const std::string& what, double seconds) {
    const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
    const double pace = done_ > 60 ? elapsed / done_ : 1;  // of this machine, once something is known of it
    fmt::print(stderr, "{}: about {} left of the suite\n", what,
               duration_text(std::max(0.0, seconds_ - done_ - passed_) * pace));
    done_ += seconds;
  }
  void pass(double seconds) { passed_ += seconds; }

 private:
  using Clock = std::chrono::steady_clock;

  double seconds_;
  double done_ = 0;    // as estimated
  double passed_ = 0;  // by an earlier process
  Clock::time_point start_ = Clock::now();
};

// The experiments one after another, as rank 0 goes through them.
class Suite {
 public:
  Suite(const SuitePlan& plan, const SuiteFlags& flags, Engine& engine, SuiteFolder& folder, SuiteRanks& ranks)
      : plan_(plan), flags_(flags), engine_(engine), folder_(folder), ranks_(ranks), progress_(plan) {}

  // Nothing: it was interrupted.
  std::optional<int> run() {
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
    print(fmt::format("{}\n{}", identity_text(identity_), tables));
    flush_output();
    return identity_.holds() && !failed_ ? 0 : 1;
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
    SuiteRuns runs(folder_.path(), engine_, ranks_,
                   [&](const std::string& place, double seconds) { progress_.begin(place, seconds); });
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
    if (flags_.confinement()) progress_.begin(planned.experiment.id, planned.seconds);
    return pass_at_1(runs, quality_options(from));
  }

  QualityOptions quality_options(const std::string& from) const {
    QualityOptions options{.confinement = flags_.confinement(), .cancelled = cancelled_};
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
  const SuiteFlags& flags_;
  Engine& engine_;
  SuiteFolder& folder_;
  SuiteRanks& ranks_;
  SuiteProgress progress_;
  std::function<bool()> cancelled_ = [this] { return ranks_.cancelled(); };
  Identity identity_;
  bool failed_ = false;
};

// Told before anything is made: a sandbox that the system does not allow.
void check_sandbox(const SuiteFlags& flags) {
  if (!flags.confinement()) return;
  try {
    run_sandboxed("pass", *flags.confinement());
  } catch (const InputError& error) {
    input_error("--execute-model-code: {}; =unconfined runs it with limits alone", error.what());
  }
}

// What a rank begins with.
struct SuiteStart {
  const EvalFlags& base;
  const SuiteFlags& flags;
  const RankPlace& place;
  Engine& engine;
  Json suite = {};  // suite.json as this rank would begin it
  std::function<bool()> interrupted = {};

  // A template that tells the date tells the same one to the end.
  SuitePlan plan(const std::string& date) const {
    EvalFlags dated = base;
    dated.chat.date = date;
    return plan_suite(dated, flags);
  }
};

// Rank 0, or the only process.
std::optional<int> lead(const SuiteStart& start) {
  SuiteFolder folder(start.base.out, start.suite, start.base.resume);
  SuiteRanks ranks(start.base, start.place, start.engine.threads, start.interrupted);
  const SuitePlan plan = start.plan(folder.date());
  return ranks.run([&]() -> std::optional<int> {
    if (!ranks.meet()) return std::nullopt;
    return Suite(plan, start.flags, start.engine, folder, ranks).run();
  });
}

// Another rank: its share of what rank 0 begins, until all results are there.
std::optional<int> follow(const SuiteStart& start) {
  const std::filesystem::path folder = start.base.out;
  const std::optional<std::string> date = join_suite(start.base, start.suite, start.interrupted);
  if (!date) return std::nullopt;
  SuiteRanks ranks(start.base, start.place, start.engine.threads, start.interrupted);
  const SuitePlan plan = start.plan(*date);
  return ranks.run([&]() -> std::optional<int> {
    if (!ranks.meet()) return std::nullopt;
    check_same_launch(folder, start.suite);
    SuiteRuns runs(folder, start.engine, ranks);
    for (const PlannedExperiment& planned : plan.experiments) {
      const auto ended = [&] { return has_result(folder, planned.experiment.id); };
      if (!ended() && !runs.follow(planned, ended)) return std::nullopt;
    }
    return 0;
  });
}

}  // namespace

int run_suite(EvalFlags base, const SuiteFlags& flags) {
  const RankPlace place = place_from(process_environment);
  const SuitePlan plan = plan_suite(base, flags);
  if (flags.dry_run) {
    if (place.rank == 0) print(plan_text(plan));
    flush_output();
    return 0;
  }
  if (place.rank == 0) check_sandbox(flags);
  base.out = std::filesystem::path(base.out).lexically_normal().string();
  SuiteFolder::check_place(base.out, base.resume, place);
  share_threads(place, base.engine);
  Engine engine = open_engine(base.engine);
  InterruptGuard interrupt;
  const SuiteStart start{.base = base,
                         .flags = flags,
                         .place = place,
                         .engine = engine,
                         .suite = new_suite({plan, base, flags, engine, place}),
                         .interrupted = [&] { return interrupt.interrupted(); }};
  const std::optional<int> code = place.rank == 0 ? lead(start) : follow(start);
  if (code) return *code;
  fmt::print(stderr, "espalier: interrupted; --resume goes on\n");
  return 1;
}

}  // namespace espalier
