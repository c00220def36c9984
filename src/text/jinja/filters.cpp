#include "text/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

void no_arguments(Guard& guard, std::string_view callee, const CallArguments& arguments) {
  bind_positional(guard, callee, arguments, 0, 0);
}

Value trim_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  const Bound bound = bind(guard, "trim", arguments, {"chars"}, 0);
  const Text text = to_text(guard, input);
  if (!bound[0] || bound[0]->is_none()) return make_text(guard, strip_spaces(text, Side::both));
  return make_text(guard, strip_characters(text, require_text(guard, "trim", *bound[0]).bytes(), Side::both));
}

Value length_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  no_arguments(guard, "length", arguments);
  return static_cast<std::int64_t>(length(guard, input));
}

Value default_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  const Bound bound = bind(guard, "default", arguments, {"default_value", "boolean"}, 0);
  const bool also_false = bound[1] && truth(*bound[1]);
  if (!input.is_undefined() && !(also_false && !truth(input))) return input;
  return bound[0] ? *bound[0] : Value(Text());
}

Value join_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  const Bound bound = bind(guard, "join", arguments, {"d", "attribute"}, 0);
  const Text separator = bound[0] ? to_text(guard, *bound[0]) : Text();
  TextBuilder builder(guard);
  bool first = true;
  for (const Value& item : iterate(guard, input)) {
    if (!std::exchange(first, false)) builder.append(separator);
    const bool by_attribute = bound[1] && !bound[1]->is_none();
    builder.append(to_text(guard, by_attribute ? get_path(guard, item, *bound[1], std::nullopt) : item));
  }
  return Value(builder.take());
}

template <CalleeName name, Text (*convert)(Guard&, const Text&)>
Value text_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  no_arguments(guard, name, arguments);
  return Value(convert(guard, to_text(guard, input)));
}

Value string_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  no_arguments(guard, "string", arguments);
  return input.text() ? input : make_text(guard, to_text(guard, input));
}

Value first_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  no_arguments(guard, "first", arguments);
  if (Iterator* iterator = input.iterator(); iterator != nullptr && iterator->next < iterator->items.size())
    return iterator->items[require_free(guard, *iterator).next++];
  const std::vector<Value> items = iterate(guard, input);
  return items.empty() ? Value::undefined("no first item, the sequence was empty") : items.front();
}

Value last_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  no_arguments(guard, "last", arguments);
  if (input.iterator()) guard.fail("an iterator has no last element");
  const std::vector<Value> items = iterate(guard, input);
  return items.empty() ? Value::undefined("no last item, the sequence was empty") : items.back();
}

Value list_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  no_arguments(guard, "list", arguments);
  return make_list(guard, iterate(guard, input));
}

Value reverse_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  no_arguments(guard, "reverse", arguments);
  if (input.text()) return get_slice(guard, input, Value(), Value(), Value(std::int64_t{-1}));
  std::vector<Value> items = iterate(guard, input);
  std::reverse(items.begin(), items.end());
  return input.iterator() ? make_list(guard, std::move(items)) : make_iterator(guard, std::move(items));
}

Value items_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  no_arguments(guard, "items", arguments);
  std::vector<Value> items;
  if (input.is_undefined()) return make_iterator(guard, {});
  if (!input.dict()) guard.fail("items expects a mapping, got {}", type_name(input));
  for (const auto& [key, value] : input.dict()->entries)
    items.push_back(make_list(guard, {key, value}, ListKind::tuple));
  return make_iterator(guard, std::move(items));
}

// The digits of a Python number literal: white space around it and single underscores between digits are allowed.
// Empty when it has another form.
std::string plain_digits(Guard& guard, const Text& text) {
  const std::string bytes = strip_spaces(text, Side::both).bytes();
  for (std::size_t i = 0; i < bytes.size(); i += character_at(bytes, i).bytes)
    if (const char32_t code = character_at(bytes, i).code; code >= 0x80 && is_decimal(code))
      guard.fail("numbers in other scripts are not supported");
  std::string digits;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '_') {
      digits += bytes[i];
      continue;
    }
    const auto is_digit = [&](std::size_t at) { return at < bytes.size() && bytes[at] >= '0' && bytes[at] <= '9'; };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return "";
  }
  if (digits.starts_with('+') && digits.find_first_of("+-", 1) != 1) digits.erase(0, 1);
  return digits;
}

std::optional<std::int64_t> parse_integer(Guard& guard, const Text& text) {
  const std::string digits = plain_digits(guard, text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) guard.fail("integers beyond 64 bits are not supported");
  return value;
}

