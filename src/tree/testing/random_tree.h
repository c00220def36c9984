// Trees for property tests: the same seed gives the same tree.
#pragma once

#include <cstdint>

#include "tree/token_tree.h"

namespace espalier {

// A tree of exactly `nodes` nodes; by its seed deep and thin, flat and wide, or anything between. Sibling tokens
// differ, tokens repeat elsewhere, scores tie often.
TokenTree random_tree(std::uint64_t seed, int nodes);

}  // namespace espalier
