#include "cli/speculation.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "cli/options.h"

namespace espalier {
namespace {

constexpr std::array<std::string_view, 6> kDrafters = {"ngram", "medusa", "eagle3", "model", "oracle", "hostile"};
constexpr const char* kStaticTree = "data/trees/pangu_64.json";

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// "ngram", "eagle3+ngram".
std::vector<std::string> parse_drafters(const std::string& text) {
  const std::vector<std::string> names = split(text, '+');
  for (const std::string& name : names) {
    if (names.size() > 1 && (name == "none" || name == "auto")) input_error("--draft {}: {} stands alone", text, name);
    if (std::ranges::find(kDrafters, name) == kDrafters.end())
      input_error("--draft: expected none, auto or one or several of {} with + between, got '{}'",
                  fmt::join(kDrafters, ", "), name);
    if (std::ranges::count(names, name) > 1) input_error("--draft {}: {} is there twice", text, name);
  }
  return names;
}

std::vector<double> parse_profile(const std::string& text) {
  std::vector<double> profile;
  if (text.empty()) return profile;
  for (const std::string& part : split(text, ',')) {
    double value = -1;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size() || !(value >= 0 && value <= 1))
      input_error("--oracle-profile: expected numbers from 0 to 1 with commas between, as in 0.8,0.6, got '{}'", text);
    profile.push_back(value);
  }
  return profile;
}

// "16", "auto".
void parse_nodes(const std::string& text, SpeculationFlags& flags) {
  flags.nodes.reset();
  flags.chooses_nodes = text == "auto";
  if (flags.chooses_nodes) return;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMaxDraftRows)
    input_error("--draft-nodes: expected auto or 1 to {}, got '{}'", kMaxDraftRows, text);
  flags.nodes = value;
}

ChoiceTree read_static_tree(const std::string& file) {
  if (!file.empty()) return ChoiceTree::read(file, {});
  if (const auto found = find_in_repository(kStaticTree)) return ChoiceTree::read(*found, {});
  input_error("--tree static: {} is not there: give --tree static:FILE", kStaticTree);
}

// A file is cut to what was asked for, levels first, then its best rows; then the options say what the tree is.
void shape_static_tree(const std::string& file, const SpeculationFlags& flags, TreeOptions& tree) {
  ChoiceTree choices = read_static_tree(file);
  tree.shape = TreeShape::fixed;
  tree.depth = flags.depth.value_or(choices.depth());
  if (tree.depth < choices.depth()) choices = choices.cut(std::max(1, tree.depth));
  choices = choices.best(tree.depth == 0 ? 1 : std::min(choices.size(), flags.nodes.value_or(kMaxDraftRows)));
  tree.nodes = choices.size();
  tree.depth = std::min(tree.depth, choices.depth());
  tree.choices = std::move(choices);
}

}  // namespace

TreeOptions plan_tree(const SpeculationFlags& flags) {
  const std::string text = flags.tree.value_or("dynamic");
  TreeOptions tree;
  if (text != "dynamic" && (flags.expand || flags.branch))
    input_error("--draft-{}: only with --tree dynamic, got --tree {}", flags.expand ? "expand" : "branch", text);
  tree.nodes = flags.nodes.value_or(flags.chooses_nodes ? kMostChosenRows : tree.nodes);
  tree.depth = flags.depth.value_or(flags.chooses_nodes ? kMostChosenLevels : tree.depth);
  tree.expand = flags.expand.value_or(tree.expand);
  tree.branch = flags.branch.value_or(tree.expand);
  if (text == "chain") {
    tree.shape = TreeShape::chain;
    tree.expand = tree.branch = 1;
  } else if (text == "static" || text.starts_with("static:")) {
    if (text == "static:") throw InputError("--tree static:FILE: the file is missing");
    shape_static_tree(text == "static" ? "" : text.substr(7), flags, tree);
  } else if (text != "dynamic") {
    input_error("--tree: expected chain, static, static:FILE or dynamic, got '{}'", text);
  }
  return tree;
}

namespace {

// Flags that mean nothing without some drafter.
struct Dependence {
  const char* flag;
  bool given;
  std::vector<std::string_view> drafters;  // any of them gives it a meaning
};

void check_dependences(const SpeculationFlags& flags, const DraftPlan& plan, const std::string& draft) {
  const Dependence dependences[] = {
      {"--head", !flags.heads.empty(), {"eagle3", "medusa"}},
      {"--head-option", !flags.head_options.empty(), {"eagle3"}},
      {"--head-weights", flags.head_weights.has_value(), {"eagle3", "medusa"}},
      {"--draft-vocab", flags.vocabulary.has_value(), {"eagle3", "medusa"}},
      {"--draft-window", flags.window.has_value(), {"eagle3"}},
      {"--draft-model", !flags.draft_model.empty(), {"model"}},
      {"--oracle-profile", !flags.oracle_profile.empty(), {"oracle"}},
  };
  for (const auto& [flag, given, drafters] : dependences) {
    if (!given) continue;
    const bool used = std::ranges::any_of(drafters, [&](std::string_view name) { return plan.has(name); });
    const bool open = plan.automatic && drafters.front() == "eagle3";  // auto may find a head
    if (!used && !open)
      input_error("{}: only with --draft {}, got --draft {}", flag, fmt::join(drafters, " or "), draft);
  }
  if (!flags.head_options.empty() && flags.heads.empty()) throw InputError("--head-option: needs --head PATH");
  if (plan.has("model") && flags.draft_model.empty()) input_error("--draft {}: needs --draft-model PATH", draft);
}

// Without a drafter a shape would silently do nothing; who says --draft none knows.
void check_shape_is_used(const SpeculationFlags& flags) {
  const std::pair<const char*, bool> shapes[] = {{"--tree", flags.tree.has_value()},
                                                 {"--draft-nodes", flags.nodes.has_value() || flags.chooses_nodes},
                                                 {"--draft-depth", flags.depth.has_value()},
                                                 {"--draft-expand", flags.expand.has_value()},
                                                 {"--draft-branch", flags.branch.has_value()}};
  for (const auto& [flag, given] : shapes)
    if (given) input_error("{}: only with --draft, for example --draft ngram", flag);
}

}  // namespace

