// A step is a list of rows; several sequences, each with its own tree, are simply more rows.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/kv_cache.h"

namespace espalier {

// One token at one place. It sees its context, then its ancestors, then itself, in that order; a step writes K and V of
// all its rows before it attends. A prefill row at position p has the context [0, p), part of which the same step may
// write; a row of a tree over N committed positions has the context [0, N) and its ancestors.
struct Row {
  SequenceId sequence = 0;
  std::int32_t token = 0;
  std::int32_t position = 0;
  std::int32_t slot = 0;                // the KV slot it writes
  std::int32_t begin = 0;               // the context: logical positions [begin, end) of its sequence,
  std::int32_t end = 0;                 // never containing the row itself
  std::vector<std::int32_t> ancestors;  // slots, root first, without the row itself
  bool wants_logits = false;
  bool wants_hidden = false;  // the state after the final norm
  bool wants_taps = false;    // the residual stream at the tapped boundaries
};

}  // namespace espalier
