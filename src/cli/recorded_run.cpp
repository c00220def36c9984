#include "cli/recorded_run.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/cache_file.h"
#include "cli/model_hash.h"
#include "cli/run_configuration.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

// A field of a field; null where there is none, for a configuration is only data.
Json at(const Json& configuration, const char* part, const char* field) {
  if (!configuration.is_object()) return nullptr;
  const Json inner = configuration.value(part, Json());
  return inner.is_object() ? inner.value(field, Json()) : Json();
}

std::string text_at(const Json& configuration, const char* part, const char* field) {
  const Json value = at(configuration, part, field);
  return value.is_string() ? value.get<std::string>() : "";
}

template <typename Number>
std::optional<Number> number_at(const Json& configuration, const char* part, const char* field) {
  const Json value = at(configuration, part, field);
  return value.is_number_integer() ? std::optional(value.get<Number>()) : std::nullopt;
}

void fill(std::optional<std::string>& flag, const std::string& recorded) {
  if (!flag && !recorded.empty()) flag = recorded;
}

void fill_modes(const Json& configuration, ModeFlags& flags) {
  if (flags.mode) return;
  const auto recorded = [&](const char* field) { return text_at(configuration, "engine", field); };
  fill(flags.device, recorded("device"));
  fill(flags.checked, recorded("checked"));
  fill(flags.invariants, recorded("invariants"));
  fill(flags.cache, recorded("cache"));
  fill(flags.reorder, recorded("reorder"));
  if (flags.attention || flags.mask) return;
  fill(flags.attention, recorded("attention"));
  fill(flags.mask, recorded("mask"));
}

std::vector<std::string> texts_at(const Json& configuration, const char* field) {
  std::vector<std::string> texts;
  for (const Json& value : at(configuration, "draft", field)) {
    if (value.is_string()) texts.push_back(value);
    if (value.is_object() && value.contains("path") && value["path"].is_string()) texts.push_back(value["path"]);
  }
  return texts;
}

}  // namespace

std::filesystem::path recorded_model(const Json& configuration, const std::string& given, std::string_view where) {
  const std::string named = text_at(configuration, "model", "path");
  const std::filesystem::path path = given.empty() ? named : given;
  if (path.empty()) input_error("{}: it names no model: give --model PATH", where);
  if (!std::filesystem::exists(path))
    input_error("{}: no such file or folder, the model of {}{}", path.string(), where,
                given.empty() ? ": give --model PATH" : "");
  const Json found = file_json(path).at("bytes"), expected = at(configuration, "model", "bytes");
  if (!expected.is_null() && found != expected)
    input_error("{}: {} bytes, expected {}: not the model of {}", path.string(), found.dump(), expected.dump(), where);
  const std::string hash = text_at(configuration, "model", "sha256");
  if (hash.empty()) return path;
  const auto now = model_sha256(path, user_cache_folder(process_environment));
  if (now != hash)
    input_error("{}: SHA-256 {}, expected {}: not the model of {}", path.string(), now.value_or("unknown"), hash,
                where);
  return path;
}

void fill_engine_options(const Json& configuration, const CLI::App& command, EngineOptions& options) {
  fill_modes(configuration, options.modes);
  const auto fill_text = [&](const char* flag, const char* field, std::string& option) {
    const std::string recorded = text_at(configuration, "engine", field);
    if (command.count(flag) == 0 && !recorded.empty()) option = recorded;
  };
  fill_text("--kv", "kv", options.kv);
  fill_text("--weights", "weights", options.weights);
  if (command.count("--context") == 0)
    options.context = number_at<std::int64_t>(configuration, "engine", "context").value_or(options.context);
}

std::vector<std::string> recorded_drafters(const Json& configuration) {
  std::vector<std::string> names;
  std::string rest = text_at(configuration, "draft", "drafters");
  if (rest.empty() || rest == "none") return names;
  while (true) {
    const std::size_t end = rest.find('+');
    names.push_back(rest.substr(0, end));
    if (end == std::string::npos) return names;
    rest.erase(0, end + 1);
  }
}

SpeculationFlags recorded_speculation(const Json& configuration) {
  SpeculationFlags flags;
  const auto text = [&](const char* field) { return text_at(configuration, "draft", field); };
  const auto number = [&](const char* field) { return number_at<int>(configuration, "draft", field); };
  flags.draft = text("drafters");
  fill(flags.tree, text("tree_flag"));
  fill(flags.head_weights, text("head_weights"));
  flags.nodes = number("nodes");
  flags.depth = number("depth");
  if (text("tree") == "dynamic") {
    flags.expand = number("expand");
    flags.branch = number("branch");
  }
  flags.window = number_at<std::int64_t>(configuration, "draft", "window");
  flags.vocabulary = number_at<std::int64_t>(configuration, "draft", "vocabulary");
  flags.heads = texts_at(configuration, "heads");
  flags.head_options = texts_at(configuration, "head_options");
  const Json draft_model = at(configuration, "draft", "draft_model");
  if (draft_model.is_object() && draft_model.contains("path") && draft_model["path"].is_string())
    flags.draft_model = draft_model["path"].get<std::string>();
  flags.oracle_profile = text("oracle_profile");
  return flags;
}

}  // namespace espalier
