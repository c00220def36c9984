#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/answer_screen.h"
#include "cli/commands.h"
#include "cli/draft_flags.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "engine/answer_comparison.h"
#include "engine/answer_json.h"

namespace espalier {
namespace {

struct CompareFlags {
  PromptFlags prompt;
  EngineFlags engine;
  TextOptions text;
  DraftOptions drafting;
  bool json = false;
};

// One of the two answers, with its figures, after its decoder is gone.
struct Half {
  TextResult result;
  nlohmann::ordered_json json;

  bool cancelled() const { return result.generated.finish_reason == FinishReason::cancelled; }
};

class Comparison {
 public:
  Comparison(const CompareFlags& flags, const OpenEngine& engine, Drafting& drafting)
      : flags_(flags), engine_(engine), drafting_(drafting), chat_(opening(flags.prompt, engine)) {}

  int run(const std::string& prompt) {
    headline("without speculation");
    const Half plain = answer(prompt, nullptr);
    if (plain.cancelled()) return interrupted();
    drafting_.learn(plain.result.prompt, plain.result.generated.tokens);
    headline(fmt::format("\nwith drafts by {}, {} tree of {}", drafting_.name(), name(drafting_.tree().shape),
                         drafting_.budget()));
    const Half drafted = answer(prompt, &drafting_);
    if (drafted.cancelled()) return interrupted();
    const Device& device = *engine_.device;
    const AnswerComparison compared(plain.result, drafted.result, *engine_.text->tokenizer,
                                    {.row_independent = device.row_independent(), .timed = !device.is_stand_in()});
    print(flags_.json ? json_text(compared.json(plain.json, drafted.json)) : "\n" + compared.text() + "\n");
    flush_output();
    return compared.holds() ? 0 : 1;
  }

 private:
  void headline(const std::string& text) const {
    if (!flags_.json) print(text + "\n");
  }

  // A decoder of its own for each half, and never two at once: KV memory is large.
  Half answer(const std::string& prompt, Drafting* drafting) const {
    Answering answering(engine_, drafting, chat_);
    const InterruptGuard interrupt;
    AnswerScreen screen(interrupt, !flags_.json);
    Half half;
    TextOptions text = flags_.text;
    if (!engine_.device->row_independent())
      text.generate.logprobs = std::max(text.generate.logprobs, kComparedAlternatives);
    half.result = answering.speak(prompt, flags_.prompt.raw, text, screen.events());
    half.json = answer_json(
        half.result, {engine_, answering.decoder(), drafting ? drafting->name() : "none", flags_.text.generate.seed,
                      flags_.text.generate.logprobs >= 0, drafting ? drafting->reason() : "to compare with"});
    headline("");
    return half;
  }

  static int interrupted() {
    tell("espalier: interrupted\n");
    return kInterrupted;
  }

  const CompareFlags& flags_;
  const OpenEngine& engine_;
  Drafting& drafting_;
  ChatSettings chat_;
};

int run_compare(const CompareFlags& flags) {
  check_options(flags.text);
  if (flags.text.generate.logprobs >= 0 && !flags.json) throw InputError("--logprobs: only with --json");
  const EngineOptions options = engine_options(flags.engine);
  const DraftPlan plan = plan_drafting(flags.drafting, options.places);
  if (plan.plain()) throw InputError("--draft none: there is nothing to compare without a drafter");
  const std::string prompt = prompt_text(flags.prompt);
  Screen screen(flags.engine.verbose);
  const OpenEngine engine = open_engine(with_drafting(options, plan), &screen);
  Drafting drafting(plan, engine, flags.text.generate.seed);
  return Comparison(flags, engine, drafting).run(prompt);
}

}  // namespace

Command add_compare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("compare", "answer a prompt without and with speculation: same text, which speed");
  auto flags = std::make_shared<CompareFlags>();
  add_prompt_flags(*command, flags->prompt);
  command->add_flag("--json", flags->json, "print one JSON object instead of the texts");
  add_draft_flags(*command, flags->drafting);
  add_engine_flags(*command, flags->engine);
  add_sampling_flags(*command, flags->text);
  return [flags] { return run_compare(*flags); };
}

}  // namespace espalier
