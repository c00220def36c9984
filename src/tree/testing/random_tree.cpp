#include "tree/testing/random_tree.h"

#include <algorithm>
#include <random>

#include "tree/candidates.h"

namespace espalier {

TokenTree random_tree(std::uint64_t seed, int nodes) {
  std::mt19937_64 random(seed);
  const auto below = [&random](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  const int reach = 1 + below(nodes);          // parents are drawn from the last `reach` nodes
  const int vocabulary = nodes + below(1000);  // at least as many tokens as any node can have children
  Candidates candidates(below(vocabulary));
  while (candidates.size() < nodes) {
    const int parent = std::max(0, candidates.size() - 1 - below(reach));
    const double score = candidates[parent].score - 0.25 * below(4);
    candidates.add(parent, {.token = below(vocabulary), .score = score, .sources = 1u << below(3)});
  }
  return candidates.best(nodes);
}

}  // namespace espalier
