#include "eval/turn_record.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_field.h"
#include "trace/record_json.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

// Bounds for whoever counts with them: a tree has fewer levels.
constexpr std::int64_t kMostLevels = 1 << 16;
constexpr std::int64_t kMostRounds = std::int64_t{1} << 40;

TurnSeconds turn_seconds_from(const JsonField& field) {
  return {seconds_from(field.at("prefill")), seconds_from(field.at("decode"))};
}

// Equal tokens are not written twice.
void add_baseline(const TurnRecord& record, Json& object) {
  object["baseline_seconds"] = to_json(record.baseline->seconds);
  if (record.baseline->retimed) object["retimed_seconds"] = to_json(*record.baseline->retimed);
  const auto difference = record.first_difference();
  object["equal"] = !difference;
  if (!difference) return;
  object["first_difference"] = *difference;
  object["baseline_tokens"] = record.baseline->tokens;
  object["baseline_finish_reason"] = record.baseline->finish_reason;
  if (record.baseline->margin) object["margin"] = *record.baseline->margin;
}

std::optional<BaselineTurn> baseline_from(const JsonField& field, const TurnRecord& record) {
  const JsonField equal = field.at("equal");
  if (equal.is_null()) return std::nullopt;
  BaselineTurn baseline{turn_seconds_from(field.at("baseline_seconds")), record.tokens, record.finish_reason};
  if (const auto retimed = field.find("retimed_seconds")) baseline.retimed = turn_seconds_from(*retimed);
  if (equal.boolean()) return baseline;
  baseline.tokens = tokens_from(field.at("baseline_tokens"));
  baseline.finish_reason = field.at("baseline_finish_reason").string();
  if (const auto margin = field.find("margin")) baseline.margin = margin->number();
  return baseline;
}

}  // namespace

std::optional<std::int64_t> TurnRecord::first_difference() const {
  if (!baseline || (tokens == baseline->tokens && finish_reason == baseline->finish_reason)) return std::nullopt;
  const std::vector<std::int32_t>& other = baseline->tokens;
  return std::mismatch(tokens.begin(), tokens.end(), other.begin(), other.end()).first - tokens.begin();
}

Json to_json(const TurnSeconds& seconds) {
  return {{"prefill", seconds.prefill}, {"decode", seconds.decode}};
}

Json to_json(const TurnRecord& record) {
  Json object = {{"record", record.record},
                 {"set", record.set},
                 {"prompt_id", json_of(record.prompt_id)},
                 {"turn", record.turn},
                 {"user", record.user},
                 {"prompt_tokens", record.prompt.size()},
                 {"prompt", record.prompt},
                 {"tokens", record.tokens},
                 {"text", record.text},
                 {"finish_reason", record.finish_reason},
                 {"accept_lengths", record.accept_lengths},
                 {"reached", record.reached},
                 {"seconds", to_json(record.seconds)},
                 {"stages", json_of(record.stages)}};
  object["baseline_seconds"] = nullptr;
  object["equal"] = nullptr;
  if (record.baseline) add_baseline(record, object);
  if (record.error) object["error"] = *record.error;
  return object;
}

TurnRecord turn_record_from(const nlohmann::json& object, std::string_view where) {
  const JsonField field(object, where);
  TurnRecord record;
  record.record = count_from(field.at("record"));
  record.set = field.at("set").string();
  record.prompt_id = prompt_id_from(field.at("prompt_id"));
  record.turn = count_from(field.at("turn"));
  if (const auto user = field.find("user")) record.user = user->string();
  record.prompt = tokens_from(field.at("prompt"));
  record.tokens = tokens_from(field.at("tokens"));
  record.text = field.at("text").string();
  record.finish_reason = field.at("finish_reason").string();
  record.accept_lengths = field.at("accept_lengths").integers(0, kMostLevels);
  record.reached = field.at("reached").integers(0, kMostRounds);
  record.seconds = turn_seconds_from(field.at("seconds"));
  record.stages = times_from(field.at("stages"));
  record.baseline = baseline_from(field, record);
  if (const auto error = field.find("error")) record.error = error->string();
  return record;
}

}  // namespace espalier