std::optional<double> parse_float(Guard& guard, const Text& text) {
  const std::string digits = plain_digits(guard, text);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) guard.fail("numbers beyond the range of a float are not supported");
  if (digits.find('(') != kNowhere) return std::nullopt;  // "nan(...)" is C, not Python
  return value;
}

std::optional<std::int64_t> truncate(Guard& guard, double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::abs(value) >= 9.2e18) guard.fail("integers beyond 64 bits are not supported");
  return static_cast<std::int64_t>(value);
}

void refuse_undefined_number(Guard& guard, const Value& input) {
  if (const auto* undefined = input.get<Undefined>()) guard.fail("{}", *undefined->explanation);
}

Value int_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  const Bound bound = bind(guard, "int", arguments, {"default", "base"}, 0);
  if (bound[1] && require_integer(guard, "int", *bound[1]) != 10) guard.fail("int with another base is not supported");
  refuse_undefined_number(guard, input);
  const Value fallback = bound[0].value_or(Value(std::int64_t{0}));
  if (const std::optional<std::int64_t> integer = as_integer(input)) return *integer;
  std::optional<std::int64_t> parsed;
  if (const double* real = input.get<double>()) {
    if (std::isinf(*real)) guard.fail("cannot make an int of infinity");
    parsed = truncate(guard, *real);
  } else if (const Text* text = input.text()) {
    parsed = parse_integer(guard, *text);
    if (!parsed)
      if (const std::optional<double> real = parse_float(guard, *text)) parsed = truncate(guard, *real);
  }
  return parsed ? Value(*parsed) : fallback;
}

Value float_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  const Bound bound = bind(guard, "float", arguments, {"default"}, 0);
  refuse_undefined_number(guard, input);
  if (const std::optional<std::int64_t> integer = as_integer(input)) return static_cast<double>(*integer);
  if (input.get<double>()) return input;
  if (const Text* text = input.text())
    if (const std::optional<double> real = parse_float(guard, *text)) return *real;
  return bound[0].value_or(Value(0.0));
}

Value abs_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  no_arguments(guard, "abs", arguments);
  if (const double* real = input.get<double>()) return std::abs(*real);
  const std::int64_t integer = require_integer(guard, "abs", input);
  return integer < 0 ? negate(guard, Value(integer)) : Value(integer);
}

Value replace_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  const Bound bound = bind(guard, "replace", arguments, {"old", "new", "count"}, 2);
  const std::int64_t limit = bound[2] && !bound[2]->is_none() ? require_integer(guard, "replace", *bound[2]) : -1;
  return Value(replace(guard, to_text(guard, input), to_text(guard, *bound[0]).bytes(), to_text(guard, *bound[1]),
                       limit < 0 ? kUnlimited : static_cast<std::size_t>(limit)));
}

Value indent_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  const Bound bound = bind(guard, "indent", arguments, {"width", "first", "blank"}, 0);
  const Text& text = require_text(guard, "indent", input);
  Text indentation("    ", true);
  if (bound[0] && bound[0]->text()) {
    indentation = *bound[0]->text();
  } else if (bound[0]) {
    indentation = *arithmetic(guard, Arithmetic::multiply, Value(Text(" ", true)), *bound[0]).text();
  }
  return Value(indent(guard, text, indentation, bound[1] && truth(*bound[1]), bound[2] && truth(*bound[2])));
}

// Python rounds the exact binary value, halves to even; so does printing with that many decimals.
double round_common(double value, std::int64_t precision) {
  if (!std::isfinite(value)) return value;
  const std::string decimal = fmt::format("{:.{}f}", value, precision);
  double rounded = 0;
  std::from_chars(decimal.data(), decimal.data() + decimal.size(), rounded);
  return rounded;
}

Value round_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  const Bound bound = bind(guard, "round", arguments, {"precision", "method"}, 0);
  const std::int64_t precision = bound[0] ? require_integer(guard, "round", *bound[0]) : 0;
  const std::string method = bound[1] ? require_text(guard, "round", *bound[1]).bytes() : "common";
  if (precision < 0 || precision > 15) guard.fail("round to {} decimals is not supported", precision);
  if (method != "common" && method != "ceil" && method != "floor")
    guard.fail("round expects common, ceil or floor, got '{}'", method);
  if (!is_number(input)) guard.fail("round expects a number, got {}", type_name(input));
  const std::optional<std::int64_t> integer = as_integer(input);
  if (method == "common") return integer ? Value(*integer) : Value(round_common(*input.get<double>(), precision));
  const double value = integer ? static_cast<double>(*integer) : *input.get<double>();
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (!std::isfinite(value * scale) || std::abs(value * scale) > 9e15) guard.fail("round: number too large");
  const double scaled = method == "ceil" ? std::ceil(value * scale) : std::floor(value * scale);
  return (scaled + 0.0) / scale;  // + 0.0: Python goes through an int, which has no negative zero
}

