#include "report/run_traces.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/untrusted_text.h"
#include "trace/trace_file.h"

namespace espalier {
namespace {

using TurnKey = std::pair<PromptId, std::int64_t>;

std::multimap<TurnKey, std::size_t> places_of(const std::vector<TurnRecord>& turns) {
  std::multimap<TurnKey, std::size_t> places;
  for (std::size_t i = 0; i < turns.size(); ++i) places.emplace(TurnKey{turns[i].prompt_id, turns[i].turn}, i);
  return places;
}

// Two data sets may use the same ids; then the set tells them apart, and in traces that name none the prompt.
std::optional<std::size_t> find_turn(const std::multimap<TurnKey, std::size_t>& places,
                                     const std::vector<TurnRecord>& turns, const TracedTurn& traced) {
  const auto [begin, end] = places.equal_range({traced.prompt_id, traced.turn});
  for (auto place = begin; place != end; ++place) {
    const TurnRecord& turn = turns[place->second];
    if (turn.prompt == traced.prompt && (traced.set.empty() || turn.set == traced.set)) return place->second;
  }
  return begin == end ? std::nullopt : std::optional(begin->second);
}

std::vector<std::int64_t> reached_of(const TracedTurn& traced) {
  std::vector<std::int64_t> reached;
  for (const TracedRound& round : traced.rounds) count_levels(round.judged_levels(), reached);
  return reached;
}

void note_agreement(const TurnRecord& turn, const TracedTurn& traced, RunTraces& result) {
  const auto field = disagreement(turn, traced);
  if (!field) ++result.agreeing;
  if (field && !result.disagreement)
    result.disagreement = fmt::format("prompt {}, turn {}: {} in the trace is not that of turns.json",
                                      in_quotes(text_of(turn.prompt_id)), turn.turn, *field);
}

}  // namespace

std::optional<std::string> disagreement(const TurnRecord& turn, const TracedTurn& traced) {
  if (turn.prompt != traced.prompt) return "prompt";
  if (turn.tokens != traced.tokens) return "tokens";
  if (turn.finish_reason != traced.finish_reason) return "finish_reason";
  if (turn.accept_lengths != traced.accept_lengths()) return "accept_lengths";
  if (turn.reached != reached_of(traced)) return "reached";
  if (turn.seconds.prefill != traced.prefill_seconds || turn.seconds.decode != traced.decode_seconds) return "seconds";
  return std::nullopt;
}

RunTraces read_run_traces(const ReportRun& run, const TokenWords& words, const TracedTurnSink& sink) {
  RunTraces result;
  const auto places = places_of(run.turns);
  std::vector<bool> heard(run.turns.size());
  for (const std::filesystem::path& path : run.traces) {
    TraceReader reader(path);
    while (const std::optional<TracedTurn> traced = reader.next()) {
      const auto place = find_turn(places, run.turns, *traced);
      if (!place || heard[*place]) continue;  // of a run that went on with other ranks: the turn counts once
      heard[*place] = true;
      ++result.traced;
      note_agreement(run.turns[*place], *traced, result);
      result.stages.add(*traced);
      sink(*place, turn_data(*traced, words));
    }
  }
  return result;
}

}  // namespace espalier
