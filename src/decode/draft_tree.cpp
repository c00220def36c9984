#include "decode/draft_tree.h"

#include <algorithm>

#include "base/error.h"
#include "tree/dynamic_growth.h"
#include "tree/static_growth.h"

namespace espalier {
namespace {

// What a drafter computes is not trusted: ids outside the vocabulary name no row of the embedding.
std::vector<DraftToken> usable(std::vector<DraftToken> guesses, std::int32_t vocabulary, int branch) {
  std::erase_if(guesses, [=](const DraftToken& guess) { return guess.token < 0 || guess.token >= vocabulary; });
  if (static_cast<int>(guesses.size()) > branch) guesses.resize(static_cast<std::size_t>(branch));
  return guesses;
}

// Growths differ in which nodes they want expanded; asking the drafter is the same.
template <typename Growth>
Candidates grow(Growth growth, Drafter& drafter, std::int32_t vocabulary, LevelBuyer* buyer) {
  while (!growth.done()) {
    const std::vector<int> frontier(growth.frontier());
    if (buyer != nullptr && !buyer->buys(growth.candidates(), frontier)) break;
    auto guesses = drafter.expand(growth.candidates(), frontier, growth.branch());
    check(guesses.size() == frontier.size(), "drafter {}: {} lists of guesses for {} nodes", drafter.name(),
          guesses.size(), frontier.size());
    const int branch = growth.branch();
    for (std::size_t i = 0; i < frontier.size(); ++i)
      growth.add_children(frontier[i], usable(std::move(guesses[i]), vocabulary, branch));
    if (buyer != nullptr) buyer->bought(growth.candidates(), frontier);
  }
  return growth.candidates();
}

Candidates candidates_of(Drafter& drafter, std::int32_t root, const TreeOptions& options, const RoundLimits& limits,
                         SourceSet source, LevelBuyer* buyer) {
  const int depth = std::min({options.depth, limits.depth, drafter.max_depth()});
  if (options.shape == TreeShape::fixed) {
    if (depth < 1) return Candidates(root);
    const ChoiceTree& whole = *options.choices;
    if (depth >= whole.depth()) return grow(StaticGrowth(root, whole, source), drafter, limits.vocabulary, buyer);
    const ChoiceTree cut = whole.cut(depth);
    return grow(StaticGrowth(root, cut, source), drafter, limits.vocabulary, buyer);
  }
  GrowthOptions growth{.nodes = std::min(options.nodes, limits.rows),
                       .depth = depth,
                       .expand = options.expand,
                       .branch = options.branch};
  if (options.shape == TreeShape::chain) growth.expand = growth.branch = 1;
  return grow(DynamicGrowth(root, growth, source), drafter, limits.vocabulary, buyer);
}

}  // namespace

std::string_view name(TreeShape shape) {
  switch (shape) {
    case TreeShape::chain: return "chain";
    case TreeShape::fixed: return "static";
    case TreeShape::dynamic: return "dynamic";
  }
  return "unknown";
}

int max_rows(const TreeOptions& options) {
  switch (options.shape) {
    case TreeShape::chain: return std::min(options.nodes, options.depth + 1);
    case TreeShape::fixed: return options.choices->size();
    case TreeShape::dynamic: return options.depth == 0 ? 1 : options.nodes;
  }
  return 1;
}

Candidates grow_candidates(std::int32_t root, const TreeOptions& options, const RoundLimits& limits,
                           std::span<const std::unique_ptr<Drafter>> drafters, LevelBuyer* buyer) {
  Candidates united(root);
  for (std::size_t i = 0; i < drafters.size(); ++i) {
    if (buyer != nullptr) buyer->begin(i);
    united.unite(candidates_of(*drafters[i], root, options, limits, SourceSet{1} << i, buyer));
  }
  return united;
}

TokenTree grow_tree(std::int32_t root, const TreeOptions& options, const RoundLimits& limits,
                    std::span<const std::unique_ptr<Drafter>> drafters) {
  return grow_candidates(root, options, limits, drafters).best(std::min(max_rows(options), limits.rows));
}

}  // namespace espalier
