#include "report/tree_picture.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/math.h"
#include "text/token_text.h"

namespace espalier {
namespace {

std::string source_names(SourceSet sources, std::span<const std::string> drafters) {
  std::string names;
  for (std::size_t i = 0; i < drafters.size(); ++i)
    if ((sources >> i & 1) != 0) names += (names.empty() ? "" : "+") + drafters[i];
  return names;
}

// A score is a sum of log-probabilities, possibly minus infinity.
double probability(double score, double parent_score) {
  return score <= -1e300 ? 0 : exp_f64(score - parent_score);
}

}  // namespace

int TreePicture::last_accepted() const {
  int last = 0;
  for (int node = 0; node < static_cast<int>(nodes.size()); ++node)
    if (nodes[static_cast<std::size_t>(node)].accepted) last = node;
  return last;
}

int TreePicture::accepted() const {
  return static_cast<int>(std::ranges::count(nodes, true, &Node::accepted)) - 1;
}

TreePicture picture_of(const Round& round, const std::function<std::string(std::int32_t)>& text_of,
                       std::span<const std::string> drafters) {
  TreePicture picture;
  picture.finished = round.finish.has_value();
  for (const TreeNode& node : round.tree.nodes()) {
    const double parent_score = round.tree[node.parent].score;
    picture.nodes.push_back({.parent = node.parent,
                             .depth = node.depth,
                             .first_child = node.first_child,
                             .children = node.children,
                             .token = quoted_token(text_of(node.token)),
                             .own = probability(node.score, parent_score),
                             .path = probability(node.score, 0),
                             .sources = source_names(node.sources, drafters)});
  }
  for (const Visit& visit : round.visits) {
    TreePicture::Node& node = picture.nodes[static_cast<std::size_t>(visit.node)];
    node.accepted = true;
    node.choice = quoted_token(text_of(visit.token));
  }
  picture.title = fmt::format("round {}: {} row{}, {} of {} drafted tokens accepted", round.number, round.tree.size(),
                              round.tree.size() == 1 ? "" : "s", round.accepted(), round.tree.size() - 1);
  return picture;
}

}  // namespace espalier
