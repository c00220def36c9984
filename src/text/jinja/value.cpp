#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

constexpr int kMaxValueDepth = 60;

int depth_of(const Value& value) {
  if (const List* list = value.list()) return list->depth;
  if (const Dict* dict = value.dict()) return dict->depth;
  if (const Iterator* iterator = value.iterator()) return iterator->depth;
  if (const Method* method = value.method()) return method->depth;
  if (const Loop* loop = value.loop()) return loop->depth;
  return 0;
}

int depth_around(Guard& guard, int inner) {
  if (inner >= kMaxValueDepth) guard.fail("values are nested more than {} deep", kMaxValueDepth);
  return inner + 1;
}

int depth_around(Guard& guard, const std::vector<Value>& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, depth_of(item));
  return depth_around(guard, deepest);
}

std::string_view type_name(ListKind kind) {
  switch (kind) {
    case ListKind::list: return "list";
    case ListKind::tuple: return "tuple";
    case ListKind::range: return "range";
    case ListKind::keys: return "dict_keys";
    case ListKind::values: return "dict_values";
    case ListKind::items: return "dict_items";
  }
  return "list";
}

template <typename Entries>
auto find_key(Guard& guard, Entries& entries, const Value& key) {
  return std::find_if(entries.begin(), entries.end(),
                      [&](const auto& entry) { return equal(guard, entry.first, key); });
}

bool equal_texts(Guard& guard, const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  guard.spend_text(a.size() / 8);
  return a == b;
}

// Exact for every int64 and every double.
long double number_of(const Value& value) {
  if (const double* real = value.get<double>()) return *real;
  return static_cast<long double>(*as_integer(value));
}

bool equal_lists(Guard& guard, const List& a, const List& b) {
  if (a.kind != b.kind) return false;
  if (a.kind == ListKind::keys || a.kind == ListKind::values || a.kind == ListKind::items)
    guard.fail("comparing {} is not supported", type_name(a.kind));
  if (a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i)
    if (!equal(guard, a.items[i], b.items[i])) return false;
  return true;
}

bool equal_dicts(Guard& guard, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = find_entry(guard, b, key);
    if (other == nullptr || !equal(guard, value, *other)) return false;
  }
  return true;
}

std::partial_ordering compare_lists(Guard& guard, const List& a, const List& b) {
  const std::size_t common = std::min(a.items.size(), b.items.size());
  for (std::size_t i = 0; i < common; ++i)
    if (!equal(guard, a.items[i], b.items[i])) return compare(guard, a.items[i], b.items[i]);
  return a.items.size() <=> b.items.size();
}

// Python prefers single quotes and takes double ones only to avoid a backslash.
char quote_for(const std::string& bytes) {
  const bool single_inside = bytes.find('\'') != std::string::npos;
  const bool double_inside = bytes.find('"') != std::string::npos;
  return single_inside && !double_inside ? '"' : '\'';
}

std::string quoted_character(std::string_view bytes, char32_t code, char quote) {
  if (code == '\\' || code == static_cast<unsigned char>(quote)) return std::string{'\\', static_cast<char>(code)};
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  if (is_printable(code)) return std::string(bytes);
  const auto number = static_cast<std::uint32_t>(code);
  if (number <= 0xff) return fmt::format("\\x{:02x}", number);
  return number <= 0xffff ? fmt::format("\\u{:04x}", number) : fmt::format("\\U{:08x}", number);
}

std::string json_character(std::string_view bytes, char32_t code, bool ensure_ascii) {
  switch (code) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\f': return "\\f";
    case '\b': return "\\b";
    default: break;
  }
  auto number = static_cast<std::uint32_t>(code);
  if (number >= 0x20 && (number < 0x7f || !ensure_ascii)) return std::string(bytes);
  if (number <= 0xffff) return fmt::format("\\u{:04x}", number);
  number -= 0x10000;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (number >> 10), 0xdc00 + (number & 0x3ff));
}

// Appends `text` character by character, escaped; an escape keeps the mark of the character it stands for.
template <typename Escape>
void append_escaped(TextBuilder& builder, const Text& text, Escape escape) {
  const std::string_view bytes = text.bytes();
  for (std::size_t offset = 0; offset < bytes.size();) {
    const Character character = character_at(bytes, offset);
    builder.append(escape(bytes.substr(offset, character.bytes), character.code), text.trusted(offset));
    offset += character.bytes;
  }
}

