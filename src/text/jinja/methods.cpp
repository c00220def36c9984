#include "text/jinja/methods.h"

#include <algorithm>
#include <array>
#include <span>

#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

using TextMethod = Value (*)(Guard&, const Text& self, const CallArguments&);
using DictMethod = Value (*)(Guard&, const Dict& self, const CallArguments&);

std::size_t cut_limit(Guard& guard, std::string_view callee, const std::optional<Value>& limit) {
  const std::int64_t value = limit ? require_integer(guard, callee, *limit) : -1;
  return value < 0 ? kUnlimited : static_cast<std::size_t>(value);
}

template <CalleeName name, Side side>
Value strip_method(Guard& guard, const Text& self, const CallArguments& arguments) {
  const Bound bound = bind_positional(guard, name, arguments, 0, 1);
  if (!bound[0] || bound[0]->is_none()) return make_text(guard, strip_spaces(self, side));
  return make_text(guard, strip_characters(self, require_text(guard, name, *bound[0]).bytes(), side));
}

// From the right, cuts at white space are not supported; nothing the templates use needs them.
template <CalleeName name, bool from_right>
Value split_method(Guard& guard, const Text& self, const CallArguments& arguments) {
  const Bound bound = bind(guard, name, arguments, {"sep", "maxsplit"}, 0);
  const std::size_t limit = cut_limit(guard, name, bound[1]);
  if (!bound[0] || bound[0]->is_none()) {
    if (from_right && limit != kUnlimited) guard.fail("rsplit() at white space with a limit is not supported");
    return make_list(guard, split_spaces(guard, self, limit));
  }
  const Text& separator = require_text(guard, name, *bound[0]);
  if (separator.empty()) guard.fail("{}() expects a separator that is not empty", std::string_view(name));
  return make_list(guard, (from_right ? split_last : split)(guard, self, separator.bytes(), limit));
}

Value splitlines_method(Guard& guard, const Text& self, const CallArguments& arguments) {
  const Bound bound = bind(guard, "splitlines", arguments, {"keepends"}, 0);
  if (bound[0] && truth(*bound[0])) guard.fail("splitlines() with keepends is not supported");
  return make_list(guard, split_lines(guard, self));
}

template <bool at_end>
bool has_affix(Guard& guard, const Text& self, const Value& affix) {
  const std::string& wanted = require_text(guard, at_end ? "endswith" : "startswith", affix).bytes();
  return at_end ? self.bytes().ends_with(wanted) : self.bytes().starts_with(wanted);
}

template <bool at_end>
Value affix_method(Guard& guard, const Text& self, const CallArguments& arguments) {
  const Bound bound = bind_positional(guard, at_end ? "endswith" : "startswith", arguments, 1, 3);
  if (bound[1] || bound[2]) guard.fail("startswith() and endswith() with a range are not supported");
  const List* choices = bound[0]->list();
  if (choices == nullptr || choices->kind != ListKind::tuple) return has_affix<at_end>(guard, self, *bound[0]);
  return std::any_of(choices->items.begin(), choices->items.end(),
                     [&](const Value& affix) { return has_affix<at_end>(guard, self, affix); });
}

template <CalleeName name, bool at_end>
Value remove_affix_method(Guard& guard, const Text& self, const CallArguments& arguments) {
  const Bound bound = bind_positional(guard, name, arguments, 1, 1);
  const std::size_t size = require_text(guard, name, *bound[0]).size();
  if (!has_affix<at_end>(guard, self, *bound[0])) return make_text(guard, self);
  return make_text(guard, at_end ? self.slice(0, self.size() - size) : self.slice(size, self.size()));
}

template <CalleeName name, Text (*convert)(Guard&, const Text&)>
Value case_method(Guard& guard, const Text& self, const CallArguments& arguments) {
  bind_positional(guard, name, arguments, 0, 0);
  return Value(convert(guard, self));
}

Value replace_method(Guard& guard, const Text& self, const CallArguments& arguments) {
  const Bound bound = bind_positional(guard, "replace", arguments, 2, 3);
  const Text& old_text = require_text(guard, "replace", *bound[0]);
  const Text& new_text = require_text(guard, "replace", *bound[1]);
  return Value(replace(guard, self, old_text.bytes(), new_text, cut_limit(guard, "replace", bound[2])));
}

