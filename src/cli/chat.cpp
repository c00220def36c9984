#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/draft_flags.h"
#include "cli/environment.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "cli/terminal.h"
#include "engine/model_advice.h"
#include "terminal/conversation.h"
#include "terminal/terminal_chat.h"

namespace espalier {
namespace {

struct ChatFlags {
  EngineFlags engine = {};
  TerminalChatOptions options = {};
};

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

ChatTerminal terminal_of_process(Screen& screen) {
  const std::string name = process_environment("TERM").value_or("");
  return {.in = stdin,
          .out = stdout,
          .print =
              [](std::string_view text) {
                print(text);
                flush_output();
              },
          .tell = tell,
          .width = screen_width,
          .people = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0,
          .editable = !name.empty() && name != "dumb",
          .colour = stdout_wants_colour("auto"),
          .listener = &screen};
}

int run_chat(ChatFlags flags, const GivenSampling& given) {
  TerminalChatOptions& chosen = flags.options;
  check_options(chosen.text);
  check_chat_settings(chosen.chat);
  if (chosen.text.generate.logprobs >= 0) throw InputError("--logprobs: only with generate --json");
  check_record_options(chosen.records);
  const EngineOptions options = engine_options(flags.engine);
  const DraftPlan plan = plan_drafting(chosen.drafting, options.places);  // contradictions are told at once
  Screen screen(flags.engine.verbose);
  const OpenEngine engine = open_engine(with_drafting(options, plan), &screen);
  if (!engine.text->chat_template && chosen.chat.chat_template.empty())
    input_error("{}: the model has no chat template", engine.path.string());
  chosen.chat = with_chosen_system(chosen.chat, engine);
  choose_sampling(given, engine, chosen.text.generate);
  const ChatTerminal terminal = terminal_of_process(screen);
  TerminalChat chat(chosen, engine, terminal);
  terminal.show_note(kChatGreeting);
  {
    InterruptGuard interrupt;
    converse(chat, terminal, interrupt);
  }
  terminal.show_note("\n");
  return 0;
}

}  // namespace

Command add_chat(CLI::App& app) {
  CLI::App* command = app.add_subcommand("chat", "talk with the model");
  auto flags = std::make_shared<ChatFlags>();
  flags->options.text.generate.max_tokens = 1024;
  flags->options.text.loop_guard = true;
  flags->options.text.drop_oldest = true;
  add_chat_flags(*command, flags->options.chat);
  add_opening_flags(*command, flags->options.chat);
  command->add_flag_callback(
      "--keep-history", [flags] { flags->options.text.drop_oldest = false; },
      "stop when the context is full, instead of leaving the oldest turns out");
  command->add_flag_callback(
      "--no-loop-guard", [flags] { flags->options.text.loop_guard = false; },
      "let answers go on that repeat the same 32 tokens or more three times in a row");
  command->add_flag("-q,--quiet", flags->options.quiet, "no rate after an answer");
  add_record_flags(*command, flags->options.records);
  add_draft_flags(*command, flags->options.drafting);
  add_engine_flags(*command, flags->engine);
  add_sampling_flags(*command, flags->options.text);
  for (const char* flag : {"--temperature", "--top-k", "--top-p", "--min-p", "--repeat-penalty"})
    command->get_option(flag)->default_str("as recommended");
  command->get_option("--seed")->default_str("fresh");
  return [flags, command] { return run_chat(*flags, given_sampling(*command, flags->options.text.generate.sampling)); };
}

}  // namespace espalier
