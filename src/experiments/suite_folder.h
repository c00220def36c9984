// The directory of a suite: suite.json, which says what it is and how far it is, and the results of its experiments.
// A process that is killed leaves one that can be gone on with. Rank 0 owns it, and a second owner is refused; other
// ranks join it and only read.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "experiments/suite_plan.h"

namespace espalier {

// suite.json of a suite that begins now. `configuration` is what a resumed one must have in common with it, `launch`
// what all ranks must.
struct SuiteParts {
  const SuitePlan& plan;
  const EvalRequest& request;
  const SuiteRequest& suite;
  const OpenEngine& engine;
  const RankPlace& place;
};
nlohmann::ordered_json new_suite(const SuiteParts& parts);

class SuiteFolder {
 public:
  // What can be told before a model is loaded: throws InputError when there is something at `path` already, or with
  // `resume` no suite. Only rank 0 can tell the first: the others may find what it has just created.
  static void check_place(const std::filesystem::path& path, bool resume, const RankPlace& place);

  // A new one, or with `resume` that of the same suite, where what was skipped is forgotten. Throws InputError when it
  // is another one, naming the first field or the file that differs, or when another process owns it.
  SuiteFolder(std::filesystem::path path, const nlohmann::ordered_json& suite, bool resume);
  ~SuiteFolder();
  SuiteFolder(const SuiteFolder&) = delete;
  SuiteFolder& operator=(const SuiteFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string date() const;  // when it began, as templates are told

  // The result of an experiment. Throws InputError when there is none.
  nlohmann::ordered_json result(const std::string& id) const;
  std::optional<nlohmann::ordered_json> finished(const std::string& id) const;
  void add(const std::string& id, const nlohmann::ordered_json& result);
  // suite.json says of the experiment what its result says.
  void note(const std::string& id, const nlohmann::ordered_json& result);
  void finish();

 private:
  void lock();
  nlohmann::ordered_json taken_over(nlohmann::ordered_json suite) const;
  void forget_skipped(const nlohmann::ordered_json& suite) const;
  void write(const nlohmann::ordered_json& suite);

  std::filesystem::path path_;
  std::string suite_;  // the text of suite.json
  int lock_ = -1;
};

// For other ranks: the date of the suite that rank 0 owns, once suite.json is there. `suite` is as this rank would
// begin it. Throws InputError when it is another suite or, without request.resume, of another launch; DeviceError after
// request.rank_timeout seconds without it. Nothing: cancelled.
std::optional<std::string> join_suite(const EvalRequest& request, const nlohmann::ordered_json& suite,
                                      const std::function<bool()>& cancelled);
// Once rank 0 has come: throws InputError unless it launched what this rank did.
void check_same_launch(const std::filesystem::path& path, const nlohmann::ordered_json& suite);
bool has_result(const std::filesystem::path& suite, const std::string& id);

}  // namespace espalier
