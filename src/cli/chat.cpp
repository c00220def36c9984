#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/answer_screen.h"
#include "cli/commands.h"
#include "cli/draft_flags.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "engine/answer_json.h"
#include "engine/run_configuration.h"

namespace espalier {
namespace {

struct ConversationFlags {
  EngineFlags engine;
  TextOptions text;
  DraftOptions drafting;
  ChatSettings chat;
  RecordOptions records;
};

constexpr std::string_view kHelp = "/reset starts a new conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer\n";

// Shown only to a person at a terminal; a script gets the answers alone.
void show_note(std::string_view text) {
  if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
    print(text);
    flush_output();
  }
}

// The next line that was typed; nothing at the end of the input. A Ctrl-C that came too late for the answer it was
// meant for must not end a conversation at a terminal: it only tells how to leave.
std::optional<std::string> next_line(LineReader& lines, InterruptGuard& interrupt) {
  while (true) {
    show_note("\n> ");
    std::optional<std::string> line = lines.next();
    if (line || !interrupt.interrupted() || !isatty(STDIN_FILENO)) return line;
    interrupt.clear();
    show_note("\n");
    show_note(kHelp);
  }
}

GenerateResult answer(AnswerRecords& records, Answering& answering, const std::string& line, const TextOptions& options,
                      const InterruptGuard& interrupt) {
  AnswerScreen screen(interrupt, true);
  const TextResult result = records.answer(answering, line, false, options, screen.events());
  switch (result.generated.finish_reason) {
    case FinishReason::cancelled: show_note(" [stopped]"); break;
    case FinishReason::token_limit: show_note(" [--max-tokens reached]"); break;
    case FinishReason::context_limit: show_note(" [the context is full: /reset]"); break;
    default: break;
  }
  print("\n");
  flush_output();
  return result.generated;
}

int run_chat(const ConversationFlags& flags) {
  check_options(flags.text);
  if (flags.text.generate.logprobs >= 0) throw InputError("--logprobs: only with generate --json");
  check_record_options(flags.records);
  const EngineOptions options = engine_options(flags.engine);
  const DraftPlan plan = plan_drafting(flags.drafting, options.places);
  Screen screen(flags.engine.verbose);
  const OpenEngine engine = open_engine(options, &screen);
  if (!engine.text->chat_template) input_error("{}: the model has no chat template", engine.path.string());
  Drafting drafting(plan, engine, flags.text.generate.seed);
  Answering answering(engine, &drafting, flags.chat);
  const RunParts parts{engine, drafting, flags.text, flags.chat, false};
  std::optional<TraceWriter> trace;
  if (!flags.records.trace.empty())
    trace.emplace(TraceWriter::create(flags.records.trace, {.origin = record_origin(parts)}, flags.records.existing));
  AnswerRecords records(
      flags.records, "chat", [&] { return record_origin(parts); }, [&](const TracedTurn& turn) { trace->add(turn); });
  show_note(kHelp);
  InterruptGuard interrupt;
  LineReader lines(interrupt);
  while (const auto typed = next_line(lines, interrupt)) {
    const std::string& line = *typed;
    if (line.empty()) continue;
    if (line == "/exit" || line == "/quit") break;
    if (line == "/reset") {
      answering.reset();
      continue;
    }
    if (line == "/help") {
      show_note(kHelp);
      continue;
    }
    try {
      interrupt.clear();
      const GenerateResult result = answer(records, answering, line, flags.text, interrupt);
      interrupt.clear();  // it stopped the answer; the next prompt waits undisturbed
      screen.detail(answer_line(result, drafting.name()));
    } catch (const InputError& error) {
      // One bad turn (a prompt beyond the context, say) does not end the conversation.
      screen.remark(error.what());
    }
  }
  show_note("\n");
  return 0;
}

}  // namespace

Command add_chat(CLI::App& app) {
  CLI::App* command = app.add_subcommand("chat", "talk with the model");
  auto flags = std::make_shared<ConversationFlags>();
  flags->text.generate.max_tokens = 1024;
  add_chat_flags(*command, flags->chat);
  add_record_flags(*command, flags->records);
  add_draft_flags(*command, flags->drafting);
  add_engine_flags(*command, flags->engine);
  add_sampling_flags(*command, flags->text);
  return [flags] { return run_chat(*flags); };
}

}  // namespace espalier
