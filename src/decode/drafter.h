// What guesses ahead. A drafter serves all sequences of a batch: weights, buffers and memory once, and of each sequence
// a small state, which hears of its committed tokens and, if the drafter asks for them, of the teacher's features. It
// proposes scored tokens, level by level and for all sequences in one pass, and is told what the teacher made of them.
// Nothing it says can change the text: a wrong guess costs time, a right one saves some.
//
// The loop calls, for each sequence: reused() and committed() as it grows; then in each round begin_round(), the
// drafter's expand() once per level, end_round(), committed() and, when all in the step have heard, the drafter's
// all_told(); and settle() before it goes on in blocks of others, or
// leaves its own to them. A drafter that a request does not want hears nothing of its sequence, unless it needs every
// text; then it hears all but the rounds. A reused() comes whenever it goes on with positions that somebody else has
// computed, a rest() between rounds, whenever the loop likes. One thread at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cache/kv_cache.h"
#include "device/view.h"
#include "tree/candidates.h"
#include "tree/token_tree.h"

namespace espalier {

class ResidentDrafter;

// What a drafter wants to know of the teacher's inside. The state after the final norm needs no wish: it is there
// wherever the teacher was asked for logits.
struct FeatureWishes {
  std::vector<std::int64_t> taps = {};  // boundaries of the residual stream, of every committed position
};

// Positions that have just been committed, or computed once more for their features. Views of the device are valid
// until the drafter hears all_told(), unless they are said to last.
struct CommittedRows {
  std::int64_t begin = 0;                // the first position
  std::span<const std::int32_t> tokens;  // of positions begin, begin + 1, ...
  ConstView taps;                        // f32 [n, boundaries * hidden]; empty unless some drafter wants them
  std::span<const std::int32_t> rows;    // the row of `taps` of every position
  ConstView hidden;                      // f32 [m, hidden]; empty where the last position has none (inside a prefill)
  std::int64_t hidden_row = 0;           // the row of the last position
  bool lasting = false;                  // the views are valid until the next round that stays on the device

  // Without the positions before `first`.
  CommittedRows from(std::int64_t first) const;
};

// A node of the tree where the teacher was asked, and what it chose there.
struct Visit {
  int node = 0;
  std::int32_t token = 0;

  bool operator==(const Visit&) const = default;
};

// A round begins: guesses are wanted below the root, which is tokens.back() and not committed yet. The tokens before it
// are the committed ones. Both are valid until the round ends.
struct DraftRound {
  std::span<const std::int32_t> tokens;
  const Branch* branch = nullptr;  // open until the round ends, with as many rows as the drafter's memory wants
};

// What the teacher made of the round.
struct DraftVerdict {
  const TokenTree& tree;
  std::span<const Visit> visits;  // root first: the path that is about to be committed
  Branch& branch;                 // to be told what the drafter's memory keeps
  // Of a round that stayed on the device, for each node: 1 + the number of its place behind the first of the round in
  // the drafter's memory; 0: it has none.
  std::span<const std::int32_t> drafted = {};

  // The accepted tokens below the root.
  std::vector<std::int32_t> accepted() const;
};

// Tokens of verified trees that a prediction of the answer proposed, whoever else did: those the teacher chose, and the
// others.
struct PredictionCounts {
  std::int64_t accepted = 0;
  std::int64_t rejected = 0;

  PredictionCounts& operator+=(const PredictionCounts& other) {
    accepted += other.accepted;
    rejected += other.rejected;
    return *this;
  }
  bool operator==(const PredictionCounts&) const = default;
};

// What a drafter knows of one sequence.
class DraftSequence {
 public:
  virtual ~DraftSequence() = default;

  // The sequence holds these tokens, which were computed for somebody else: there are no features of them. True: the
  // last of them shall be computed once more, because its feature is all that is lacking.
  virtual bool reused(std::span<const std::int32_t> tokens) = 0;
  virtual void committed(const CommittedRows& rows) = 0;
  // Nobody will ask it soon: what it would compute to be ready, it may leave out; when it is asked again, or told that
  // it will be, its guesses may know less of the text. Unless it needs every text it may hear nothing for a while, and
  // then of all that was committed meanwhile by reused().
  virtual void rest(bool /*resting*/) {}
  // The first committed place that its memory lacks and may write in the next round.
  virtual std::int64_t lacks_from() const { return std::numeric_limits<std::int64_t>::max(); }

  virtual void begin_round(const DraftRound& round) = 0;
  // Only for rounds that were begun.
  virtual void end_round(const DraftVerdict& /*verdict*/) {}
  // The sequence is about to go on in blocks of others, or to leave its own to them: writes what its memory still can.
  virtual void settle() {}

  // What the answer may well say, behind the prompt. Told before anything else; few can use it.
  virtual void predict(std::span<const std::int32_t> /*prompt*/, std::span<const std::int32_t> /*prediction*/) {}
  // Of the rounds that ended since this was asked for the last time.
  virtual PredictionCounts take_prediction_counts() { return {}; }
};

// One sequence's part of a draft pass: for each of `nodes` (ids of `candidates`, whose parents were expanded in the
// pass before; in the first pass the root alone) up to `branch` guesses for the token after it, best first.
struct DraftJob {
  DraftSequence* sequence = nullptr;
  const Candidates* candidates = nullptr;
  std::span<const int> nodes = {};
  int branch = 0;
};
using Guesses = std::vector<std::vector<DraftToken>>;  // a list for each node

class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual std::string_view name() const = 0;
  virtual FeatureWishes wishes() const { return {}; }
  // The most levels it can guess.
  virtual int max_depth() const { return 1 << 20; }
  // Whether its memory holds a text soon after that is committed; else what it has not guessed behind is lacking.
  virtual bool follows_text() const { return true; }
  // Whether what it writes is only right behind a text that it has heard from the beginning.
  virtual bool needs_every_text() const { return false; }
  // The places behind the committed ones that a round takes in its memory.
  virtual std::int64_t round_rows() const { return 0; }

  // The drafter must outlive what it opens.
  virtual std::unique_ptr<DraftSequence> open(SequenceId sequence, std::span<const std::int32_t> prompt) = 0;
  // All sequences in a step have heard what it committed.
  virtual void all_told() {}
  // One draft pass over all jobs, which are in the same level of the same round.
  virtual std::vector<Guesses> expand(std::span<const DraftJob> jobs) = 0;
  // Whether its guesses come from the host alone, in next to no time.
  virtual bool guesses_on_host() const { return false; }
  // What it does inside of rounds that stay on the device; null: it cannot.
  virtual ResidentDrafter* resident() { return nullptr; }
};

using DrafterSet = std::vector<std::unique_ptr<Drafter>>;

// A drafter whose sequences have nothing to compute together.
class LoneSequence : public DraftSequence {
 public:
  virtual Guesses expand(const Candidates& candidates, std::span<const int> nodes, int branch) = 0;
};
class LoneDrafter : public Drafter {
 public:
  bool guesses_on_host() const override { return true; }
  std::vector<Guesses> expand(std::span<const DraftJob> jobs) override;
};

// The tokens from below the root to a candidate.
std::vector<std::int32_t> path_tokens(const Candidates& candidates, int node);

}  // namespace espalier
