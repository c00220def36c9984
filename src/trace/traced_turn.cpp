#include "trace/traced_turn.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFinishReasons[] = {"stop", "length", "context", "cancelled"};

Json budget_json(const TracedBudget& budget) {
  return {{"drafted", budget.drafted}, {"step_rows", budget.step_rows}, {"step_seconds", budget.step_seconds}};
}

Json round_json(const TracedTurn& turn, const TracedRound& round) {
  Json path = Json::array(), choices = Json::array();
  for (const Visit& visit : round.visits) {
    path.push_back(visit.node);
    choices.push_back(visit.token);
  }
  Json object = {{"kind", "round"},
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
  if (round.resident) object["resident"] = true;
  return object;
}

Json turn_json(const TracedTurn& turn) {
  Json object = {{"kind", "turn"}};
  if (!turn.set.empty()) object["set"] = turn.set;
  object["prompt_id"] = json_of(turn.prompt_id);
  object["turn"] = turn.turn;
  object["prompt"] = turn.prompt;
  object["tokens"] = turn.tokens;
  object["finish_reason"] = turn.finish_reason;
  object["draw"] = json_of(turn.draw);
  object["reused_tokens"] = turn.reused_tokens;
  object["prefill_seconds"] = turn.prefill_seconds;
  object["decode_seconds"] = turn.decode_seconds;
  object["rounds"] = turn.rounds.size();
  return object;
}

void expect_kind(const JsonField& record, std::string_view kind) {
  const std::string& found = record.at("kind").string();
  if (found != kind) input_error("{}: expected a {}, got {}", record.where(), kind, in_quotes(found));
}

// Refuses any other number in a field.
template <typename Number>
void expect(const JsonField& record, const char* field, const Number& expected, const Number& found) {
  if (found != expected) input_error("{}: {}: expected {}, got {}", record.where(), field, expected, found);
}

std::string finish_from(const JsonField& field) {
  return std::string(kFinishReasons[field.one_of(kFinishReasons)]);
}

std::vector<double> table_from(const JsonField& field) {
  std::vector<double> table;
  for (const JsonField& entry : field.elements()) table.push_back(seconds_from(entry));
  if (table.empty()) input_error("{}: expected the seconds of a step of one row, and of more, got none", field.where());
  return table;
}

std::optional<TracedBudget> budget_from(const JsonField& field) {
  if (field.is_null()) return std::nullopt;
  return TracedBudget{.drafted = field.at("drafted").boolean(),
                      .step_rows = count_from(field.at("step_rows"), 1),
                      .step_seconds = table_from(field.at("step_seconds"))};
}

// From the root down, each node the child that carries the choice at the one before.
std::vector<Visit> visits_from(const JsonField& record, const TokenTree& tree) {
  const auto path = tokens_from(record.at("path")), choices = tokens_from(record.at("choices"));
  if (path.empty() || path.size() != choices.size() || path[0] != 0)
    input_error("{}: path: expected one that begins at the root, with a choice at every node", record.where());
  std::vector<Visit> visits;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (i > 0 && tree.child(path[i - 1], choices[i - 1]) != path[i])
      input_error("{}: path: node {} is no child of node {} that carries token {}", record.where(), path[i],
                  path[i - 1], choices[i - 1]);
    visits.push_back({path[i], choices[i]});
  }
  return visits;
}

TracedRound round_from(const JsonField& record) {
  expect_kind(record, "round");
  TracedRound round;
  round.number = count_from(record.at("round"));
  round.prefix = count_from(record.at("prefix"));
  round.tree = tree_from(record.at("tree"));
  round.visits = visits_from(record, round.tree);
  expect(record, "accepted", round.accepted(), record.at("accepted").integer());
  if (const JsonField finish = record.at("finish"); !finish.is_null()) round.finish = finish_from(finish);
  round.form = form_from(record);
  round.kv = {count_from(record.at("kv_bytes").at("branched")), count_from(record.at("kv_bytes").at("committed"))};
  round.times = times_from(record.at("seconds"));
  round.budget = budget_from(record.at("budget"));
  if (const std::optional<JsonField> resident = record.find("resident")) round.resident = resident->boolean();
  return round;
}

