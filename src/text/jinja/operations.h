// Operators, subscripts and attributes of template values, with Python's results. What Python would refuse, or what
// would need numbers beyond 64 bits, fails.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/value.h"

namespace espalier::jinja {

enum class Arithmetic { add, subtract, multiply, divide, floor_divide, modulo, power };

Value arithmetic(Guard& guard, Arithmetic operation, const Value& a, const Value& b);
Value negate(Guard& guard, const Value& value);
Value unary_plus(Guard& guard, const Value& value);
bool contains(Guard& guard, const Value& container, const Value& item);

// `object.name` and `object[index]`; undefined when there is no such thing, failing when the object is undefined.
Value get_attribute(Guard& guard, const Value& object, std::string_view name);
Value get_item(Guard& guard, const Value& object, const Value& index);
// "a.0.b": what filters take as the name of an attribute.
Value get_path(Guard& guard, const Value& object, const Value& path, const std::optional<Value>& fallback);

// object[begin:end:step]; None where a bound is left out.
Value get_slice(Guard& guard, const Value& object, const Value& begin, const Value& end, const Value& step);

}  // namespace espalier::jinja
