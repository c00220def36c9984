// Builds the tree of a template from its source.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"

namespace espalier::jinja {

// Throws InputError with line and column for what is malformed, not supported, or nested too deeply.
Block parse(std::string_view source);

}  // namespace espalier::jinja
