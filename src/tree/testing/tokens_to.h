// For tests: which token a node stands for, and after which.
#pragma once

#include <cstdint>
#include <vector>

namespace espalier {

// The tokens from below the root to a node of a TokenTree or of Candidates, the node's own last.
template <typename Nodes>
std::vector<std::int32_t> tokens_to(const Nodes& nodes, int node) {
  std::vector<std::int32_t> tokens;
  for (; node != 0; node = nodes[node].parent) tokens.insert(tokens.begin(), nodes[node].token);
  return tokens;
}

}  // namespace espalier
