#include "decode/oracle_drafter.h"

#include <algorithm>

#include "base/error.h"
#include "base/math.h"
#include "base/random.h"

namespace espalier {
namespace {

// 2^-20 for the first decoy, half for each further one: a path of decent guesses is always worth more.
double decoy_log_probability(std::size_t rank) {
  return -(20.0 + static_cast<double>(rank)) * log_f64(2);
}

// Which decoys there are has nothing to do with whether the first guess is right.
constexpr std::uint64_t kDecoyStream = 0xdec0;

OracleOptions checked(const OracleOptions& options) {
  check(options.vocabulary >= 1, "oracle drafter: vocabulary {}, expected at least 1", options.vocabulary);
  for (std::size_t i = 0; i < options.profile.size(); ++i)
    if (!(options.profile[i] >= 0 && options.profile[i] <= 1))
      input_error("acceptance profile: {} at depth {}, expected a probability from 0 to 1", options.profile[i], i + 1);
  return options;
}

}  // namespace

void KnownAnswers::learn(std::span<const std::int32_t> prompt, std::span<const std::int32_t> answer) {
  std::erase_if(known_, [&](const Known& known) {
    return known.prompt == prompt.size() && std::ranges::equal(std::span(known.tokens).first(known.prompt), prompt);
  });
  Known& known = known_.emplace_back();
  known.prompt = prompt.size();
  known.tokens.assign(prompt.begin(), prompt.end());
  known.tokens.insert(known.tokens.end(), answer.begin(), answer.end());
}

std::vector<std::int32_t> KnownAnswers::beginning_with(std::span<const std::int32_t> prompt) const {
  const std::vector<std::int32_t>* best = nullptr;
  for (const Known& known : known_) {
    if (known.tokens.size() < prompt.size() ||
        !std::ranges::equal(std::span(known.tokens).first(prompt.size()), prompt))
      continue;
    best = &known.tokens;
    if (known.prompt == prompt.size()) break;
  }
  return best == nullptr ? std::vector<std::int32_t>() : *best;
}

OracleDrafter::OracleDrafter(const KnownAnswers* answers, const OracleOptions& options)
    : answers_(answers), options_(checked(options)) {
  check(answers != nullptr, "oracle drafter: no answers to replay");
}

std::unique_ptr<DraftSequence> OracleDrafter::open(SequenceId, std::span<const std::int32_t> prompt) {
  return std::make_unique<OracleSequence>(answers_->beginning_with(prompt), options_);
}

void OracleSequence::begin_round(const DraftRound& round) {
  root_ = std::ssize(round.tokens) - 1;
  root_is_answers_ =
      round.tokens.size() <= answer_.size() && std::equal(round.tokens.begin(), round.tokens.end(), answer_.begin());
}

Guesses OracleSequence::expand(const Candidates& candidates, std::span<const int> nodes, int branch) {
  Guesses lists;
  for (int node : nodes) {
    const int depth = candidates[node].depth + 1;
    lists.push_back(guesses(root_ + depth, depth, follows_answer(candidates, node), branch));
  }
  return lists;
}

bool OracleSequence::is_right(std::int64_t position, int depth) const {
  return uniform(options_.seed, static_cast<std::uint64_t>(position)) < probability(depth);
}

std::int32_t OracleSequence::answer_token(std::int64_t position) const {
  return answer_[static_cast<std::size_t>(position)];
}

double OracleSequence::probability(int depth) const {
  if (options_.profile.empty()) return 1;
  return options_.profile[std::min(options_.profile.size(), static_cast<std::size_t>(depth)) - 1];
}

bool OracleSequence::follows_answer(const Candidates& candidates, int node) const {
  const auto end = static_cast<std::int64_t>(answer_.size());
  for (; node != 0; node = candidates[node].parent) {
    const std::int64_t position = root_ + candidates[node].depth;
    if (position >= end || answer_token(position) != candidates[node].token) return false;
  }
  return root_is_answers_;
}

std::vector<DraftToken> OracleSequence::guesses(std::int64_t position, int depth, bool on_path, int branch) const {
  if (position >= static_cast<std::int64_t>(answer_.size())) return {};
  std::vector<std::int32_t> tokens = wrong_tokens(position, branch);
  if (on_path && is_right(position, depth)) tokens.insert(tokens.begin(), answer_token(position));
  if (tokens.size() > static_cast<std::size_t>(branch)) tokens.pop_back();

  std::vector<DraftToken> list;
  for (std::size_t i = 0; i < tokens.size(); ++i) list.push_back({tokens[i], decoy_log_probability(i)});
  // Said whether right or wrong, as a real head would: it does not know which.
  if (on_path && !list.empty())
    list.front().log_probability = std::max(log_f64(probability(depth)), decoy_log_probability(0));
  return list;
}

// Neighbours in the vocabulary, from anywhere in it on, without the one that is right.
std::vector<std::int32_t> OracleSequence::wrong_tokens(std::int64_t position, int count) const {
  const std::int64_t vocabulary = options_.vocabulary;
  const std::uint64_t draw = mix64(mix64(options_.seed + kDecoyStream) + static_cast<std::uint64_t>(position));
  const auto start = static_cast<std::int64_t>(draw % static_cast<std::uint64_t>(vocabulary));
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < vocabulary && tokens.size() < static_cast<std::size_t>(count); ++i) {
    const auto token = static_cast<std::int32_t>((start + i) % vocabulary);
    if (token != answer_token(position)) tokens.push_back(token);
  }
  return tokens;
}

}  // namespace espalier
