// The filters (`value | name(...)`) and tests (`value is name ...`) of templates.
#pragma once

#include <string_view>

#include "text/jinja/arguments.h"

namespace espalier::jinja {

using Filter = Value (*)(Guard& guard, const Value& input, const CallArguments& arguments);
using Test = bool (*)(Guard& guard, const Value& input, const CallArguments& arguments);

// Null when there is none of that name.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);

}  // namespace espalier::jinja