std::string number_text(const Value& value) {
  if (const bool* flag = value.get<bool>()) return *flag ? "True" : "False";
  if (const std::int64_t* integer = value.get<std::int64_t>()) return fmt::format("{}", *integer);
  return format_float(*value.get<double>());
}

// repr() of nested values, appended to one builder.
class Quoter {
 public:
  Quoter(Guard& guard, TextBuilder& builder) : guard_(guard), builder_(builder) {}

  void append(const Value& value) {
    guard_.spend_steps(1);
    if (const Text* text = value.text()) return append_text(*text);
    if (const List* list = value.list()) return append_list(*list);
    if (const Dict* dict = value.dict()) return append_dict(*dict);
    if (value.is_undefined()) return plain("Undefined");
    if (value.is_none()) return plain("None");
    if (is_number(value)) return plain(number_text(value));
    guard_.fail("printing a {} is not supported", type_name(value));
  }

 private:
  void plain(std::string_view bytes) { builder_.append(bytes, true); }

  void append_text(const Text& text) {
    const char quote = quote_for(text.bytes());
    plain({&quote, 1});
    append_escaped(builder_, text,
                   [&](std::string_view bytes, char32_t code) { return quoted_character(bytes, code, quote); });
    plain({&quote, 1});
  }

  void append_items(const std::vector<Value>& items) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) plain(", ");
      append(items[i]);
    }
  }

  void append_list(const List& list) {
    switch (list.kind) {
      case ListKind::list:
        plain("[");
        append_items(list.items);
        return plain("]");
      case ListKind::tuple:
        plain("(");
        append_items(list.items);
        return plain(list.items.size() == 1 ? ",)" : ")");
      case ListKind::range: guard_.fail("printing a range is not supported");
      default:
        plain(type_name(list.kind));
        plain("([");
        append_items(list.items);
        plain("])");
    }
  }

  void append_dict(const Dict& dict) {
    plain("{");
    bool first = true;
    for (const auto& [key, value] : dict.entries) {
      if (!std::exchange(first, false)) plain(", ");
      append(key);
      plain(": ");
      append(value);
    }
    plain("}");
  }

  Guard& guard_;
  TextBuilder& builder_;
};

// json.dumps of nested values.
class JsonWriter {
 public:
  JsonWriter(Guard& guard, TextBuilder& builder, const JsonStyle& style)
      : guard_(guard), builder_(builder), style_(style) {}

  void append(const Value& value, int level = 0) {
    guard_.spend_steps(1);
    if (const Text* text = value.text()) return append_text(*text);
    if (const List* list = value.list()) return append_list(*list, level);
    if (const Dict* dict = value.dict()) return append_dict(*dict, level);
    if (value.is_none() || is_number(value)) return plain(scalar(value));
    guard_.fail("a value of type {} has no JSON form", type_name(value));
  }

 private:
  void plain(std::string_view bytes) { builder_.append(bytes, true); }

  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* flag = value.get<bool>()) return *flag ? "true" : "false";
    if (const double* real = value.get<double>(); real != nullptr && !std::isfinite(*real))
      return std::isnan(*real) ? "NaN" : *real > 0 ? "Infinity" : "-Infinity";
    return number_text(value);
  }

  void append_text(const Text& text) {
    plain("\"");
    append_escaped(builder_, text, [&](std::string_view bytes, char32_t code) {
      return json_character(bytes, code, style_.ensure_ascii);
    });
    plain("\"");
  }

  void new_line(int level) {
    if (!style_.pretty) return;
    plain("\n");
    for (int i = 0; i < level; ++i) plain(style_.indentation);
  }

  void append_list(const List& list, int level) {
    if (list.kind != ListKind::list && list.kind != ListKind::tuple)
      guard_.fail("a value of type {} has no JSON form", type_name(list.kind));
    if (list.items.empty()) return plain("[]");
    plain("[");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) builder_.append(style_.item_separator);
      new_line(level + 1);
      append(list.items[i], level + 1);
    }
    new_line(level);
    plain("]");
  }

  void append_key(const Value& key) {
    if (const Text* text = key.text()) return append_text(*text);
    if (!key.is_none() && !is_number(key)) guard_.fail("a dict key of type {} has no JSON form", type_name(key));
    plain("\"");
    plain(scalar(key));
    plain("\"");
  }

  void append_dict(const Dict& dict, int level) {
    if (dict.entries.empty()) return plain("{}");
    auto entries = dict.entries;
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
        return compare(guard_, a.first, b.first) == std::partial_ordering::less;
      });
    plain("{");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) builder_.append(style_.item_separator);
      new_line(level + 1);
      append_key(entries[i].first);
      builder_.append(style_.key_separator);
      append(entries[i].second, level + 1);
    }
    new_line(level);
    plain("}");
  }

  Guard& guard_;
  TextBuilder& builder_;
  const JsonStyle& style_;
};

}  // namespace

