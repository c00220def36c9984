#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/answer_screen.h"
#include "cli/answering.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/report.h"

namespace espalier {
namespace {

struct GenerateFlags {
  PromptFlags prompt;
  EngineOptions engine;
  SamplingFlags sampling;
  SpeculationFlags speculation;
  bool json = false;
};

int run_generate(const GenerateFlags& flags) {
  const TextOptions options = text_options(flags.sampling);
  if (flags.sampling.logprobs >= 0 && !flags.json) throw InputError("--logprobs: only with --json");
  const DraftPlan plan = plan_speculation(flags.speculation, "auto");
  const std::string prompt = prompt_text(flags.prompt);
  const Engine engine = open_engine(flags.engine);
  Drafting drafting(flags.speculation, plan, engine, flags.sampling.seed);
  Answering answering(engine, &drafting, flags.prompt.chat);
  TextResult result;
  {
    const InterruptGuard interrupt;
    AnswerScreen screen(interrupt, !flags.json);
    result = answering.answer(prompt, flags.prompt.raw, options, screen.events());
  }
  print(flags.json ? json_text(answer_json(result, {engine, answering.decoder(), drafting.name(), flags.sampling.seed,
                                                    flags.sampling.logprobs >= 0, drafting.reason()}))
                   : "\n");
  flush_output();
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
  add_speculation_flags(*command, flags->speculation, "auto");
  add_engine_flags(*command, flags->engine);
  add_sampling_flags(*command, flags->sampling);
  return [flags] { return run_generate(*flags); };
}

}  // namespace espalier
