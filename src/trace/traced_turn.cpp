#include "trace/traced_turn.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFinishReasons[] = {"stop", "length", "context", "cancelled"};

Json budget_json(const TracedBudget& budget) {
  return {{"drafted", budget.drafted},
          {"step_rows", budget.step_rows},
          {"step_seconds", budget.step_seconds},
          {"plain_seconds", budget.plain_seconds}};
}

Json round_json(const TracedTurn& turn, const TracedRound& round) {
  Json path = Json::array(), choices = Json::array();
  for (const Visit& visit : round.visits) {
    path.push_back(visit.node);
    choices.push_back(visit.token);
  }
  return {{"kind", "round"},
          {"prompt_id", json_of(turn.prompt_id)},
          {"turn", turn.turn},
          {"round", round.number},
          {"prefix", round.prefix},
          {"tree", json_of(round.tree)},
          {"path", path},
          {"choices", choices},
          {"accepted", round.accepted()},
          {"finish", round.finish.empty() ? Json() : Json(round.finish)},
          {"attention", name(round.form.attention)},
          {"mask", name(round.form.mask)},
          {"kv_bytes", {{"branched", round.kv.branched}, {"committed", round.kv.committed}}},
          {"seconds", json_of(round.times)},
          {"budget", round.budget ? budget_json(*round.budget) : Json()}};
}

Json turn_json(const TracedTurn& turn) {
  return {{"kind", "turn"},
          {"prompt_id", json_of(turn.prompt_id)},
          {"turn", turn.turn},
          {"prompt", turn.prompt},
          {"tokens", turn.tokens},
          {"finish_reason", turn.finish_reason},
          {"draw", json_of(turn.draw)},
          {"reused_tokens", turn.reused_tokens},
          {"prefill_seconds", turn.prefill_seconds},
          {"decode_seconds", turn.decode_seconds},
          {"rounds", turn.rounds.size()}};
}

std::string finish_from(const nlohmann::json& value, std::string_view where) {
  const auto reason = value.get<std::string>();
  if (std::ranges::find(kFinishReasons, reason) == std::end(kFinishReasons))
    input_error("{}: expected stop, length, context or cancelled, got {}", where, reason);
  return reason;
}

std::optional<TracedBudget> budget_from(const nlohmann::json& object, std::string_view where) {
  if (object.is_null()) return std::nullopt;
  return TracedBudget{.drafted = object.at("drafted").get<bool>(),
                      .step_rows = count_from(object.at("step_rows"), where),
                      .step_seconds = object.at("step_seconds").get<double>(),
                      .plain_seconds = object.at("plain_seconds").get<double>()};
}

// From the root down, each node the child that carries the choice at the one before.
std::vector<Visit> visits_from(const nlohmann::json& object, const TokenTree& tree, std::string_view where) {
  const auto path = tokens_from(object.at("path"), where), choices = tokens_from(object.at("choices"), where);
  if (path.empty() || path.size() != choices.size() || path[0] != 0)
    input_error("{}: path: expected one that begins at the root, with a choice at every node", where);
  std::vector<Visit> visits;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (i > 0 && tree.child(path[i - 1], choices[i - 1]) != path[i])
      input_error("{}: path: node {} is no child of node {} that carries token {}", where, path[i], path[i - 1],
                  choices[i - 1]);
    visits.push_back({path[i], choices[i]});
  }
  return visits;
}

TracedRound round_from(const nlohmann::json& object, std::string_view where) {
  if (object.at("kind") != "round") input_error("{}: expected a round", where);
  TracedRound round;
  round.number = count_from(object.at("round"), where);
  round.prefix = count_from(object.at("prefix"), where);
  round.tree = tree_from(object.at("tree"), where);
  round.visits = visits_from(object, round.tree, where);
  if (!object.at("finish").is_null()) round.finish = finish_from(object["finish"], where);
  round.form = form_from(object, where);
  round.kv = {count_from(object.at("kv_bytes").at("branched"), where),
              count_from(object.at("kv_bytes").at("committed"), where)};
  round.times = times_from(object.at("seconds"), where);
  round.budget = budget_from(object.at("budget"), where);
  return round;
}

