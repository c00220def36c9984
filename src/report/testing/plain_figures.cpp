#include "report/testing/plain_figures.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "base/random.h"
#include "trace/trace_file.h"

namespace espalier {
namespace {

using Numbers = std::vector<double>;

double sum_of(const Numbers& numbers) {
  double sum = 0;
  for (const double number : numbers) sum += number;
  return sum;
}

double percentile(Numbers samples, double percent) {
  std::sort(samples.begin(), samples.end());
  const double place = percent / 100 * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, samples.size() - 1);
  return samples[below] + (place - std::floor(place)) * (samples[above] - samples[below]);
}

// 2000 times as many turns as there are, drawn with replacement; the middle 95 % of what their sums give.
Interval drawn_interval(const Numbers& above, const Numbers& below) {
  Numbers found;
  std::uint64_t drawn = 0;
  for (int resample = 0; resample < 2000; ++resample) {
    double top = 0, bottom = 0;
    for (std::size_t i = 0; i < above.size(); ++i, ++drawn) {
      const auto chosen = static_cast<std::size_t>(std::floor(uniform(0, drawn) * static_cast<double>(above.size())));
      top += above[chosen];
      bottom += below[chosen];
    }
    found.push_back(bottom == 0 ? 0 : top / bottom);
  }
  return {percentile(found, 2.5), percentile(found, 97.5)};
}

PlainFigure over(const Numbers& samples) {
  return {.mean = sum_of(samples) / static_cast<double>(samples.size()),
          .p50 = percentile(samples, 50),
          .p90 = percentile(samples, 90),
          .p99 = percentile(samples, 99),
          .interval = drawn_interval(samples, Numbers(samples.size(), 1))};
}

PlainFigure ratio(const Numbers& above, const Numbers& below) {
  return {.mean = sum_of(above) / sum_of(below), .interval = drawn_interval(above, below)};
}

double tokens_of(const PlainTurn& turn) {
  return static_cast<double>(turn.traced.tokens.size());
}

double seconds_of(const PlainTurn& turn) {
  return turn.traced.prefill_seconds + turn.traced.decode_seconds;
}

double sum_of(const TurnSeconds& seconds) {
  return seconds.prefill + seconds.decode;
}

double accepted_in(const TracedRound& round) {
  return static_cast<double>(round.visits.size()) - 1;
}

double accepted_in(const PlainTurn& turn) {
  double sum = 0;
  for (const TracedRound& round : turn.traced.rounds) sum += accepted_in(round);
  return sum;
}

double rounds_of(const PlainTurn& turn) {
  return static_cast<double>(turn.traced.rounds.size());
}

bool has_baseline(const PlainTurn& turn) {
  return turn.equal.has_value();
}

bool goes_on(const PlainTurn& turn) {
  return turn.traced.tokens.size() > 1;
}

// Of each turn that passes.
Numbers each(const std::vector<PlainTurn>& turns, const std::function<bool(const PlainTurn&)>& passes,
             const std::function<double(const PlainTurn&)>& number) {
  Numbers numbers;
  for (const PlainTurn& turn : turns)
    if (passes(turn)) numbers.push_back(number(turn));
  return numbers;
}

void add_rounds(const std::vector<PlainTurn>& turns, PlainFigures& figures) {
  Numbers lengths, accepted, rounds, tokens;
  for (const PlainTurn& turn : turns) {
    for (const TracedRound& round : turn.traced.rounds) lengths.push_back(accepted_in(round));
    accepted.push_back(accepted_in(turn));
    rounds.push_back(rounds_of(turn));
    tokens.push_back(tokens_of(turn) - 1);
  }
  figures["accept_L"] = over(lengths);
  figures["accept_L"].interval = drawn_interval(accepted, rounds);  // rounds of a turn resemble each other
  figures["tau"] = ratio(tokens, rounds);
}

void add_baseline(const std::vector<PlainTurn>& turns, PlainFigures& figures) {
  const auto both = [](const PlainTurn& turn) { return has_baseline(turn) && goes_on(turn); };
  const auto retimed = [](const PlainTurn& turn) { return turn.retimed.has_value(); };
  const auto add = [&](const std::string& title, const auto& passes, const auto& number) {
    const Numbers numbers = each(turns, passes, number);
    if (!numbers.empty()) figures[title] = over(numbers);
  };
  add("baseline Tok/s", has_baseline, plain_baseline_speed);
  add("speed-up", has_baseline, plain_speed_up);
  add("speed-up from the first token on", both,
      [](const PlainTurn& turn) { return turn.baseline.value().decode / turn.traced.decode_seconds; });
  add("baseline TPOT, ms", both,
      [](const PlainTurn& turn) { return 1000 * turn.baseline.value().decode / (tokens_of(turn) - 1); });
  add("baseline TTFT, ms", has_baseline, [](const PlainTurn& turn) { return 1000 * turn.baseline.value().prefill; });
  add("baseline drift", retimed,
      [](const PlainTurn& turn) { return sum_of(turn.retimed.value()) / sum_of(turn.baseline.value()); });
}

// The deepest guess that the teacher said yes or no to: behind the accepted path, unless nothing was guessed there or
// the answer ended.
std::int64_t deepest_judged(const TracedRound& round) {
  const int last = round.visits.back().node;
  bool guessed = false;
  for (int node = 1; node < round.tree.size(); ++node) guessed = guessed || round.tree[node].parent == last;
  return static_cast<std::int64_t>(round.visits.size()) - (guessed && round.finish.empty() ? 0 : 1);
}

// Nothing where it is null or not there.
std::optional<TurnSeconds> seconds_in(const nlohmann::json& record, const char* field) {
  const nlohmann::json seconds = record.value(field, nlohmann::json());
  if (seconds.is_null()) return std::nullopt;
  return TurnSeconds{seconds.at("prefill").get<double>(), seconds.at("decode").get<double>()};
}

}  // namespace