std::optional<std::pair<Text, Text>> json_separators(Guard& guard, const std::optional<Value>& value) {
  if (!value || value->is_none()) return std::nullopt;
  const std::vector<Value> pair = iterate(guard, *value);
  if (pair.size() != 2) guard.fail("tojson expects two separators, got {}", pair.size());
  return std::pair(require_text(guard, "tojson", pair[0]), require_text(guard, "tojson", pair[1]));
}

Value tojson_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  const Bound bound = bind(guard, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonStyle style;
  style.ensure_ascii = bound[0] && truth(*bound[0]);
  style.pretty = bound[1] && !bound[1]->is_none();
  if (style.pretty && bound[1]->text()) {
    style.indentation = bound[1]->text()->bytes();
  } else if (style.pretty) {
    const std::int64_t width = require_integer(guard, "tojson", *bound[1]);
    if (width > 1000) guard.fail("tojson with an indent of {} is not supported", width);
    style.indentation = std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  }
  style.item_separator = Text(style.pretty ? "," : ", ", true);
  style.key_separator = Text(": ", true);
  if (auto separators = json_separators(guard, bound[2]))
    std::tie(style.item_separator, style.key_separator) = std::move(*separators);
  style.sort_keys = bound[3] && truth(*bound[3]);
  return Value(to_json(guard, input, style));
}

const std::string& name_of(Guard& guard, std::string_view kind, const Value& value) {
  return require_text(guard, kind, value).bytes();
}

CallArguments without_first(const CallArguments& arguments, std::size_t count) {
  CallArguments rest = arguments;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

Value map_by_attribute(Guard& guard, const Value& input, const CallArguments& arguments) {
  const Bound bound = bind(guard, "map", arguments, {"attribute", "default"}, 1);
  const std::optional<Value> fallback = bound[1] && !bound[1]->is_none() ? bound[1] : std::nullopt;
  std::vector<Value> mapped;
  for (const Value& item : iterate(guard, input)) mapped.push_back(get_path(guard, item, *bound[0], fallback));
  return make_iterator(guard, std::move(mapped));
}

Value map_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  if (!truth(input)) return make_iterator(guard, {});
  if (arguments.positional.empty()) return map_by_attribute(guard, input, arguments);
  const std::string& name = name_of(guard, "map", arguments.positional[0]);
  const Filter filter = find_filter(name);
  if (filter == nullptr || filter == map_filter) guard.fail("map with the filter '{}' is not supported", name);
  const CallArguments rest = without_first(arguments, 1);
  std::vector<Value> mapped;
  for (const Value& item : iterate(guard, input)) mapped.push_back(filter(guard, item, rest));
  return make_iterator(guard, std::move(mapped));
}

// select, reject, selectattr, rejectattr: keep the items for which a test (without one: the truth) of the item or of
// one of its attributes is `wanted`.
template <CalleeName name, bool by_attribute, bool wanted>
Value select_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  if (!truth(input)) return make_iterator(guard, {});
  constexpr std::size_t kBeforeTest = by_attribute ? 1 : 0;
  if (arguments.positional.size() < kBeforeTest)
    guard.fail("{} misses the name of the attribute", std::string_view(name));
  const bool has_test = arguments.positional.size() > kBeforeTest;
  const Test test = has_test ? find_test(name_of(guard, name, arguments.positional[kBeforeTest])) : nullptr;
  if (has_test && test == nullptr)
    guard.fail("the test '{}' is not supported", name_of(guard, name, arguments.positional[kBeforeTest]));
  const CallArguments rest = has_test ? without_first(arguments, kBeforeTest + 1) : CallArguments{};
  std::vector<Value> kept;
  for (const Value& item : iterate(guard, input)) {
    const Value subject = by_attribute ? get_path(guard, item, arguments.positional[0], std::nullopt) : item;
    if ((has_test ? test(guard, subject, rest) : truth(subject)) == wanted) kept.push_back(item);
  }
  return make_iterator(guard, std::move(kept));
}

// What sort, unique, min and max compare: the item or its attribute, strings in lower case unless told otherwise.
class SortKey {
 public:
  SortKey(Guard& guard, const std::optional<Value>& case_sensitive, const std::optional<Value>& attribute)
      : guard_(guard), fold_case_(!case_sensitive || !truth(*case_sensitive)) {
    if (attribute && !attribute->is_none()) attribute_ = attribute;
    if (attribute_ && attribute_->text() && attribute_->text()->bytes().find(',') != kNowhere)
      guard.fail("sorting by several attributes is not supported");
  }

