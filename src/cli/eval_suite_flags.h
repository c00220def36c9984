// What `eval run --suite` was asked for, and the flags of a suite's settings, which are words in a file.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/eval_manifest.h"
#include "experiments/sandbox.h"

namespace espalier {

struct SuiteFlags {
  std::string suite = {};  // "paper", a file or a folder; empty: no suite
  std::vector<std::string> only = {};
  bool full = false;
  bool all_humaneval = false;
  bool dry_run = false;
  std::optional<std::string> execute = {};  // "namespaces" or "unconfined"

  // How the code of answers is run; nothing: it is not.
  std::optional<Confinement> confinement() const;
};

void add_suite_flags(CLI::App& app, SuiteFlags& flags);

// Throws InputError where a flag of `app` was given that means nothing with, or without, a suite.
void check_suite_flags(const CLI::App& app, const SuiteFlags& flags);

// The flags of a setting on top of others. Drafting flags, --attention, --cache, --reorder, --mask and --ignore-eos can
// be set. Throws InputError "where: ..." for any other, and for values that the flags refuse.
EvalFlags with_setting(EvalFlags flags, std::span<const std::string> words, const std::string& where);

}  // namespace espalier
