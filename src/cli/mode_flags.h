// The flags and variables that say how a run computes. A flag beats the environment, which beats the mode
// (docs/modes.md).
#pragma once

#include <optional>
#include <string>

#include "cli/environment.h"
#include "engine/modes.h"

namespace CLI {
class App;
}

namespace espalier {

struct ModeFlags {
  std::optional<std::string> mode = {};
  std::optional<std::string> device = {};
  std::optional<std::string> checked = {};
  std::optional<std::string> invariants = {};
  std::optional<std::string> attention = {};
  std::optional<std::string> cache = {};
  std::optional<std::string> reorder = {};
  std::optional<std::string> mask = {};
  std::optional<std::string> round_route = {};
};
void add_mode_flags(CLI::App& app, ModeFlags& flags);

// What was given by flags replaces what was asked for.
void ask_by_flags(const ModeFlags& flags, ModeRequest& request);
// Variables say what is still open. One that is set to nothing counts as not set.
void ask_by_environment(const Environment& environment, ModeRequest& request);

}  // namespace espalier
