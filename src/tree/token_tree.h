// A tree of guessed tokens below one certain token: what one round asks the teacher to verify.
//
// Node 0 is the root, the last sampled and not yet verified token; every other node is a guess for the token after its
// parent. Nodes stand in breadth-first order: parents before children, all children of a node side by side, levels one
// after another. No two children of a node carry the same token, so a teacher's choice leads to at most one of them.
// A score is a cumulative log-probability: 0 at the root and never above the parent's.
//
// A value; append() is the only change and keeps all of this true or throws. Tokens are plain ids: nothing here knows a
// vocabulary or a tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace espalier {

// Which drafters proposed a node: bit i stands for drafter i of the run. The root has none.
using SourceSet = std::uint32_t;

// A drafter's guess for the token after a known path: an estimate of log P(the teacher takes it | path).
struct DraftToken {
  std::int32_t token = 0;
  double log_probability = 0;
};

// A guess with the score of the whole path that ends in it.
struct ScoredToken {
  std::int32_t token = 0;
  double score = 0;  // log P(the teacher takes every token from below the root to this one)
  SourceSet sources = 0;
};

struct TreeNode {
  std::int32_t token = 0;
  std::int32_t parent = 0;  // the root is its own parent
  std::int32_t depth = 0;
  std::int32_t first_child = 0;  // children are first_child, first_child + 1, ...
  std::int32_t children = 0;
  double score = 0;
  SourceSet sources = 0;

  bool operator==(const TreeNode&) const = default;
};

class TokenTree {
 public:
  // The root alone: plain decoding.
  explicit TokenTree(std::int32_t root);

  // Adds a child and returns its node. Requires what makes the order breadth-first: `parent` exists and is not before
  // the parent of the node added last. Requires also a token its siblings do not carry and a score not above the
  // parent's.
  int append(int parent, const ScoredToken& child);
  void reserve(int nodes) { nodes_.reserve(static_cast<std::size_t>(nodes)); }

  // How many nodes, the root included.
  int size() const { return static_cast<int>(nodes_.size()); }
  // How many levels below the root.
  int depth() const { return nodes_.back().depth; }
  const TreeNode& operator[](int node) const { return nodes_[static_cast<std::size_t>(node)]; }
  std::span<const TreeNode> nodes() const { return nodes_; }

  // The child of `node` that carries `token`: one step of the acceptance walk.
  std::optional<int> child(int node, std::int32_t token) const;
  // The nodes from the root to `node`, both included.
  std::vector<int> path(int node) const;
  // The nodes without children, ascending.
  std::vector<int> leaves() const;

  bool operator==(const TokenTree&) const = default;

 private:
  std::vector<TreeNode> nodes_;
};

// A tree of width one: each guess follows the one before it.
TokenTree chain(std::int32_t root, std::span<const DraftToken> guesses, SourceSet sources);

// A log-probability made safe to add and compare: NaN becomes minus infinity, and rounding above 0 becomes 0.
double sane_log_probability(double value);

}  // namespace espalier
