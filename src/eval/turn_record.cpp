#include "eval/turn_record.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "trace/record_json.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostLevels = 1 << 16;
constexpr std::int64_t kMostRounds = std::int64_t{1} << 40;

Json seconds_json(const TurnSeconds& seconds) {
  return {{"prefill", seconds.prefill}, {"decode", seconds.decode}};
}

TurnSeconds seconds_from(const nlohmann::json& object) {
  return {object.at("prefill").get<double>(), object.at("decode").get<double>()};
}

// Equal tokens are not written twice.
void add_baseline(const TurnRecord& record, Json& object) {
  object["baseline_seconds"] = seconds_json(record.baseline->seconds);
  if (record.baseline->retimed) object["retimed_seconds"] = seconds_json(*record.baseline->retimed);
  const auto difference = record.first_difference();
  object["equal"] = !difference;
  if (!difference) return;
  object["first_difference"] = *difference;
  object["baseline_tokens"] = record.baseline->tokens;
  object["baseline_finish_reason"] = record.baseline->finish_reason;
}

// Bounded, so that whoever counts with them needs no care: a tree has fewer levels.
std::vector<std::int64_t> counts_from(const nlohmann::json& list, std::int64_t most, std::string_view where) {
  auto counts = list.get<std::vector<std::int64_t>>();
  for (std::int64_t count : counts)
    if (count < 0 || count > most) input_error("{}: expected counts from 0 to {}, got {}", where, most, count);
  return counts;
}

std::optional<BaselineTurn> baseline_from(const nlohmann::json& object, const TurnRecord& record,
                                          std::string_view where) {
  if (object.at("equal").is_null()) return std::nullopt;
  BaselineTurn baseline{seconds_from(object.at("baseline_seconds")), record.tokens, record.finish_reason};
  if (object.contains("retimed_seconds")) baseline.retimed = seconds_from(object.at("retimed_seconds"));
  if (object.at("equal").get<bool>()) return baseline;
  baseline.tokens = tokens_from(object.at("baseline_tokens"), where);
  baseline.finish_reason = object.at("baseline_finish_reason").get<std::string>();
  return baseline;
}

}  // namespace

std::optional<std::int64_t> TurnRecord::first_difference() const {
  if (!baseline || (tokens == baseline->tokens && finish_reason == baseline->finish_reason)) return std::nullopt;
  const std::vector<std::int32_t>& other = baseline->tokens;
  return std::mismatch(tokens.begin(), tokens.end(), other.begin(), other.end()).first - tokens.begin();
}

Json to_json(const TurnRecord& record) {
  Json object = {{"record", record.record},
                 {"set", record.set},
                 {"prompt_id", json_of(record.prompt_id)},
                 {"turn", record.turn},
                 {"prompt_tokens", record.prompt.size()},
                 {"prompt", record.prompt},
                 {"tokens", record.tokens},
                 {"text", record.text},
                 {"finish_reason", record.finish_reason},
                 {"accept_lengths", record.accept_lengths},
                 {"reached", record.reached},
                 {"seconds", seconds_json(record.seconds)},
                 {"stages", json_of(record.stages)}};
  object["baseline_seconds"] = nullptr;
  object["equal"] = nullptr;
  if (record.baseline) add_baseline(record, object);
  return object;
}

TurnRecord turn_record_from(const nlohmann::json& object, std::string_view where) {
  TurnRecord record;
  reading("a turn of an evaluation", where, [&] {
    record.record = count_from(object.at("record"), where);
    record.set = object.at("set").get<std::string>();
    record.prompt_id = prompt_id_from(object.at("prompt_id"), where);
    record.turn = count_from(object.at("turn"), where);
    record.prompt = tokens_from(object.at("prompt"), where);
    record.tokens = tokens_from(object.at("tokens"), where);
    record.text = object.at("text").get<std::string>();
    record.finish_reason = object.at("finish_reason").get<std::string>();
    record.accept_lengths = counts_from(object.at("accept_lengths"), kMostLevels, where);
    record.reached = counts_from(object.at("reached"), kMostRounds, where);
    record.seconds = seconds_from(object.at("seconds"));
    record.stages = times_from(object.at("stages"), where);
    record.baseline = baseline_from(object, record, where);
  });
  return record;
}

}  // namespace espalier
