#include "decode/drafter.h"

#include <algorithm>

namespace espalier {

CommittedRows CommittedRows::from(std::int64_t first) const {
  if (first <= begin) return *this;
  const auto skipped = static_cast<std::size_t>(std::min(first - begin, std::ssize(tokens)));
  CommittedRows later = *this;
  later.begin += static_cast<std::int64_t>(skipped);
  later.tokens = tokens.subspan(skipped);
  later.rows = rows.subspan(std::min(skipped, rows.size()));
  return later;
}

std::vector<std::int32_t> DraftVerdict::accepted() const {
  std::vector<std::int32_t> tokens;
  for (const Visit& visit : visits.subspan(1)) tokens.push_back(tree[visit.node].token);
  return tokens;
}

std::vector<Guesses> LoneDrafter::expand(std::span<const DraftJob> jobs) {
  std::vector<Guesses> all;
  for (const DraftJob& job : jobs)
    all.push_back(static_cast<LoneSequence*>(job.sequence)->expand(*job.candidates, job.nodes, job.branch));
  return all;
}

std::vector<std::int32_t> path_tokens(const Candidates& candidates, int node) {
  std::vector<std::int32_t> tokens;
  for (; node != 0; node = candidates[node].parent) tokens.push_back(candidates[node].token);
  std::reverse(tokens.begin(), tokens.end());
  return tokens;
}

}  // namespace espalier
