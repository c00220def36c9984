// The flags that say who guesses ahead, and in which shape.
#pragma once

#include "engine/draft_plan.h"

namespace CLI {
class App;
}

namespace espalier {

// The oracle has to know the answers beforehand, which a server does not.
enum class Oracle { offered, left_out };
void add_draft_flags(CLI::App& app, DraftOptions& options, Oracle oracle = Oracle::offered);

}  // namespace espalier
