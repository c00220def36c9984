#include "decode/drafter.h"

#include <algorithm>

namespace espalier {

std::vector<std::int32_t> path_tokens(const Candidates& candidates, int node) {
  std::vector<std::int32_t> tokens;
  for (; node != 0; node = candidates[node].parent) tokens.push_back(candidates[node].token);
  std::reverse(tokens.begin(), tokens.end());
  return tokens;
}

}  // namespace espalier
