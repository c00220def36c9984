#include "engine/run_configuration.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/arithmetic.h"
#include "engine/build_facts.h"
#include "engine/model_hash.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

std::uintmax_t file_bytes(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return std::filesystem::file_size(path, ignored);
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored))
    if (entry.is_regular_file(ignored)) bytes += entry.file_size(ignored);
  return bytes;
}

Json engine_json(const OpenEngine& engine) {
  const ModeOptions& modes = engine.modes;
  return {{"device", modes.device},
          {"isa", engine.device->isa()},
          {"threads", engine.threads},
          {"kv", name(engine.decoder.kv_type)},
          {"weights", name(engine.weights)},
          {"activations", engine.device->activations()},
          {"context", engine.decoder.context},
          {"mode", modes.mode},
          {"attention", modes.attention},
          {"cache", modes.cache},
          {"reorder", modes.reorder},
          {"mask", modes.mask},
          {"round-route", modes.round_route},
          {"checked", modes.checked},
          {"invariants", modes.invariants}};
}

Json draft_json(const Drafting& drafting) {
  const DraftOptions& asked = drafting.options();
  const TreeOptions& tree = drafting.tree();
  Json object = {{"drafters", drafting.name()},
                 {"reason", drafting.reason()},
                 {"tree", name(tree.shape)},
                 {"tree_flag", text_or_null(asked.tree.value_or(""))},
                 {"nodes", max_rows(tree)},
                 {"chosen_nodes", drafting.chooses_nodes()},
                 {"depth", tree.depth},
                 {"expand", tree.expand},
                 {"branch", tree.branch},
                 {"window", nullptr},
                 {"vocabulary", nullptr},
                 {"heads", Json::array()},
                 {"head_options", asked.head_options},
                 {"head_weights", text_or_null(asked.head_weights.value_or(""))},
                 {"draft_model", nullptr},
                 {"oracle_profile", text_or_null(asked.oracle_profile)}};
  if (asked.window) object["window"] = *asked.window;
  if (asked.vocabulary) object["vocabulary"] = *asked.vocabulary;
  for (const std::string& head : asked.heads) object["heads"].push_back(file_json(head));
  if (!asked.draft_model.empty()) object["draft_model"] = file_json(asked.draft_model);
  return object;
}

// As it can be typed: "12=-1.5".
Json bias_words(const SamplingOptions& sampling) {
  Json words = Json::array();
  for (const auto& [id, bias] : sampling.logit_bias) words.push_back(fmt::format("{}={}", id, bias));
  return words;
}

Json sampling_json(const TextOptions& options) {
  Json object = {{"max_tokens", options.generate.max_tokens}};
  object.update(json_of(options.generate.sampling));
  object["logit_bias"] = bias_words(options.generate.sampling);
  object["seed"] = options.generate.seed;
  object["stop"] = options.stop;
  object["ignore_eos"] = options.ignore_eos;
  object["loop_guard"] = options.loop_guard;
  return object;
}

Json chat_json(const ChatSettings& chat, bool raw) {
  return {{"system", text_or_null(chat.system)},
          {"chat_template", text_or_null(chat.chat_template)},
          {"template_variables", text_or_null(chat.variables)},
          {"date", text_or_null(chat.date)},
          {"raw", raw}};
}

}  // namespace

Json text_or_null(std::string_view text) {
  return text.empty() ? Json() : Json(text);
}

std::string absolute_text(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::weakly_canonical(path, ignored).string();
}

Json file_json(const std::filesystem::path& path) {
  return {{"path", absolute_text(path)}, {"bytes", file_bytes(path)}};
}

Json run_configuration(const RunParts& run) {
  return {{"arithmetic", kArithmetic},           {"model", file_json(run.engine.path)},
          {"engine", engine_json(run.engine)},   {"draft", draft_json(run.drafting)},
          {"sampling", sampling_json(run.text)}, {"chat", chat_json(run.chat, run.raw)}};
}

RecordOrigin record_origin(const RunParts& run) {
  Json configuration = run_configuration(run);
  const auto hash = model_sha256(run.engine.path, run.engine.places.cache);
  configuration["model"]["sha256"] = text_or_null(hash.value_or(""));
  return {.commit = std::string(build_commit()), .configuration = one_line(configuration)};
}

}  // namespace espalier
