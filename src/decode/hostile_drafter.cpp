#include "decode/hostile_drafter.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "base/random.h"

namespace espalier {

// A stream of numbers that belongs to one seed and one place.
class HostileSequence::Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t place) : state_(mix64(mix64(seed + 1) + place)) {}

  std::int64_t below(std::int64_t count) {
    state_ = mix64(state_ + 0x9e3779b97f4a7c15ull);
    return static_cast<std::int64_t>(state_ % static_cast<std::uint64_t>(count));
  }
  // Of kinds: any but `any`, which is the last of them.
  template <typename Kind>
  Kind definite(Kind kind) {
    return kind == Kind::any ? static_cast<Kind>(below(static_cast<std::int64_t>(Kind::any))) : kind;
  }
  template <typename Kind>
  Kind kind() {
    return static_cast<Kind>(below(static_cast<std::int64_t>(Kind::any) + 1));
  }

 private:
  std::uint64_t state_;
};

HostileDrafter::HostileDrafter(std::uint64_t seed, std::int32_t vocabulary) : seed_(seed), vocabulary_(vocabulary) {
  check(vocabulary >= 1, "hostile drafter: vocabulary {}, expected at least 1", vocabulary);
}

std::unique_ptr<DraftSequence> HostileDrafter::open(SequenceId, std::span<const std::int32_t>) {
  return std::make_unique<HostileSequence>(seed_, vocabulary_);
}

bool HostileSequence::reused(std::span<const std::int32_t> tokens) {
  return Draws(seed_, tokens.size()).below(4) == 0;
}

HostileSequence::Temper HostileSequence::temper(std::int64_t position) const {
  Draws draws(~seed_, static_cast<std::uint64_t>(position));
  return {.tokens = draws.kind<Tokens>(), .scores = draws.kind<Scores>(), .counts = draws.kind<Counts>()};
}

void HostileSequence::begin_round(const DraftRound& round) {
  check(!round.tokens.empty(), "hostile drafter: a round without a root");
  text_ = round.tokens;
  temper_ = temper(std::ssize(text_) - 1);
}

Guesses HostileSequence::expand(const Candidates& /*candidates*/, std::span<const int> nodes, int branch) {
  Guesses lists;
  for (int node : nodes) {
    Draws draws(mix64(seed_) + text_.size(), static_cast<std::uint64_t>(node));
    lists.push_back(guesses(draws, branch));
  }
  return lists;
}

std::vector<DraftToken> HostileSequence::guesses(Draws& draws, int branch) const {
  const Counts counts = draws.definite(temper_.counts);
  std::vector<DraftToken> list(count(counts, branch));
  for (std::size_t i = 0; i < list.size(); ++i) {
    const bool twin = counts == Counts::twins && i % 2 == 1;
    list[i].token = twin ? list[i - 1].token : token(draws);
    list[i].log_probability = log_probability(draws);
  }
  return list;
}

std::size_t HostileSequence::count(Counts counts, int branch) {
  const std::size_t asked = static_cast<std::size_t>(std::min(branch, 1 << 10));
  switch (counts) {
    case Counts::none: return 0;
    case Counts::one: return 1;
    case Counts::flood: return 3 * asked + 7;
    default: return asked;
  }
}

std::int32_t HostileSequence::token(Draws& draws) const {
  const std::array<std::int32_t, 4> outside = {-1, vocabulary_, std::numeric_limits<std::int32_t>::min(),
                                               std::numeric_limits<std::int32_t>::max()};
  switch (draws.definite(temper_.tokens)) {
    case Tokens::edges: return draws.below(2) == 0 ? 0 : vocabulary_ - 1;
    case Tokens::outside: return outside[static_cast<std::size_t>(draws.below(4))];
    case Tokens::root: return text_.back();
    case Tokens::text: return text_[static_cast<std::size_t>(draws.below(static_cast<std::int64_t>(text_.size())))];
    default: return static_cast<std::int32_t>(draws.below(vocabulary_));
  }
}

double HostileSequence::log_probability(Draws& draws) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (draws.definite(temper_.scores)) {
    case Scores::equal: return -0.5;
    case Scores::zero: return 0;
    case Scores::positive: return 1e-3 * static_cast<double>(draws.below(10000));
    case Scores::nan: return std::numeric_limits<double>::quiet_NaN();
    case Scores::plus_infinity: return kInfinity;
    case Scores::minus_infinity: return -kInfinity;
    default: return -1e-3 * static_cast<double>(draws.below(10000));
  }
}

}  // namespace espalier
