#include "trace/trace_stats.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

double share(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

std::vector<double> accept_pos(const TraceStats& stats) {
  std::vector<double> shares;
  for (std::size_t i = 0; i < stats.reached.size(); ++i) {
    const std::int64_t accepted = i < stats.accepted.size() ? stats.accepted[i] : 0;
    shares.push_back(static_cast<double>(accepted) / static_cast<double>(stats.reached[i]));
  }
  return shares;
}

// Of the time that the stages took together.
Json shares_json(const TraceStats& stats) {
  const double whole = stats.stages.sum();
  const RoundTimes& stages = stats.stages;
  return json_of(RoundTimes{share(stages.draft, whole), share(stages.prepare, whole), share(stages.verify, whole),
                            share(stages.accept, whole), share(stages.commit, whole)});
}

}  // namespace

void TraceStats::add(const TracedTurn& turn) {
  ++turns;
  tokens += static_cast<std::int64_t>(turn.tokens.size());
  prefill_seconds += turn.prefill_seconds;
  decode_seconds += turn.decode_seconds;
  for (const TracedRound& round : turn.rounds) {
    ++rounds;
    drafted += round.accepted();
    rows += round.tree.size();
    plain_rounds += round.tree.size() == 1 ? 1 : 0;
    count_levels(round.judged_levels(), reached);
    count_levels(round.accepted(), accepted);
    ++masks[std::string(name(round.form.mask))];
    kv.branched += round.kv.branched;
    kv.committed += round.kv.committed;
    stages += round.times;
  }
}

double TraceStats::accept_length() const {
  return rounds == 0 ? 0 : static_cast<double>(drafted) / static_cast<double>(rounds);
}

double TraceStats::tau() const {
  return rounds == 0 ? 0 : accept_length() + 1;
}

double TraceStats::mean_rows() const {
  return rounds == 0 ? 0 : static_cast<double>(rows) / static_cast<double>(rounds);
}

Json to_json(const TraceStats& stats) {
  return {{"turns", stats.turns},
          {"tokens", stats.tokens},
          {"rounds", stats.rounds},
          {"drafted", stats.drafted},
          {"accept_L", stats.accept_length()},
          {"tau", stats.tau()},
          {"reached", stats.reached},
          {"accept_pos", accept_pos(stats)},
          {"rows", stats.rows},
          {"mean_rows", stats.mean_rows()},
          {"plain_rounds", stats.plain_rounds},
          {"masks", stats.masks},
          {"kv_bytes", {{"branched", stats.kv.branched}, {"committed", stats.kv.committed}}},
          {"seconds", {{"prefill", stats.prefill_seconds}, {"decode", stats.decode_seconds}}},
          {"stages", json_of(stats.stages)},
          {"stage_shares", shares_json(stats)}};
}

std::string stats_text(const TraceStats& stats) {
  std::string text = fmt::format("turns {}, tokens {}, rounds {}\naccept_L {:.3f}, tau {:.3f}\naccept_pos", stats.turns,
                                 stats.tokens, stats.rounds, stats.accept_length(), stats.tau());
  for (double one : accept_pos(stats)) text += fmt::format(" {:.3f}", one);
  const double whole = stats.stages.sum();
  const RoundTimes& stages = stats.stages;
  text += fmt::format("\nrows {}, {:.1f} a round; {} rounds of the root alone", stats.rows, stats.mean_rows(),
                      stats.plain_rounds);
  text += fmt::format("\nKV bytes copied: {} for branches, {} by commits", stats.kv.branched, stats.kv.committed);
  text += fmt::format("\nseconds: prefill {:.3f}, decode {:.3f}", stats.prefill_seconds, stats.decode_seconds);
  text += fmt::format("\nstages: draft {:.1f} %, prepare {:.1f} %, verify {:.1f} %, accept {:.1f} %, commit {:.1f} %\n",
                      100 * share(stages.draft, whole), 100 * share(stages.prepare, whole),
                      100 * share(stages.verify, whole), 100 * share(stages.accept, whole),
                      100 * share(stages.commit, whole));
  return text;
}

}  // namespace espalier
