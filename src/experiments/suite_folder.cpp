#include "experiments/suite_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "base/temporary_file.h"
#include "base/whole_file.h"
#include "engine/build_facts.h"
#include "engine/run_configuration.h"
#include "eval/rank_watch.h"
#include "eval/run_folder.h"
#include "experiments/experiment_result.h"
#include "experiments/suite_engine.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSuiteSchema = 1;
constexpr const char* kSuiteFile = "suite.json";
constexpr const char* kResultFile = "result.json";

std::string pretty(const Json& object) {
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json read_object(const std::filesystem::path& file) {
  const std::string text = read_text_file(file);
  if (!parse_json(text, file.string()).is_object()) input_error("{}: expected a JSON object", file.string());
  return Json::parse(text);  // once more, for the order of its fields
}

std::string sha256_of(const std::filesystem::path& file) {
  const std::string text = read_text_file(file);
  return sha256(std::as_bytes(std::span(text)));
}

// What a resumed suite must have in common with the one that began. `--only` and the number of threads may be others.
Json configuration_of(const SuiteParts& parts) {
  const DraftOptions& drafter = parts.request.drafting;
  EvalRequest plain = parts.request;
  plain.drafting = {.draft = "none"};
  const OpenDrafting none(plain, parts.engine);
  Json run = run_configuration({parts.engine, none.drafting, plain.text, plain.chat, plain.raw});
  run["engine"].erase("threads");
  return {{"suite", parts.plan.name},
          {"full", parts.suite.full},
          {"all_humaneval", parts.suite.all_humaneval},
          {"drafter",
           {{"draft", text_or_null(drafter.draft.value_or(""))},
            {"heads", drafter.heads},
            {"head_options", drafter.head_options},
            {"head_weights", text_or_null(drafter.head_weights.value_or(""))}}},
          {"model", run["model"]},
          {"engine", run["engine"]},
          {"sampling", run["sampling"]},
          {"chat", run["chat"]}};
}

Json launch_of(const SuiteParts& parts) {
  Json ids = Json::array();
  for (const PlannedExperiment& planned : parts.plan.experiments) ids.push_back(planned.experiment.id);
  return {{"launcher", text_or_null(parts.place.launcher)}, {"world", parts.place.world}, {"experiments", ids}};
}

Json experiments_json(const SuitePlan& plan) {
  Json list = Json::array();
  for (const PlannedExperiment& planned : plan.experiments)
    list.push_back({{"id", planned.experiment.id},
                    {"title", planned.experiment.title},
                    {"experiment", name(planned.experiment.kind)},
                    {"file", planned.experiment.file.filename().string()},
                    {"sha256", sha256_of(planned.experiment.file)},
                    {"estimated_seconds", planned.seconds},
                    {"state", "planned"},
                    {"identical", nullptr}});
  return list;
}

const Json* find_experiment(const Json& suite, const Json& id) {
  const auto experiments = suite.find("experiments");
  if (experiments == suite.end()) return nullptr;
  for (const Json& experiment : *experiments)
    if (experiment.value("id", Json()) == id) return &experiment;
  return nullptr;
}

// As far as both go: a file that has changed is another suite.
void check_same_suite(const Json& now, const Json& then, const std::filesystem::path& file) {
  for (const char* field : {"schema", "version", "commit", "program", "configuration"})
    if (const auto other = first_other_field(now.at(field), then.value(field, Json()), field))
      input_error("--resume: {} as in {}", *other, file.string());
  for (const Json& experiment : now.at("experiments")) {
    const Json* before = find_experiment(then, experiment.at("id"));
    if (before != nullptr && before->value("sha256", Json()) != experiment.at("sha256"))
      input_error("--resume: {} has changed since the suite began", experiment.at("file").get<std::string>());
  }
}

std::filesystem::path result_path(const std::filesystem::path& suite, const std::string& id) {
  return suite / id / kResultFile;
}

[[noreturn]] void refuse_existing(std::string_view where) {
  input_error("{}: exists already, expected a new directory, or --resume", where);
}

}  // namespace

Json new_suite(const SuiteParts& parts) {
  return {{"kind", "suite"},
          {"schema", kSuiteSchema},
          {"version", build_version()},
          {"commit", text_or_null(build_commit())},
          {"program", program_json(parts.engine)},
          {"command", command_line()},
          {"directory", std::filesystem::current_path().string()},
          {"configuration", configuration_of(parts)},
          {"launch", launch_of(parts)},
          {"identical", nullptr},
          {"date", chat_context(parts.request.chat).date_iso},
          {"estimated_seconds", parts.plan.seconds()},
          {"finished", false},
          {"experiments", experiments_json(parts.plan)}};
}

