// A step is a list of rows; several sequences, each with its own tree, are simply more rows.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/block_tables.h"

namespace espalier {

// One token at one place. It sees its context, then its ancestors, then itself, in that order; a step writes K and V of
// all its rows before it attends. A prefill row at position p has the context [0, p), part of which the same step may
// write; a row of a tree over N committed positions has the context [0, N) and its ancestors.
//
// Places are logical positions of the row's table (block_tables.h): those of the speculative rows of a tree follow the
// prefix in node order, so the place of a node is not its position.
struct Row {
  SequenceId sequence = 0;  // a sequence or an open branch of the cache
  std::int32_t token = 0;
  std::int32_t position = 0;                 // for the rotation
  std::int32_t place = 0;                    // where its K and V go
  std::int32_t begin = 0;                    // the context: places [begin, end), never containing the row itself;
  std::int32_t end = 0;                      // where a window begins among the ancestors, begin > end
  std::vector<std::int32_t> ancestors = {};  // seen places, root first, ascending, without the row itself
  std::int32_t input = 0;                    // draft rows: the row of the input buffer that holds their vector
  bool wants_logits = false;
  bool wants_hidden = false;  // the state after the final norm
  bool wants_taps = false;    // the residual stream at the tapped boundaries
};

}  // namespace espalier
