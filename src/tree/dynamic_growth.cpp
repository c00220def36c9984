#include "tree/dynamic_growth.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"

namespace espalier {
namespace {

GrowthOptions checked(GrowthOptions options) {
  check(options.nodes >= 1, "tree growth: nodes {}, expected at least 1, the root", options.nodes);
  check(options.depth >= 0, "tree growth: depth {}, expected at least 0", options.depth);
  check(options.expand >= 1, "tree growth: expand {}, expected at least 1", options.expand);
  check(options.branch >= 0, "tree growth: branch {}, expected at least 0", options.branch);
  if (options.branch == 0) options.branch = options.expand;
  return options;
}

}  // namespace

DynamicGrowth::DynamicGrowth(std::int32_t root, const GrowthOptions& options, SourceSet sources)
    : options_(checked(options)), sources_(sources), candidates_(root) {
  if (options_.nodes > 1 && options_.depth > 0) frontier_ = {0};
}

void DynamicGrowth::add_children(int node, std::span<const DraftToken> children) {
  check(!done(), "tree growth: children of candidate {} after the end", node);
  check(node == frontier_[expanded_], "tree growth: children of candidate {}, expected those of {}", node,
        frontier_[expanded_]);
  check(children.size() <= static_cast<std::size_t>(options_.branch), "tree growth: {} children, expected at most {}",
        children.size(), options_.branch);
  const double score = candidates_[node].score;
  for (const DraftToken& child : children)
    candidates_.add(
        node,
        {.token = child.token, .score = score + sane_log_probability(child.log_probability), .sources = sources_});
  if (++expanded_ == frontier_.size()) close_level();
}

void DynamicGrowth::close_level() {
  ++levels_;
  expanded_ = 0;
  keep_best_scores();
  frontier_.clear();
  if (levels_ < options_.depth) frontier_ = best_of_level();
  if (!frontier_.empty() && settled(frontier_.front())) frontier_.clear();
  level_begin_ = candidates_.size();
}

// What falls out never comes back: later candidates only raise the bar.
void DynamicGrowth::keep_best_scores() {
  const auto wanted = static_cast<std::size_t>(options_.nodes - 1);
  const bool full = best_scores_.size() == wanted;
  const double bar = full ? best_scores_.back() : 0;
  for (const Candidate& candidate : candidates_.all().subspan(static_cast<std::size_t>(level_begin_)))
    if (!full || candidate.score > bar) best_scores_.push_back(candidate.score);
  if (best_scores_.size() < wanted) return;
  std::nth_element(best_scores_.begin(), best_scores_.begin() + (options_.nodes - 2), best_scores_.end(),
                   std::greater<>());
  best_scores_.resize(wanted);
}

bool DynamicGrowth::settled(int best_of_level) const {
  const bool full = best_scores_.size() == static_cast<std::size_t>(options_.nodes - 1);
  return full && candidates_[best_of_level].score <= best_scores_.back();
}

std::vector<int> DynamicGrowth::best_of_level() const {
  std::vector<int> level(static_cast<std::size_t>(candidates_.size() - level_begin_));
  std::iota(level.begin(), level.end(), level_begin_);
  const std::size_t kept = std::min(level.size(), static_cast<std::size_t>(options_.expand));
  std::partial_sort(level.begin(), level.begin() + static_cast<std::ptrdiff_t>(kept), level.end(),
                    [this](int left, int right) { return candidates_.better(left, right); });
  level.resize(kept);
  return level;
}

}  // namespace espalier
