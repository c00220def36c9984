#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/eval_report.h"
#include "cli/eval_run.h"
#include "cli/eval_suite.h"
#include "cli/interrupt.h"

namespace espalier {
namespace {

int run_eval(EvalFlags flags) {
  const DraftPlan plan = plan_speculation(flags.speculation, kDefaultDraft);
  check_eval_flags(flags, plan);
  const RankPlace place = place_from(process_environment);
  check_run_place(flags, place);
  const PromptSet data = read_eval_data(flags);
  share_threads(place, flags.engine);
  const Engine engine = open_engine(flags.engine);
  Drafting drafting(flags.speculation, plan, engine, flags.sampling.seed);
  InterruptGuard interrupt;
  const EvalOutcome outcome = run_evaluation(
      {.flags = flags, .data = data, .engine = engine, .drafting = drafting, .place = place, .cancelled = [&] {
         return interrupt.interrupted();
       }});
  if (!outcome.finished) {
    fmt::print(stderr, "espalier: interrupted after {} of {} turns; --resume goes on\n", outcome.answered,
               data.turns());
    return 1;
  }
  if (place.rank != 0) return 0;  // what is said of the run, its rank 0 says
  print(summary_text(outcome.summary));
  flush_output();
  return outcome.holds() ? 0 : 1;
}

void add_run_flags(CLI::App& run, EvalFlags& flags) {
  run.add_option("--data", flags.data,
                 "the prompts, one JSON object a line: an id, and turns or prompt; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false);
  run.add_option("-o,--out", flags.out, "the directory of the run, which must not exist yet")->type_name("DIR");
  run.add_flag("--resume", flags.resume, "go on with the run in DIR where it was interrupted");
  run.add_flag("--baseline", flags.baseline, "answer each turn without speculation too, and compare the tokens");
  run.add_option("--baseline-run", flags.baseline_run, "compare with the answers of an earlier run without speculation")
      ->type_name("DIR");
  run.add_option("--baseline-turns", flags.baseline_turns, "of --baseline-run, time the first N turns once more")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  run.add_flag("--trace", flags.trace, "keep every round in DIR/ranks/NNNN/trace.jsonl.zst (docs/traces.md)");
  run.add_option("--limit", flags.limit, "at most N prompts")
      ->check(CLI::Range(std::int64_t{1}, INT64_MAX))
      ->type_name("N");
  run.add_option("--skip", flags.skip, "leave out the first N prompts")->check(CLI::NonNegativeNumber)->type_name("N");
  run.add_flag("--raw", flags.raw, "the prompts as they are, without the model's chat template; single turns only");
  run.add_option("--rank-timeout", flags.rank_timeout,
                 "of several processes: give up after so long without a sign of life")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->type_name("SECONDS");
  add_chat_flags(run, flags.chat);
  add_speculation_flags(run, flags.speculation, kDefaultDraft);
  add_engine_flags(run, flags.engine);
  add_sampling_flags(run, flags.sampling);
}

}  // namespace

Command add_eval(CLI::App& app) {
  CLI::App* eval = app.add_subcommand("eval", "answer sets of prompts and measure it");
  eval->require_subcommand(1);
  CLI::App* run = eval->add_subcommand("run", "answer every prompt of a file into a directory (docs/eval.md)");
  auto flags = std::make_shared<EvalFlags>();
  auto suite = std::make_shared<SuiteFlags>();
  add_run_flags(*run, *flags);
  add_suite_flags(*run, *suite);
  CLI::App* report =
      eval->add_subcommand("report", "make a page of tables, figures and trees of runs and suites (docs/report.md)");
  auto report_flags = std::make_shared<ReportFlags>();
  add_report_flags(*report, *report_flags);
  return [flags, suite, run, report, report_flags] {
    if (report->parsed()) return run_report(*report_flags);
    check_suite_flags(*run, *suite);
    return suite->suite.empty() ? run_eval(*flags) : run_suite(*flags, *suite);
  };
}

}  // namespace espalier
