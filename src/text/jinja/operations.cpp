#include "text/jinja/operations.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/methods.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

constexpr std::int64_t kExactInDouble = std::int64_t{1} << 53;

[[noreturn]] void fail_overflow(Guard& guard) {
  guard.fail("integers beyond 64 bits are not supported");
}

double to_double(Guard& guard, const Value& value) {
  if (const double* real = value.get<double>()) return *real;
  const std::int64_t integer = *as_integer(value);
  if (integer > kExactInDouble || integer < -kExactInDouble)
    guard.fail("integers beyond 53 bits are not supported in float arithmetic");
  return static_cast<double>(integer);
}

std::int64_t integer_power(Guard& guard, std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) fail_overflow(guard);
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) fail_overflow(guard);
  }
  return result;
}

std::int64_t floor_divide(Guard& guard, std::int64_t a, std::int64_t b) {
  if (b == 0) guard.fail("division by zero");
  if (b == -1 && a == std::numeric_limits<std::int64_t>::min()) fail_overflow(guard);
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

std::int64_t integer_arithmetic(Guard& guard, Arithmetic operation, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  switch (operation) {
    case Arithmetic::add: overflow = __builtin_add_overflow(a, b, &result); break;
    case Arithmetic::subtract: overflow = __builtin_sub_overflow(a, b, &result); break;
    case Arithmetic::multiply: overflow = __builtin_mul_overflow(a, b, &result); break;
    case Arithmetic::floor_divide: return floor_divide(guard, a, b);
    case Arithmetic::modulo: return b == -1 ? 0 : a - floor_divide(guard, a, b) * b;
    default: return integer_power(guard, a, b);
  }
  if (overflow) fail_overflow(guard);
  return result;
}

struct FloatDivision {
  double quotient, remainder;
};

// Python's float floor division: the remainder has the sign of the divisor, and the quotient is exact or rounded from
// an exact difference.
FloatDivision divide_floats(double a, double b) {
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) {
    remainder += b;
    quotient -= 1;
  } else if (remainder == 0) {
    remainder = std::copysign(0.0, b);
  }
  if (quotient == 0) return {std::copysign(0.0, a / b), remainder};
  const double floored = std::floor(quotient);
  return {quotient - floored > 0.5 ? floored + 1 : floored, remainder};
}

double float_power(Guard& guard, double a, double b) {
  if (a == 0 && b < 0) guard.fail("zero to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
    guard.fail("complex numbers are not supported");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) guard.fail("float overflow");
  return result;
}

double float_arithmetic(Guard& guard, Arithmetic operation, double a, double b) {
  const bool divides =
      operation == Arithmetic::divide || operation == Arithmetic::floor_divide || operation == Arithmetic::modulo;
  if (divides && b == 0) guard.fail("division by zero");
  switch (operation) {
    case Arithmetic::add: return a + b;
    case Arithmetic::subtract: return a - b;
    case Arithmetic::multiply: return a * b;
    case Arithmetic::divide: return a / b;
    case Arithmetic::floor_divide: return divide_floats(a, b).quotient;
    case Arithmetic::modulo: return divide_floats(a, b).remainder;
    case Arithmetic::power: break;
  }
  return float_power(guard, a, b);
}

Value number_arithmetic(Guard& guard, Arithmetic operation, const Value& a, const Value& b) {
  const std::optional<std::int64_t> left = as_integer(a);
  const std::optional<std::int64_t> right = as_integer(b);
  const bool leaves_integers =
      operation == Arithmetic::divide || (operation == Arithmetic::power && right && *right < 0);
  if (left && right && !leaves_integers) return integer_arithmetic(guard, operation, *left, *right);
  return float_arithmetic(guard, operation, to_double(guard, a), to_double(guard, b));
}

