#include "eval/run_folder.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/arithmetic.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "base/temporary_file.h"
#include "base/untrusted_text.h"
#include "base/whole_file.h"
#include "eval/rank_folder.h"
#include "eval/rank_watch.h"
#include "eval/turn_journal.h"
#include "eval/turn_table.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kTurns = "turns.json";
constexpr const char* kRanks = "ranks";
constexpr const char* kSameFields[] = {"schema", "version", "commit", "program", "compiler", "configuration"};

std::string pretty(const Json& object) {
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// A list with a turn on each line.
std::string turns_text(const std::vector<TurnRecord>& turns) {
  std::string text = "[";
  for (const TurnRecord& turn : turns) text += (text.size() == 1 ? "\n" : ",\n") + journal_line(turn);
  return text + "\n]\n";
}

[[noreturn]] void refuse_existing(const std::filesystem::path& path) {
  input_error("{}: exists already, expected a new directory, or --resume", path.string());
}

// What may differ is taken over from the other manifest.
void forgive(Json& manifest, const Json& then, const char* field) {
  const Json::json_pointer pointer(field);
  if (manifest.contains(pointer) && then.contains(pointer)) manifest[pointer] = then[pointer];
}

}  // namespace

std::optional<std::string> first_other_field(const Json& now, const Json& then, const std::string& field) {
  if (now.is_object() && then.is_object()) {
    for (const auto& [name, value] : now.items())
      if (const auto found = first_other_field(value, then.value(name, Json()), field + "." + name)) return found;
    for (const auto& [name, value] : then.items())
      if (const auto found = first_other_field(now.value(name, Json()), value, field + "." + name)) return found;
    return std::nullopt;
  }
  if (now == then) return std::nullopt;
  const auto shown = [](const Json& value) {
    return in_quotes(value.dump(-1, ' ', true, Json::error_handler_t::replace));
  };
  return fmt::format("{} is {}, expected {}", field, shown(now), shown(then));
}

RunFolder RunFolder::create(const std::filesystem::path& path, const Json& manifest) {
  if (std::filesystem::exists(path)) refuse_existing(path);
  std::error_code ignored;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
  remove_leftovers(path.parent_path());
  TemporaryDirectory temporary(path);
  write_whole_file(temporary.path() / kManifest, pretty(manifest));
  if (!temporary.take_free_name(path)) refuse_existing(path);
  return RunFolder(path);
}

void check_arithmetic_of_run(const std::filesystem::path& run, const Json& manifest) {
  const Json::json_pointer place("/configuration/arithmetic");
  check_arithmetic((run / kManifest).string(), manifest.contains(place) ? manifest.at(place) : Json());
}

RunFolder RunFolder::open(const std::filesystem::path& path, const Json& manifest) {
  RunFolder folder(path);
  // More ranks on a host have fewer threads each, and give the same tokens.
  const bool same_world = manifest.value("world", 1) == folder.manifest().value("world", 1);
  if (const auto other = folder.first_other(manifest, /*same_threads=*/same_world))
    input_error("--resume: {} as in {}", *other, (path / kManifest).string());
  remove_leftovers(path);
  return folder;
}

RunFolder RunFolder::follow(const std::filesystem::path& path, const Json& manifest) {
  RunFolder folder(path);
  if (const auto other = folder.first_other(manifest, /*same_threads=*/false))
    input_error("{}: {}, as rank 0 has it", (path / kManifest).string(), *other);
  return folder;
}

std::optional<RunFolder> RunFolder::join(const std::filesystem::path& path, const Json& manifest, double seconds,
                                         const std::function<bool()>& cancelled) {
  if (!await_rank_0(path / kManifest, seconds, cancelled)) return std::nullopt;
  RunFolder folder(path);
  if (folder.finished()) refuse_existing(path);
  follow(path, manifest);
  if (const auto other =
          first_other_field(manifest.value("world", Json()), folder.manifest().value("world", Json()), "world"))
    input_error("{}: {}: exists already, expected a new directory, or --resume", path.string(), *other);
  return folder;
}

std::optional<std::string> RunFolder::first_other(Json now, bool same_threads) const {
  const Json then = manifest();
  check_arithmetic_of_run(path_, then);
  forgive(now, then, "/configuration/draft/reason");  // it names the head as it was found from where one stood
  if (!same_threads) forgive(now, then, "/configuration/engine/threads");
  for (const char* field : kSameFields)
    if (auto other = first_other_field(now.value(field, Json()), then.value(field, Json()), field)) return other;
  return std::nullopt;
}

Json RunFolder::manifest() const {
  return read_manifest(path_);
}

void RunFolder::write_manifest(const Json& manifest) const {
  write_whole_file(path_ / kManifest, pretty(manifest));
}

bool RunFolder::finished() const {
  return !manifest().value("end", Json()).is_null();
}

std::filesystem::path RunFolder::rank_path(int rank) const {
  return path_ / kRanks / rank_folder_name(rank);
}

std::vector<int> RunFolder::ranks() const {
  std::vector<int> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path_ / kRanks, ignored))
    if (const auto rank = rank_of_folder(entry.path().filename().string())) found.push_back(*rank);
  std::ranges::sort(found);
  return found;
}

void RunFolder::check_retired(int world) const {
  for (const int rank : ranks())
    if (const auto journal = rank_path(rank) / kJournalName; rank >= world && std::filesystem::exists(journal))
      TurnJournal{journal};  // which a living process does not let go of
}

std::vector<TurnRecord> RunFolder::turns() const {
  std::map<std::pair<std::int64_t, std::int64_t>, TurnRecord> sorted;
  for (const int rank : ranks())
    for (TurnRecord& turn : read_journal(rank_path(rank) / kJournalName)) {
      const auto [place, is_new] = sorted.try_emplace({turn.record, turn.turn}, turn);
      if (!is_new && place->second.tokens != turn.tokens)
        input_error("{}: prompt {}, turn {}: two ranks answered it differently", path_.string(),
                    in_quotes(text_of(turn.prompt_id)), turn.turn);
    }
  std::vector<TurnRecord> turns;
  for (auto& [place, turn] : sorted) turns.push_back(std::move(turn));
  return turns;
}

// The manifest says last that the run is finished: until then the journals are what counts.
void RunFolder::finish(const Json& manifest, const std::vector<TurnRecord>& turns, const Summary& summary) const {
  write_whole_file(path_ / kTurns, turns_text(turns));
  write_whole_file(path_ / "turns.csv", turns_csv(turns));
  write_whole_file(path_ / "summary.json", pretty(to_json(summary)));
  write_manifest(manifest);
}

Json read_manifest(const std::filesystem::path& run) {
  const std::filesystem::path file = run / kManifest;
  if (!std::filesystem::exists(file))
    input_error("{}: no {}, expected the directory of a run", run.string(), kManifest);
  const std::string text = read_text_file(file);
  if (!parse_json(text, file.string()).is_object()) input_error("{}: expected a JSON object", file.string());
  return Json::parse(text);  // once more, for the order of its fields
}

std::vector<TurnRecord> read_finished_turns(const std::filesystem::path& run) {
  if (read_manifest(run).value("end", Json()).is_null())
    input_error("{}: the run is not finished, expected one that is", run.string());
  const std::string where = (run / kTurns).string();
  std::vector<TurnRecord> turns;
  for (const auto& turn : parse_json(read_text_file(where), where)) turns.push_back(turn_record_from(turn, where));
  return turns;
}

}  // namespace espalier
