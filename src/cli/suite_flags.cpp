#include "cli/suite_flags.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/draft_flags.h"
#include "cli/flags.h"
#include "cli/mode_flags.h"

namespace espalier {
namespace {

// What a suite says itself.
constexpr const char* kNotWithSuite[] = {
    "--data",        "--skip",         "--limit",        "--baseline",    "--baseline-run", "--baseline-turns",
    "--trace",       "--raw",          "--system",       "--max-tokens",  "--tree",         "--draft-nodes",
    "--draft-depth", "--draft-expand", "--draft-branch", "--draft-vocab", "--draft-window", "--ignore-eos",
    "--stop",        "--logprobs",     "--receipts"};
constexpr const char* kOnlyWithSuite[] = {"--only", "--full", "--all-humaneval", "--dry-run", "--execute-model-code"};
// Of all flags that the same calls add, those that concern a whole suite.
constexpr const char* kNotInSetting[] = {"--mode", "--device", "--checked", "--invariants", "--draft", "--draft-model"};

bool given(const CLI::App& app, const char* flag) {
  const CLI::Option* option = app.get_option_no_throw(flag);
  return option != nullptr && option->count() > 0;
}

}  // namespace

void add_suite_flags(CLI::App& app, SuiteFlags& flags) {
  const HelpGroup group(app, "Suites of experiments (docs/experiments.md)");
  app.add_option("--suite", flags.request.suite, "run experiments: paper, or a file or folder of one's own")
      ->type_name("paper|PATH");
  app.add_option("--only", flags.request.only, "only these experiments, and those they look at")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("ID,ID,...");
  app.add_flag("--full", flags.request.full, "answers of up to 1024 tokens instead of 256");
  app.add_flag("--all-humaneval", flags.request.all_humaneval, "all 164 prompts of HumanEval where the suite takes 80");
  app.add_flag("--dry-run", flags.dry_run, "say what would be run, and about how long it takes, and stop");
  app.add_flag("--execute-model-code{namespaces}", flags.execute,
               "run the tests of HumanEval on the answers, which executes code that a model wrote, in a sandbox "
               "without network; =unconfined: with limits alone, where the system allows no sandbox")
      ->check(CLI::IsMember({"namespaces", "unconfined"}));
}

void check_suite_flags(const CLI::App& app, const SuiteFlags& flags) {
  if (!flags.dry_run && !given(app, "--out")) throw InputError("-o is required: the directory of the run");
  if (flags.request.suite.empty()) {
    for (const char* flag : kOnlyWithSuite)
      if (given(app, flag)) input_error("{}: only with --suite", flag);
    if (!given(app, "--data")) throw InputError("--data is required: the prompts; or --suite");
  }
  for (const char* flag : kNotWithSuite)
    if (!flags.request.suite.empty() && given(app, flag))
      input_error("{}: not with --suite, whose experiments say it", flag);
}

SuiteRequest suite_request(const SuiteFlags& flags) {
  SuiteRequest request = flags.request;
  if (flags.execute)
    request.confinement = *flags.execute == "unconfined" ? Confinement::limits_only : Confinement::namespaces;
  request.read_setting = read_setting;
  return request;
}

EvalRequest read_setting(EvalRequest request, std::span<const std::string> words, const std::string& where) {
  CLI::App app;
  app.set_help_flag();
  ModeFlags modes;
  add_draft_flags(app, request.drafting);
  add_mode_flags(app, modes);
  app.add_flag("--ignore-eos", request.text.ignore_eos);
  for (const char* flag : kNotInSetting) app.remove_option(app.get_option(flag));
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app.parse(std::move(reversed));
    plan_tree(wish_for_tree(request.drafting, request.engine.places));
  } catch (const CLI::ParseError& error) {
    const std::string what = error.what();
    input_error("{}: {}", where, what.substr(0, what.find('\n')));
  } catch (const InputError& error) {
    input_error("{}: {}", where, error.what());
  }
  ask_by_flags(modes, request.engine.modes);
  return request;
}

}  // namespace espalier