Value concatenate(Guard& guard, const Value& a, const Value& b) {
  if (a.text() && b.text()) {
    TextBuilder builder(guard);
    builder.append(*a.text());
    builder.append(*b.text());
    return Value(builder.take());
  }
  const List* left = a.list();
  const List* right = b.list();
  if (!left || !right || left->kind != right->kind || left->kind > ListKind::tuple)
    guard.fail("cannot add a {} and a {}", type_name(a), type_name(b));
  std::vector<Value> items = left->items;
  items.insert(items.end(), right->items.begin(), right->items.end());
  return make_list(guard, std::move(items), left->kind);
}

Value repeat(Guard& guard, const Value& sequence, std::int64_t times) {
  if (const Text* text = sequence.text())
    return Value(repeat(guard, *text, static_cast<std::size_t>(std::max<std::int64_t>(times, 0))));
  const List& list = *sequence.list();
  std::vector<Value> items;
  for (std::int64_t i = 0; i < times && !list.items.empty(); ++i) {
    guard.spend_steps(list.items.size());
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return make_list(guard, std::move(items), list.kind);
}

bool is_repeatable(const Value& value) {
  return value.text() || (value.list() && value.list()->kind <= ListKind::tuple);
}

void refuse_undefined(Guard& guard, const Value& value) {
  if (const auto* undefined = value.get<Undefined>()) guard.fail("{}", *undefined->explanation);
}

std::string describe(const Value& index) {
  if (const Text* text = index.text()) return fmt::format("'{}'", text->bytes());
  if (const std::optional<std::int64_t> integer = as_integer(index)) return fmt::format("{}", *integer);
  return std::string(type_name(index));
}

Value no_such_thing(const Value& object, const Value& index) {
  return Value::undefined(fmt::format("a {} has no element or attribute {}", type_name(object), describe(index)));
}

// Python's getattr(): methods of the built-in types, variables of namespaces and of `loop`.
std::optional<Value> find_attribute(Guard& guard, const Value& object, std::string_view name) {
  if (const auto* space = object.get<Namespace*>()) {
    for (const auto& [key, value] : (*space)->attributes)
      if (key == name) return value;
    return std::nullopt;
  }
  if (const Loop* loop = object.loop()) return find_loop_attribute(guard, object, *loop, name);
  switch (method_support(object, name)) {
    case MethodSupport::supported: return make_method(guard, object, std::string(name));
    case MethodSupport::unsupported: guard.fail("'{}' of a {} is not supported in templates", name, type_name(object));
    case MethodSupport::forbidden:
      return Value::undefined(
          fmt::format("'{}' of a {} changes it, which templates may not do", name, type_name(object)));
    case MethodSupport::none: break;
  }
  return std::nullopt;
}

// Where a Python index lands in a sequence of `size` elements.
std::optional<std::size_t> place(std::int64_t index, std::size_t size) {
  if (index < 0) index += static_cast<std::int64_t>(size);
  if (index < 0 || index >= static_cast<std::int64_t>(size)) return std::nullopt;
  return static_cast<std::size_t>(index);
}

std::optional<Value> character_of(Guard& guard, const Text& text, std::int64_t index) {
  guard.spend_text(text.size() / 8);
  const std::optional<std::size_t> wanted = place(index, count_characters(text.bytes()));
  if (!wanted) return std::nullopt;
  std::size_t offset = 0;
  for (std::size_t i = 0; i < *wanted; ++i) offset += character_at(text.bytes(), offset).bytes;
  return make_text(guard, text.slice(offset, offset + character_at(text.bytes(), offset).bytes));
}

bool is_hashable(const Value& value) {
  if (const List* list = value.list())
    return list->kind == ListKind::tuple && std::all_of(list->items.begin(), list->items.end(), is_hashable);
  return !value.dict();
}

// Python's object[index], empty where it would raise TypeError or LookupError.
std::optional<Value> find_item(Guard& guard, const Value& object, const Value& index) {
  if (const Dict* dict = object.dict()) {
    const Value* value = is_hashable(index) ? find_entry(guard, *dict, index) : nullptr;
    return value == nullptr ? std::nullopt : std::optional<Value>(*value);
  }
  const std::optional<std::int64_t> integer = as_integer(index);
  if (!integer) return std::nullopt;
  if (const Text* text = object.text()) return character_of(guard, *text, *integer);
  const List* list = object.list();
  if (list == nullptr || list->kind > ListKind::range) return std::nullopt;
  const std::optional<std::size_t> wanted = place(*integer, list->items.size());
  return wanted ? std::optional<Value>(list->items[*wanted]) : std::nullopt;
}

// The elements begin, begin + step, ... of a Python slice.
struct SliceBounds {
  std::int64_t begin, step;
  std::size_t count;
};

std::int64_t slice_bound(Guard& guard, const Value& bound, std::int64_t absent, std::int64_t lowest,
                         std::int64_t highest, std::int64_t size) {
  if (bound.is_none()) return absent;
  std::int64_t value = require_integer(guard, "slice", bound);
  if (value < 0) value = std::max(value, -size - 1) + size;
  return std::clamp(value, lowest, highest);
}

SliceBounds slice_bounds(Guard& guard, const Value& begin, const Value& end, const Value& step, std::size_t length) {
  // A step beyond the length takes the first element only; the clamp keeps the sums below far from overflow.
  const auto size = static_cast<std::int64_t>(length);
  const std::int64_t stride =
      step.is_none() ? 1 : std::clamp(require_integer(guard, "slice", step), -size - 1, size + 1);
  if (stride == 0) guard.fail("slice step cannot be zero");
  const std::int64_t lowest = stride > 0 ? 0 : -1;
  const std::int64_t highest = stride > 0 ? size : size - 1;
  const std::int64_t first = slice_bound(guard, begin, stride > 0 ? lowest : highest, lowest, highest, size);
  const std::int64_t last = slice_bound(guard, end, stride > 0 ? highest : lowest, lowest, highest, size);
  const std::int64_t distance = stride > 0 ? last - first : first - last;
  const std::int64_t width = std::abs(stride);
  return {first, stride, distance <= 0 ? 0 : static_cast<std::size_t>((distance + width - 1) / width)};
}

Value slice_text(Guard& guard, const Text& text, const Value& begin, const Value& end, const Value& step) {
  guard.spend_text(text.size());
  std::vector<std::size_t> offsets;
  for (std::size_t offset = 0; offset < text.size(); offset += character_at(text.bytes(), offset).bytes)
    offsets.push_back(offset);
  const SliceBounds bounds = slice_bounds(guard, begin, end, step, offsets.size());
  offsets.push_back(text.size());
  const auto offset_of = [&](std::size_t i) {
    return static_cast<std::size_t>(bounds.begin + static_cast<std::int64_t>(i) * bounds.step);
  };
  if (bounds.count == 0) return Value(Text());
  if (bounds.step == 1) return make_text(guard, text.slice(offsets[offset_of(0)], offsets[offset_of(bounds.count)]));
  TextBuilder builder(guard);
  for (std::size_t i = 0; i < bounds.count; ++i)
    builder.append(text.slice(offsets[offset_of(i)], offsets[offset_of(i) + 1]));
  return Value(builder.take());
}

}  // namespace

