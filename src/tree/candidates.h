// Candidates for one round's tree, from any number of drafters, before it is known which of them are worth a row.
//
// Candidate 0 is the root; others have ids in order of arrival, parents before children. The same token proposed twice
// below the same parent is one candidate: it keeps the larger score, the earlier id and both sources. So two drafters'
// trees are united path by path. No candidate ever scores above its parent, and among equal scores the older candidate
// is the better one; hence any number of best candidates contains the parent of each of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tree/token_tree.h"

namespace espalier {

struct Candidate {
  std::int32_t token = 0;
  std::int32_t parent = 0;
  std::int32_t depth = 0;
  std::int32_t newest_child = 0;   // 0: none, for the root is nobody's child
  std::int32_t older_sibling = 0;  // likewise
  double score = 0;
  SourceSet sources = 0;
};

class Candidates {
 public:
  explicit Candidates(std::int32_t root);

  // Adds a child of `parent`, or unites it with the one that carries the same token. Returns its id. A score above the
  // parent's is lowered to it, a NaN counts as minus infinity: what a drafter computes is not trusted.
  int add(int parent, const ScoredToken& guess);
  // Adds everything that `other` holds, path by path. Requires the same root token.
  void unite(const Candidates& other);
  void unite(const TokenTree& other);

  void reserve(std::size_t candidates) { candidates_.reserve(candidates); }

  // How many candidates, the root included.
  int size() const { return static_cast<int>(candidates_.size()); }
  const Candidate& operator[](int id) const { return candidates_[static_cast<std::size_t>(id)]; }
  std::span<const Candidate> all() const { return candidates_; }

  // The child of `parent` that carries `token`; 0, nobody's child, where there is none.
  int find(int parent, std::int32_t token) const;
  // Whether candidate `left` goes before candidate `right`: the higher score, among equals the older.
  bool better(int left, int right) const;

  // The root and the rows - 1 best others as a tree (all of them where there are fewer), siblings best first.
  TokenTree best(int rows) const;

 private:
  // The ids of the `count` best candidates below the root, best first.
  std::vector<int> ranked(int count) const;

  std::vector<Candidate> candidates_;
};

}  // namespace espalier
