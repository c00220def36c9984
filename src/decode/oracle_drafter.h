// Replays a known answer: a drafter as good as one wants, before any head is trained. With an acceptance profile it is
// wrong as often as a real one would be, so the speed that a head of that quality would give can be measured on any
// teacher.
//
// Whether the guess at a position is right depends on the seed, the position and the profile alone: the same run can be
// had again, whatever the tree looks like. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "decode/drafter.h"

namespace espalier {

// Prompts with their answers, each as one sequence of tokens.
class KnownAnswers {
 public:
  // In place of what was known of the same prompt.
  void learn(std::span<const std::int32_t> prompt, std::span<const std::int32_t> answer);
  // Prompt and answer: of this prompt, else the latest that begin with these tokens; nothing where none do.
  std::vector<std::int32_t> beginning_with(std::span<const std::int32_t> prompt) const;

 private:
  struct Known {
    std::size_t prompt = 0;
    std::vector<std::int32_t> tokens;
  };
  std::vector<Known> known_;
};

struct OracleOptions {
  // Element d - 1: the probability that the guess at depth d is right where those above it were; the last one repeats.
  // Empty: always right. Anything outside [0, 1] is an InputError.
  std::vector<double> profile = {};
  std::uint64_t seed = 0;
  std::int32_t vocabulary = 0;  // wrong guesses are tokens of it
};

class OracleDrafter final : public LoneDrafter {
 public:
  // The answers are looked at whenever a sequence is opened; they must outlive the drafter.
  OracleDrafter(const KnownAnswers* answers, const OracleOptions& options);

  std::string_view name() const override { return "oracle"; }
  std::unique_ptr<DraftSequence> open(SequenceId sequence, std::span<const std::int32_t> prompt) override;

 private:
  const KnownAnswers* answers_;
  const OracleOptions options_;
};

class OracleSequence final : public LoneSequence {
 public:
  OracleSequence(std::vector<std::int32_t> answer, const OracleOptions& options)
      : answer_(std::move(answer)), options_(options) {}

  bool reused(std::span<const std::int32_t> /*tokens*/) override { return false; }
  void committed(const CommittedRows& /*rows*/) override {}
  void begin_round(const DraftRound& round) override;
  // A node whose path is the answer's gets the answer's next token first, or a wrong one in its place, with the
  // probability of the profile; then decoys: wrong tokens, each different, of small probability. Other nodes get decoys
  // only. Behind the end of the answer there is nothing to say.
  Guesses expand(const Candidates& candidates, std::span<const int> nodes, int branch) override;

  // Whether the guess for the token at `position` is right when it is made at `depth`, 1 being the root's children.
  bool is_right(std::int64_t position, int depth) const;

 private:
  std::int32_t answer_token(std::int64_t position) const;
  double probability(int depth) const;
  bool follows_answer(const Candidates& candidates, int node) const;
  std::vector<DraftToken> guesses(std::int64_t position, int depth, bool on_path, int branch) const;
  std::vector<std::int32_t> wrong_tokens(std::int64_t position, int count) const;

  const std::vector<std::int32_t> answer_;  // behind its prompt; empty: unknown
  const OracleOptions options_;

  // Of the round.
  std::int64_t root_ = 0;         // the position of the root
  bool root_is_answers_ = false;  // all tokens up to the root are the answer's
};

}  // namespace espalier
