// Methods of the values a template handles ("text".split, dict.items) and the attributes of `loop`.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/arguments.h"

namespace espalier::jinja {

enum class MethodSupport {
  none,         // Python has no such attribute either
  supported,    // see call_method
  unsupported,  // Python has it, templates here do not: an error
  forbidden,    // it would change the object: jinja2's immutable sandbox makes it undefined
};

MethodSupport method_support(const Value& receiver, std::string_view name);
Value call_method(Guard& guard, const Method& method, const CallArguments& arguments);

std::optional<Value> find_loop_attribute(Guard& guard, const Value& loop_value, const Loop& loop,
                                         std::string_view name);

}  // namespace espalier::jinja