Value Value::undefined(std::string explanation) {
  return Value(Form(Undefined{std::make_shared<const std::string>(std::move(explanation))}));
}

Value make_text(Guard& guard, Text text) {
  guard.spend_text(text.size());
  return Value(std::move(text));
}

Value make_list(Guard& guard, std::vector<Value> items, ListKind kind) {
  guard.spend_steps(items.size());
  const int depth = depth_around(guard, items);
  return Value(std::make_shared<const List>(List{.kind = kind, .items = std::move(items), .depth = depth}));
}

Value make_list(Guard& guard, std::vector<Text> items) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (Text& item : items) values.emplace_back(std::move(item));
  return make_list(guard, std::move(values));
}

Value make_dict(Guard& guard, std::vector<std::pair<Value, Value>> entries) {
  Dict dict;
  int deepest = 0;
  for (auto& [key, value] : entries) {
    check_hashable(guard, key);
    deepest = std::max({deepest, depth_of(key), depth_of(value)});
    const auto existing = find_key(guard, dict.entries, key);
    if (existing != dict.entries.end())
      existing->second = std::move(value);
    else
      dict.entries.emplace_back(std::move(key), std::move(value));
  }
  dict.depth = depth_around(guard, deepest);
  return Value(std::make_shared<const Dict>(std::move(dict)));
}

Value make_iterator(Guard& guard, std::vector<Value> items) {
  guard.spend_steps(items.size());
  const int depth = depth_around(guard, items);
  return Value(std::make_shared<Iterator>(Iterator{.items = std::move(items), .depth = depth}));
}

Value make_method(Guard& guard, Value receiver, std::string name) {
  const int depth = depth_around(guard, depth_of(receiver));
  return Value(
      std::make_shared<const Method>(Method{.receiver = std::move(receiver), .name = std::move(name), .depth = depth}));
}

Value make_loop(Guard& guard, Loop loop) {
  loop.depth = depth_around(guard, loop.items->depth);
  return Value(std::make_shared<const Loop>(std::move(loop)));
}

std::string_view type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.get<bool>()) return "bool";
  if (value.get<std::int64_t>()) return "int";
  if (value.get<double>()) return "float";
  if (value.text()) return "str";
  if (const List* list = value.list()) return type_name(list->kind);
  if (value.dict()) return "dict";
  if (value.iterator()) return "iterator";
  if (value.loop()) return "loop";
  if (value.get<Namespace*>()) return "namespace";
  return "function";
}

std::optional<std::int64_t> as_integer(const Value& value) {
  if (const bool* flag = value.get<bool>()) return *flag ? 1 : 0;
  if (const std::int64_t* integer = value.get<std::int64_t>()) return *integer;
  return std::nullopt;
}

bool is_number(const Value& value) {
  return value.get<double>() != nullptr || as_integer(value).has_value();
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (is_number(value)) return number_of(value) != 0;
  if (const Text* text = value.text()) return !text->empty();
  if (const List* list = value.list()) return !list->items.empty();
  if (const Dict* dict = value.dict()) return !dict->entries.empty();
  return true;
}

