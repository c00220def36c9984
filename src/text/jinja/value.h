// The values of a template, with Python's meaning: numbers, text, lists, dicts, and "undefined". A Value is small and
// copied freely; text, lists and dicts are immutable once made and shared by all copies, so no value can contain
// itself. The two things that change are namespaces, which belong to the rendering and are only pointed to, and
// iterators, which are used up by whoever reads them first.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/guard.h"
#include "text/jinja/text.h"

namespace espalier::jinja {

struct List;
struct Dict;
struct Iterator;
struct Method;
struct Loop;
struct Namespace;
struct MacroStatement;

struct None {};

// Absent: prints as nothing, is false, iterates over nothing; most other uses are errors with this explanation.
struct Undefined {
  std::shared_ptr<const std::string> explanation;
};

enum class Function { range, dict, namespace_, raise_exception, strftime_now };

// A function of the template itself. The node lives as long as the template.
struct Macro {
  const MacroStatement* statement = nullptr;
};

class Value {
 public:
  using Form = std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>,
                            std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Iterator>,
                            std::shared_ptr<const Method>, std::shared_ptr<const Loop>, Namespace*, Function, Macro>;

  Value() : form_(None{}) {}
  explicit Value(Form form) : form_(std::move(form)) {}
  Value(bool value) : form_(value) {}
  Value(std::int64_t value) : form_(value) {}
  Value(double value) : form_(value) {}
  Value(Text text) : form_(std::make_shared<const Text>(std::move(text))) {}
  // A literal would otherwise become a bool.
  Value(const char*) = delete;

  static Value undefined(std::string explanation);

  bool is_undefined() const { return std::holds_alternative<Undefined>(form_); }
  bool is_none() const { return std::holds_alternative<None>(form_); }
  const Text* text() const { return shared<const Text>(); }
  const List* list() const { return shared<const List>(); }
  const Dict* dict() const { return shared<const Dict>(); }
  Iterator* iterator() const { return shared<Iterator>(); }
  const Method* method() const { return shared<const Method>(); }
  const Loop* loop() const { return shared<const Loop>(); }
  template <typename T>
  const T* get() const {
    return std::get_if<T>(&form_);
  }

 private:
  template <typename T>
  T* shared() const {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&form_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  Form form_;
};

// Python's kinds of sequence that a template meets; they differ in how they print, compare and may be indexed.
enum class ListKind { list, tuple, range, keys, values, items };

struct List {
  ListKind kind = ListKind::list;
  std::vector<Value> items;
  int depth = 1;  // of nesting; bounded, because values are printed, compared and destroyed recursively
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;  // in order of insertion
  int depth = 1;
};

// What lazy filters give: readable once. While a loop reads it, and after a loop left it early, nobody else may:
// jinja2 would hand out what the loop has not taken yet, and how far it has read ahead depends on the loop.
struct Iterator {
  std::vector<Value> items;
  std::size_t next = 0;
  bool busy = false;
  int depth = 1;
};

// `receiver.name`, not yet called.
struct Method {
  Value receiver;
  std::string name;
  int depth = 1;
};

// The variable `loop` during one iteration.
struct Loop {
  std::shared_ptr<const List> items;
  std::size_t index = 0;
  int depth = 1;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

Value make_list(Guard& guard, std::vector<Value> items, ListKind kind = ListKind::list);
Value make_list(Guard& guard, std::vector<Text> items);
// Later entries replace earlier ones with an equal key. Fails on a key that Python cannot hash.
Value make_dict(Guard& guard, std::vector<std::pair<Value, Value>> entries);
Value make_iterator(Guard& guard, std::vector<Value> items);
Value make_method(Guard& guard, Value receiver, std::string name);
Value make_loop(Guard& guard, Loop loop);
// Charges the guard for text that was cut out of other text.
Value make_text(Guard& guard, Text text);

// Python's name of the type, for messages.
std::string_view type_name(const Value& value);
bool is_number(const Value& value);                          // bool, int or float
std::optional<std::int64_t> as_integer(const Value& value);  // bool or int
bool truth(const Value& value);

bool equal(Guard& guard, const Value& a, const Value& b);
// Fails where Python has no order.
std::partial_ordering compare(Guard& guard, const Value& a, const Value& b);
const Value* find_entry(Guard& guard, const Dict& dict, const Value& key);
void check_hashable(Guard& guard, const Value& key);

// Fails while a loop reads the iterator.
Iterator& require_free(Guard& guard, Iterator& iterator);
// The elements a for loop sees; uses an iterator up.
std::vector<Value> iterate(Guard& guard, const Value& value);
std::size_t length(Guard& guard, const Value& value);

// str(value) and repr(value).
Text to_text(Guard& guard, const Value& value);
Text to_quoted_text(Guard& guard, const Value& value);
std::string format_float(double value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool pretty = false;  // one element per line, indented by `indentation`
  std::string indentation;
  Text item_separator;
  Text key_separator;
  bool sort_keys = false;
};
Text to_json(Guard& guard, const Value& value, const JsonStyle& style);

}  // namespace espalier::jinja
