#include "engine/recorded_run.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/model_hash.h"
#include "engine/run_configuration.h"

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

void fill(std::optional<std::string>& option, const std::string& recorded) {
  if (!option && !recorded.empty()) option = recorded;
}

void fill_modes(const Json& configuration, ModeRequest& request) {
  if (request.mode) return;
  const auto fill_mode = [&](std::optional<AskedMode>& asked, const char* field) {
    const std::string recorded = text_at(configuration, "engine", field);
    if (!asked && !recorded.empty()) asked = AskedMode{recorded, fmt::format("--{}", field)};
  };
  fill_mode(request.device, "device");
  fill_mode(request.checked, "checked");
  fill_mode(request.invariants, "invariants");
  fill_mode(request.cache, "cache");
  fill_mode(request.reorder, "reorder");
  fill_mode(request.round_route, "round-route");
  if (request.attention || request.mask) return;
  fill_mode(request.attention, "attention");
  fill_mode(request.mask, "mask");
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

std::filesystem::path recorded_model(const Json& configuration, const std::string& given, std::string_view where,
                                     const std::optional<std::filesystem::path>& cache) {
  const std::string named = text_at(configuration, "model", "path");
  const std::filesystem::path path = given.empty() ? named : given;
  if (path.empty()) input_error("{}: it names no model: give --model PATH", where);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    input_error("{}: no such file or folder, the model of {}{}", path.string(), where,
                given.empty() ? ": give --model PATH" : "");
  const Json found = file_json(path).at("bytes"), expected = at(configuration, "model", "bytes");
  if (!expected.is_null() && found != expected)
    input_error("{}: {} bytes, expected {}: not the model of {}", path.string(), found.dump(), expected.dump(), where);
  const std::string hash = text_at(configuration, "model", "sha256");
  if (hash.empty()) return path;
  const auto now = model_sha256(path, cache);
  if (now != hash)
    input_error("{}: SHA-256 {}, expected {}: not the model of {}", path.string(), now.value_or("unknown"), hash,
                where);
  return path;
}

std::optional<ModelText> recorded_text(const Json& configuration, const std::string& given, std::string_view where,
                                       const std::optional<std::filesystem::path>& cache) {
  try {
    return load_model_text(recorded_model(configuration, given, where, cache));
  } catch (const InputError&) {
    if (!given.empty()) throw;
    return std::nullopt;
  }
}

void fill_engine_options(const Json& configuration, EngineOptions& options) {
  fill_modes(configuration, options.modes);
  const auto fill_word = [&](auto& option, const char* field, const auto& parse) {
    const std::string word = text_at(configuration, "engine", field);
    if (option || word.empty()) return;
    option = parse(word);
    if (!option) input_error("the record's configuration.engine.{}: nobody knows '{}'", field, word);
  };
  fill_word(options.kv_type, "kv", [](const std::string& word) { return parse_dtype(word); });
  fill_word(options.weights, "weights", [](const std::string& word) { return parse_weight_mode(word); });
  // Of other devices the word names what they take inputs as anyway.
  if (options.modes.device && options.modes.device->value.starts_with("cuda"))
    fill_word(options.activations, "activations", [](const std::string& word) { return parse_activations(word); });
  if (!options.context) options.context = number_at<std::int64_t>(configuration, "engine", "context");
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

DraftOptions recorded_drafting(const Json& configuration) {
  DraftOptions options;
  const auto text = [&](const char* field) { return text_at(configuration, "draft", field); };
  const auto number = [&](const char* field) { return number_at<int>(configuration, "draft", field); };
  options.draft = text("drafters");
  fill(options.tree, text("tree_flag"));
  fill(options.head_weights, text("head_weights"));
  options.nodes = number("nodes");
  options.depth = number("depth");
  if (text("tree") == "dynamic") {
    options.expand = number("expand");
    options.branch = number("branch");
  }
  options.window = number_at<std::int64_t>(configuration, "draft", "window");
  options.vocabulary = number_at<std::int64_t>(configuration, "draft", "vocabulary");
  options.heads = texts_at(configuration, "heads");
  options.head_options = texts_at(configuration, "head_options");
  const Json draft_model = at(configuration, "draft", "draft_model");
  if (draft_model.is_object() && draft_model.contains("path") && draft_model["path"].is_string())
    options.draft_model = draft_model["path"].get<std::string>();
  options.oracle_profile = text("oracle_profile");
  return options;
}

}  // namespace espalier
