#include <nlohmann/json.hpp>

#include "bench/figures.h"
#include "bench/load/load_report.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

Json percentiles_json(const Percentiles& each) {
  if (each.count == 0) return {{"count", 0}, {"p50", nullptr}, {"p95", nullptr}, {"p99", nullptr}, {"max", nullptr}};
  return {{"count", each.count},
          {"p50", 1e3 * each.p50},
          {"p95", 1e3 * each.p95},
          {"p99", 1e3 * each.p99},
          {"max", 1e3 * each.most}};
}

Json gaps_json(const GapFigures& gaps) {
  return {{"per_token_ms", percentiles_json(gaps.per_token)},
          {"between_events_ms", percentiles_json(gaps.between_events)}};
}

Json speed_json(const std::vector<double>& samples) {
  Json json = {{"median", nullptr}, {"lower_quartile", nullptr}, {"upper_quartile", nullptr}, {"samples", samples}};
  if (samples.empty()) return json;
  const Spread spread = spread_of(samples);
  json["median"] = spread.median;
  json["lower_quartile"] = spread.lower;
  json["upper_quartile"] = spread.upper;
  return json;
}

Json interrupts_json(const InterruptFigures& figures) {
  return {{"prompts", figures.prompts},
          {"failed", figures.failed},
          {"prompt_tokens", figures.prompt_tokens},
          {"first_token_ms", percentiles_json(figures.first_token)},
          {"gaps_undisturbed", gaps_json(figures.calm)},
          {"gaps_disturbed", gaps_json(figures.disturbed)}};
}

Json figures_json(std::size_t server, const LoadFigures& figures) {
  return {{"server", server},
          {"tokens_per_second", speed_json(figures.tokens_per_second)},
          {"first_token_ms", percentiles_json(figures.first_token)},
          {"gaps", gaps_json(figures.gaps)},
          {"whole_answer_ms", percentiles_json(figures.whole_answer)},
          {"requests", figures.requests},
          {"failed", figures.failed},
          {"short_answers", figures.short_answers},
          {"tokens", figures.tokens},
          {"prompt_tokens", figures.prompt_tokens},
          {"cached_prompt_tokens", figures.cached_tokens},
          {"tokens_of_events_known", figures.tokens_known},
          {"tokens_of_answers_known", figures.usage_known},
          {"first_problem", figures.problem.empty() ? Json(nullptr) : Json(figures.problem)},
          {"interrupts", figures.interrupts ? interrupts_json(*figures.interrupts) : Json(nullptr)}};
}

Json shape_json(const ShapeResult& result) {
  const auto ratio = speed_ratio(result);
  Json json = {{"users", result.shape.users > 0 ? Json(result.shape.users) : Json(nullptr)},
               {"rate", result.shape.rate > 0 ? Json(result.shape.rate) : Json(nullptr)},
               {"ratio", ratio ? Json(*ratio) : Json(nullptr)},
               {"figures", Json::array()}};
  for (std::size_t i = 0; i < result.figures.size(); ++i) json["figures"].push_back(figures_json(i, result.figures[i]));
  return json;
}

Json servers_json(const std::vector<LoadTarget>& targets) {
  Json list = Json::array();
  for (const LoadTarget& target : targets)
    list.push_back({{"url", target.url.text()},
                    {"model", target.model},
                    {"owned_by", target.owner},
                    {"speculation", target.speculation.empty() ? Json(nullptr) : Json(target.speculation)}});
  return list;
}

}  // namespace

Json load_json(const LoadResult& result) {
  const LoadPlan& plan = result.plan;
  const LoadSettings& settings = plan.settings;
  Json json = {{"servers", servers_json(plan.targets)},
               {"interrupted", result.interrupted},
               {"rounds", plan.rounds},
               {"api", name(settings.api)},
               {"prompts", plan.prompts.kind},
               {"shared_prefix", plan.prompts.shared_prefix},
               {"seed", plan.prompts.seed},
               {"tokens", settings.tokens},
               {"requests", settings.seconds > 0 ? Json(nullptr) : Json(settings.requests)},
               {"seconds", settings.seconds > 0 ? Json(settings.seconds) : Json(nullptr)},
               {"interrupt_tokens", settings.interrupt_tokens > 0 ? Json(settings.interrupt_tokens) : Json(nullptr)},
               {"loads", Json::array()}};
  for (const ShapeResult& shape : result.shapes) json["loads"].push_back(shape_json(shape));
  return json;
}

}  // namespace espalier