bool DraftPlan::has(std::string_view drafter) const {
  return std::ranges::find(drafters, drafter) != drafters.end();
}

void add_speculation_flags(CLI::App& app, SpeculationFlags& flags, const std::string& default_draft) {
  const HelpGroup group(app, "Drafting");
  app.add_option("--draft", flags.draft,
                 "what guesses ahead: none, ngram, medusa, eagle3, model, oracle, hostile, several with + between, or "
                 "auto (the best head for the model, else ngram); the text stays the same; without it " +
                     default_draft)
      ->type_name("NAME");
  app.add_option("--tree", flags.tree, "the shape of the guesses: chain, static, static:FILE or dynamic (the default)")
      ->type_name("SHAPE");
  const auto count = [&](const char* flag, std::optional<int>& value, int least, const char* what) {
    app.add_option(flag, value, what)->check(CLI::Range(least, kMaxDraftRows))->type_name("N");
  };
  app.add_option_function<std::string>(
         "--draft-nodes", [&flags](const std::string& text) { parse_nodes(text, flags); },
         "rows of a tree, root included, or auto: each round as many as pay (docs/budgets.md); without it auto with "
         "--draft auto, else 16, or all of a static tree")
      ->type_name("N|auto");
  count("--draft-depth", flags.depth, 0, "levels of a tree; without it 6, or all of a static tree");
  count("--draft-expand", flags.expand, 1, "nodes of a level that get children (dynamic); without it 4");
  count("--draft-branch", flags.branch, 1, "children of such a node; without it as many as --draft-expand");
  app.add_option("--head", flags.heads,
                 "an EAGLE-3 or Medusa head: folder, safetensors or GGUF file; may be repeated; without it one that "
                 "was trained "
                 "for the model, if a folder of heads has one")
      ->type_name("PATH")
      ->allow_extra_args(false);
  app.add_option("--head-option", flags.head_options,
                 "what the head's files leave open: taps=2,15,27, rope_theta=10000, norm_output=true; may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("--head-weights", flags.head_weights,
                 "weights of a head: quantised to q8_0 (the default), as in its file (the default with --mode "
                 "reference), or widened to f32")
      ->check(CLI::IsMember({"q8_0", "file", "f32"}))
      ->type_name("TYPE");
  app.add_option("--draft-vocab", flags.vocabulary,
                 "a head guesses only its N most frequent tokens (vocab_order.json beside it); without it all")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->type_name("N");
  app.add_option("--draft-window", flags.window, "eagle3 sees only the last W positions")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->type_name("W");
  app.add_option("--draft-model", flags.draft_model, "a small model with the same tokenizer, for --draft model")
      ->type_name("PATH");
  app.add_option("--oracle-profile", flags.oracle_profile,
                 "how often --draft oracle is right, level by level, as in 0.8,0.6; without it always")
      ->type_name("P,P,...");
}

DraftPlan plan_speculation(const SpeculationFlags& flags, const std::string& default_draft) {
  const std::string draft = flags.draft.value_or(default_draft);
  DraftPlan plan;
  plan.automatic = draft == "auto";
  if (draft != "none" && !plan.automatic) plan.drafters = parse_drafters(draft);
  check_dependences(flags, plan, draft);
  if (plan.plain() && !flags.draft) check_shape_is_used(flags);
  SpeculationFlags shape = flags;
  shape.chooses_nodes = plan.chooses_nodes = flags.chooses_nodes || (plan.automatic && !flags.nodes);
  plan.tree = plan_tree(shape);
  plan.heads = flags.heads;
  for (const std::string& option : flags.head_options) parse_head_option(option, plan.head_options);
  plan.head_options.vocabulary = flags.vocabulary;
  if (flags.head_weights) plan.head_weights = parse_weight_mode(*flags.head_weights);
  plan.has_head_options = !flags.head_options.empty();
  plan.window = flags.window.value_or(0);
  plan.draft_model = flags.draft_model;
  plan.oracle_profile = parse_profile(flags.oracle_profile);
  return plan;
}

TreeOptions fit_tree(const TreeOptions& tree, std::int64_t rows, const SpeculationFlags& flags) {
  TreeOptions fitted = tree;
  if (max_rows(tree) <= rows) return fitted;
  if (flags.chooses_nodes && tree.shape != TreeShape::fixed) {
    fitted.nodes = static_cast<int>(rows);
    return fitted;
  }
  if (flags.nodes || tree.shape != TreeShape::fixed)
    input_error("--draft-nodes: expected 1 to {}, the rows of the device's largest step, got {}", rows, tree.nodes);
  fitted.choices = tree.choices->best(static_cast<int>(rows));
  fitted.nodes = fitted.choices->size();
  fitted.depth = std::min(tree.depth, fitted.choices->depth());
  return fitted;
}

}  // namespace espalier