TracedTurn turn_from(const JsonField& record) {
  expect_kind(record, "turn");
  TracedTurn turn;
  turn.set = record.string_or("set", "");
  turn.prompt_id = prompt_id_from(record.at("prompt_id"));
  turn.turn = count_from(record.at("turn"), 1);
  turn.prompt = tokens_from(record.at("prompt"));
  turn.tokens = tokens_from(record.at("tokens"));
  turn.finish_reason = finish_from(record.at("finish_reason"));
  turn.draw = draw_options_from(record.at("draw"));
  turn.reused_tokens = count_from(record.at("reused_tokens"));
  turn.prefill_seconds = seconds_from(record.at("prefill_seconds"));
  turn.decode_seconds = seconds_from(record.at("decode_seconds"));
  const auto prompt = static_cast<std::int64_t>(turn.prompt.size());
  if (turn.prompt.empty()) input_error("{}: expected a prompt, got an empty one", record.where());
  if (turn.reused_tokens > prompt)
    input_error("{}: reused_tokens: expected at most {}, got {}", record.where(), prompt, turn.reused_tokens);
  if (static_cast<std::int64_t>(turn.tokens.size()) > turn.draw.max_tokens)
    input_error("{}: tokens: expected at most {}, got {}", record.where(), turn.draw.max_tokens, turn.tokens.size());
  return turn;
}

// The next round continues where those before it ended, with the answer's tokens [known, known + visits).
void check_round(const JsonField& record, const TracedTurn& turn, const TracedRound& round, std::size_t known) {
  if (prompt_id_from(record.at("prompt_id")) != turn.prompt_id)
    input_error("{}: prompt_id: expected {}, got {}", record.where(), in_quotes(text_of(turn.prompt_id)),
                in_quotes(record.at("prompt_id").json().dump()));
  expect(record, "turn", turn.turn, record.at("turn").integer());
  expect(record, "round", static_cast<std::int64_t>(turn.rounds.size()), round.number);
  if (!turn.rounds.empty() && !turn.rounds.back().finish.empty())
    input_error("{}: expected none behind the round that ended the answer", record.where());
  if (known == 0 || known + round.visits.size() > turn.tokens.size())
    input_error("{}: {} tokens behind {}, the answer has {}", record.where(), round.visits.size(), known,
                turn.tokens.size());
  expect(record, "prefix", static_cast<std::int64_t>(turn.prompt.size() + known - 1), round.prefix);
  expect(record, "tree.tokens[0]", turn.tokens[known - 1], round.tree[0].token);
  for (std::size_t i = 0; i < round.visits.size(); ++i)
    expect(record, "choices", turn.tokens[known + i], round.visits[i].token);
}

// All rounds together give the answer and its end.
void check_rounds(const JsonField& record, const TracedTurn& turn, std::size_t known) {
  if (known != turn.tokens.size())
    input_error("{}: rounds of {} tokens, the answer has {}", record.where(), known, turn.tokens.size());
  if (!turn.rounds.empty() && turn.rounds.back().finish != turn.finish_reason)
    input_error("{}: finish_reason: {}, expected that of the last round, {}", record.where(),
                in_quotes(turn.finish_reason), in_quotes(turn.rounds.back().finish));
}

}  // namespace

double TracedBudget::seconds_of(std::int64_t rows) const {
  return step_seconds[std::min(static_cast<std::size_t>(rows), step_seconds.size()) - 1];
}

std::int64_t TracedRound::judged_levels() const {
  return espalier::judged_levels(tree, visits, !finish.empty());
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
  const nlohmann::json object = parse_json(lines[0], where);
  const JsonField record(object, where);
  TracedTurn turn = turn_from(record);
  expect(record, "rounds", static_cast<std::int64_t>(lines.size()) - 1, record.at("rounds").integer());
  std::size_t known = turn.tokens.empty() ? 0 : 1;
  for (std::string_view line : lines.subspan(1)) {
    const std::string place = fmt::format("{}: round {}", where, turn.rounds.size());
    const nlohmann::json round_object = parse_json(line, place);
    const JsonField round_record(round_object, place);
    TracedRound round = round_from(round_record);
    check_round(round_record, turn, round, known);
    known += round.visits.size();
    turn.rounds.push_back(std::move(round));
  }
  check_rounds(record, turn, known);
  return turn;
}

}  // namespace espalier
