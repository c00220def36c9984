// A token tree as the tables a device wants: fixed shapes, every index in range, nothing negative anywhere.
//
// Row 0 is the root, row k is node k, and rows from `nodes` on are padding up to the bucket's row count. `levels` is
// D + 1. With N committed tokens before the root (the `prefix`), node k sits at position N + depth[k].
//
//               root     nodes      padding p
//   token       its id   its id     the pad token
//   parent      0        < k        0
//   depth       0        >= 1       0
//   position    N        N + depth  0
//   valid       1        1          0
//   ancestor    0        A[0,k] = k, A[l+1,k] = parent[A[l,k]]: the path upward, then 0 (padding: p, then 0)
//   path        0        row k: the path downward from the root to k, then k again (padding: p)
//
// A row sees the committed prefix, its ancestors and itself; a padding row sees itself alone and is seen by nobody else
// (rules R10 to R23 of the Ascend contract; docs/trees.md has pictures). A plain struct: tree_invariants.h checks one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tree/token_tree.h"

namespace espalier {

struct TreeTensors {
  std::int32_t prefix = 0;  // N
  std::int32_t nodes = 0;   // rows that are valid
  std::int32_t rows = 0;    // M
  std::int32_t levels = 0;  // D + 1

  std::vector<std::int32_t> token;     // [rows]
  std::vector<std::int32_t> parent;    // [rows]
  std::vector<std::int32_t> depth;     // [rows]
  std::vector<std::int32_t> position;  // [rows]
  std::vector<std::uint8_t> valid;     // [rows]
  std::vector<std::int32_t> ancestor;  // [levels, rows]
  std::vector<std::int32_t> path;      // [rows, levels]

  // The rows above `row`, root first, without itself: its path cut at its depth.
  std::span<const std::int32_t> ancestors(int row) const;
  // Whether `row` attends to `column`: itself or one of its ancestors.
  bool sees(int row, int column) const;

  bool operator==(const TreeTensors&) const = default;
};

struct TensorOptions {
  std::int32_t prefix = 0;     // N, how many tokens are committed before the root
  int rows = 0;                // the bucket, at least the tree's nodes; 0: as many as there are nodes
  int depth = 0;               // D, at least the tree's depth; 0: the tree's depth
  std::int32_t pad_token = 0;  // any id of the vocabulary
};

TreeTensors tensorize(const TokenTree& tree, const TensorOptions& options);

// Who sees whom, [rows, rows]: 1 where the row sees the column. Masks have the opposite sense (dense_mask.h).
std::vector<std::uint8_t> visibility(const TreeTensors& tensors);

}  // namespace espalier
