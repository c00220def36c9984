#include "tree/token_tree.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace espalier {

TokenTree::TokenTree(std::int32_t root) : nodes_{TreeNode{.token = root}} {}

int TokenTree::append(int parent, const ScoredToken& child_token) {
  const int node = size();
  check(parent >= nodes_.back().parent && parent < node,
        "token tree: node {} below node {}, expected a parent in [{}, {})", node, parent, nodes_.back().parent, node);
  check(!child(parent, child_token.token), "token tree: node {} has two children with token {}", parent,
        child_token.token);
  TreeNode& above = nodes_[static_cast<std::size_t>(parent)];
  check(child_token.score <= above.score, "token tree: node {} scores {}, above its parent's {}", node,
        child_token.score, above.score);
  if (above.children++ == 0) above.first_child = node;
  nodes_.push_back({.token = child_token.token,
                    .parent = parent,
                    .depth = above.depth + 1,
                    .score = child_token.score,
                    .sources = child_token.sources});
  return node;
}

std::optional<int> TokenTree::child(int node, std::int32_t token) const {
  check(node >= 0 && node < size(), "token tree: node {} of {}", node, size());
  const TreeNode& above = (*this)[node];
  for (int child = above.first_child; child < above.first_child + above.children; ++child)
    if ((*this)[child].token == token) return child;
  return std::nullopt;
}

std::vector<int> TokenTree::path(int node) const {
  check(node >= 0 && node < size(), "token tree: node {} of {}", node, size());
  std::vector<int> path(static_cast<std::size_t>((*this)[node].depth) + 1);
  for (std::size_t level = path.size(); level-- > 0; node = (*this)[node].parent) path[level] = node;
  return path;
}

std::vector<int> TokenTree::leaves() const {
  std::vector<int> leaves;
  for (int node = 0; node < size(); ++node)
    if ((*this)[node].children == 0) leaves.push_back(node);
  return leaves;
}

TokenTree chain(std::int32_t root, std::span<const DraftToken> guesses, SourceSet sources) {
  TokenTree tree(root);
  tree.reserve(static_cast<int>(guesses.size()) + 1);
  double score = 0;
  for (const DraftToken& guess : guesses) {
    score += sane_log_probability(guess.log_probability);
    tree.append(tree.size() - 1, {.token = guess.token, .score = score, .sources = sources});
  }
  return tree;
}

double sane_log_probability(double value) {
  return std::isnan(value) ? -std::numeric_limits<double>::infinity() : std::min(value, 0.0);
}

}  // namespace espalier
