#include "cli/eval_manifest.h"

#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/build_facts.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;

Json text_or_null(std::string_view text) {
  return text.empty() ? Json() : Json(text);
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[sizeof "2026-11-15T23:59:59Z"];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Json load_average() {
  std::array<double, 3> loads{};
  return getloadavg(loads.data(), 3) == 3 ? Json(loads) : Json();
}

Json command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  Json words = Json::array();
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::uintmax_t bytes_of(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return std::filesystem::file_size(path, ignored);
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored))
    if (entry.is_regular_file(ignored)) bytes += entry.file_size(ignored);
  return bytes;
}

std::string absolute_text(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::weakly_canonical(path, ignored).string();
}

Json file_json(const std::filesystem::path& path) {
  return {{"path", absolute_text(path)}, {"bytes", bytes_of(path)}};
}

Json data_json(const EvalFlags& flags, const PromptSet& data) {
  Json object = {{"path", absolute_text(data.path)}, {"sha256", data.sha256}, {"skip", flags.skip}, {"limit", nullptr}};
  if (flags.limit) object["limit"] = *flags.limit;
  object["prompts"] = data.prompts.size();
  object["turns"] = data.turns();
  return object;
}

Json engine_json(const EvalFlags& flags, const Engine& engine) {
  const ModeOptions& modes = engine.modes;
  return {{"device", engine.device->name()},
          {"isa", engine.device->isa()},
          {"threads", engine.threads},
          {"kv", flags.engine.kv},
          {"weights", flags.engine.weights},
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

Json sampling_json(const SamplingFlags& flags) {
  const SamplingOptions& sampling = flags.sampling;
  return {{"max_tokens", flags.max_tokens},
          {"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"repeat_penalty", sampling.repeat_penalty},
          {"presence_penalty", sampling.presence_penalty},
          {"frequency_penalty", sampling.frequency_penalty},
          {"logit_bias", flags.logit_bias},
          {"seed", flags.seed},
          {"stop", flags.stop},
          {"ignore_eos", flags.ignore_eos}};
}

Json chat_json(const EvalFlags& flags) {
  return {{"system", text_or_null(flags.chat.system)},
          {"template_variables", text_or_null(flags.chat.variables)},
          {"date", text_or_null(flags.chat.date)},
          {"raw", flags.raw}};
}

}  // namespace

Json new_manifest(const EvalFlags& flags, const PromptSet& data, const Engine& engine, const Drafting& drafting,
                  const std::string& date) {
  return {{"schema", kSchema},
          {"version", build_version()},
          {"commit", text_or_null(build_commit())},
          {"command", command_line()},
          {"configuration",
           {{"data", data_json(flags, data)},
            {"model", file_json(engine.path)},
            {"engine", engine_json(flags, engine)},
            {"draft", draft_json(flags.speculation, drafting)},
            {"sampling", sampling_json(flags.sampling)},
            {"chat", chat_json(flags)},
            {"baseline", flags.baseline}}},
          {"cores", std::thread::hardware_concurrency()},
          {"date", date},
          {"start", utc_now()},
          {"end", nullptr},
          {"load_before", load_average()},
          {"load_after", nullptr},
          {"resumed", Json::array()}};
}

void note_resumed(Json& manifest) {
  manifest["resumed"].push_back({{"start", utc_now()}, {"load_before", load_average()}});
}

void note_end(Json& manifest) {
  manifest["end"] = utc_now();
  manifest["load_after"] = load_average();
}

}  // namespace espalier
