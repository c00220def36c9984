#include <fmt/ranges.h>

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
#include "report/tree_picture.h"
#include "text/token_text.h"

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

// Keeps the round that is to be shown: the one asked for, else the first of those that accepted most.
class RoundKeeper {
 public:
  RoundKeeper(std::optional<std::int64_t> wanted, const Tokenizer& tokenizer, std::vector<std::string> drafters)
      : wanted_(wanted), tokenizer_(tokenizer), drafters_(std::move(drafters)) {}

  void look(const Round& round) {
    ++rounds_;
    const bool best = !picture_ || round.accepted() > picture_->accepted() ||
                      (picture_->nodes.size() == 1 && round.tree.size() > 1);  // a guess is worth more than none
    if (wanted_ ? round.number != *wanted_ : !best) return;
    picture_ = picture_of(
        round, [&](std::int32_t token) { return tokenizer_.bytes(token, false); }, drafters_);
    prefix_ = round.prefix;
  }

  // Whether the rest of the answer does not matter any more.
  bool done() const { return wanted_ && picture_; }
  std::int64_t rounds() const { return rounds_; }
  std::int64_t prefix() const { return prefix_; }  // committed tokens before the picture's root
  const std::optional<TreePicture>& picture() const { return picture_; }

 private:
  std::optional<std::int64_t> wanted_;
  const Tokenizer& tokenizer_;
  std::vector<std::string> drafters_;
  std::int64_t rounds_ = 0;
  std::int64_t prefix_ = 0;
  std::optional<TreePicture> picture_;
};

// What the answer said before the root, on one line.
std::string text_before(const TextResult& result, std::int64_t prefix, const Tokenizer& tokenizer) {
  const auto count = static_cast<std::size_t>(prefix) - result.prompt.size();
  const std::string text = tokenizer.decode(std::span(result.generated.tokens).first(count));
  return text.empty() ? "the prompt" : quoted_token(text);
}

// Answers the prompt as far as needed; the round that is to be shown, with its words. Nothing: it was interrupted.
std::optional<TreePicture> find_round(const TreeFlags& flags, const std::string& prompt, const OpenEngine& engine,
                                      Drafting& drafting) {
  const Tokenizer& tokenizer = *engine.text->tokenizer;
  Answering answering(engine, &drafting, opening(flags.prompt, engine));
  RoundKeeper keeper(flags.round, tokenizer, drafting.drafters());
  const InterruptGuard interrupt;
  AnswerScreen screen(interrupt, false);
  TextEvents events = screen.events();
  events.on_round = [&](const Round& round) { keeper.look(round); };
  events.cancelled = [&] { return interrupt.interrupted() || keeper.done(); };
  const TextResult result = answering.answer(prompt, flags.prompt.raw, flags.text, events);
  if (interrupt.interrupted()) return std::nullopt;
  if (keeper.rounds() == 0) throw InputError("the answer is complete after its first token: there is no round to show");
  if (!keeper.picture())
    input_error("--round: expected 0 to {}, the last round of this answer, got {}", keeper.rounds() - 1, *flags.round);
  TreePicture picture = *keeper.picture();
  picture.before = text_before(result, keeper.prefix(), tokenizer);
  return picture;
}

std::string list_line(const std::string& name, const ChoiceTree& tree) {
  return fmt::format("{:<25} {:>4} {:>7}  {}\n", name, tree.size(), tree.leaves(), fmt::join(tree.level_sizes(), "/"));
}

// The static trees that have names. A list that cannot be read is passed over, and said.
int list_trees(const TreeFlags& flags) {
  if (flags.prompt.prompt || !flags.prompt.file.empty())
    throw InputError("--list: shows the named trees, expected no prompt");
  const Places places = process_places();
  const auto trees = named_trees(places);
  if (trees.empty()) input_error("--list: there are no named trees: {}", no_named_trees(places));
  Screen screen(flags.engine.verbose);
  print(fmt::format("{:<25} {:>4} {:>7}  {}\n", "name", "rows", "leaves", "nodes per depth"));
  for (const auto& [name, file] : trees) {
    try {
      print(list_line(name, ChoiceTree::read(file, {})));
    } catch (const InputError& error) {
      screen.remark(fmt::format("passes over {}", error.what()));
    }
  }
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
