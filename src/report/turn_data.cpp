#include "report/turn_data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kPromptTail = 80;  // tokens of the prompt that are shown

// Words are written once a turn; everything else refers to them by number.
class Dictionary {
 public:
  explicit Dictionary(const TokenWords& words) : words_(words) {}

  std::size_t operator()(std::int32_t token) {
    const auto [place, is_new] = numbers_.try_emplace(token, list_.size());
    if (is_new) list_.push_back(words_.word(token));
    return place->second;
  }
  Json of(std::span<const std::int32_t> tokens) {
    Json numbers = Json::array();
    for (const std::int32_t token : tokens) numbers.push_back((*this)(token));
    return numbers;
  }
  const std::vector<std::string>& list() const { return list_; }

 private:
  const TokenWords& words_;
  std::map<std::int32_t, std::size_t> numbers_;
  std::vector<std::string> list_;
};

double rounded(double value, double steps) {
  return std::round(value * steps) / steps;
}

// Milliseconds.
Json times_json(const RoundTimes& times) {
  Json list = Json::array();
  for (const double seconds : {times.draft, times.prepare, times.verify, times.accept, times.commit})
    list.push_back(rounded(seconds * 1000, 1000));
  return list;
}

Json round_data(const TracedRound& round, Dictionary& dictionary) {
  Json parents = Json::array(), tokens = Json::array(), scores = Json::array(), sources = Json::array();
  for (const TreeNode& node : round.tree.nodes()) {
    parents.push_back(node.parent);
    tokens.push_back(dictionary(node.token));
    scores.push_back(std::isfinite(node.score) ? Json(rounded(node.score, 1000)) : Json());
    sources.push_back(node.sources);
  }
  Json path = Json::array(), choices = Json::array();
  for (const Visit& visit : round.visits) {
    path.push_back(visit.node);
    choices.push_back(dictionary(visit.token));
  }
  return {{"p", parents}, {"t", tokens},  {"s", scores},       {"d", sources},
          {"v", path},    {"c", choices}, {"f", round.finish}, {"m", times_json(round.times)}};
}

}  // namespace

Json turn_data(const TracedTurn& turn, const TokenWords& words) {
  Dictionary dictionary(words);
  const std::size_t tail = std::min(kPromptTail, turn.prompt.size());
  const Json prompt = dictionary.of(std::span(turn.prompt).last(tail));
  const Json first = dictionary.of(std::span(turn.tokens).first(std::min<std::size_t>(1, turn.tokens.size())));
  Json rounds = Json::array();
  for (const TracedRound& round : turn.rounds) rounds.push_back(round_data(round, dictionary));
  return {
      {"drafters", words.drafters}, {"prompt", prompt},          {"cut", turn.prompt.size() - tail}, {"first", first},
      {"rounds", rounds},           {"words", dictionary.list()}};
}

}  // namespace espalier