Value arithmetic(Guard& guard, Arithmetic operation, const Value& a, const Value& b) {
  refuse_undefined(guard, a);
  refuse_undefined(guard, b);
  if (is_number(a) && is_number(b)) return number_arithmetic(guard, operation, a, b);
  if (operation == Arithmetic::add) return concatenate(guard, a, b);
  if (operation == Arithmetic::multiply && is_repeatable(a) && as_integer(b)) return repeat(guard, a, *as_integer(b));
  if (operation == Arithmetic::multiply && is_repeatable(b) && as_integer(a)) return repeat(guard, b, *as_integer(a));
  if (operation == Arithmetic::modulo && a.text()) guard.fail("formatting with % is not supported");
  guard.fail("no such operation between a {} and a {}", type_name(a), type_name(b));
}

Value negate(Guard& guard, const Value& value) {
  refuse_undefined(guard, value);
  if (const double* real = value.get<double>()) return -*real;
  if (!is_number(value)) guard.fail("cannot negate a {}", type_name(value));
  return integer_arithmetic(guard, Arithmetic::subtract, 0, *as_integer(value));
}

Value unary_plus(Guard& guard, const Value& value) {
  refuse_undefined(guard, value);
  if (value.get<double>()) return value;
  if (!is_number(value)) guard.fail("unary + needs a number, got {}", type_name(value));
  return *as_integer(value);
}

