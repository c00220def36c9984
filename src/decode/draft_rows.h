// How much room drafters that run a network need for the trees they may be asked for.
#pragma once

#include <cstdint>

#include "decode/draft_tree.h"
#include "device/device.h"

namespace espalier {

// The most nodes that are expanded at once.
std::int64_t widest_level(const TreeOptions& tree);
// The most nodes that are expanded below the first level: the rows a tree needs besides its root.
std::int64_t expanded_rows(const TreeOptions& tree);
// The places behind the committed ones that a round of one sequence takes, for its tree or for what drafters compute.
std::int64_t branch_rows(const TreeOptions& tree);
// The most guesses a node is asked for.
std::int64_t most_guesses(const TreeOptions& tree);
// The most nodes that are guessed for a tree, the root included.
std::int64_t candidate_nodes(const TreeOptions& tree);
// Rows of a draft step: a whole level of so many sequences, or a part of a prefill.
std::int64_t draft_step_rows(const Device& device, const TreeOptions& tree, int sequences);

}  // namespace espalier
