#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench/benchmark.h"
#include "cli/commands.h"
#include "cli/draft_flags.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "engine/answer_json.h"

namespace espalier {
namespace {

struct BenchFlags {
  EngineFlags engine;
  DraftOptions drafting;
  BenchSizes sizes;
  std::vector<std::string> against;
  int repeats = 5;
  bool json = false;
};

int run_bench(const BenchFlags& flags) {
  EngineOptions options = engine_options(flags.engine);
  options.timed_ops = true;
  check_peers(flags.against, options);
  const DraftPlan plan = plan_drafting(flags.drafting, options.places);
  Screen screen(flags.engine.verbose);
  OpenEngine engine;
  const double load_seconds = seconds_of([&] { engine = open_engine(with_drafting(options, plan), &screen); });
  if (engine.device->is_stand_in())
    input_error("bench: {} only stands in for a device: it has no speed to measure", engine.device->name());
  const BenchSizes sizes = cut_to_context(flags.sizes, engine.decoder.context);
  for (const std::string& line : sizes.cuts) screen.remark(line);
  const Drafting drafting(plan, engine, 0);
  const InterruptGuard interrupt;
  const std::optional<BenchResult> result = run_benchmark({.engine = engine,
                                                           .drafting = drafting,
                                                           .sizes = sizes,
                                                           .repeats = flags.repeats,
                                                           .against = flags.against,
                                                           .load_seconds = load_seconds,
                                                           .cancelled = [&] { return interrupt.interrupted(); }});
  if (!result) {
    screen.remark("interrupted");
    return kInterrupted;
  }
  print(flags.json ? json_text(bench_json(*result)) : bench_text(*result));
  flush_output();
  return 0;
}

}  // namespace

Command add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "measure the speed of a model on this machine");
  auto flags = std::make_shared<BenchFlags>();
  command->add_option("--rows", flags->sizes.rows, "rows of the steps; without it 1,2,4,8,16,32,64")
      ->delimiter(',')
      ->check(CLI::Range(1, kMaxDraftRows))
      ->type_name("N,N,...");
  command->add_option("--contexts", flags->sizes.contexts, "tokens before a step; without it 128,1024,4096")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N,N,...");
  command->add_option("--users", flags->sizes.users, "users of one batch who decode together; without it none")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->type_name("N,N,...");
  command->add_option("--repeat", flags->repeats, "samples of each figure, interleaved")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--against", flags->against,
                   "a llama-bench program to measure as well, on the same file; may be repeated, the better one counts")
      ->allow_extra_args(false)
      ->type_name("PROGRAM");
  command->add_flag("--json", flags->json, "print one JSON object instead of tables");
  add_draft_flags(*command, flags->drafting);
  add_engine_flags(*command, flags->engine);
  const Command serve = add_bench_serve(*command);
  return [flags, command, serve] { return command->got_subcommand("serve") ? serve() : run_bench(*flags); };
}

}  // namespace espalier
