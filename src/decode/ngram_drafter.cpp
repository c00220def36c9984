#include "decode/ngram_drafter.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/math.h"

namespace espalier {
namespace {

// A tally forgets 2 % with each new try: what was seen 34 tries ago counts half.
constexpr double kTallyForget = 0.98;
// The prior counts as much as this many tries.
constexpr double kTallyPriorTries = 4;

// Before anything was seen: 0.33, 0.56, 0.67, 0.73, 0.78, ... 0.92, close to what chat answers show (docs/drafters.md).
double prior_rate(int length) {
  return 1 - 4.0 / (3.0 * (length + 1));
}

// What a match has to say, as a factor: an eighth for each token it is shorter than the longest one; and by its rank
// among the longest and most recent ones, so that the ninth counts half of the first.
double match_weight(int shorter, std::size_t rank) {
  return std::ldexp(1.0, -3 * shorter) / (8.0 + static_cast<double>(rank));
}

NgramOptions checked(const NgramOptions& options) {
  check(options.length >= 1 && options.length <= 64, "ngram drafter: length {}, expected 1 to 64", options.length);
  check(options.occurrences >= 1, "ngram drafter: occurrences {}, expected at least 1", options.occurrences);
  check(options.matches >= 1, "ngram drafter: matches {}, expected at least 1", options.matches);
  return options;
}

}  // namespace

double NgramRates::operator[](int length) const {
  check(length >= 1 && length <= std::ssize(tallies_), "ngram drafter: rate of length {}, expected 1 to {}", length,
        tallies_.size());
  const Tally& tally = tallies_[static_cast<std::size_t>(length - 1)];
  return (tally.hits + kTallyPriorTries * prior_rate(length)) / (tally.tries + kTallyPriorTries);
}

void NgramRates::learn(int length, bool hit) {
  Tally& tally = tallies_[static_cast<std::size_t>(length - 1)];
  tally.hits = kTallyForget * tally.hits + (hit ? 1 : 0);
  tally.tries = kTallyForget * tally.tries + 1;
}

NgramDrafter::NgramDrafter(const NgramOptions& options) : options_(checked(options)), rates_(options.length) {}

std::unique_ptr<DraftSequence> NgramDrafter::open(SequenceId, std::span<const std::int32_t>) {
  return std::make_unique<NgramSequence>(options_, rates_);
}

bool NgramSequence::reused(std::span<const std::int32_t> tokens) {
  matches_.clear();
  proposed_.clear();
  text_.clear();
  last_.clear();
  append(tokens);
  return false;
}

void NgramSequence::committed(const CommittedRows& rows) {
  const CommittedRows fresh = rows.from(std::ssize(text_));
  check(fresh.tokens.empty() || fresh.begin == std::ssize(text_), "ngram drafter: committed from {}, expected {}",
        rows.begin, text_.size());
  append(fresh.tokens);
}

void NgramSequence::append(std::span<const std::int32_t> tokens) {
  for (std::int32_t token : tokens) {
    const auto position = static_cast<std::int64_t>(text_.size());
    const auto [last, first_time] = last_.try_emplace(token, position);
    text_.push_back({.token = token, .previous = first_time ? -1 : last->second});
    last->second = position;
  }
}

void NgramSequence::begin_round(const DraftRound& round) {
  check(round.tokens.size() == text_.size() + 1, "ngram drafter: a round over {} tokens, expected {} and the root",
        round.tokens.size(), text_.size());
  root_ = round.tokens.back();
  matches_ = find_matches();
  proposed_.clear();
}

Guesses NgramSequence::expand(const Candidates& candidates, std::span<const int> nodes, int branch) {
  Guesses lists;
  for (int node : nodes) {
    const Path path = path_tokens(candidates, node);
    std::vector<Continuation>& found = proposed_[path];
    found = continuations(path);
    lists.push_back(guesses(found, branch));
  }
  return lists;
}

void NgramSequence::end_round(const DraftVerdict& verdict) {
  Path path;
  for (const Visit& visit : verdict.visits) {
    if (visit.node != 0) path.push_back(verdict.tree[visit.node].token);
    if (const auto proposed = proposed_.find(path); proposed != proposed_.end()) learn(proposed->second, visit.token);
  }
}

// How many tokens backwards agree with the root and what stands before it, the token at `position` being the first.
int NgramSequence::match_length(std::int64_t position) const {
  const auto root = static_cast<std::int64_t>(text_.size());
  int length = 1;
  while (length < options_.length && length <= position &&
         text_[static_cast<std::size_t>(position - length)].token ==
             text_[static_cast<std::size_t>(root - length)].token)
    ++length;
  return length;
}

// Longest first, among equals the most recent first.
std::vector<NgramSequence::Match> NgramSequence::find_matches() const {
  std::vector<Match> matches;
  const auto last = last_.find(root_);
  std::int64_t position = last == last_.end() ? -1 : last->second;
  for (int seen = 0; position >= 0 && seen < options_.occurrences; ++seen) {
    matches.push_back({.position = position, .length = match_length(position)});
    position = text_[static_cast<std::size_t>(position)].previous;
  }
  std::stable_sort(matches.begin(), matches.end(),
                   [](const Match& left, const Match& right) { return left.length > right.length; });
  if (matches.size() > static_cast<std::size_t>(options_.matches))
    matches.resize(static_cast<std::size_t>(options_.matches));
  for (std::size_t i = 0; i < matches.size(); ++i)
    matches[i].weight = match_weight(matches.front().length - matches[i].length, i);
  return matches;
}

std::int32_t NgramSequence::token_at(std::int64_t position, const Path& path) const {
  const std::int64_t behind_root = position - static_cast<std::int64_t>(text_.size());
  if (behind_root < 0) return text_[static_cast<std::size_t>(position)].token;
  return behind_root == 0 ? root_ : path[static_cast<std::size_t>(behind_root - 1)];
}

bool NgramSequence::follows(const Match& match, const Path& path) const {
  for (std::size_t i = 0; i < path.size(); ++i)
    if (token_at(match.position + 1 + static_cast<std::int64_t>(i), path) != path[i]) return false;
  return true;
}

std::vector<NgramSequence::Continuation> NgramSequence::continuations(const Path& path) const {
  const auto depth = static_cast<std::int64_t>(path.size());
  std::vector<Continuation> found;
  for (const Match& match : matches_) {
    if (!follows(match, path)) continue;
    const std::int32_t token = token_at(match.position + 1 + depth, path);
    auto known = std::find_if(found.begin(), found.end(), [=](const Continuation& c) { return c.token == token; });
    if (known == found.end())
      known = found.insert(
          found.end(),
          {.token = token, .length = static_cast<int>(std::min<std::int64_t>(match.length + depth, options_.length))});
    known->weight += match.weight;
  }
  return found;
}

std::vector<DraftToken> NgramSequence::guesses(const std::vector<Continuation>& found, int branch) const {
  double total = 0;
  for (const Continuation& continuation : found) total += continuation.weight;
  std::vector<DraftToken> list;
  for (const Continuation& continuation : found)
    list.push_back({.token = continuation.token,
                    .log_probability = log_f64((*rates_)[continuation.length] * continuation.weight / total)});
  std::sort(list.begin(), list.end(), [](const DraftToken& left, const DraftToken& right) {
    return left.log_probability != right.log_probability ? left.log_probability > right.log_probability
                                                         : left.token < right.token;
  });
  if (list.size() > static_cast<std::size_t>(branch)) list.resize(static_cast<std::size_t>(branch));
  return list;
}

// Among all continuations, not only those that fitted into `branch`: shares are shares of all of them.
void NgramSequence::learn(const std::vector<Continuation>& found, std::int32_t chosen) {
  if (found.empty()) return;
  const int longest = std::ranges::max(found, {}, &Continuation::length).length;
  rates_->learn(longest, std::ranges::find(found, chosen, &Continuation::token) != found.end());
}

}  // namespace espalier
