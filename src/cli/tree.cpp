#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/output_file.h"
#include "cli/answer_screen.h"
#include "cli/commands.h"
#include "cli/draft_flags.h"
#include "cli/environment.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "cli/terminal.h"
#include "engine/named_trees.h"
#include "report/round_picture.h"

namespace espalier {
namespace {

constexpr std::int64_t kDefaultTokens = 64;

struct TreeFlags {
  PromptFlags prompt;
  EngineFlags engine;
  TextOptions text;
  DraftOptions drafting;
  bool list = false;
  std::optional<std::int64_t> round;
  std::string svg;
  Existing existing = Existing::refuse;
  std::string colour = "auto";
};

// Answers the prompt as far as needed; the round that is to be shown, with its words. Nothing: it was interrupted.
std::optional<TreePicture> find_round(const TreeFlags& flags, const std::string& prompt, const OpenEngine& engine,
                                      Drafting& drafting) {
  Answering answering(engine, &drafting, opening(flags.prompt, engine));
  RoundPicture kept(flags.round, *engine.text->tokenizer, drafting.drafters());
  const InterruptGuard interrupt;
  AnswerScreen screen(interrupt, false);
  TextEvents events = screen.events();
  events.on_round = [&](const Round& round) { kept.look(round); };
  events.cancelled = [&] { return interrupt.interrupted() || kept.done(); };
  const TextResult result = answering.answer(prompt, flags.prompt.raw, flags.text, events);
  if (interrupt.interrupted()) return std::nullopt;
  if (kept.rounds() == 0) throw InputError("the answer is complete after its first token: there is no round to show");
  if (!kept.found())
    input_error("--round: expected 0 to {}, the last round of this answer, got {}", kept.rounds() - 1, *flags.round);
  return kept.picture(result);
}

int list_trees(const TreeFlags& flags) {
  if (flags.prompt.prompt || !flags.prompt.file.empty())
    throw InputError("--list: shows the named trees, expected no prompt");
  const Places places = process_places();
  if (named_trees(places).empty()) input_error("--list: there are no named trees: {}", no_named_trees(places));
  Screen screen(flags.engine.verbose);
  print(named_trees_text(places, screen));
  flush_output();
  return 0;
}

int run_tree(const TreeFlags& flags) {
  if (flags.list) return list_trees(flags);
  check_options(flags.text);
  if (flags.text.generate.logprobs >= 0) throw InputError("--logprobs: only with generate --json");
  const EngineOptions options = engine_options(flags.engine);
  DraftPlan plan = plan_drafting(flags.drafting, options.places);
  plan.tree.chooses_nodes = flags.drafting.chooses_nodes;  // else a picture is the same every time
  if (!flags.svg.empty()) check_output(flags.svg, flags.existing);
  const std::string prompt = prompt_text(flags.prompt);
  Screen screen(flags.engine.verbose);
  const OpenEngine engine = open_engine(with_drafting(options, plan), &screen);
  Drafting drafting(plan, engine, flags.text.generate.seed);
  const std::optional<TreePicture> picture = find_round(flags, prompt, engine, drafting);
  if (!picture) {
    screen.remark("interrupted");
    return kInterrupted;
  }
  if (flags.svg != "-") {
    print(render_tree_text(*picture, {.width = screen_width(), .colour = stdout_wants_colour(flags.colour)}));
    flush_output();
  }
  if (!flags.svg.empty()) write_output(flags.svg, flags.existing, render_tree_svg(*picture));
  return 0;
}

}  // namespace

Command add_tree(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("tree", "show one round: what was drafted, what the model took; or the named trees");
  auto flags = std::make_shared<TreeFlags>();
  flags->text.generate.max_tokens = kDefaultTokens;
  add_prompt_flags(*command, flags->prompt);
  command
      ->add_option("--round", flags->round, "which round, from 0; without it one that accepted more than any before it")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  command->add_option("--svg", flags->svg, "write the picture to this file too; -: to standard output, alone")
      ->type_name("FILE");
  add_force_flag(*command, flags->existing);
  command->add_flag("--list", flags->list, "show the static trees that have names instead, with their sizes");
  command->add_option("--color", flags->colour, "auto (on a terminal, unless NO_COLOR is set), always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN");
  add_draft_flags(*command, flags->drafting);
  add_engine_flags(*command, flags->engine);
  add_sampling_flags(*command, flags->text);
  return [flags] { return run_tree(*flags); };
}

}  // namespace espalier
