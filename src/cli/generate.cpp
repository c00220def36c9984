#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/whole_file.h"
#include "cli/answer_records.h"
#include "cli/answer_screen.h"
#include "cli/answering.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/report.h"
#include "cli/run_configuration.h"

namespace espalier {
namespace {

struct GenerateFlags {
  PromptFlags prompt;
  EngineOptions engine;
  SamplingFlags sampling;
  SpeculationFlags speculation;
  RecordFlags records;
  bool json = false;
};

int run_generate(const GenerateFlags& flags) {
  const TextOptions options = text_options(flags.sampling);
  if (flags.sampling.logprobs >= 0 && !flags.json) throw InputError("--logprobs: only with --json");
  const DraftPlan plan = plan_speculation(flags.speculation, kDefaultDraft);
  check_record_flags(flags.records);
  const std::string prompt = prompt_text(flags.prompt);
  const Engine engine = open_engine(flags.engine);
  Drafting drafting(flags.speculation, plan, engine, flags.sampling.seed);
  Answering answering(engine, &drafting, flags.prompt.chat);
  const RunParts parts{flags.engine,      engine,          flags.speculation, drafting, flags.sampling,
                       flags.prompt.chat, flags.prompt.raw};
  std::string trace;
  AnswerRecords records(
      flags.records, "generate", [&] { return record_origin(parts); },
      [&](const TracedTurn& turn) {
        trace = trace_bytes(TraceHeader{.origin = record_origin(parts)}) + trace_bytes(turn);
      });
  TextResult result;
  {
    const InterruptGuard interrupt;
    AnswerScreen screen(interrupt, !flags.json);
    result = records.answer(answering, prompt, flags.prompt.raw, options, screen.events());
  }
  print(flags.json ? json_text(answer_json(result, {engine, answering.decoder(), drafting.name(), flags.sampling.seed,
                                                    flags.sampling.logprobs >= 0, drafting.reason()}))
                   : "\n");
  flush_output();
  if (!trace.empty()) write_whole_file(flags.records.trace, trace);
  const GenerateResult& generated = result.generated;
  if (engine.verbose)
    fmt::print(stderr, "{} prompt tokens in {:.2f} s, {}\n", result.prompt.size(), generated.prefill_seconds,
               answer_line(generated, drafting.name()));
  if (generated.finish_reason != FinishReason::cancelled) return 0;
  fmt::print(stderr, "espalier: interrupted after {} tokens\n", generated.tokens.size());
  return 1;
}

}  // namespace

Command add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "answer a prompt");
  auto flags = std::make_shared<GenerateFlags>();
  add_prompt_flags(*command, flags->prompt);
  command->add_flag("--json", flags->json, "print one JSON object instead of the text");
  add_record_flags(*command, flags->records);
  add_speculation_flags(*command, flags->speculation, kDefaultDraft);
  add_engine_flags(*command, flags->engine);
  add_sampling_flags(*command, flags->sampling);
  return [flags] { return run_generate(*flags); };
}

}  // namespace espalier
