#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/output_file.h"
#include "cli/answer_screen.h"
#include "cli/commands.h"
#include "cli/draft_flags.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "engine/answer_json.h"
#include "engine/run_configuration.h"

namespace espalier {
namespace {

struct GenerateFlags {
  PromptFlags prompt;
  EngineFlags engine;
  TextOptions text;
  DraftOptions drafting;
  RecordOptions records;
  bool json = false;
};

int run_generate(const GenerateFlags& flags) {
  check_options(flags.text);
  const GenerateOptions& asked = flags.text.generate;
  if (asked.logprobs >= 0 && !flags.json) throw InputError("--logprobs: only with --json");
  const EngineOptions options = engine_options(flags.engine);
  const DraftPlan plan = plan_drafting(flags.drafting, options.places);
  check_record_options(flags.records);
  const std::string prompt = prompt_text(flags.prompt);
  Screen screen(flags.engine.verbose);
  const OpenEngine engine = open_engine(options, &screen);
  Drafting drafting(plan, engine, asked.seed);
  const ChatSettings chat = opening(flags.prompt, engine);
  Answering answering(engine, &drafting, chat);
  const RunParts parts{engine, drafting, flags.text, chat, flags.prompt.raw};
  std::string trace;
  AnswerRecords records(
      flags.records, "generate", [&] { return record_origin(parts); },
      [&](const TracedTurn& turn) {
        trace = trace_bytes(TraceHeader{.origin = record_origin(parts)}) + trace_bytes(turn);
      });
  TextResult result;
  {
    const InterruptGuard interrupt;
    AnswerScreen shown(interrupt, !flags.json);
    result = records.answer(answering, prompt, flags.prompt.raw, flags.text, shown.events());
  }
  print(flags.json ? json_text(answer_json(result, {engine, answering.decoder(), drafting.name(), asked.seed,
                                                    asked.logprobs >= 0, drafting.reason()}))
                   : "\n");
  flush_output();
  if (!trace.empty()) write_output(flags.records.trace, flags.records.existing, trace);
  const GenerateResult& generated = result.generated;
  screen.detail(fmt::format("{} prompt tokens in {:.2f} s, {}", result.prompt.size(), generated.prefill_seconds,
                            answer_line(generated, drafting.name())));
  if (generated.finish_reason != FinishReason::cancelled) return 0;
  tell(fmt::format("espalier: interrupted after {} tokens\n", generated.tokens.size()));
  return kInterrupted;
}

}  // namespace

Command add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "answer a prompt");
  auto flags = std::make_shared<GenerateFlags>();
  add_prompt_flags(*command, flags->prompt);
  command->add_flag("--json", flags->json, "print one JSON object instead of the text");
  add_record_flags(*command, flags->records);
  add_draft_flags(*command, flags->drafting);
  add_engine_flags(*command, flags->engine);
  add_sampling_flags(*command, flags->text);
  return [flags] { return run_generate(*flags); };
}

}  // namespace espalier
