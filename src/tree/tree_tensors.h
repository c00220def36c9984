// A token tree as tables: what a round makes the rows of its step from, and what tree_invariants.h checks.
//
// Row 0 is the root and row k is node k. With N committed tokens before the root (the `prefix`), node k sits at
// position N + depth[k]. Every index is in range and nothing is negative: the root is its own parent, and a path that
// is too short repeats its last node.
//
//               root     node k
//   token       its id   its id
//   parent      0        < k
//   depth       0        >= 1
//   position    N        N + depth
//   path        0        from the root down to k, then k again
//
// A row sees the committed prefix, its ancestors and itself. Padding is no part of a tree: it belongs to the step,
// which may hold several trees, and StepTables (model/step_tables.h) adds it once, behind all of them. docs/trees.md
// has pictures. A plain struct.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tree/token_tree.h"

namespace espalier {

struct TreeTensors {
  std::int32_t prefix = 0;  // N
  std::int32_t nodes = 0;   // M
  std::int32_t levels = 0;  // D + 1

  std::vector<std::int32_t> token;     // [nodes]
  std::vector<std::int32_t> parent;    // [nodes]
  std::vector<std::int32_t> depth;     // [nodes]
  std::vector<std::int32_t> position;  // [nodes]
  std::vector<std::int32_t> path;      // [nodes, levels]

  // The rows above `row`, root first, without itself: its path cut at its depth.
  std::span<const std::int32_t> ancestors(int row) const;

  bool operator==(const TreeTensors&) const = default;
};

// prefix: how many tokens are committed before the root. used: tensors that nobody needs any more, whose memory these
// may take.
TreeTensors tensorize(const TokenTree& tree, std::int32_t prefix, TreeTensors used = {});

}  // namespace espalier
