#include "cli/draft_flags.h"

#include <CLI/CLI.hpp>
#include <charconv>

#include "base/error.h"
#include "cli/flags.h"

namespace espalier {
namespace {

// "16", "auto".
void parse_nodes(const std::string& text, DraftOptions& options) {
  options.nodes.reset();
  options.chooses_nodes = text == "auto";
  if (options.chooses_nodes) return;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMaxDraftRows)
    input_error("--draft-nodes: expected auto or 1 to {}, got '{}'", kMaxDraftRows, text);
  options.nodes = value;
}

}  // namespace

void add_draft_flags(CLI::App& app, DraftOptions& options, Oracle oracle) {
  const HelpGroup group(app, "Drafting");
  app.add_option(
         "--draft", options.draft,
         fmt::format(
             "what guesses ahead: none, ngram, medusa, eagle (or eagle2, eagle3), model, {}hostile, several with "
             "+ between, or auto (the best head for the model, else ngram); the text stays the same; without it "
             "{}",
             oracle == Oracle::offered ? "oracle, " : "", kDefaultDraft))
      ->type_name("NAME");
  app.add_option("--tree", options.tree,
                 "the shape of the guesses: chain, static, static:NAME (tree --list shows the names), static:FILE or "
                 "dynamic (the default)")
      ->type_name("SHAPE");
  const auto count = [&](const char* flag, std::optional<int>& value, int least, const char* what) {
    app.add_option(flag, value, what)->check(CLI::Range(least, kMaxDraftRows))->type_name("N");
  };
  app.add_option_function<std::string>(
         "--draft-nodes", [&options](const std::string& text) { parse_nodes(text, options); },
         "rows of a tree, root included, or auto: each round as many as pay (docs/budgets.md); without it auto with "
         "--draft auto, else 16, or all of a static tree")
      ->type_name("N|auto");
  count("--draft-depth", options.depth, 0,
        "levels of a tree; without it 6 (where rows are chosen what the head suggests, else 16), or all of a static "
        "tree");
  count("--draft-expand", options.expand, 1, "nodes of a level that get children (dynamic); without it 4");
  count("--draft-branch", options.branch, 1, "children of such a node; without it as many as --draft-expand");
  app.add_option(
         "--head", options.heads,
         "an EAGLE-2, EAGLE-3 or Medusa head: folder, safetensors or GGUF file; may be repeated; without it one that "
         "was trained "
         "for the model, if a folder of heads has one")
      ->type_name("PATH")
      ->allow_extra_args(false);
  app.add_option("--head-option", options.head_options,
                 "what the head's files leave open: taps=2,15,27, rope_theta=10000, norm_output=true; may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("--head-weights", options.head_weights,
                 "weights of a head: quantised to q8_0 (the default), as in its file (the default with --mode "
                 "reference), or widened to f32")
      ->check(CLI::IsMember({"q8_0", "file", "f32"}))
      ->type_name("TYPE");
  app.add_option("--draft-vocab", options.vocabulary,
                 "a head guesses only its N most frequent tokens (vocab_order.json beside it); without it all")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->type_name("N");
  app.add_option("--draft-window", options.window, "an EAGLE head sees only the last W positions")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->type_name("W");
  app.add_option("--draft-model", options.draft_model, "a small model with the same tokenizer, for --draft model")
      ->type_name("PATH");
  if (oracle == Oracle::left_out) return;
  app.add_option("--oracle-profile", options.oracle_profile,
                 "how often --draft oracle is right, level by level, as in 0.8,0.6; without it always")
      ->type_name("P,P,...");
}

}  // namespace espalier