  Value operator()(const Value& item) const {
    const Value key = attribute_ ? get_path(guard_, item, *attribute_, std::nullopt) : item;
    return fold_case_ && key.text() ? Value(lower(guard_, *key.text())) : key;
  }

 private:
  Guard& guard_;
  bool fold_case_;
  std::optional<Value> attribute_;
};

bool is_less(Guard& guard, const Value& a, const Value& b) {
  return compare(guard, a, b) == std::partial_ordering::less;
}

Value sort_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  const Bound bound = bind(guard, "sort", arguments, {"reverse", "case_sensitive", "attribute"}, 0);
  const SortKey key(guard, bound[1], bound[2]);
  const bool descending = bound[0] && truth(*bound[0]);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : iterate(guard, input)) {
    if (item.get<double>() && std::isnan(*item.get<double>())) guard.fail("sorting nan is not supported");
    keyed.emplace_back(key(item), item);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return descending ? is_less(guard, b.first, a.first) : is_less(guard, a.first, b.first);
  });
  std::vector<Value> sorted;
  for (auto& entry : keyed) sorted.push_back(std::move(entry.second));
  return make_list(guard, std::move(sorted));
}

Value unique_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  const Bound bound = bind(guard, "unique", arguments, {"case_sensitive", "attribute"}, 0);
  const SortKey key(guard, bound[0], bound[1]);
  std::vector<Value> seen;
  std::vector<Value> kept;
  for (const Value& item : iterate(guard, input)) {
    Value candidate = key(item);
    check_hashable(guard, candidate);
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& value) { return equal(guard, value, candidate); }))
      continue;
    seen.push_back(std::move(candidate));
    kept.push_back(item);
  }
  return make_iterator(guard, std::move(kept));
}

template <CalleeName name, bool largest>
Value extreme_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  const Bound bound = bind(guard, name, arguments, {"case_sensitive", "attribute"}, 0);
  const SortKey key(guard, bound[0], bound[1]);
  std::optional<std::pair<Value, Value>> best;
  for (const Value& item : iterate(guard, input)) {
    Value candidate = key(item);
    if (best && !(largest ? is_less(guard, best->first, candidate) : is_less(guard, candidate, best->first))) continue;
    best.emplace(std::move(candidate), item);
  }
  return best ? best->second : Value::undefined("no smallest or largest item, the sequence was empty");
}

Value sum_filter(Guard& guard, const Value& input, const CallArguments& arguments) {
  const Bound bound = bind(guard, "sum", arguments, {"attribute", "start"}, 0);
  Value total = bound[1].value_or(Value(std::int64_t{0}));
  if (total.text()) guard.fail("sum cannot add strings");
  for (const Value& item : iterate(guard, input)) {
    const bool by_attribute = bound[0] && !bound[0]->is_none();
    total =
        arithmetic(guard, Arithmetic::add, total, by_attribute ? get_path(guard, item, *bound[0], std::nullopt) : item);
  }
  return total;
}

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

constexpr NamedFilter kFilters[] = {
    {"abs", abs_filter},
    {"capitalize", text_filter<"capitalize", capitalize>},
    {"count", length_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"first", first_filter},
    {"float", float_filter},
    {"indent", indent_filter},
    {"int", int_filter},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last_filter},
    {"length", length_filter},
    {"list", list_filter},
    {"lower", text_filter<"lower", lower>},
    {"map", map_filter},
    {"max", extreme_filter<"max", true>},
    {"min", extreme_filter<"min", false>},
    {"reject", select_filter<"reject", false, false>},
    {"rejectattr", select_filter<"rejectattr", true, false>},
    {"replace", replace_filter},
    {"reverse", reverse_filter},
    {"round", round_filter},
    {"select", select_filter<"select", false, true>},
    {"selectattr", select_filter<"selectattr", true, true>},
    {"sort", sort_filter},
    {"string", string_filter},
    {"sum", sum_filter},
    {"title", text_filter<"title", title_of_words>},
    {"tojson", tojson_filter},
    {"trim", trim_filter},
    {"unique", unique_filter},
    {"upper", text_filter<"upper", upper>},
};

}  // namespace

Filter find_filter(std::string_view name) {
  for (const NamedFilter& entry : kFilters)
    if (entry.name == name) return entry.filter;
  return nullptr;
}

}  // namespace espalier::jinja
