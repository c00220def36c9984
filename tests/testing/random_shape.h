// A fixed tree of up to five levels, drawn at random.
#pragma once

#include <algorithm>
#include <vector>

#include "device/conformance/random_values.h"
#include "tree/choice_tree.h"

namespace espalier {

inline ChoiceTree random_shape(RandomValues& random) {
  std::vector<ChoiceTree::Path> paths = {{static_cast<int>(random.below(4))}};
  for (std::int64_t i = random.between(0, 20); i > 0; --i) {
    ChoiceTree::Path path;
    if (!random.one_in(4)) path = paths[static_cast<std::size_t>(random.below(std::ssize(paths)))];
    path.push_back(static_cast<int>(random.below(5)));
    if (path.size() <= 5 && std::ranges::find(paths, path) == paths.end()) paths.push_back(path);
  }
  return {paths, {}, "a random shape"};
}

}  // namespace espalier
