#include "tree/static_growth.h"

#include "base/error.h"

namespace espalier {

StaticGrowth::StaticGrowth(std::int32_t root, const ChoiceTree& shape, SourceSet sources)
    : shape_(&shape), sources_(sources), candidates_(root) {
  if (shape.children(0) > 0) frontier_ = {0};
}

void StaticGrowth::add_children(int node, std::span<const DraftToken> children) {
  check(!done(), "static tree: children of candidate {} after the end", node);
  check(node == frontier_[expanded_], "static tree: children of candidate {}, expected those of {}", node,
        frontier_[expanded_]);
  check(children.size() <= static_cast<std::size_t>(branch()), "static tree: {} children, expected at most {}",
        children.size(), branch());
  const int first = shape_->first_child(row(node)), end = first + shape_->children(row(node));
  for (int child = first; child < end; ++child) {
    const auto rank = static_cast<std::size_t>(shape_->path(child).back());
    if (rank >= children.size()) break;  // ranks ascend
    const auto& [token, log_probability] = children[rank];
    if (candidates_.find(node, token) != 0) continue;
    candidates_.add(node, {.token = token,
                           .score = candidates_[node].score + sane_log_probability(log_probability),
                           .sources = sources_});
    row_.push_back(child);
  }
  if (++expanded_ == frontier_.size()) close_level();
}

TokenTree StaticGrowth::finish() const {
  TokenTree tree(candidates_[0].token);
  tree.reserve(candidates_.size());
  for (const Candidate& candidate : candidates_.all().subspan(1))
    tree.append(candidate.parent, {.token = candidate.token, .score = candidate.score, .sources = candidate.sources});
  return tree;
}

void StaticGrowth::close_level() {
  ++levels_;
  expanded_ = 0;
  frontier_.clear();
  for (int node = level_begin_; node < candidates_.size(); ++node)
    if (shape_->children(row(node)) > 0) frontier_.push_back(node);
  level_begin_ = candidates_.size();
}

}  // namespace espalier
