// JSON as template values.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "text/jinja/value.h"

namespace espalier::jinja {

// Its strings, keys included, are not trusted to spell control tokens.
Value from_json(Guard& guard, const nlohmann::ordered_json& json, int level = 0);

}  // namespace espalier::jinja
