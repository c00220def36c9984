// The tests of filters.h: `value is name`.
#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

using Property = bool (*)(const Value&);

template <Property property>
bool property_test(Guard& guard, const Value& input, const CallArguments& arguments) {
  bind_positional(guard, "test", arguments, 0, 0);
  return property(input);
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_string(const Value& value) {
  return value.text() != nullptr;
}
bool is_integer(const Value& value) {
  return value.get<std::int64_t>() != nullptr;
}
bool is_float(const Value& value) {
  return value.get<double>() != nullptr;
}
bool is_boolean(const Value& value) {
  return value.get<bool>() != nullptr;
}
bool is_mapping(const Value& value) {
  return value.dict() != nullptr;
}
bool is_true(const Value& value) {
  return value.get<bool>() && *value.get<bool>();
}
bool is_false(const Value& value) {
  return value.get<bool>() && !*value.get<bool>();
}

// jinja2 asks for a length and subscripts, which its undefined has too.
bool is_sequence(const Value& value) {
  return value.is_undefined() || value.text() || value.dict() ||
         (value.list() && value.list()->kind <= ListKind::range);
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.text() || value.dict() || value.list() || value.iterator() || value.loop();
}

// jinja2's undefined and every function can be called, if only to fail.
bool is_callable(const Value& value) {
  return value.is_undefined() || value.method() || value.get<Function>() || value.get<Macro>() || value.loop();
}

const Value& only_argument(Guard& guard, const CallArguments& arguments) {
  bind_positional(guard, "test", arguments, 1, 1);
  return arguments.positional[0];
}

template <bool expected>
bool equal_test(Guard& guard, const Value& input, const CallArguments& arguments) {
  return equal(guard, input, only_argument(guard, arguments)) == expected;
}

enum class Order { less, less_equal, greater, greater_equal };

template <Order order>
bool order_test(Guard& guard, const Value& input, const CallArguments& arguments) {
  const std::partial_ordering result = compare(guard, input, only_argument(guard, arguments));
  switch (order) {
    case Order::less: return result < 0;
    case Order::less_equal: return result <= 0;
    case Order::greater: return result > 0;
    case Order::greater_equal: break;
  }
  return result >= 0;
}

bool in_test(Guard& guard, const Value& input, const CallArguments& arguments) {
  return contains(guard, only_argument(guard, arguments), input);
}

bool divisible(Guard& guard, const Value& input, const Value& divisor) {
  const Value remainder = arithmetic(guard, Arithmetic::modulo, input, divisor);
  return equal(guard, remainder, Value(std::int64_t{0}));
}

bool divisible_test(Guard& guard, const Value& input, const CallArguments& arguments) {
  return divisible(guard, input, only_argument(guard, arguments));
}

bool even_test(Guard& guard, const Value& input, const CallArguments& arguments) {
  bind_positional(guard, "even", arguments, 0, 0);
  return divisible(guard, input, Value(std::int64_t{2}));
}

bool odd_test(Guard& guard, const Value& input, const CallArguments& arguments) {
  bind_positional(guard, "odd", arguments, 0, 0);
  const Value remainder = arithmetic(guard, Arithmetic::modulo, input, Value(std::int64_t{2}));
  return equal(guard, remainder, Value(std::int64_t{1}));
}

struct NamedTest {
  std::string_view name;
  Test test;
};

constexpr NamedTest kTests[] = {
    {"!=", equal_test<false>},
    {"<", order_test<Order::less>},
    {"<=", order_test<Order::less_equal>},
    {"==", equal_test<true>},
    {">", order_test<Order::greater>},
    {">=", order_test<Order::greater_equal>},
    {"boolean", property_test<is_boolean>},
    {"callable", property_test<is_callable>},
    {"defined", property_test<is_defined>},
    {"divisibleby", divisible_test},
    {"eq", equal_test<true>},
    {"equalto", equal_test<true>},
    {"even", even_test},
    {"false", property_test<is_false>},
    {"float", property_test<is_float>},
    {"ge", order_test<Order::greater_equal>},
    {"greaterthan", order_test<Order::greater>},
    {"gt", order_test<Order::greater>},
    {"in", in_test},
    {"integer", property_test<is_integer>},
    {"iterable", property_test<is_iterable>},
    {"le", order_test<Order::less_equal>},
    {"lessthan", order_test<Order::less>},
    {"lt", order_test<Order::less>},
    {"mapping", property_test<is_mapping>},
    {"ne", equal_test<false>},
    {"none", property_test<is_none>},
    {"number", property_test<is_number>},
    {"odd", odd_test},
    {"sequence", property_test<is_sequence>},
    {"string", property_test<is_string>},
    {"true", property_test<is_true>},
    {"undefined", property_test<is_undefined>},
};

}  // namespace

Test find_test(std::string_view name) {
  for (const NamedTest& entry : kTests)
    if (entry.name == name) return entry.test;
  return nullptr;
}

}  // namespace espalier::jinja
