// The flags that say who guesses ahead, and in which shape.
#pragma once

#include <string>

#include "engine/draft_plan.h"

namespace CLI {
class App;
}

namespace espalier {

void add_draft_flags(CLI::App& app, DraftOptions& options, const std::string& default_draft = kDefaultDraft);

}  // namespace espalier
