// Accepting is sampling the teacher: at each node the teacher's own sampler draws the next token; if a child carries
// it, the walk descends, else the token is the bonus. The draw never consults the draft, so any tree gives the text
// that no tree gives.
#pragma once

#include <vector>

#include "decode/drafter.h"
#include "tree/token_tree.h"

namespace espalier {

// draw(node): the teacher's choice after `node`. ends(token): whether the answer is complete with it; then the walk
// ends there, child or not. Returns the visited nodes, root first, each with its choice: all of them are accepted, and
// the last choice is the token that no step has seen yet.
template <typename Draw, typename Ends>
std::vector<Visit> walk(const TokenTree& tree, Draw draw, Ends ends) {
  std::vector<Visit> visits;
  for (std::optional<int> node = 0; node;) {
    visits.push_back({*node, draw(*node)});
    if (ends(visits.back().token)) break;
    node = tree.child(*node, visits.back().token);
  }
  return visits;
}

}  // namespace espalier
