#include "experiments/round_figures.h"

#include <nlohmann/json.hpp>
#include <numeric>

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

double sum(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

double ratio(double a, double b) {
  return b == 0 ? 0 : a / b;
}

Json estimate_json(const Estimate& estimate) {
  return {{"value", estimate.value}, {"interval", to_json(estimate.interval)}};
}

}  // namespace

StepEconomy step_economy(std::span<const TurnRecord> turns) {
  std::vector<double> tokens, steps, seconds, plain_seconds, overheads;
  for (const TurnRecord& turn : turns) {
    const auto later = static_cast<double>(turn.tokens.size()) - 1;  // the first token is the prompt's
    const auto rounds = static_cast<double>(turn.accept_lengths.size());
    if (!turn.baseline || later < 1 || rounds < 1) continue;
    tokens.push_back(later);
    steps.push_back(rounds);
    seconds.push_back(turn.seconds.decode);
    plain_seconds.push_back(turn.baseline->seconds.decode);
    overheads.push_back(ratio(turn.seconds.decode / rounds, turn.baseline->seconds.decode / later));
  }
  if (tokens.empty()) return {};
  StepEconomy economy;
  economy.ac = {ratio(sum(tokens), sum(steps)), ratio_interval(tokens, steps)};
  economy.overhead = {ratio(sum(seconds) / sum(steps), sum(plain_seconds) / sum(tokens)), mean_interval(overheads)};
  economy.speed_up = {ratio(sum(plain_seconds), sum(seconds)), ratio_interval(plain_seconds, seconds)};
  return economy;
}

Json to_json(const StepEconomy& economy) {
  return {{"ac", estimate_json(economy.ac)},
          {"overhead", estimate_json(economy.overhead)},
          {"speed_up", estimate_json(economy.speed_up)}};
}

void StageTimes::add(const TracedTurn& turn) {
  constexpr double kMilliseconds = 1000;
  prefill_.push_back(turn.prefill_seconds * kMilliseconds);
  for (const TracedRound& round : turn.rounds) {
    draft_.push_back(round.times.draft * kMilliseconds);
    prepare_.push_back(round.times.prepare * kMilliseconds);
    verify_.push_back(round.times.verify * kMilliseconds);
    accept_.push_back(round.times.accept * kMilliseconds);
    commit_.push_back(round.times.commit * kMilliseconds);
  }
}

Json StageTimes::to_json() const {
  const std::pair<const char*, const std::vector<double>*> stages[] = {{"prefill", &prefill_}, {"draft", &draft_},
                                                                       {"prepare", &prepare_}, {"verify", &verify_},
                                                                       {"accept", &accept_},   {"commit", &commit_}};
  double all = 0;
  for (const auto& [name, samples] : stages) all += sum(*samples);
  Json list = Json::array();
  for (const auto& [name, samples] : stages) {
    const Distribution milliseconds = distribution_of(*samples);
    list.push_back({{"stage", name},
                    {"per", samples == &prefill_ ? "turn" : "round"},
                    {"milliseconds", espalier::to_json(milliseconds)},
                    {"p99_over_mean", ratio(milliseconds.p99, milliseconds.mean)},
                    {"share", ratio(sum(*samples), all)}});
  }
  return list;
}

}  // namespace espalier
