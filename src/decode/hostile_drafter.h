// The worst drafter one can think of, for tests: whatever it says, the text must stay the same and nothing may break.
//
// Each round has a temper, drawn from the seed and the position of the root: where tokens come from (anywhere, the
// edges of the vocabulary, outside of it, the root again and again, the text so far), what scores they carry
// (plausible, all equal, 0, positive, NaN, infinite) and how many there are (none, one, as many as asked for, far too
// many, twins). Now and then it also wants a feature computed again. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "decode/drafter.h"

namespace espalier {

class HostileDrafter final : public LoneDrafter {
 public:
  HostileDrafter(std::uint64_t seed, std::int32_t vocabulary);

  std::string_view name() const override { return "hostile"; }
  std::unique_ptr<DraftSequence> open(SequenceId sequence, std::span<const std::int32_t> prompt) override;

 private:
  const std::uint64_t seed_;
  const std::int32_t vocabulary_;
};

class HostileSequence final : public LoneSequence {
 public:
  HostileSequence(std::uint64_t seed, std::int32_t vocabulary) : seed_(seed), vocabulary_(vocabulary) {}

  bool reused(std::span<const std::int32_t> tokens) override;
  void committed(const CommittedRows& /*rows*/) override {}
  void begin_round(const DraftRound& round) override;
  // One list for each node, as every drafter; nothing else about them is to be trusted.
  Guesses expand(const Candidates& candidates, std::span<const int> nodes, int branch) override;

  // `any`: drawn anew for every guess, or for every node.
  enum class Tokens { random, edges, outside, root, text, any };
  enum class Scores { plausible, equal, zero, positive, nan, plus_infinity, minus_infinity, any };
  enum class Counts { none, one, asked, twins, flood, any };
  struct Temper {
    Tokens tokens = Tokens::random;
    Scores scores = Scores::plausible;
    Counts counts = Counts::asked;
  };
  // Of a round whose root stands at `position`.
  Temper temper(std::int64_t position) const;

 private:
  class Draws;

  std::vector<DraftToken> guesses(Draws& draws, int branch) const;
  static std::size_t count(Counts counts, int branch);
  std::int32_t token(Draws& draws) const;
  double log_probability(Draws& draws) const;

  const std::uint64_t seed_;
  const std::int32_t vocabulary_;

  // Of the round.
  std::span<const std::int32_t> text_;  // the root included
  Temper temper_;
};

}  // namespace espalier
