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

void NgramSequence::Text::append(std::span<const std::int32_t> tokens) {
  for (std::int32_t token : tokens) {
    const std::int64_t position = size();
    const auto [before, first_time] = last.try_emplace(token, position);
    places.push_back({.token = token, .previous = first_time ? -1 : before->second});
    before->second = position;
  }
}

void NgramSequence::predict(std::span<const std::int32_t> prompt, std::span<const std::int32_t> prediction) {
  predicted_ = {};
  if (prediction.empty()) return;
  const std::size_t before = std::min(prompt.size(), static_cast<std::size_t>(options_.length));
  for (std::int32_t token : prompt.last(before)) predicted_.places.push_back({.token = token});
  predicted_.append(prediction);
}

bool NgramSequence::reused(std::span<const std::int32_t> tokens) {
  matches_.clear();
  proposed_.clear();
  text_ = {};
  text_.append(tokens);
  return false;
}

void NgramSequence::committed(const CommittedRows& rows) {
  const CommittedRows fresh = rows.from(text_.size());
  check(fresh.tokens.empty() || fresh.begin == text_.size(), "ngram drafter: committed from {}, expected {}",
        rows.begin, text_.size());
  text_.append(fresh.tokens);
}

void NgramSequence::begin_round(const DraftRound& round) {
  check(std::ssize(round.tokens) == text_.size() + 1, "ngram drafter: a round over {} tokens, expected {} and the root",
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
  if (predicted_.size() > 0) count_predicted(verdict);
}

// The rows of the tree that the prediction proposed.
void NgramSequence::count_predicted(const DraftVerdict& verdict) {
  const TokenTree& tree = verdict.tree;
  for (int node = 1; node < tree.size(); ++node) {
    Path above;
    for (int ancestor : tree.path(tree[node].parent))
      if (ancestor != 0) above.push_back(tree[ancestor].token);
    const auto proposed = proposed_.find(above);
    if (proposed == proposed_.end()) continue;
    const auto guess = std::ranges::find(proposed->second, tree[node].token, &Continuation::token);
    if (guess == proposed->second.end() || !guess->predicted || !guess->guessed) continue;
    const bool accepted = std::ranges::find(verdict.visits, node, &Visit::node) != verdict.visits.end();
    ++(accepted ? counts_.accepted : counts_.rejected);
  }
}

// How many tokens backwards agree with the root and what stands before it, the token at `position` being the first.
int NgramSequence::match_length(const Text& text, std::int64_t position) const {
  const std::int64_t root = text_.size();
  int length = 1;
  while (length < options_.length && length <= position && length <= root &&
         text[position - length] == text_[root - length])
    ++length;
  return length;
}

// The most recent first.
void NgramSequence::add_matches(const Text& text, std::vector<Match>& matches) const {
  const auto last = text.last.find(root_);
  std::int64_t position = last == text.last.end() ? -1 : last->second;
  for (int seen = 0; position >= 0 && seen < options_.occurrences; ++seen) {
    matches.push_back({.text = &text, .position = position, .length = match_length(text, position)});
    position = text.places[static_cast<std::size_t>(position)].previous;
  }
}

// Longest first, among equals those in the prediction, then the most recent first.
std::vector<NgramSequence::Match> NgramSequence::find_matches() const {
  std::vector<Match> matches;
  add_matches(predicted_, matches);
  add_matches(text_, matches);
  std::stable_sort(matches.begin(), matches.end(),
                   [](const Match& left, const Match& right) { return left.length > right.length; });
  if (matches.size() > static_cast<std::size_t>(options_.matches))
    matches.resize(static_cast<std::size_t>(options_.matches));
  for (std::size_t i = 0; i < matches.size(); ++i)
    matches[i].weight = match_weight(matches.front().length - matches[i].length, i);
  return matches;
}

std::optional<std::int32_t> NgramSequence::token_at(const Text& text, std::int64_t position, const Path& path) const {
  const std::int64_t behind = position - text.size();
  if (behind < 0) return text[position];
  if (&text == &predicted_) return std::nullopt;
  return behind == 0 ? root_ : path[static_cast<std::size_t>(behind - 1)];
}

bool NgramSequence::follows(const Match& match, const Path& path) const {
  for (std::size_t i = 0; i < path.size(); ++i)
    if (token_at(*match.text, match.position + 1 + static_cast<std::int64_t>(i), path) != path[i]) return false;
  return true;
}

std::vector<NgramSequence::Continuation> NgramSequence::continuations(const Path& path) const {
  const auto depth = static_cast<std::int64_t>(path.size());
  std::vector<Continuation> found;
  for (const Match& match : matches_) {
    if (!follows(match, path)) continue;
    const std::optional<std::int32_t> token = token_at(*match.text, match.position + 1 + depth, path);
    if (!token) continue;
    auto known = std::find_if(found.begin(), found.end(), [=](const Continuation& c) { return c.token == *token; });
    if (known == found.end())
      known = found.insert(
          found.end(),
          {.token = *token, .length = static_cast<int>(std::min<std::int64_t>(match.length + depth, options_.length))});
    known->weight += match.weight;
    known->predicted = known->predicted || match.text == &predicted_;
  }
  return found;
}

std::vector<DraftToken> NgramSequence::guesses(std::vector<Continuation>& found, int branch) const {
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
  for (const DraftToken& guess : list) std::ranges::find(found, guess.token, &Continuation::token)->guessed = true;
  return list;
}

// Among all continuations, not only those that fitted into `branch`: shares are shares of all of them.
void NgramSequence::learn(const std::vector<Continuation>& found, std::int32_t chosen) {
  if (found.empty()) return;
  const int longest = std::ranges::max(found, {}, &Continuation::length).length;
  rates_->learn(longest, std::ranges::find(found, chosen, &Continuation::token) != found.end());
}

}  // namespace espalier