Value join_method(Guard& guard, const Text& self, const CallArguments& arguments) {
  const Bound bound = bind_positional(guard, "join", arguments, 1, 1);
  if (bound[0]->is_undefined()) return Value(Text());
  TextBuilder builder(guard);
  bool first = true;
  for (const Value& item : iterate(guard, *bound[0])) {
    if (!std::exchange(first, false)) builder.append(self);
    builder.append(require_text(guard, "join", item));
  }
  return Value(builder.take());
}

const Text& only_text(Guard& guard, std::string_view callee, const CallArguments& arguments) {
  if (arguments.positional.size() > 1) guard.fail("{}() with a range is not supported", callee);
  bind_positional(guard, callee, arguments, 1, 1);
  return require_text(guard, callee, arguments.positional[0]);
}

Value count_method(Guard& guard, const Text& self, const CallArguments& arguments) {
  const Text& wanted = only_text(guard, "count", arguments);
  return static_cast<std::int64_t>(count(guard, self.bytes(), wanted.bytes()));
}

std::int64_t character_index(const Text& text, std::size_t offset) {
  if (offset == kNowhere) return -1;
  return static_cast<std::int64_t>(count_characters(std::string_view(text.bytes()).substr(0, offset)));
}

Value find_method(Guard& guard, const Text& self, const CallArguments& arguments) {
  return character_index(self, find(guard, self.bytes(), only_text(guard, "find", arguments).bytes()));
}

Value rfind_method(Guard& guard, const Text& self, const CallArguments& arguments) {
  return character_index(self, find_last(guard, self.bytes(), only_text(guard, "rfind", arguments).bytes()));
}

Value index_method(Guard& guard, const Text& self, const CallArguments& arguments) {
  const std::size_t offset = find(guard, self.bytes(), only_text(guard, "index", arguments).bytes());
  if (offset == kNowhere) guard.fail("index(): substring not found");
  return character_index(self, offset);
}

Value get_method(Guard& guard, const Dict& self, const CallArguments& arguments) {
  const Bound bound = bind_positional(guard, "get", arguments, 1, 2);
  check_hashable(guard, *bound[0]);
  const Value* value = find_entry(guard, self, *bound[0]);
  return value != nullptr ? *value : bound[1].value_or(Value());
}

Value items_method(Guard& guard, const Dict& self, const CallArguments& arguments) {
  bind_positional(guard, "items", arguments, 0, 0);
  std::vector<Value> items;
  for (const auto& [key, value] : self.entries) items.push_back(make_list(guard, {key, value}, ListKind::tuple));
  return make_list(guard, std::move(items), ListKind::items);
}

Value keys_method(Guard& guard, const Dict& self, const CallArguments& arguments) {
  bind_positional(guard, "keys", arguments, 0, 0);
  std::vector<Value> keys;
  for (const auto& entry : self.entries) keys.push_back(entry.first);
  return make_list(guard, std::move(keys), ListKind::keys);
}

Value values_method(Guard& guard, const Dict& self, const CallArguments& arguments) {
  bind_positional(guard, "values", arguments, 0, 0);
  std::vector<Value> values;
  for (const auto& entry : self.entries) values.push_back(entry.second);
  return make_list(guard, std::move(values), ListKind::values);
}

template <typename Implementation>
struct Named {
  std::string_view name;
  Implementation implementation;
};

constexpr Named<TextMethod> kTextMethods[] = {
    {"capitalize", case_method<"capitalize", capitalize>},
    {"count", count_method},
    {"endswith", affix_method<true>},
    {"find", find_method},
    {"index", index_method},
    {"join", join_method},
    {"lower", case_method<"lower", lower>},
    {"lstrip", strip_method<"lstrip", Side::left>},
    {"removeprefix", remove_affix_method<"removeprefix", false>},
    {"removesuffix", remove_affix_method<"removesuffix", true>},
    {"replace", replace_method},
    {"rfind", rfind_method},
    {"rsplit", split_method<"rsplit", true>},
    {"rstrip", strip_method<"rstrip", Side::right>},
    {"split", split_method<"split", false>},
    {"splitlines", splitlines_method},
    {"startswith", affix_method<false>},
    {"strip", strip_method<"strip", Side::both>},
    {"title", case_method<"title", title>},
    {"upper", case_method<"upper", upper>},
};

