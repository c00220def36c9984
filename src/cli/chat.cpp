#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/chat_input.h"
#include "cli/commands.h"
#include "cli/draft_flags.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "cli/screen.h"
#include "cli/terminal_chat.h"
#include "engine/model_advice.h"

namespace espalier {
namespace {

constexpr std::string_view kGreeting = "/help lists commands, /exit or Ctrl-D leaves, Ctrl-C stops an answer\n";

// What the flags said of sampling; the rest is the authors' to recommend.
struct GivenSampling {
  SamplingWish sampling = {};
  bool seed = false;
};

template <typename Value>
std::optional<Value> if_given(const CLI::App& command, const char* flag, const Value& value) {
  return command.count(flag) > 0 ? std::optional(value) : std::nullopt;
}

GivenSampling given_sampling(const CLI::App& command, const SamplingOptions& options) {
  return {.sampling = {.temperature = if_given(command, "--temperature", options.temperature),
                       .top_k = if_given(command, "--top-k", options.top_k),
                       .top_p = if_given(command, "--top-p", options.top_p),
                       .min_p = if_given(command, "--min-p", options.min_p),
                       .repeat_penalty = if_given(command, "--repeat-penalty", options.repeat_penalty)},
          .seed = command.count("--seed") > 0};
}

void choose_sampling(const GivenSampling& given, const OpenEngine& engine, GenerateOptions& options) {
  const SamplingAdvice advice = recommended_sampling(engine.path, engine.places.cache);
  take_recommended(advice.sampling, given.sampling, options.sampling);
  if (!given.seed) options.seed = fresh_seed();
  if (!advice.source.empty())
    engine.listener->detail(fmt::format("sampling as recommended by {}: temperature {}, top-k {}, top-p {}",
                                        advice.source, options.sampling.temperature, options.sampling.top_k,
                                        options.sampling.top_p));
}

// What to do about it stands behind what is wrong.
std::string way_on(const ContextFull& full) {
  return fmt::format("{}: {} start again with a larger --context", full.what(),
                     full.one_message ? "shorten it, or" : "take turns back with /undo, begin anew with /reset, or");
}

// What is typed next; nothing at the end of the input. A Ctrl-C that came too late for the answer it was meant for must
// not end a conversation at a terminal: it only tells how to leave.
std::optional<TypedText> next_input(ChatReader& reader, InterruptGuard& interrupt, Screen& screen) {
  while (true) {
    show_note("\n");
    std::optional<TypedText> typed;
    try {
      typed = reader.next();
    } catch (const LineCut& cut) {
      screen.remark(cut.what());
      continue;
    }
    if (typed) return typed;
    if (!interrupt.interrupted() && !at_terminal() && reader.ended_inside())
      throw InputError("standard input: ends inside a message, expected three quotes at its end");
    if (!interrupt.interrupted() || !at_terminal()) return std::nullopt;
    interrupt.clear();
    show_note("\n");
    show_note(kGreeting);
  }
}

// False: it was the last one.
bool handle(const ChatInput& input, TerminalChat& chat, const InterruptGuard& interrupt) {
  if (input.command == "exit") return false;
  if (input.command == "help")
    show_note(chat_help());
  else if (!input.command.empty())
    chat.obey(input.command, input.text, interrupt);
  else if (input.text.find_first_not_of(" \t\n") != std::string::npos)
    chat.ask(input.text, interrupt);
  return true;
}

void converse(TerminalChat& chat, Screen& screen) {
  InterruptGuard interrupt;
  const std::unique_ptr<LineSource> lines = make_line_source(interrupt);
  ChatReader reader(*lines);
  while (const std::optional<TypedText> typed = next_input(reader, interrupt, screen)) {
    interrupt.clear();
    try {
      if (!handle(parse_chat_input(*typed), chat, interrupt)) return;
    } catch (const ContextFull& full) {
      screen.remark(way_on(full));
    } catch (const InputError& error) {
      // One bad turn (a command that nobody knows, say) does not end the conversation.
      screen.remark(error.what());
    }
    interrupt.clear();  // it stopped the answer; the next prompt waits undisturbed
  }
}

int run_chat(ChatFlags flags, const GivenSampling& given) {
  check_options(flags.text);
  check_chat_settings(flags.chat);
  if (flags.text.generate.logprobs >= 0) throw InputError("--logprobs: only with generate --json");
  check_record_options(flags.records);
  const EngineOptions options = engine_options(flags.engine);
  const DraftPlan plan = plan_drafting(flags.drafting, options.places);  // contradictions are told at once
  Screen screen(flags.engine.verbose);
  const OpenEngine engine = open_engine(with_drafting(options, plan), &screen);
  if (!engine.text->chat_template && flags.chat.chat_template.empty())
    input_error("{}: the model has no chat template", engine.path.string());
  flags.chat = with_chosen_system(flags.chat, engine);
  choose_sampling(given, engine, flags.text.generate);
  TerminalChat chat(flags, engine, screen);
  show_note(kGreeting);
  converse(chat, screen);
  show_note("\n");
  return 0;
}

}  // namespace

Command add_chat(CLI::App& app) {
  CLI::App* command = app.add_subcommand("chat", "talk with the model");
  auto flags = std::make_shared<ChatFlags>();
  flags->text.generate.max_tokens = 1024;
  flags->text.loop_guard = true;
  flags->text.drop_oldest = true;
  add_chat_flags(*command, flags->chat);
  add_opening_flags(*command, flags->chat);
  command->add_flag_callback(
      "--keep-history", [flags] { flags->text.drop_oldest = false; },
      "stop when the context is full, instead of leaving the oldest turns out");
  command->add_flag_callback(
      "--no-loop-guard", [flags] { flags->text.loop_guard = false; },
      "let answers go on that repeat the same 32 tokens or more three times in a row");
  command->add_flag("-q,--quiet", flags->quiet, "no rate after an answer");
  add_record_flags(*command, flags->records);
  add_draft_flags(*command, flags->drafting);
  add_engine_flags(*command, flags->engine);
  add_sampling_flags(*command, flags->text);
  for (const char* flag : {"--temperature", "--top-k", "--top-p", "--min-p", "--repeat-penalty"})
    command->get_option(flag)->default_str("as recommended");
  command->get_option("--seed")->default_str("fresh");
  return [flags, command] { return run_chat(*flags, given_sampling(*command, flags->text.generate.sampling)); };
}

}  // namespace espalier
