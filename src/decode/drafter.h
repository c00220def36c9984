// What guesses ahead. A drafter sees the committed tokens of one sequence, the root and, if it asks for them, the
// teacher's features; it proposes scored tokens, level by level, and is told what the teacher made of them. Nothing it
// says can change the text: a wrong guess costs time, a right one saves some.
//
// The loop calls, for one sequence: resumable(), rewind() and committed() as the sequence changes; then in each round
// begin_round(), expand() once per level, end_round(), committed(). One thread at a time; a drafter belongs to one
// sequence, the weights behind it may be shared by many.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "device/view.h"
#include "tree/candidates.h"
#include "tree/token_tree.h"

namespace espalier {

// What a drafter wants to know of the teacher's inside. The state after the final norm needs no wish: it is there
// wherever the teacher was asked for logits.
struct FeatureWishes {
  std::vector<std::int64_t> taps = {};  // boundaries of the residual stream, of every committed position
};

// Positions that have just been committed. Views of the device are valid during the call only.
struct CommittedRows {
  std::int64_t begin = 0;                // the first position
  std::span<const std::int32_t> tokens;  // of positions begin, begin + 1, ...
  ConstView taps;                        // f32 [n, boundaries * hidden]; empty unless some drafter wants them
  std::span<const std::int32_t> rows;    // the row of `taps` of every position
  ConstView hidden;                      // f32 [m, hidden]; empty where the last position has none (inside a prefill)
  std::int64_t hidden_row = 0;           // the row of the last position
};

// A node of the tree where the teacher was asked, and what it chose there.
struct Visit {
  int node = 0;
  std::int32_t token = 0;

  bool operator==(const Visit&) const = default;
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual std::string_view name() const = 0;
  virtual FeatureWishes wishes() const { return {}; }
  // The most levels it can guess.
  virtual int max_depth() const { return 1 << 20; }

  // The first `length` tokens of the sequence will stay. From how many of them can this drafter go on? The loop has the
  // teacher compute the others again.
  virtual std::int64_t resumable(std::int64_t length) const { return length; }
  // The sequence holds its first `length` tokens only, no more than resumable() said; of those behind, the ones that
  // resumable() was asked about come again. A round that was begun and never ended is over.
  virtual void rewind(std::int64_t length) = 0;
  virtual void committed(const CommittedRows& rows) = 0;

  // A round begins: guesses are wanted below the root, which is tokens.back() and not committed yet. The tokens before
  // it are the committed ones; they stay valid until the round ends.
  virtual void begin_round(std::span<const std::int32_t> tokens) = 0;
  // One draft pass: for each of `nodes` (ids of `candidates`, whose parents were expanded in the pass before; in the
  // first pass the root alone) up to `branch` guesses for the token after it, best first.
  virtual std::vector<std::vector<DraftToken>> expand(const Candidates& candidates, std::span<const int> nodes,
                                                      int branch) = 0;
  // What became of the round. Only for rounds that were begun.
  virtual void end_round(const TokenTree& /*tree*/, std::span<const Visit> /*visits*/) {}
};

using DrafterSet = std::vector<std::unique_ptr<Drafter>>;

// The tokens from below the root to a candidate.
std::vector<std::int32_t> path_tokens(const Candidates& candidates, int node);

}  // namespace espalier
