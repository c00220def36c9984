// The flags of `eval run --suite`, and those of a suite's settings, which are words in a file.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "experiments/suite_plan.h"

namespace CLI {
class App;
}

namespace espalier {

struct SuiteFlags {
  SuiteRequest request = {};  // without `suite`: no suite
  bool dry_run = false;
  std::optional<std::string> execute = {};  // "namespaces" or "unconfined"
};

void add_suite_flags(CLI::App& app, SuiteFlags& flags);

// Throws InputError where a flag of `app` was given that means nothing with, or without, a suite.
void check_suite_flags(const CLI::App& app, const SuiteFlags& flags);

// What is asked for, settings read as read_setting does.
SuiteRequest suite_request(const SuiteFlags& flags);

// The flags of a setting on top of a request. Drafting flags, --attention, --cache, --reorder, --mask,
// --round-route and --ignore-eos can be set. Throws InputError "where: ..." for any other, and for values that the
// flags refuse.
EvalRequest read_setting(EvalRequest request, std::span<const std::string> words, const std::string& where);

}  // namespace espalier
