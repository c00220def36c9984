// The directory of a suite: suite.json, which says what it is and how far it is, and the results of its experiments.
// A process that is killed leaves one that can be gone on with. One process at a time: the second is refused.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/eval_suite_plan.h"

namespace espalier {

// suite.json of a suite that begins now. `configuration` is what a resumed one must have in common with it.
nlohmann::ordered_json new_suite(const SuitePlan& plan, const EvalFlags& base, const SuiteFlags& flags);

class SuiteFolder {
 public:
  // What can be told before a model is loaded: throws InputError when there is something at `path` already, or with
  // `resume` no suite.
  static void check_place(const std::filesystem::path& path, bool resume);

  // A new one, or with `resume` that of the same suite. Throws InputError when it is another one, naming the first
  // field or the file that differs, or when another process is writing to it.
  SuiteFolder(std::filesystem::path path, nlohmann::ordered_json suite, bool resume);
  ~SuiteFolder();
  SuiteFolder(const SuiteFolder&) = delete;
  SuiteFolder& operator=(const SuiteFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string date() const { return suite_.value("date", ""); }  // when it began, as templates are told

  // The result of an experiment. Throws InputError when there is none.
  nlohmann::ordered_json result(const std::string& id) const;
  // The same where it need not be found again: what was skipped is tried once more.
  std::optional<nlohmann::ordered_json> finished(const std::string& id) const;
  void add(const std::string& id, const nlohmann::ordered_json& result);
  // suite.json says of the experiment what its result says.
  void note(const std::string& id, const nlohmann::ordered_json& result);
  void finish();

 private:
  void lock();
  void take_over(const nlohmann::ordered_json& then);
  void write() const;

  std::filesystem::path path_;
  nlohmann::ordered_json suite_;
  int lock_ = -1;
};

}  // namespace espalier
