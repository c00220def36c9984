// The arguments of one call in a template, and how they meet the parameters of a built-in function.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace espalier::jinja {

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// A name as a template argument: built-in functions that share a template complain under their own.
struct CalleeName {
  template <std::size_t size>
  consteval CalleeName(const char (&literal)[size]) {
    std::copy_n(literal, size, letters);
  }
  constexpr operator std::string_view() const { return letters; }

  char letters[16] = {};
};

// One entry per parameter, in order; absent ones are empty. Fails on too many, unknown, doubled or, among the first
// `required`, missing arguments.
using Bound = std::vector<std::optional<Value>>;
Bound bind(Guard& guard, std::string_view callee, const CallArguments& arguments,
           std::initializer_list<std::string_view> parameters, std::size_t required);
// The same for functions that take no argument by name.
Bound bind_positional(Guard& guard, std::string_view callee, const CallArguments& arguments, std::size_t required,
                      std::size_t maximum);

const Text& require_text(Guard& guard, std::string_view callee, const Value& value);
std::int64_t require_integer(Guard& guard, std::string_view callee, const Value& value);

}  // namespace espalier::jinja