void SuiteFolder::check_place(const std::filesystem::path& path, bool resume, const RankPlace& place) {
  if (!resume && place.rank == 0 && std::filesystem::exists(path)) refuse_existing(fmt::format("-o {}", path.string()));
  if (resume && !std::filesystem::exists(path / kSuiteFile))
    input_error("-o {}: no {}, expected the directory of a suite to resume", path.string(), kSuiteFile);
}

SuiteFolder::SuiteFolder(std::filesystem::path path, const Json& suite, bool resume) : path_(std::move(path)) {
  check_place(path_, resume, RankPlace{});
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) device_error("{}: cannot create the directory: {}", path_.string(), error.message());
  lock();
  remove_leftovers(path_);
  write(resume ? taken_over(suite) : suite);
}

SuiteFolder::~SuiteFolder() {
  ::close(lock_);
}

void SuiteFolder::lock() {
  lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ >= 0 && ::flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
  ::close(lock_);
  input_error("{}: another process is writing to this suite", path_.string());
}

std::string SuiteFolder::date() const {
  return Json::parse(suite_).value("date", "");
}

// The experiments of this process join those of the ones before.
Json SuiteFolder::taken_over(Json suite) const {
  const Json then = read_object(path_ / kSuiteFile);
  check_same_suite(suite, then, path_ / kSuiteFile);
  forget_skipped(suite);
  suite["date"] = then.value("date", Json(""));
  for (const char* field : {"command", "directory"})  // how it was begun, whatever resumed it
    if (then.contains(field)) suite[field] = then[field];
  Json all = then.value("experiments", Json::array());
  for (const Json& now : suite["experiments"])
    if (find_experiment(then, now["id"]) == nullptr) all.push_back(now);
  suite["experiments"] = all;
  return suite;
}

// It is tried once more, and other ranks must not take the old word for it.
void SuiteFolder::forget_skipped(const Json& suite) const {
  for (const Json& experiment : suite["experiments"]) {
    const auto id = experiment["id"].get<std::string>();
    if (!has_result(path_, id) || result(id).value("skipped", Json()).is_null()) continue;
    std::error_code error;
    if (!std::filesystem::remove(result_path(path_, id), error))
      device_error("{}: cannot remove: {}", result_path(path_, id).string(), error.message());
  }
}

Json SuiteFolder::result(const std::string& id) const {
  return read_object(result_path(path_, id));
}

std::optional<Json> SuiteFolder::finished(const std::string& id) const {
  if (!has_result(path_, id)) return std::nullopt;
  return result(id);
}

void SuiteFolder::add(const std::string& id, const Json& result) {
  std::error_code ignored;
  std::filesystem::create_directories(path_ / id, ignored);
  remove_leftovers(path_ / id);
  write_whole_file(result_path(path_, id), pretty(result));
}

void SuiteFolder::note(const std::string& id, const Json& result) {
  Json suite = Json::parse(suite_);
  Identity all;
  for (Json& experiment : suite["experiments"]) {
    if (experiment["id"] == id) {
      experiment["state"] = result["skipped"].is_null() ? "finished" : "skipped";
      experiment["identical"] = result["identical"];
    }
    if (!experiment["identical"].is_null()) all.add(identity_from(experiment["identical"], kSuiteFile));
  }
  suite["identical"] = to_json(all);
  write(suite);
}

void SuiteFolder::finish() {
  Json suite = Json::parse(suite_);
  suite["finished"] = true;
  write(suite);
}

void SuiteFolder::write(const Json& suite) {
  suite_ = pretty(suite);
  write_whole_file(path_ / kSuiteFile, suite_);
}

std::optional<std::string> join_suite(const EvalRequest& request, const Json& suite,
                                      const std::function<bool()>& cancelled) {
  const std::filesystem::path path = request.out, file = path / kSuiteFile;
  if (!request.resume && !await_rank_0(file, request.rank_timeout, cancelled)) return std::nullopt;
  const Json then = read_object(file);
  check_same_suite(suite, then, file);
  if (!request.resume && then.value("finished", false)) refuse_existing(path.string());
  if (!request.resume) check_same_launch(path, suite);
  return then.value("date", "");
}

void check_same_launch(const std::filesystem::path& path, const Json& suite) {
  const std::filesystem::path file = path / kSuiteFile;
  if (const auto other = first_other_field(suite.at("launch"), read_object(file).value("launch", Json()), "launch"))
    input_error("{}: {}, as rank 0 began it", file.string(), *other);
}

bool has_result(const std::filesystem::path& suite, const std::string& id) {
  std::error_code ignored;
  return std::filesystem::exists(result_path(suite, id), ignored);
}

}  // namespace espalier