TracedTurn turn_from(const nlohmann::json& object, std::string_view where) {
  if (!object.is_object() || object.at("kind") != "turn") input_error("{}: expected a turn", where);
  TracedTurn turn;
  turn.prompt_id = prompt_id_from(object.at("prompt_id"), where);
  turn.turn = count_from(object.at("turn"), where);
  turn.prompt = tokens_from(object.at("prompt"), where);
  turn.tokens = tokens_from(object.at("tokens"), where);
  turn.finish_reason = finish_from(object.at("finish_reason"), where);
  turn.draw = draw_options_from(object.at("draw"), where);
  turn.reused_tokens = count_from(object.at("reused_tokens"), where);
  turn.prefill_seconds = object.at("prefill_seconds").get<double>();
  turn.decode_seconds = object.at("decode_seconds").get<double>();
  if (turn.prompt.empty()) input_error("{}: expected a prompt, got an empty one", where);
  return turn;
}

// The next round continues where those before it ended.
void check_round(const TracedTurn& turn, const TracedRound& round, std::size_t known, std::string_view where) {
  const std::size_t number = turn.rounds.size();
  if (round.number != static_cast<std::int64_t>(number))
    input_error("{}: round {}, expected {}", where, round.number, number);
  if (known == 0 || known + round.visits.size() > turn.tokens.size())
    input_error("{}: round {}: {} tokens behind {}, the answer has {}", where, number, round.visits.size(), known,
                turn.tokens.size());
  if (round.prefix != static_cast<std::int64_t>(turn.prompt.size() + known - 1))
    input_error("{}: round {}: prefix {}, expected {}", where, number, round.prefix, turn.prompt.size() + known - 1);
  if (round.tree[0].token != turn.tokens[known - 1])
    input_error("{}: round {}: root {}, expected {}", where, number, round.tree[0].token, turn.tokens[known - 1]);
  for (std::size_t i = 0; i < round.visits.size(); ++i)
    if (round.visits[i].token != turn.tokens[known + i])
      input_error("{}: round {}: choice {}, the answer has {}", where, number, round.visits[i].token,
                  turn.tokens[known + i]);
}

}  // namespace

std::int64_t TracedRound::judged_levels() const {
  const bool rejected = finish.empty() && tree[visits.back().node].children > 0;
  return accepted() + (rejected ? 1 : 0);
}

std::vector<std::int64_t> TracedTurn::accept_lengths() const {
  std::vector<std::int64_t> lengths;
  for (const TracedRound& round : rounds) lengths.push_back(round.accepted());
  return lengths;
}

std::optional<std::size_t> TracedTurn::round_of_token(std::size_t index) const {
  std::size_t end = 1;
  if (index < end) return std::nullopt;
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    end += rounds[i].visits.size();
    if (index < end) return i;
  }
  return std::nullopt;
}

std::vector<std::string> to_lines(const TracedTurn& turn) {
  std::vector<std::string> lines = {one_line(turn_json(turn))};
  for (const TracedRound& round : turn.rounds) lines.push_back(one_line(round_json(turn, round)));
  return lines;
}

TracedTurn traced_turn_from(std::span<const std::string_view> lines, std::string_view where) {
  if (lines.empty()) input_error("{}: expected a turn, got nothing", where);
  TracedTurn turn;
  reading("a turn of a trace", where, [&] {
    const nlohmann::json object = parse_json(lines[0], where);
    turn = turn_from(object, where);
    if (object.at("rounds") != lines.size() - 1)
      input_error("{}: {} rounds, expected {}", where, lines.size() - 1, object["rounds"].dump());
    std::size_t known = turn.tokens.empty() ? 0 : 1;
    for (std::string_view line : lines.subspan(1)) {
      TracedRound round = round_from(parse_json(line, where), where);
      check_round(turn, round, known, where);
      known += round.visits.size();
      turn.rounds.push_back(std::move(round));
    }
    if (known != turn.tokens.size())
      input_error("{}: rounds of {} tokens, the answer has {}", where, known, turn.tokens.size());
  });
  return turn;
}

}  // namespace espalier
