#include "engine/draft_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "decode/drafter_names.h"
#include "engine/engine.h"
#include "engine/named_trees.h"

namespace espalier {
namespace {

constexpr std::array<std::string_view, 8> kDrafters = {"ngram",  "medusa", "eagle",  "eagle2",
                                                       "eagle3", "model",  "oracle", "hostile"};
constexpr const char* kStaticTree = "pangu_64";
constexpr std::string_view kStaticPrefix = "static:";

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
  if (std::ranges::count_if(names, names_eagle) > 1)
    input_error("--draft {}: expected one of eagle, eagle2 and eagle3", text);
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

void wish_for_shape(const std::string& text, const Places& places, TreeWish& wish) {
  if (text == "chain") {
    wish.shape = TreeShape::chain;
  } else if (text == "static" || text.starts_with(kStaticPrefix)) {
    if (text == kStaticPrefix) throw InputError("--tree static:NAME: the name is missing, or a file");
    wish.shape = TreeShape::fixed;
    wish.asked_for_choices = text != "static";
    wish.choices_name = wish.asked_for_choices ? text.substr(kStaticPrefix.size()) : kStaticTree;
    wish.choices = ChoiceTree::read(
        wish.asked_for_choices ? find_tree(wish.choices_name, places) : find_named_tree(wish.choices_name, places), {});
  } else if (text != "dynamic") {
    input_error("--tree: expected chain, static, static:NAME, static:FILE or dynamic, got '{}'", text);
  }
}

int wished_levels(const TreeWish& wish) {
  if (wish.shape == TreeShape::fixed) return wish.depth.value_or(wish.choices->depth());
  return wish.depth.value_or(wish.chooses_nodes ? kMostChosenLevels : TreeOptions().depth);
}

// Levels are cut first, then the best rows are kept; then the options say what the tree is.
TreeOptions static_tree(const TreeWish& wish) {
  TreeOptions tree{.shape = TreeShape::fixed, .depth = wished_levels(wish)};
  ChoiceTree choices = *wish.choices;
  if (tree.depth < choices.depth()) choices = choices.cut(std::max(1, tree.depth));
  choices = choices.best(tree.depth == 0 ? 1 : std::min(choices.size(), wish.nodes.value_or(kMaxDraftRows)));
  tree.nodes = choices.size();
  tree.depth = std::min(tree.depth, choices.depth());
  tree.branch = tree.expand;
  tree.choices = std::move(choices);
  return tree;
}

TreeOptions shaped(const TreeWish& wish) {
  if (wish.shape == TreeShape::fixed) return static_tree(wish);
  TreeOptions tree{.shape = wish.shape, .depth = wished_levels(wish)};
  tree.nodes = wish.nodes.value_or(wish.chooses_nodes ? kMostChosenRows : tree.nodes);
  tree.expand = wish.shape == TreeShape::chain ? 1 : wish.expand.value_or(tree.expand);
  tree.branch = wish.shape == TreeShape::chain ? 1 : wish.branch.value_or(tree.expand);
  return tree;
}

void follow(const DraftSuggestion& suggestion, const TreeFacts& facts, TreeWish& wish) {
  if (wish.shaped) return;
  if (suggestion.nodes && !wish.nodes && !wish.asked_to_choose) {
    wish.nodes = std::min(*suggestion.nodes, static_cast<int>(facts.most_rows.value_or(kMaxDraftRows)));
    wish.chooses_nodes = false;
  }
  if (!wish.depth) wish.depth = suggestion.depth;
  if (!wish.expand) wish.expand = suggestion.expand;
}

// Medusa heads may bring the tree they do best with; a user who says anything about the tree means another one.
void take_choices(const ChoiceTree& choices, TreeWish& wish) {
  const bool open = wish.shaped ? wish.shape == TreeShape::fixed && !wish.asked_for_choices : !wish.sized();
  if (!open) return;
  wish.shape = TreeShape::fixed;
  wish.choices = choices;
  wish.choices_name = "choices.json of the heads";
}

// Cuts what is deeper or wider than the drafters from a static tree. The line that says so; empty where the user wants
// no more of the tree than they can fill.
std::string cut_to_drafters(const TreeFacts& facts, TreeWish& wish) {
  const int levels = facts.levels.value_or(kMaxTreeRows);
  const auto guesses = static_cast<int>(std::min<std::int64_t>(facts.guesses.value_or(kMaxDraftRows), kMaxDraftRows));
  const ChoiceTree wanted = wish.choices->cut(wished_levels(wish)).best(wish.nodes.value_or(kMaxDraftRows));
  wish.choices = wish.choices->cut(levels).narrow(guesses).best(kMaxDraftRows);
  std::vector<std::string> reasons;
  if (wanted.depth() > levels) reasons.push_back(fmt::format("{} levels, the heads have {}", wanted.depth(), levels));
  if (wanted.ranks() > guesses)
    reasons.push_back(fmt::format("{} guesses below a node, there are {}", wanted.ranks(), guesses));
  if (reasons.empty()) return "";
  const int rows = wish.choices->best(std::min(wish.choices->size(), wish.nodes.value_or(kMaxDraftRows))).size();
  return fmt::format("tree {}: {}: cut to {} row{}", wish.choices_name, fmt::join(reasons, ", "), rows,
                     rows == 1 ? "" : "s");
}

TreeOptions fit(TreeOptions tree, std::int64_t rows, const TreeWish& wish) {
  if (max_rows(tree) <= rows) return tree;
  if (wish.chooses_nodes && tree.shape != TreeShape::fixed) {
    tree.nodes = static_cast<int>(rows);
    return tree;
  }
  if (wish.nodes || tree.shape != TreeShape::fixed)
    input_error("--draft-nodes: expected 1 to {}, the rows of the device's largest step, got {}", rows, tree.nodes);
  tree.choices = tree.choices->best(static_cast<int>(rows));
  tree.nodes = tree.choices->size();
  tree.depth = std::min(tree.depth, tree.choices->depth());
  return tree;
}

// Options that mean nothing without some drafter.
struct Dependence {
  const char* option;
  bool given;
  std::vector<std::string_view> drafters;  // any of them gives it a meaning
};

void check_dependences(const DraftOptions& options, const DraftPlan& plan, const std::string& draft) {
  const Dependence dependences[] = {
      {"--head", !options.heads.empty(), {"eagle", "medusa"}},
      {"--head-option", !options.head_options.empty(), {"eagle"}},
      {"--head-weights", options.head_weights.has_value(), {"eagle", "medusa"}},
      {"--draft-vocab", options.vocabulary.has_value(), {"eagle", "medusa"}},
      {"--draft-window", options.window.has_value(), {"eagle"}},
      {"--draft-model", !options.draft_model.empty(), {"model"}},
      {"--oracle-profile", !options.oracle_profile.empty(), {"oracle"}},
  };
  for (const auto& [option, given, drafters] : dependences) {
    if (!given) continue;
    const bool used = std::ranges::any_of(
        drafters, [&](std::string_view name) { return plan.has(name) || (names_eagle(name) && plan.has_eagle()); });
    const bool open = plan.automatic && names_eagle(drafters.front());  // auto may find a head
    if (!used && !open)
      input_error("{}: only with --draft {}, got --draft {}", option, fmt::join(drafters, " or "), draft);
  }
  if (!options.head_options.empty() && options.heads.empty()) throw InputError("--head-option: needs --head PATH");
  if (plan.has("model") && options.draft_model.empty()) input_error("--draft {}: needs --draft-model PATH", draft);
}

// Without a drafter a shape would silently do nothing; who says --draft none knows.
void check_shape_is_used(const DraftOptions& options) {
  const std::pair<const char*, bool> shapes[] = {{"--tree", options.tree.has_value()},
                                                 {"--draft-nodes", options.nodes.has_value() || options.chooses_nodes},
                                                 {"--draft-depth", options.depth.has_value()},
                                                 {"--draft-expand", options.expand.has_value()},
                                                 {"--draft-branch", options.branch.has_value()}};
  for (const auto& [option, given] : shapes)
    if (given) input_error("{}: only with --draft, for example --draft ngram", option);
}

// A number may come from anywhere: a library's caller, a request, a record.
void check_range(const char* option, const std::optional<int>& value, int least) {
  if (value && (*value < least || *value > kMaxDraftRows))
    input_error("{}: expected {} to {}, got {}", option, least, kMaxDraftRows, *value);
}

void check_ranges(const DraftOptions& options) {
  check_range("--draft-nodes", options.nodes, 1);
  check_range("--draft-depth", options.depth, 0);
  check_range("--draft-expand", options.expand, 1);
  check_range("--draft-branch", options.branch, 1);
  for (const auto& [option, value] :
       {std::pair("--draft-vocab", options.vocabulary), std::pair("--draft-window", options.window)})
    if (value && *value < 1) input_error("{}: expected 1 or more, got {}", option, *value);
}

WeightMode head_weight_mode(const std::string& text) {
  if (const auto mode = parse_weight_mode(text)) return *mode;
  input_error("--head-weights: expected q8_0, file or f32, got '{}'", text);
}

}  // namespace

TreeWish wish_for_tree(const DraftOptions& options, const Places& places) {
  const std::string text = options.tree.value_or("dynamic");
  if (text != "dynamic" && (options.expand || options.branch))
    input_error("--draft-{}: only with --tree dynamic, got --tree {}", options.expand ? "expand" : "branch", text);
  TreeWish wish{.shaped = options.tree.has_value(),
                .nodes = options.nodes,
                .depth = options.depth,
                .expand = options.expand,
                .branch = options.branch,
                .chooses_nodes = options.chooses_nodes,
                .asked_to_choose = options.chooses_nodes};
  wish_for_shape(text, places, wish);
  return wish;
}

PlannedTree plan_tree(TreeWish wish, const TreeFacts& facts) {
  if (facts.fixed_budget && !wish.asked_to_choose) wish.chooses_nodes = false;
  if (facts.suggestion) follow(*facts.suggestion, facts, wish);
  if (facts.choices) take_choices(*facts.choices, wish);
  const std::string remark = wish.shape == TreeShape::fixed ? cut_to_drafters(facts, wish) : "";
  if (facts.levels && wished_levels(wish) > *facts.levels) wish.depth = *facts.levels;
  TreeOptions tree = shaped(wish);
  if (facts.most_rows) tree = fit(std::move(tree), *facts.most_rows, wish);
  return {std::move(tree), wish.chooses_nodes, remark};
}

bool DraftPlan::has(std::string_view drafter) const {
  return std::ranges::find(drafters, drafter) != drafters.end();
}

bool DraftPlan::has_eagle() const {
  return std::ranges::any_of(drafters, names_eagle);
}

DraftPlan plan_drafting(const DraftOptions& options, const Places& places, const std::string& default_draft) {
  const std::string draft = options.draft.value_or(default_draft);
  DraftPlan plan{.options = options, .automatic = draft == "auto"};
  if (draft != "none" && !plan.automatic) plan.drafters = parse_drafters(draft);
  check_ranges(options);
  check_dependences(options, plan, draft);
  if (plan.plain() && !options.draft) check_shape_is_used(options);
  plan.tree = wish_for_tree(options, places);
  plan.tree.chooses_nodes = options.chooses_nodes || (plan.automatic && !options.nodes);
  for (const std::string& option : options.head_options) parse_head_option(option, plan.head_options);
  plan.head_options.vocabulary = options.vocabulary;
  if (options.head_weights) plan.head_weights = head_weight_mode(*options.head_weights);
  plan.oracle_profile = parse_profile(options.oracle_profile);
  return plan;
}

}  // namespace espalier
