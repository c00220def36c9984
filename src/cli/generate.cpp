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
#include "engine/receipt.h"
#include "engine/run_configuration.h"

namespace espalier {
namespace {

struct GenerateFlags {
  PromptFlags prompt;
  EngineFlags engine;
  TextOptions text;
  DraftOptions drafting;
  RecordOptions records;
  std::string receipt;  // empty: none
  bool json = false;
};

void check_receipt_flag(const GenerateFlags& flags) {
  if (flags.receipt.empty()) return;
  if (flags.receipt == "-") throw InputError("--receipt -: expected a file, standard output has the answer");
  check_output(flags.receipt, flags.records.existing);
  check_receipts(flags.text);
}

void write_receipt(const GenerateFlags& flags, const ReceiptOrigin& origin, const TextResult& result) {
  const Receipt receipt = make_receipt(origin, flags.text, result.prompt, result.generated);
  write_output(flags.receipt, flags.records.existing, receipt_json(receipt) + "\n");
}

int run_generate(const GenerateFlags& flags) {
  check_options(flags.text);
  const GenerateOptions& asked = flags.text.generate;
  if (asked.logprobs >= 0 && !flags.json) throw InputError("--logprobs: only with --json");
  const EngineOptions options = engine_options(flags.engine);
  const DraftPlan plan = plan_drafting(flags.drafting, options.places);
  check_record_options(flags.records);
  check_receipt_flag(flags);
  const std::string prompt = prompt_text(flags.prompt);
  Screen screen(flags.engine.verbose);
  const OpenEngine engine = open_engine(with_drafting(options, plan), &screen);
  if (!flags.receipt.empty()) check_receipts(*engine.device, "--receipt");
  Drafting drafting(plan, engine, asked.seed);
  ChatSettings chat = opening(flags.prompt, engine);
  if (!flags.receipt.empty()) chat.date = chat_context(chat).date_iso;  // the one that it will name
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
  if (!flags.receipt.empty())
    write_receipt(flags, receipt_origin(engine, chat_context(chat), flags.prompt.raw), result);
  const std::string prefill =
      engine.device->is_stand_in() ? "" : fmt::format(" in {:.2f} s", generated.prefill_seconds);
  screen.detail(fmt::format("{} prompt tokens{}, {}", result.prompt.size(), prefill,
                            answer_line(generated, drafting.name(), *engine.device)));
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
  command
      ->add_option("--receipt", flags->receipt,
                   "write to this file what the text depends on, for espalier verify (docs/receipts.md)")
      ->type_name("FILE");
  add_record_flags(*command, flags->records);
  add_draft_flags(*command, flags->drafting);
  add_engine_flags(*command, flags->engine);
  add_sampling_flags(*command, flags->text);
  return [flags] { return run_generate(*flags); };
}

}  // namespace espalier
