// The fused attention: its geometry as checked by phase 1, and the loops over heads, rows and keys.
#pragma once

#include <optional>
#include <vector>

#include "op.h"

namespace ascend_fake {

enum class Layout { kBsnd, kBnsd, kBsh };

struct Attention {
  Operand q;
  std::vector<Operand> keys;  // one of all sequences, one for each, or the paged cache
  std::vector<Operand> values;
  std::optional<Operand> mask;
  std::optional<Operand> table;  // of blocks, [B, blocks]
  Operand out;
  std::optional<Operand> lse;
  Layout layout = Layout::kBsnd;
  int64_t batch = 1;
  int64_t rows = 1;
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t width = 1;  // of a head
  int64_t block = 0;
  double scale = 1;
  std::vector<int64_t> lengths;  // keys of every sequence

  int64_t longest() const;
};

void run_attention(OpRun& run, const Attention& attention);

}  // namespace ascend_fake
