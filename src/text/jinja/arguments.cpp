#include "text/jinja/arguments.h"

#include <algorithm>

namespace espalier::jinja {

Bound bind(Guard& guard, std::string_view callee, const CallArguments& arguments,
           std::initializer_list<std::string_view> parameters, std::size_t required) {
  if (arguments.positional.size() > parameters.size())
    guard.fail("{}() takes at most {} arguments, got {}", callee, parameters.size(), arguments.positional.size());
  Bound bound(parameters.size());
  std::copy(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto parameter = std::find(parameters.begin(), parameters.end(), name);
    if (parameter == parameters.end()) guard.fail("{}() has no parameter '{}'", callee, name);
    std::optional<Value>& place = bound[static_cast<std::size_t>(parameter - parameters.begin())];
    if (place.has_value()) guard.fail("{}() got '{}' twice", callee, name);
    place = value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!bound[i].has_value()) guard.fail("{}() misses its argument '{}'", callee, parameters.begin()[i]);
  return bound;
}

Bound bind_positional(Guard& guard, std::string_view callee, const CallArguments& arguments, std::size_t required,
                      std::size_t maximum) {
  if (!arguments.named.empty()) guard.fail("{}() takes no argument by name", callee);
  const std::size_t given = arguments.positional.size();
  if (given < required || given > maximum)
    guard.fail("{}() takes {} to {} arguments, got {}", callee, required, maximum, given);
  Bound bound(maximum);
  std::copy(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  return bound;
}

const Text& require_text(Guard& guard, std::string_view callee, const Value& value) {
  if (value.text() == nullptr) guard.fail("{}() expects a str, got {}", callee, type_name(value));
  return *value.text();
}

std::int64_t require_integer(Guard& guard, std::string_view callee, const Value& value) {
  const std::optional<std::int64_t> integer = as_integer(value);
  if (!integer) guard.fail("{}() expects an int, got {}", callee, type_name(value));
  return *integer;
}

}  // namespace espalier::jinja
