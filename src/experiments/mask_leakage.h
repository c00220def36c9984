// Whether a row of a tree knows of tokens it must not see. The tree of a round is verified as it is, then once more for
// each of its rows with every other token changed but those on the row's own path: its descendants, its siblings and
// their kin, and the tokens of another conversation in the same step. The row's logits must be the same bits.
//
// Works on a cache and a workspace of its own, through the same step that verifies drafts. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_cache.h"
#include "model/transformer.h"
#include "tree/token_tree.h"

namespace espalier {

struct LeakageCounts {
  std::int64_t rounds = 0;
  std::int64_t rows = 0;            // looked at, each with everything changed that it must not see
  std::int64_t tokens_changed = 0;  // over all of them
  std::int64_t logits = 0;          // compared
  std::int64_t logits_changed = 0;  // the result: 0
  std::int64_t rows_changed = 0;    // rows with at least one of those
  // So that a count of 0 means something: rows that a change of a token they do see left as they were. Expected 0.
  std::int64_t blind_rows = 0;
  std::string first = {};  // the first changed row, in words
};

struct LeakageOptions {
  std::int64_t context = 0;  // positions
  DType kv_type = DType::f16;
  StepForm form = {};
  KvOptions kv = {};
  int max_rows = 0;        // of a tree
  std::uint64_t seed = 0;  // of the tokens that take the place of others
};

class LeakageProbe {
 public:
  // The model must outlive this.
  LeakageProbe(const Transformer& model, const LeakageOptions& options);

  // The round of a decoder: `prefix` are the committed tokens before the tree's root.
  void add(std::span<const std::int32_t> prefix, const TokenTree& tree);
  const LeakageCounts& counts() const { return counts_; }

 private:
  using Logits = std::vector<float>;

  void commit_prefix(std::span<const std::int32_t> prefix);
  std::vector<Row> rows_of(const TokenTree& tree, SequenceId branch, std::span<const std::int32_t> tokens) const;
  // The logits of some rows of a tree that carries these tokens; `strangers` stand in the other sequence.
  std::vector<Logits> verify(const TokenTree& tree, std::span<const std::int32_t> tokens,
                             std::span<const std::int32_t> strangers, std::span<const int> wanted);
  std::int32_t other_token(std::int32_t token);
  void probe_row(const TokenTree& tree, int node, std::span<const std::int32_t> tokens, const Logits& expected);
  void probe_sight(const TokenTree& tree, std::span<const std::int32_t> tokens, const Logits& expected);

  const Transformer* model_;
  LeakageOptions options_;
  KvCache cache_;
  SequenceId sequence_;
  SequenceId stranger_;  // another conversation
  Workspace workspace_;
  std::vector<std::int32_t> committed_;
  std::uint64_t drawn_ = 0;
  LeakageCounts counts_;
};

}  // namespace espalier
