#include "cli/run_configuration.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/build_facts.h"
#include "cli/model_hash.h"

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

Json engine_json(const EngineOptions& options, const Engine& engine) {
  const ModeOptions& modes = engine.modes;
  return {{"device", modes.device},
          {"isa", engine.device->isa()},
          {"threads", engine.threads},
          {"kv", options.kv},
          {"weights", options.weights},
          {"context", engine.decoder.context},
          {"mode", modes.mode},
          {"attention", modes.attention},
          {"cache", modes.cache},
          {"reorder", modes.reorder},
          {"mask", modes.mask},
          {"checked", modes.checked},
          {"invariants", modes.invariants}};
}

Json draft_json(const SpeculationFlags& flags, const Drafting& drafting) {
  const TreeOptions& tree = drafting.tree();
  Json object = {{"drafters", drafting.name()},
                 {"reason", drafting.reason()},
                 {"tree", name(tree.shape)},
                 {"tree_flag", text_or_null(flags.tree.value_or(""))},
                 {"nodes", max_rows(tree)},
                 {"chosen_nodes", drafting.chooses_nodes()},
                 {"depth", tree.depth},
                 {"expand", tree.expand},
                 {"branch", tree.branch},
                 {"window", nullptr},
                 {"vocabulary", nullptr},
                 {"heads", Json::array()},
                 {"head_options", flags.head_options},
                 {"head_weights", text_or_null(flags.head_weights.value_or(""))},
                 {"draft_model", nullptr},
                 {"oracle_profile", text_or_null(flags.oracle_profile)}};
  if (flags.window) object["window"] = *flags.window;
  if (flags.vocabulary) object["vocabulary"] = *flags.vocabulary;
  for (const std::string& head : flags.heads) object["heads"].push_back(file_json(head));
  if (!flags.draft_model.empty()) object["draft_model"] = file_json(flags.draft_model);
  return object;
}

// The bias of tokens as it was typed.
Json sampling_json(const SamplingFlags& flags) {
  Json object = {{"max_tokens", flags.max_tokens}};
  object.update(json_of(flags.sampling));
  object["logit_bias"] = flags.logit_bias;
  object["seed"] = flags.seed;
  object["stop"] = flags.stop;
  object["ignore_eos"] = flags.ignore_eos;
  return object;
}

Json chat_json(const ChatFlags& flags, bool raw) {
  return {{"system", text_or_null(flags.system)},
          {"template_variables", text_or_null(flags.variables)},
          {"date", text_or_null(flags.date)},
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
  return {{"model", file_json(run.engine.path)},
          {"engine", engine_json(run.options, run.engine)},
          {"draft", draft_json(run.speculation, run.drafting)},
          {"sampling", sampling_json(run.sampling)},
          {"chat", chat_json(run.chat, run.raw)}};
}

RecordOrigin record_origin(const RunParts& run) {
  RecordOrigin origin{.commit = std::string(build_commit()), .configuration = run_configuration(run)};
  const auto hash = model_sha256(run.engine.path, run.engine.cache_folder);
  origin.configuration["model"]["sha256"] = text_or_null(hash.value_or(""));
  return origin;
}

}  // namespace espalier