std::vector<PlainTurn> plain_turns(const std::filesystem::path& run) {
  std::map<std::pair<PromptId, std::int64_t>, TracedTurn> traced;
  TraceReader reader(run / "ranks/0000/trace.jsonl.zst");
  while (std::optional<TracedTurn> turn = reader.next()) {
    const std::pair key(turn->prompt_id, turn->turn);
    traced.emplace(key, std::move(*turn));
  }
  std::vector<PlainTurn> turns;
  for (const auto& record : nlohmann::json::parse(read_text_file(run / "turns.json"))) {
    const PromptId id = prompt_id_from(JsonField(record.at("prompt_id"), "turns.json"));
    PlainTurn turn{.traced = traced.at({id, record.at("turn").get<std::int64_t>()})};
    if (!record.at("equal").is_null()) turn.equal = record.at("equal").get<bool>();
    turn.baseline = seconds_in(record, "baseline_seconds");
    turn.retimed = seconds_in(record, "retimed_seconds");
    turns.push_back(std::move(turn));
  }
  return turns;
}

PlainFigures plain_figures(const std::vector<PlainTurn>& turns) {
  const auto any = [](const PlainTurn&) { return true; };
  PlainFigures figures;
  figures["speculative Tok/s"] = over(each(turns, any, plain_speed));
  figures["TTFT, ms"] =
      over(each(turns, any, [](const PlainTurn& turn) { return 1000 * turn.traced.prefill_seconds; }));
  figures["TPOT, ms"] = over(each(
      turns, goes_on, [](const PlainTurn& turn) { return 1000 * turn.traced.decode_seconds / (tokens_of(turn) - 1); }));
  figures["tokens of the prompt"] =
      over(each(turns, any, [](const PlainTurn& turn) { return static_cast<double>(turn.traced.prompt.size()); }));
  figures["tokens of the answer"] = over(each(turns, any, tokens_of));
  add_rounds(turns, figures);
  add_baseline(turns, figures);
  return figures;
}

PlainFigures plain_economy(const std::vector<PlainTurn>& turns) {
  Numbers tokens, steps, seconds, plain, overheads;
  for (const PlainTurn& turn : turns) {
    if (!goes_on(turn)) continue;
    tokens.push_back(tokens_of(turn) - 1);
    steps.push_back(rounds_of(turn));
    seconds.push_back(turn.traced.decode_seconds);
    plain.push_back(turn.baseline.value().decode);
    overheads.push_back((seconds.back() / steps.back()) / (plain.back() / tokens.back()));
  }
  PlainFigures figures;
  figures["AC, tokens a step"] = ratio(tokens, steps);
  figures["overhead"] = over(overheads);
  figures["overhead"].mean = (sum_of(seconds) / sum_of(steps)) / (sum_of(plain) / sum_of(tokens));
  figures["speed-up"] = ratio(plain, seconds);
  return figures;
}

std::map<std::string, PlainStage> plain_stages(const std::vector<PlainTurn>& turns) {
  std::map<std::string, Numbers> milliseconds;
  for (const PlainTurn& turn : turns) {
    milliseconds["prefill"].push_back(1000 * turn.traced.prefill_seconds);
    for (const TracedRound& round : turn.traced.rounds) {
      milliseconds["draft"].push_back(1000 * round.times.draft);
      milliseconds["prepare"].push_back(1000 * round.times.prepare);
      milliseconds["verify"].push_back(1000 * round.times.verify);
      milliseconds["accept"].push_back(1000 * round.times.accept);
      milliseconds["commit"].push_back(1000 * round.times.commit);
    }
  }
  double all = 0;
  for (const auto& [stage, samples] : milliseconds) all += sum_of(samples);
  std::map<std::string, PlainStage> stages;
  for (const auto& [stage, samples] : milliseconds) stages[stage] = {over(samples), sum_of(samples) / all};
  return stages;
}

std::map<std::int64_t, PlainDepth> plain_accept_pos(const std::vector<PlainTurn>& turns) {
  std::int64_t deepest = 0;
  for (const PlainTurn& turn : turns)
    for (const TracedRound& round : turn.traced.rounds) deepest = std::max(deepest, deepest_judged(round));
  std::map<std::int64_t, PlainDepth> depths;
  for (std::int64_t depth = 1; depth <= deepest; ++depth) {
    Numbers judged(turns.size()), accepted(turns.size());
    for (std::size_t i = 0; i < turns.size(); ++i)
      for (const TracedRound& round : turns[i].traced.rounds) {
        judged[i] += depth <= deepest_judged(round) ? 1 : 0;
        accepted[i] += depth <= static_cast<std::int64_t>(round.visits.size()) - 1 ? 1 : 0;
      }
    depths[depth] = {sum_of(judged), ratio(accepted, judged)};
  }
  return depths;
}

double plain_speed(const PlainTurn& turn) {
  return tokens_of(turn) / seconds_of(turn);
}

double plain_baseline_speed(const PlainTurn& turn) {
  return tokens_of(turn) / sum_of(turn.baseline.value());
}

double plain_speed_up(const PlainTurn& turn) {
  return sum_of(turn.baseline.value()) / seconds_of(turn);
}

}  // namespace espalier