bool contains(Guard& guard, const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    if (!item.text()) guard.fail("'in' a str expects a str, got {}", type_name(item));
    return find(guard, text->bytes(), item.text()->bytes()) != kNowhere;
  }
  if (const Dict* dict = container.dict()) {
    check_hashable(guard, item);
    return find_entry(guard, *dict, item) != nullptr;
  }
  if (Iterator* iterator = container.iterator()) {
    // Looking for something uses the iterator up to that point.
    require_free(guard, *iterator);
    while (iterator->next < iterator->items.size())
      if (equal(guard, iterator->items[iterator->next++], item)) return true;
    return false;
  }
  const std::vector<Value> items = iterate(guard, container);
  return std::any_of(items.begin(), items.end(), [&](const Value& value) { return equal(guard, value, item); });
}

Value get_attribute(Guard& guard, const Value& object, std::string_view name) {
  refuse_undefined(guard, object);
  const Value key(Text(name, true));
  // Names of Python's own machinery exist on every object and are hidden from templates.
  if (name.size() > 4 && name.starts_with("__") && name.ends_with("__")) return no_such_thing(object, key);
  if (std::optional<Value> attribute = find_attribute(guard, object, name)) return *attribute;
  if (object.dict())
    if (std::optional<Value> value = find_item(guard, object, key)) return *value;
  return no_such_thing(object, key);
}

Value get_item(Guard& guard, const Value& object, const Value& index) {
  refuse_undefined(guard, object);
  if (std::optional<Value> value = find_item(guard, object, index)) return *value;
  if (const Text* name = index.text())
    if (std::optional<Value> attribute = find_attribute(guard, object, name->bytes())) return *attribute;
  return no_such_thing(object, index);
}

Value get_path(Guard& guard, const Value& object, const Value& path, const std::optional<Value>& fallback) {
  std::vector<Value> parts = {path};
  if (const Text* text = path.text()) {
    parts.clear();
    for (Text& part : split(guard, *text, ".", kUnlimited)) {
      const std::string& bytes = part.bytes();
      const bool digits = !bytes.empty() && bytes.size() < 10 && bytes.find_first_not_of("0123456789") == kNowhere;
      parts.push_back(digits ? Value(std::int64_t{std::stoi(bytes)}) : Value(std::move(part)));
    }
  }
  Value value = object;
  for (const Value& part : parts) {
    value = get_item(guard, value, part);
    if (fallback && value.is_undefined()) value = *fallback;
  }
  return value;
}

Value get_slice(Guard& guard, const Value& object, const Value& begin, const Value& end, const Value& step) {
  refuse_undefined(guard, object);
  if (const Text* text = object.text()) return slice_text(guard, *text, begin, end, step);
  const List* list = object.list();
  if (list == nullptr || list->kind > ListKind::range) guard.fail("a {} cannot be sliced", type_name(object));
  const SliceBounds bounds = slice_bounds(guard, begin, end, step, list->items.size());
  std::vector<Value> items;
  for (std::size_t i = 0; i < bounds.count; ++i)
    items.push_back(list->items[static_cast<std::size_t>(bounds.begin + static_cast<std::int64_t>(i) * bounds.step)]);
  return make_list(guard, std::move(items), list->kind);
}

}  // namespace espalier::jinja
