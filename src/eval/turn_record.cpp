#include "eval/turn_record.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostLevels = 1 << 16;
constexpr std::int64_t kMostRounds = std::int64_t{1} << 40;

Json id_json(const PromptId& id) {
  return std::visit([](const auto& value) { return Json(value); }, id);
}

PromptId id_from(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.get<std::int64_t>();
}

Json seconds_json(const TurnSeconds& seconds) {
  return {{"prefill", seconds.prefill}, {"decode", seconds.decode}};
}

TurnSeconds seconds_from(const nlohmann::json& object) {
  return {object.at("prefill").get<double>(), object.at("decode").get<double>()};
}

Json stages_json(const RoundTimes& times) {
  return {{"draft", times.draft},
          {"prepare", times.prepare},
          {"verify", times.verify},
          {"accept", times.accept},
          {"commit", times.commit}};
}

RoundTimes stages_from(const nlohmann::json& object) {
  const auto at = [&](const char* name) { return object.at(name).get<double>(); };
  return {at("draft"), at("prepare"), at("verify"), at("accept"), at("commit")};
}

// Equal tokens are not written twice.
void add_baseline(const TurnRecord& record, Json& object) {
  object["baseline_seconds"] = seconds_json(record.baseline->seconds);
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

std::optional<BaselineTurn> baseline_from(const nlohmann::json& object, const TurnRecord& record) {
  if (!object.contains("equal")) return std::nullopt;
  BaselineTurn baseline{seconds_from(object.at("baseline_seconds")), record.tokens, record.finish_reason};
  if (object.at("equal").get<bool>()) return baseline;
  baseline.tokens = object.at("baseline_tokens").get<std::vector<std::int32_t>>();
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
  Json object = {{"prompt_id", id_json(record.prompt_id)},
                 {"turn", record.turn},
                 {"prompt_tokens", record.prompt.size()},
                 {"prompt", record.prompt},
                 {"tokens", record.tokens},
                 {"text", record.text},
                 {"finish_reason", record.finish_reason},
                 {"accept_lengths", record.accept_lengths},
                 {"reached", record.reached},
                 {"seconds", seconds_json(record.seconds)},
                 {"stages", stages_json(record.stages)}};
  if (record.baseline) add_baseline(record, object);
  return object;
}

TurnRecord turn_record_from(const nlohmann::json& object, std::string_view where) {
  try {
    TurnRecord record;
    record.prompt_id = id_from(object.at("prompt_id"));
    record.turn = object.at("turn").get<std::int64_t>();
    record.prompt = object.at("prompt").get<std::vector<std::int32_t>>();
    record.tokens = object.at("tokens").get<std::vector<std::int32_t>>();
    record.text = object.at("text").get<std::string>();
    record.finish_reason = object.at("finish_reason").get<std::string>();
    record.accept_lengths = counts_from(object.at("accept_lengths"), kMostLevels, where);
    record.reached = counts_from(object.at("reached"), kMostRounds, where);
    record.seconds = seconds_from(object.at("seconds"));
    record.stages = stages_from(object.at("stages"));
    record.baseline = baseline_from(object, record);
    return record;
  } catch (const nlohmann::json::exception& error) {
    const std::string_view message = error.what();
    input_error("{}: expected a turn of an evaluation: {}", where, message.substr(message.find("] ") + 2));
  }
}

}  // namespace espalier