bool equal(Guard& guard, const Value& a, const Value& b) {
  guard.spend_steps(1);
  if (is_number(a) && is_number(b)) return number_of(a) == number_of(b);
  if (a.text() && b.text()) return equal_texts(guard, a.text()->bytes(), b.text()->bytes());
  if (a.list() && b.list()) return equal_lists(guard, *a.list(), *b.list());
  if (a.dict() && b.dict()) return equal_dicts(guard, *a.dict(), *b.dict());
  if (a.is_undefined() || a.is_none()) return a.is_undefined() == b.is_undefined() && a.is_none() == b.is_none();
  if (a.iterator()) return a.iterator() == b.iterator();
  if (a.method() || a.loop()) guard.fail("comparing a {} is not supported", type_name(a));
  if (const auto* space = a.get<Namespace*>()) return b.get<Namespace*>() && *space == *b.get<Namespace*>();
  if (const auto* function = a.get<Function>()) return b.get<Function>() && *function == *b.get<Function>();
  if (const auto* macro = a.get<Macro>()) return b.get<Macro>() && macro->statement == b.get<Macro>()->statement;
  return false;
}

std::partial_ordering compare(Guard& guard, const Value& a, const Value& b) {
  guard.spend_steps(1);
  if (is_number(a) && is_number(b)) return number_of(a) <=> number_of(b);
  if (a.text() && b.text()) {
    guard.spend_text(std::min(a.text()->size(), b.text()->size()) / 8);
    return a.text()->bytes() <=> b.text()->bytes();
  }
  const List* left = a.list();
  const List* right = b.list();
  if (left && right && left->kind == right->kind && (left->kind == ListKind::list || left->kind == ListKind::tuple))
    return compare_lists(guard, *left, *right);
  guard.fail("cannot order a {} and a {}", type_name(a), type_name(b));
}

void check_hashable(Guard& guard, const Value& key) {
  if (const List* list = key.list(); list != nullptr && list->kind == ListKind::tuple) {
    for (const Value& item : list->items) check_hashable(guard, item);
    return;
  }
  if (key.list() || key.dict()) guard.fail("a {} cannot be a dict key", type_name(key));
  if (key.iterator() || key.method() || key.loop()) guard.fail("a {} as a dict key is not supported", type_name(key));
}

const Value* find_entry(Guard& guard, const Dict& dict, const Value& key) {
  const auto found = find_key(guard, dict.entries, key);
  return found == dict.entries.end() ? nullptr : &found->second;
}

Iterator& require_free(Guard& guard, Iterator& iterator) {
  if (iterator.busy) guard.fail("reading an iterator that a loop is reading is not supported");
  return iterator;
}

std::vector<Value> iterate(Guard& guard, const Value& value) {
  if (value.is_undefined()) return {};
  if (const List* list = value.list()) {
    guard.spend_steps(list->items.size());
    return list->items;
  }
  std::vector<Value> items;
  if (const Dict* dict = value.dict()) {
    for (const auto& entry : dict->entries) items.push_back(entry.first);
  } else if (const Text* text = value.text()) {
    for (Text& character : characters(guard, *text)) items.emplace_back(std::move(character));
  } else if (Iterator* iterator = value.iterator()) {
    require_free(guard, *iterator);
    items.assign(iterator->items.begin() + static_cast<std::ptrdiff_t>(iterator->next), iterator->items.end());
    iterator->next = iterator->items.size();
  } else {
    guard.fail("a {} is not iterable", type_name(value));
  }
  guard.spend_steps(items.size());
  return items;
}

std::size_t length(Guard& guard, const Value& value) {
  if (value.is_undefined()) return 0;
  if (const Text* text = value.text()) {
    guard.spend_text(text->size() / 8);
    return count_characters(text->bytes());
  }
  if (const List* list = value.list()) return list->items.size();
  if (const Dict* dict = value.dict()) return dict->entries.size();
  guard.fail("a {} has no length", type_name(value));
}

std::string format_float(double value) {
  std::string text = fmt::format("{}", value);
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return std::isnan(value) ? "nan" : text;
}

Text to_text(Guard& guard, const Value& value) {
  if (const Text* text = value.text()) return *text;
  if (value.is_undefined()) return {};
  return to_quoted_text(guard, value);
}

Text to_quoted_text(Guard& guard, const Value& value) {
  TextBuilder builder(guard);
  Quoter(guard, builder).append(value);
  return builder.take();
}

Text to_json(Guard& guard, const Value& value, const JsonStyle& style) {
  TextBuilder builder(guard);
  JsonWriter(guard, builder, style).append(value);
  return builder.take();
}

}  // namespace espalier::jinja
