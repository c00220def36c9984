#include "eval/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "eval/whole_file.h"
#include "format/json_text.h"
#include "format/untrusted_text.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kTurns = "turns.json";
constexpr const char* kSummary = "summary.json";
constexpr const char* kJournal = "turns.partial.jsonl";
constexpr const char* kSameFields[] = {"schema", "version", "commit", "configuration"};

std::string pretty(const Json& object) {
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string one_line(const TurnRecord& turn) {
  return to_json(turn).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A list with a turn on each line.
std::string turns_text(const std::vector<TurnRecord>& turns) {
  std::string text = "[";
  for (const TurnRecord& turn : turns) text += (text.size() == 1 ? "\n" : ",\n") + one_line(turn);
  return text + "\n]\n";
}

// The first field in which both differ, named from the outside in: "configuration.sampling.seed is 1, ...".
void check_same(const Json& now, const Json& then, const std::string& field, const std::filesystem::path& manifest) {
  if (now.is_object() && then.is_object()) {
    for (const auto& [name, value] : now.items())
      check_same(value, then.value(name, Json()), field + "." + name, manifest);
    for (const auto& [name, value] : then.items())
      check_same(now.value(name, Json()), value, field + "." + name, manifest);
    return;
  }
  if (now == then) return;
  const auto shown = [](const Json& value) {
    return in_quotes(value.dump(-1, ' ', true, Json::error_handler_t::replace));
  };
  input_error("--resume: {} is {}, expected {} as in {}", field, shown(now), shown(then), manifest.string());
}

}  // namespace

RunFolder RunFolder::create(const std::filesystem::path& path, const Json& manifest) {
  if (std::filesystem::exists(path))
    input_error("{}: exists already, expected a new directory, or --resume", path.string());
  const std::filesystem::path temporary = fmt::format("{}.{}.tmp", path.string(), getpid());
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (!std::filesystem::create_directory(temporary, error))
    device_error("{}: cannot create the directory: {}", path.string(), error.message());
  try {
    write_whole_file(temporary / kManifest, pretty(manifest));
    std::filesystem::rename(temporary, path, error);
    if (error) device_error("{}: cannot create the directory: {}", path.string(), error.message());
  } catch (...) {
    std::filesystem::remove_all(temporary, error);
    throw;
  }
  RunFolder folder(path);
  folder.open_journal();
  return folder;
}

RunFolder RunFolder::open(const std::filesystem::path& path, const Json& manifest) {
  RunFolder folder(path);
  const Json then = folder.manifest();
  for (const char* field : kSameFields)
    check_same(manifest.at(field), then.value(field, Json()), field, path / kManifest);
  if (then.value("end", Json()).is_null()) {
    folder.open_journal();
    folder.read_journal();
    return folder;
  }
  const std::string where = (path / kTurns).string();
  for (const auto& turn : parse_json(read_text_file(where), where))
    folder.turns_.push_back(turn_record_from(turn, where));
  return folder;
}

RunFolder::~RunFolder() {
  close_journal();
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)), turns_(std::move(other.turns_)), journal_(std::exchange(other.journal_, -1)) {}

std::filesystem::path RunFolder::journal_path() const {
  return path_ / kJournal;
}

Json RunFolder::manifest() const {
  const std::filesystem::path file = path_ / kManifest;
  if (!std::filesystem::exists(file))
    input_error("{}: no {}, expected the directory of a run", path_.string(), kManifest);
  const std::string text = read_text_file(file);
  if (!parse_json(text, file.string()).is_object()) input_error("{}: expected a JSON object", file.string());
  return Json::parse(text);  // once more, for the order of its fields
}

void RunFolder::write_manifest(const Json& manifest) const {
  write_whole_file(path_ / kManifest, pretty(manifest));
}

void RunFolder::open_journal() {
  journal_ = ::open(journal_path().c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (journal_ < 0) device_error("{}: cannot write: {}", journal_path().string(), std::strerror(errno));
  if (::flock(journal_, LOCK_EX | LOCK_NB) != 0) {
    close_journal();
    input_error("{}: another process is writing to this run", path_.string());
  }
}

void RunFolder::close_journal() {
  if (journal_ >= 0) ::close(std::exchange(journal_, -1));
}

// A line that a killed process has not finished is cut off.
void RunFolder::read_journal() {
  const std::string where = journal_path().string(), text = read_text_file(where);
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string place = fmt::format("{}: turn {}", where, turns_.size() + 1);
    turns_.push_back(turn_record_from(parse_json(std::string_view(text).substr(begin, end - begin), place), place));
  }
  if (::ftruncate(journal_, static_cast<off_t>(begin)) != 0)
    device_error("{}: cannot cut: {}", where, std::strerror(errno));
}

void RunFolder::add(TurnRecord turn) {
  check(!finished(), "RunFolder: a turn after the end");
  const off_t before = ::lseek(journal_, 0, SEEK_END);
  try {
    write_all(journal_, one_line(turn) + "\n", journal_path());
    if (::fdatasync(journal_) != 0) device_error("{}: cannot write: {}", journal_path().string(), std::strerror(errno));
  } catch (...) {
    [[maybe_unused]] const int cut = ::ftruncate(journal_, before);
    throw;
  }
  turns_.push_back(std::move(turn));
}

// The manifest says last that the run is finished: until then the journal is what counts.
void RunFolder::finish(const Json& manifest, const Summary& summary) {
  check(!finished(), "RunFolder: finished twice");
  write_whole_file(path_ / kTurns, turns_text(turns_));
  write_whole_file(path_ / kSummary, pretty(to_json(summary)));
  write_manifest(manifest);
  ::unlink(journal_path().c_str());
  close_journal();
}

}  // namespace espalier
