#include "decode/prompt_sharing.h"

#include <algorithm>

namespace espalier {
namespace {

// The positions that both have in common and that the leader leaves to others: its last one it computes for itself.
std::int64_t shared_positions(const PromptState& prompt, const PromptState& leader) {
  const std::int64_t common = std::ranges::mismatch(prompt.tokens, leader.tokens).in1 - prompt.tokens.begin();
  return std::min({common, prompt.most, std::ssize(leader.tokens) - 1});
}

}  // namespace

std::int64_t leader_of(const PromptState& prompt, std::span<const PromptState> older) {
  const std::int64_t left = std::ssize(prompt.tokens) - prompt.has;
  std::int64_t leader = -1, most = 0;
  for (const PromptState& other : older) {
    if (!other.leads || other.id >= prompt.id || other.salt != prompt.salt) continue;
    const std::int64_t shared = shared_positions(prompt, other), saved = shared - prompt.has;
    if (shared <= most || other.findable >= shared || saved < 1 || 2 * saved < left) continue;
    leader = other.id;
    most = shared;
  }
  return leader;
}

}  // namespace espalier
