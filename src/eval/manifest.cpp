#include "eval/manifest.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/utc_time.h"
#include "engine/build_facts.h"
#include "engine/host_facts.h"
#include "engine/model_hash.h"
#include "engine/run_configuration.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kManifestSchema = 2;

std::string utc_now() {
  return utc_text(UtcForm::record);
}

Json load_average() {
  std::array<double, 3> loads{};
  return getloadavg(loads.data(), 3) == 3 ? Json(loads) : Json();
}

Json data_json(const EvalRequest& request, const PromptSet& data) {
  Json files = Json::array();
  for (const PromptFile& file : data.files)
    files.push_back({{"set", file.set}, {"path", absolute_text(file.path)}, {"sha256", file.sha256}});
  Json object = {{"files", files}, {"skip", request.skip}, {"limit", nullptr}};
  if (request.limit) object["limit"] = *request.limit;
  object["prompts"] = data.prompts.size();
  object["turns"] = data.turns();
  return object;
}

Json hash_json(const std::optional<std::string>& hash) {
  return hash ? Json(*hash) : Json();
}

// The hash of a shared baseline tells whether it has been made again under the same name.
Json baseline_json(const EvalRequest& request) {
  const bool shared = !request.baseline_run.empty();
  const std::filesystem::path turns = std::filesystem::path(request.baseline_run) / "turns.json";
  return {{"kind", shared             ? "shared"
                   : request.baseline ? "interleaved"
                                      : "none"},
          {"run", shared ? Json(absolute_text(request.baseline_run)) : Json()},
          {"turns_sha256", shared ? hash_json(folder_sha256(turns, std::nullopt)) : Json()},
          {"retimed_turns", request.baseline_turns}};
}

Json variables_json(const EvalRequest& request) {
  Json object = Json::object();
  for (const auto& [name, value] : request.variables) object[name] = value;
  return object;
}

// A commit says which code it is, unless there were changes; then the program itself has to.
bool commit_is_known() {
  return !build_commit().empty() && !build_commit().ends_with("-dirty");
}

Json configuration_json(const ManifestParts& parts) {
  const auto& [request, data, engine, drafting, place, date] = parts;
  Json configuration = {{"data", data_json(request, data)}};
  configuration.update(run_configuration({engine, drafting, request.text, request.chat, request.raw}));
  configuration["model"]["sha256"] = hash_json(model_sha256(engine.path, engine.places.cache));
  configuration["draft"]["head_files"] = Json::array();
  for (const std::filesystem::path& head : drafting.head_paths()) {
    Json file = file_json(head);
    file["sha256"] = hash_json(folder_sha256(head, engine.places.cache));
    configuration["draft"]["head_files"].push_back(file);
  }
  configuration["baseline"] = baseline_json(request);
  configuration["trace"] = request.trace;
  configuration["parallel"] = request.parallel;
  return configuration;
}

}  // namespace

std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

Json program_json(const OpenEngine& engine) {
  return commit_is_known() ? Json() : hash_json(folder_sha256("/proc/self/exe", engine.places.cache));
}

Json new_manifest(const ManifestParts& parts) {
  return {{"schema", kManifestSchema},
          {"version", build_version()},
          {"commit", text_or_null(build_commit())},
          {"program", program_json(parts.engine)},
          {"compiler", {{"name", build_compiler()}, {"flags", build_flags()}}},
          {"command", command_line()},
          {"directory", std::filesystem::current_path().string()},
          {"configuration", configuration_json(parts)},
          {"environment", variables_json(parts.request)},
          {"machine", machine_json()},
          {"launcher", text_or_null(parts.place.launcher)},
          {"world", parts.place.world},
          {"date", parts.date},
          {"start", utc_now()},
          {"end", nullptr},
          {"load_before", load_average()},
          {"load_after", nullptr},
          {"resumed", Json::array()},
          {"ranks", Json::array()}};
}

void note_resumed(Json& manifest, const RankPlace& place, int threads) {
  manifest["resumed"].push_back(
      {{"start", utc_now()}, {"load_before", load_average()}, {"world", place.world}, {"threads", threads}});
}

void note_end(Json& manifest, Json ranks) {
  manifest["end"] = utc_now();
  manifest["load_after"] = load_average();
  manifest["ranks"] = std::move(ranks);
}

Json rank_start(int threads) {
  return {{"threads", threads},
          {"start", utc_now()},
          {"end", nullptr},
          {"load_before", load_average()},
          {"load_after", nullptr}};
}

Json rank_end(const ShareSpeed& speed) {
  return {{"end", utc_now()},
          {"load_after", load_average()},
          {"answered", {{"tokens", speed.tokens}, {"seconds", speed.seconds}}}};
}

// Manifests of earlier versions, and of ranks that were lost, do not say it.
std::optional<double> tokens_per_second_in_all(const Json& ranks) {
  const auto number = [](const Json& rank, const char* place) {
    const Json::json_pointer pointer(place);
    return rank.contains(pointer) && rank.at(pointer).is_number() ? rank.at(pointer).get<double>() : 0.0;
  };
  double tokens = 0, seconds = 0;
  for (const Json& rank : ranks) {
    tokens += number(rank, "/answered/tokens");
    seconds = std::max(seconds, number(rank, "/answered/seconds"));
  }
  return seconds > 0 ? std::optional(tokens / seconds) : std::nullopt;
}

std::string text_identity(const OpenEngine& engine) {
  const auto hash = text_sha256(engine.path, engine.places.cache);
  if (!hash) return "";
  return fmt::format("{} {} {}", *hash, build_version(),
                     commit_is_known() ? std::string(build_commit()) : program_state());
}

}  // namespace espalier
