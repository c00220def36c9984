#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/draft_flags.h"
#include "cli/environment.h"
#include "cli/eval_progress.h"
#include "cli/eval_report.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "cli/suite_flags.h"
#include "eval/evaluation.h"
#include "experiments/run_beginning.h"
#include "experiments/suite.h"

namespace espalier {
namespace {

constexpr int kMostParallel = 1024;  // each has a thread, which mostly waits

struct EvalFlags {
  EvalRequest request = {};  // without `engine`
  EngineFlags engine = {};
  SuiteFlags suite = {};

  EvalRequest complete_request(const RankPlace& place) const {
    EvalRequest complete = request;
    complete.engine = engine_options(engine);
    complete.variables = espalier_variables();
    share_threads(place, complete.engine);
    return complete;
  }
};

// A directory knows how it was begun: --resume -o DIR asks for that once more. What is said besides wins.
void ask_as_before(CLI::App& app, const EvalRequest& request) {
  if (!request.resume || request.out.empty()) return;
  const std::string out = std::filesystem::absolute(request.out).string();
  const RunBeginning beginning = read_beginning(out);
  std::vector<std::string> words = words_to_resume(beginning, command_line(), out);
  std::error_code error;
  const std::string& directory = beginning.directory;
  if (!directory.empty()) std::filesystem::current_path(directory, error);  // its paths count from there
  if (error) input_error("{}: {}, expected the directory that the run was begun in", directory, error.message());
  std::ranges::reverse(words);
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    const std::string why = error.what();
    input_error("--resume: the command that {} was begun with: {}", out, why.substr(0, why.find('\n')));
  }
}

int run_eval(const EvalFlags& flags) {
  const RankPlace place = place_from(process_environment);
  const EvalRequest request = flags.complete_request(place);
  const DraftPlan plan = plan_drafting(request.drafting, request.engine.places);
  check_evaluation(request, plan);
  check_run_place(request, place);
  const PromptSet data = read_eval_data(request);
  Screen screen(flags.engine.verbose);
  const OpenEngine engine = open_engine(with_drafting(request.engine, plan), &screen);
  Drafting drafting(plan, engine, request.text.generate.seed);
  const InterruptGuard interrupt;
  EvalProgress progress;
  const EvalOutcome outcome = run_evaluation({.request = request,
                                              .data = data,
                                              .engine = engine,
                                              .drafting = drafting,
                                              .place = place,
                                              .cancelled =
                                                  [&] {
                                                    progress.tick();
                                                    return interrupt.interrupted();
                                                  },
                                              .listener = &progress});
  if (!outcome.finished) {
    progress.end();
    screen.remark(fmt::format("interrupted; {} of {} turns are kept in {}, --resume -o {} goes on", outcome.answered,
                              data.turns(), request.out, request.out));
    return kInterrupted;
  }
  if (place.rank != 0) return 0;  // what is said of the run, its rank 0 says
  print(summary_text(outcome.summary));
  flush_output();
  return outcome.holds() ? 0 : 1;
}

// The exit code is 1 when a turn differs or when an experiment failed. Of other ranks than the first it is 0 when all
// results are there, whatever they say.
int run_suite_command(const EvalFlags& flags) {
  if (flags.request.parallel != 1)
    input_error("--parallel {}: not with --suite, which times one conversation at a time, expected 1",
                flags.request.parallel);
  const RankPlace place = place_from(process_environment);
  EvalRequest base = flags.complete_request(place);
  const SuiteRequest suite = suite_request(flags.suite);
  const SuitePlan plan = plan_suite(base, suite);
  if (flags.suite.dry_run) {
    if (place.rank == 0) print(plan_text(plan));
    flush_output();
    return 0;
  }
  base.out = std::filesystem::path(base.out).lexically_normal().string();
  check_suite(base, suite, place);
  Screen screen(flags.engine.verbose);
  OpenEngine engine = open_engine(base.engine, &screen);
  const InterruptGuard interrupt;
  EvalProgress progress;
  const SuiteOutcome outcome = run_suite({.base = base,
                                          .suite = suite,
                                          .plan = plan,
                                          .engine = engine,
                                          .place = place,
                                          .cancelled =
                                              [&] {
                                                progress.tick();
                                                return interrupt.interrupted();
                                              },
                                          .listener = progress});
  if (!outcome.finished) {
    progress.end();
    screen.remark(fmt::format("interrupted; what is finished is kept in {0}, --resume -o {0} goes on", base.out));
    return kInterrupted;
  }
  print(outcome.text);
  flush_output();
  return outcome.holds ? 0 : 1;
}

void add_run_flags(CLI::App& run, EvalRequest& request) {
  run.add_option("--data", request.data,
                 "the prompts, one JSON object a line: an id, and turns or prompt; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false);
  run.add_option("-o,--out", request.out, "the directory of the run, which must not exist yet")->type_name("DIR");
  run.add_flag("--resume", request.resume, "go on with the run in DIR where it was interrupted; needs no other flag");
  run.add_flag("--baseline", request.baseline, "answer each turn without speculation too, and compare the tokens");
  run.add_option("--baseline-run", request.baseline_run,
                 "compare with the answers of an earlier run without speculation")
      ->type_name("DIR");
  run.add_option("--baseline-turns", request.baseline_turns, "of --baseline-run, time the first N turns once more")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  run.add_flag("--trace", request.trace, "keep every round in DIR/ranks/NNNN/trace.jsonl.zst (docs/traces.md)");
  run.add_flag("--receipts", request.receipts,
               "keep in DIR/receipts.jsonl what each text depends on, for espalier verify (docs/receipts.md)");
  run.add_option("--limit", request.limit, "at most N prompts")
      ->check(CLI::Range(std::int64_t{1}, INT64_MAX))
      ->type_name("N");
  run.add_option("--skip", request.skip, "leave out the first N prompts")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  run.add_option("--parallel", request.parallel, "answer N conversations at once, in one batch: the same tokens")
      ->check(CLI::Range(1, kMostParallel))
      ->capture_default_str()
      ->type_name("N");
  run.add_flag("--raw", request.raw, "the prompts as they are, without the model's chat template; single turns only");
  run.add_option("--rank-timeout", request.rank_timeout,
                 "of several processes: give up after so long without a sign of life")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->type_name("SECONDS");
  add_chat_flags(run, request.chat);
}

}  // namespace

Command add_eval(CLI::App& app) {
  CLI::App* eval = app.add_subcommand("eval", "answer sets of prompts and measure it");
  eval->require_subcommand(1);
  CLI::App* run = eval->add_subcommand("run", "answer every prompt of a file into a directory (docs/eval.md)");
  auto flags = std::make_shared<EvalFlags>();
  add_run_flags(*run, flags->request);
  add_draft_flags(*run, flags->request.drafting);
  add_engine_flags(*run, flags->engine);
  add_sampling_flags(*run, flags->request.text);
  add_suite_flags(*run, flags->suite);
  CLI::App* report =
      eval->add_subcommand("report", "make a page of tables, figures and trees of runs and suites (docs/report.md)");
  auto report_flags = std::make_shared<ReportFlags>();
  add_report_flags(*report, *report_flags);
  return [&app, flags, run, report, report_flags] {
    if (report->parsed()) return run_report(*report_flags);
    if (flags->request.data.empty() && flags->suite.request.suite.empty()) ask_as_before(app, flags->request);
    check_suite_flags(*run, flags->suite);
    return flags->suite.request.suite.empty() ? run_eval(*flags) : run_suite_command(*flags);
  };
}

}  // namespace espalier