constexpr Named<DictMethod> kDictMethods[] = {
    {"get", get_method}, {"items", items_method}, {"keys", keys_method}, {"values", values_method}};

// What else Python's types have.
constexpr std::string_view kOtherTextAttributes[] = {
    "casefold",    "center",  "encode",     "expandtabs", "format",       "format_map", "isalnum",
    "isalpha",     "isascii", "isdecimal",  "isdigit",    "isidentifier", "islower",    "isnumeric",
    "isprintable", "isspace", "istitle",    "isupper",    "ljust",        "maketrans",  "partition",
    "rindex",      "rjust",   "rpartition", "swapcase",   "translate",    "zfill"};
constexpr std::string_view kOtherDictAttributes[] = {"copy", "fromkeys"};
constexpr std::string_view kOtherListAttributes[] = {"copy", "count", "index",      "start",
                                                     "stop", "step",  "isdisjoint", "mapping"};
constexpr std::string_view kNumberAttributes[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "fromhex", "hex", "imag",
    "is_integer",       "numerator", "real",       "to_bytes"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListChanges[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};

template <typename Implementation>
const Implementation* find_named(std::span<const Named<Implementation>> table, std::string_view name) {
  for (const auto& entry : table)
    if (entry.name == name) return &entry.implementation;
  return nullptr;
}

bool lists(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

MethodSupport list_support(ListKind kind, std::string_view name) {
  if (kind == ListKind::list && lists(kListChanges, name)) return MethodSupport::forbidden;
  return lists(kOtherListAttributes, name) ? MethodSupport::unsupported : MethodSupport::none;
}

}  // namespace

MethodSupport method_support(const Value& receiver, std::string_view name) {
  if (receiver.text()) {
    if (find_named<TextMethod>(kTextMethods, name)) return MethodSupport::supported;
    return lists(kOtherTextAttributes, name) ? MethodSupport::unsupported : MethodSupport::none;
  }
  if (receiver.dict()) {
    if (find_named<DictMethod>(kDictMethods, name)) return MethodSupport::supported;
    if (lists(kDictChanges, name)) return MethodSupport::forbidden;
    return lists(kOtherDictAttributes, name) ? MethodSupport::unsupported : MethodSupport::none;
  }
  if (const List* list = receiver.list()) return list_support(list->kind, name);
  if (is_number(receiver)) return lists(kNumberAttributes, name) ? MethodSupport::unsupported : MethodSupport::none;
  return receiver.is_none() ? MethodSupport::none : MethodSupport::unsupported;
}

Value call_method(Guard& guard, const Method& method, const CallArguments& arguments) {
  if (const Text* text = method.receiver.text())
    return (*find_named<TextMethod>(kTextMethods, method.name))(guard, *text, arguments);
  if (const Dict* dict = method.receiver.dict())
    return (*find_named<DictMethod>(kDictMethods, method.name))(guard, *dict, arguments);
  // The only method of `loop`.
  const Loop& loop = *method.receiver.loop();
  if (arguments.positional.empty() || !arguments.named.empty()) guard.fail("cycle() expects at least one value");
  return arguments.positional[loop.index % arguments.positional.size()];
}

std::optional<Value> find_loop_attribute(Guard& guard, const Value& loop_value, const Loop& loop,
                                         std::string_view name) {
  const auto size = static_cast<std::int64_t>(loop.items->items.size());
  const auto index = static_cast<std::int64_t>(loop.index);
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return size - index;
  if (name == "revindex0") return size - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index == size - 1;
  if (name == "length") return size;
  if (name == "depth") return std::int64_t{1};  // counts recursive loops only, which templates here do not have
  if (name == "depth0") return std::int64_t{0};
  if (name == "cycle") return make_method(guard, loop_value, "cycle");
  if (name == "previtem")
    return index > 0 ? loop.items->items[loop.index - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < size ? loop.items->items[loop.index + 1] : Value::undefined("there is no next item");
  if (name == "changed") guard.fail("loop.changed is not supported");
  return std::nullopt;
}

}  // namespace espalier::jinja
