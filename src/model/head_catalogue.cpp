#include "model/head_catalogue.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "format/safetensors.h"
#include "model/config_fields.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kConfigFile = "config.json";
constexpr const char* kSection = "espalier";
constexpr int kMostRows = 256;

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error, ignored;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (fs::is_regular_file(entry->path() / kConfigFile, ignored)) found.push_back(entry->path());
  std::ranges::sort(found);
  return found;
}

std::optional<HeadCard> read_card(const fs::path& head) {
  try {
    const std::string file = (head / kConfigFile).string();
    const Json config = read_json_file(file);
    const Json* section = JsonFields(config, file).find(kSection);
    if (!section) return std::nullopt;
    const JsonFields fields(*section, file);
    const auto sha256 = fields.string("teacher_sha256");
    if (!sha256 || sha256->empty()) return std::nullopt;
    return HeadCard{.path = head,
                    .teacher_sha256 = *sha256,
                    .teacher_bytes = fields.integer("teacher_bytes", 0, std::int64_t{1} << 60)};
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// The object itself, with what it says about one instruction set above the rest; empty where there is none.
Json suggested_object(const Json& config, const std::string& file, std::string_view isa) {
  const Json* section = JsonFields(config, file).find(kSection);
  const Json* suggested = section ? JsonFields(*section, file).find("suggested") : nullptr;
  if (!suggested) return Json::object();
  Json merged = *suggested;
  const Json* by_isa = JsonFields(merged, file).find("isa");
  const Json* own = by_isa ? JsonFields(*by_isa, file).find(std::string(isa).c_str()) : nullptr;
  if (!own) return merged;
  JsonFields(*own, file);  // an object
  const Json above = *own;
  merged.update(above);
  return merged;
}

std::vector<std::string> read_drafters(const JsonFields& fields, HeadKind kind) {
  const std::string own(name(kind));
  const Json* list = fields.find("drafters");
  if (!list || *list == Json::array({own})) return {own};
  if (*list == Json::array({own, "ngram"})) return {own, "ngram"};
  input_error("{}: suggested.drafters: expected [\"{}\"] or [\"{}\", \"ngram\"], got {}", fields.file(), own, own,
              list->dump(-1, ' ', true, Json::error_handler_t::replace));
}

// A number, or "auto".
std::optional<int> read_nodes(const JsonFields& fields) {
  const Json* nodes = fields.find("nodes");
  if (!nodes || *nodes == "auto") return std::nullopt;
  return static_cast<int>(fields.require_integer("nodes", 1, kMostRows));
}

}  // namespace

std::vector<HeadCard> find_heads(std::span<const fs::path> folders) {
  std::vector<HeadCard> cards;
  for (const fs::path& folder : folders)
    for (const fs::path& head : folders_in(folder))
      if (const auto card = read_card(head)) cards.push_back(*card);
  return cards;
}

DraftSuggestion read_suggestion(const HeadFiles& files, HeadKind kind, std::string_view isa) {
  DraftSuggestion suggestion{.drafters = {std::string(name(kind))}};
  const fs::path beside = files.folder / kConfigFile;
  std::error_code ignored;
  if (!fs::exists(beside, ignored)) return suggestion;
  const std::string file = beside.string();
  const Json object = suggested_object(read_json_file(beside), file, isa);
  const JsonFields fields(object, file);
  suggestion.drafters = read_drafters(fields, kind);
  suggestion.nodes = read_nodes(fields);
  suggestion.depth = static_cast<int>(fields.integer("depth", 1, kMostRows).value_or(suggestion.depth));
  suggestion.expand = static_cast<int>(fields.integer("expand", 1, kMostRows).value_or(suggestion.expand));
  suggestion.vocabulary = fields.integer("vocab", 1, kMaxVocabulary);
  const Json* measured_on = fields.find("isa");
  suggestion.measured = !measured_on || measured_on->contains(isa);
  return suggestion;
}

}  // namespace espalier
