#include "tree/candidates.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace espalier {
namespace {

// `nodes` is any list in which node 0 is the root and parents stand before their children.
template <typename Node>
void unite_nodes(std::span<const Node> nodes, Candidates& into) {
  check(nodes[0].token == into[0].token, "uniting trees with the roots {} and {}", into[0].token, nodes[0].token);
  std::vector<int> id(nodes.size());
  for (std::size_t node = 1; node < nodes.size(); ++node)
    id[node] = into.add(id[static_cast<std::size_t>(nodes[node].parent)],
                        {.token = nodes[node].token, .score = nodes[node].score, .sources = nodes[node].sources});
}

}  // namespace

Candidates::Candidates(std::int32_t root) : candidates_{Candidate{.token = root}} {}

int Candidates::add(int parent, const ScoredToken& guess) {
  check(parent >= 0 && parent < size(), "candidate below {}, expected a parent in [0, {})", parent, size());
  Candidate& above = candidates_[static_cast<std::size_t>(parent)];
  const double score = std::min(sane_log_probability(guess.score), above.score);
  if (const int twin = find(parent, guess.token); twin != 0) {
    Candidate& known = candidates_[static_cast<std::size_t>(twin)];
    known.score = std::max(known.score, score);
    known.sources |= guess.sources;
    return twin;
  }
  const Candidate added = {.token = guess.token,
                           .parent = parent,
                           .depth = above.depth + 1,
                           .older_sibling = above.newest_child,
                           .score = score,
                           .sources = guess.sources};
  above.newest_child = size();
  candidates_.push_back(added);
  return size() - 1;
}

void Candidates::unite(const Candidates& other) {
  unite_nodes(other.all(), *this);
}

void Candidates::unite(const TokenTree& other) {
  unite_nodes(other.nodes(), *this);
}

int Candidates::find(int parent, std::int32_t token) const {
  int child = (*this)[parent].newest_child;
  while (child != 0 && (*this)[child].token != token) child = (*this)[child].older_sibling;
  return child;
}

bool Candidates::better(int left, int right) const {
  const double left_score = (*this)[left].score, right_score = (*this)[right].score;
  return left_score != right_score ? left_score > right_score : left < right;
}

TokenTree Candidates::best(int rows) const {
  check(rows >= 1, "best {} candidates, expected at least the root", rows);
  const std::vector<int> kept = ranked(rows - 1);

  // Lists of kept children, best first: from the worst to the best, each goes to the front of its parent's list.
  std::vector<int> first_child(candidates_.size()), next_sibling(candidates_.size());
  for (std::size_t i = kept.size(); i-- > 0;) {
    int& first = first_child[static_cast<std::size_t>((*this)[kept[i]].parent)];
    next_sibling[static_cast<std::size_t>(kept[i])] = first;
    first = kept[i];
  }

  TokenTree tree((*this)[0].token);
  tree.reserve(static_cast<int>(kept.size()) + 1);
  std::vector<int> id = {0};  // of each node
  id.reserve(kept.size() + 1);
  for (int node = 0; node < tree.size(); ++node) {
    int child = first_child[static_cast<std::size_t>(id[static_cast<std::size_t>(node)])];
    for (; child != 0; child = next_sibling[static_cast<std::size_t>(child)]) {
      const Candidate& candidate = (*this)[child];
      tree.append(node, {.token = candidate.token, .score = candidate.score, .sources = candidate.sources});
      id.push_back(child);
    }
  }
  return tree;
}

std::vector<int> Candidates::ranked(int count) const {
  std::vector<int> ids(candidates_.size() - 1);
  std::iota(ids.begin(), ids.end(), 1);
  const auto order = [this](int left, int right) { return better(left, right); };
  if (static_cast<std::size_t>(count) < ids.size()) {
    std::nth_element(ids.begin(), ids.begin() + count, ids.end(), order);
    ids.resize(static_cast<std::size_t>(count));
  }
  std::sort(ids.begin(), ids.end(), order);
  return ids;
}

}  // namespace espalier
