#include "cli/eval_suite_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "base/whole_file.h"
#include "cli/build_facts.h"
#include "cli/run_configuration.h"
#include "eval/run_folder.h"
#include "experiments/experiment_result.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
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

// What a resumed suite must have in common with the one that began. `--only` may be another.
Json configuration_of(const SuitePlan& plan, const EvalFlags& base, const SuiteFlags& flags) {
  Json drafter = {{"draft", text_or_null(base.speculation.draft.value_or(""))},
                  {"heads", base.speculation.heads},
                  {"head_options", base.speculation.head_options},
                  {"head_weights", text_or_null(base.speculation.head_weights.value_or(""))}};
  return {{"suite", plan.name},
          {"full", flags.full},
          {"all_humaneval", flags.all_humaneval},
          {"drafter", drafter},
          {"model", text_or_null(base.engine.model)},
          {"seed", base.sampling.seed},
          {"temperature", base.sampling.sampling.temperature}};
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

}  // namespace

Json new_suite(const SuitePlan& plan, const EvalFlags& base, const SuiteFlags& flags) {
  return {{"kind", "suite"},
          {"schema", kSchema},
          {"version", build_version()},
          {"commit", text_or_null(build_commit())},
          {"configuration", configuration_of(plan, base, flags)},
          {"identical", nullptr},
          {"date", chat_context(base.chat).date_iso},
          {"estimated_seconds", plan.seconds()},
          {"finished", false},
          {"experiments", experiments_json(plan)}};
}

void SuiteFolder::check_place(const std::filesystem::path& path, bool resume) {
  if (!resume && std::filesystem::exists(path))
    input_error("-o {}: exists already, expected a new directory, or --resume", path.string());
  if (resume && !std::filesystem::exists(path / kSuiteFile))
    input_error("-o {}: no {}, expected the directory of a suite to resume", path.string(), kSuiteFile);
}

SuiteFolder::SuiteFolder(std::filesystem::path path, Json suite, bool resume)
    : path_(std::move(path)), suite_(std::move(suite)) {
  check_place(path_, resume);
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) device_error("{}: cannot create the directory: {}", path_.string(), error.message());
  lock();
  if (resume) take_over(read_object(path_ / kSuiteFile));
  write();
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

// The experiments of this process join those of the ones before; a file that has changed is another suite.
void SuiteFolder::take_over(const Json& then) {
  for (const char* field : {"schema", "version", "commit", "configuration"})
    if (const auto other = first_other_field(suite_.at(field), then.value(field, Json()), field))
      input_error("--resume: {} as in {}", *other, (path_ / kSuiteFile).string());
  suite_["date"] = then.value("date", Json(""));
  Json all = then.value("experiments", Json::array());
  for (const Json& now : suite_["experiments"]) {
    const auto found =
        std::ranges::find_if(all, [&](const Json& before) { return before.value("id", "") == now["id"]; });
    if (found == all.end()) {
      all.push_back(now);
    } else if (found->value("sha256", "") != now["sha256"]) {
      input_error("--resume: {} has changed since the suite began", now["file"].get<std::string>());
    }
  }
  suite_["experiments"] = all;
}

Json SuiteFolder::result(const std::string& id) const {
  return read_object(path_ / id / kResultFile);
}

std::optional<Json> SuiteFolder::finished(const std::string& id) const {
  if (!std::filesystem::exists(path_ / id / kResultFile)) return std::nullopt;
  Json there = result(id);
  if (!there.value("skipped", Json()).is_null()) return std::nullopt;
  return there;
}

void SuiteFolder::add(const std::string& id, const Json& result) {
  std::error_code ignored;
  std::filesystem::create_directories(path_ / id, ignored);
  write_whole_file(path_ / id / kResultFile, pretty(result));
}

void SuiteFolder::note(const std::string& id, const Json& result) {
  Identity all;
  for (Json& experiment : suite_["experiments"]) {
    if (experiment["id"] == id) {
      experiment["state"] = result["skipped"].is_null() ? "finished" : "skipped";
      experiment["identical"] = result["identical"];
    }
    if (!experiment["identical"].is_null()) all.add(identity_from(experiment["identical"], kSuiteFile));
  }
  suite_["identical"] = to_json(all);
  write();
}

void SuiteFolder::finish() {
  suite_["finished"] = true;
  write();
}

void SuiteFolder::write() const {
  write_whole_file(path_ / kSuiteFile, pretty(suite_));
}

}  // namespace espalier
