#include "engine/answer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/arithmetic.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

Json logprob_json(const TokenLogprob& entry, const Tokenizer& tokenizer) {
  return {{"token", entry.token}, {"text", tokenizer.decode(std::span(&entry.token, 1))}, {"logprob", entry.logprob}};
}

Json logprobs_json(const std::vector<Logprobs>& all, const Tokenizer& tokenizer) {
  Json list = Json::array();
  for (const Logprobs& one : all) {
    Json entry = logprob_json(one.chosen, tokenizer);
    entry["top"] = Json::array();
    for (const TokenLogprob& other : one.top) entry["top"].push_back(logprob_json(other, tokenizer));
    list.push_back(std::move(entry));
  }
  return list;
}

// Mask and route are what `auto` came to, for this device and budget.
Json options_json(const ModeOptions& modes, const Batch& decoder) {
  return {{"attention", modes.attention},
          {"cache", modes.cache},
          {"reorder", modes.reorder},
          {"mask", decoder.form().mask == MaskForm::dense ? "dense" : "list"},
          {"checked", modes.checked},
          {"invariants", modes.invariants == "on"},
          {"round_route", decoder.resident() ? "device" : "host"}};
}

Json tree_json(const TreeOptions& tree) {
  Json object = {{"shape", name(tree.shape)},
                 {"nodes", max_rows(tree)},
                 {"depth", tree.depth},
                 {"expand", nullptr},
                 {"branch", nullptr}};
  if (tree.shape == TreeShape::dynamic) {
    object["expand"] = tree.expand;
    object["branch"] = tree.branch;
  }
  return object;
}

Json kv_json(const KvCounts& counts) {
  return {{"branches", counts.branches},
          {"commits", counts.commits},
          {"rollbacks", counts.rollbacks},
          {"fast_reorders", counts.fast_reorders},
          {"full_reorders", counts.full_reorders},
          {"reorder_fallbacks", counts.reorder_fallbacks},
          {"bytes_branched", counts.bytes_branched},
          {"bytes_committed", counts.bytes_committed}};
}

// What was chosen, and from which times: null where the budget is fixed.
Json budget_json(const GenerateResult& result, const Budget* budget) {
  if (budget == nullptr) return nullptr;
  const auto rounds = static_cast<double>(std::max<std::int64_t>(1, result.rounds()));
  const StepTimes& times = budget->costs().measured();
  std::vector<double> now(static_cast<std::size_t>(times.rows.back()));
  budget->costs().fill(times.contexts[0], now);
  Json corrected = Json::array();
  for (std::int32_t rows : times.rows) corrected.push_back(now[static_cast<std::size_t>(rows - 1)]);
  return {{"mean_rows", static_cast<double>(result.verified_rows) / rounds},
          {"plain_share", static_cast<double>(result.plain_rounds) / rounds},
          {"undrafted_share", static_cast<double>(result.undrafted_rounds) / rounds},
          {"step_times",
           {{"rows", times.rows},
            {"contexts", times.contexts},
            {"seconds", times.seconds},
            {"corrected_seconds", corrected}}}};
}

// A time or a speed; null where the device only stands in for another.
Json figure(const Device& device, double value) {
  return device.is_stand_in() ? Json() : Json(value);
}

void add_rounds(const GenerateResult& result, const Device& device, Json& object) {
  object["rounds"] = result.rounds();
  object["accept_lengths"] = result.accept_lengths;
  object["accept_L"] = result.accept_length();
  object["tau"] = result.accept_length() + 1;
  object["draft_seconds"] = figure(device, result.times.draft);
  object["prepare_seconds"] = figure(device, result.times.prepare);
  object["verify_seconds"] = figure(device, result.times.verify);
  object["accept_seconds"] = figure(device, result.times.accept);
  object["commit_seconds"] = figure(device, result.times.commit);
}

}  // namespace

double tokens_per_second(const GenerateResult& result) {
  if (result.tokens.size() < 2 || result.decode_seconds <= 0) return 0;
  return static_cast<double>(result.tokens.size() - 1) / result.decode_seconds;
}

Json answer_json(const TextResult& result, const RunFacts& facts) {
  const OpenEngine& engine = facts.engine;
  const Device& device = *engine.device;
  Json object = {{"text", result.text},
                 {"tokens", result.generated.tokens},
                 {"prompt_tokens", result.prompt.size()},
                 {"finish_reason", name(result.generated.finish_reason)},
                 {"prefill_seconds", figure(device, result.generated.prefill_seconds)},
                 {"decode_seconds", figure(device, result.generated.decode_seconds)},
                 {"tokens_per_second", figure(device, tokens_per_second(result.generated))},
                 {"seed", facts.seed},
                 {"model", engine.path.string()},
                 {"device", device.name()},
                 {"isa", device.isa()},
                 {"arithmetic", kArithmetic},
                 {"mode", engine.modes.mode},
                 {"options", options_json(engine.modes, facts.decoder)},
                 {"draft", facts.draft},
                 {"draft_reason", facts.draft_reason},
                 {"tree", tree_json(facts.decoder.tree())}};
  object["budget"] = budget_json(result.generated, facts.decoder.budget());
  add_rounds(result.generated, device, object);
  object["kv"] = kv_json(facts.decoder.cache().counts());
  if (facts.logprobs) object["logprobs"] = logprobs_json(result.logprobs, *engine.text->tokenizer);
  return object;
}

std::string json_text(const Json& object) {
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string answer_line(const GenerateResult& result, const std::string& draft, const Device& device) {
  const bool timed = !device.is_stand_in();
  std::string line = fmt::format("{} tokens", result.tokens.size());
  if (timed) line += fmt::format(" at {:.1f} per second", tokens_per_second(result));
  line += fmt::format(", finished by {}", name(result.finish_reason));
  if (draft == "none") return line;
  line += fmt::format("; {}: {} rounds, accept_L {:.2f}", draft, result.rounds(), result.accept_length());
  if (timed)
    line += fmt::format(", draft {:.2f} s, verify {:.2f} s, commit {:.2f} s", result.times.draft, result.times.verify,
                        result.times.commit);
  return line;
}

}  // namespace espalier
