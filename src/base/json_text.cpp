#include "base/json_text.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

using Json = nlohmann::json;

// Walks the text for the parser and notes how far it has read, so that our own complaints have a position too.
class TrackedCharacters {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TrackedCharacters(const char* position, const char*& furthest) : position_(position), furthest_(&furthest) {}
  reference operator*() const { return *position_; }
  TrackedCharacters& operator++() {
    *furthest_ = ++position_;
    return *this;
  }
  bool operator==(const TrackedCharacters& other) const { return position_ == other.position_; }

 private:
  const char* position_;
  const char** furthest_;
};

// The parser's words without its "[json.exception...] parse error at line 1, column 2: ", which we say ourselves.
std::string_view reason(std::string_view message) {
  for (std::string_view marker : {"column ", "] "}) {
    const std::size_t at = message.find(marker);
    if (at == std::string_view::npos) continue;
    const std::size_t colon = marker == "] " ? at : message.find(": ", at);
    if (colon != std::string_view::npos) return message.substr(colon + 2);
  }
  return message;
}

// Builds the value as the parser reports its parts.
class JsonBuilder final : public nlohmann::json_sax<Json> {
 public:
  JsonBuilder(std::string_view text, std::string_view where, int max_depth)
      : text_(text), where_(where), max_depth_(static_cast<std::size_t>(max_depth)), furthest_(text.data()) {}

  Json build() {
    if (const std::size_t nul = text_.find('\0'); nul != std::string_view::npos) {
      furthest_ = text_.data() + nul + 1;  // the parser would take it for the end and ignore the rest
      fail("expected JSON text, got a NUL byte");
    }
    const char* const end = text_.data() + text_.size();
    Json::sax_parse(TrackedCharacters(text_.data(), furthest_), TrackedCharacters(end, furthest_), this);
    return std::move(root_);
  }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not in JSON text
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    if (open_.back()->contains(key)) fail("duplicate key " + in_quotes(key));
    key_ = std::move(key);
    return true;
  }

  bool parse_error(std::size_t read, const std::string&, const nlohmann::detail::exception& error) override {
    // Quoted without its quotes: the words may repeat bytes of the file.
    const std::string words = in_quotes(reason(error.what()));
    fail("not JSON: " + words.substr(1, words.size() - 2), std::max<std::size_t>(read, 1) - 1);
  }

 private:
  template <typename Value>
  bool add(Value&& value) {
    place() = std::forward<Value>(value);
    return true;
  }

  bool open(Json container) {
    if (open_.size() >= max_depth_) fail(fmt::format("nested deeper than {} levels", max_depth_));
    Json& added = place();
    added = std::move(container);
    open_.push_back(&added);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  // Where the next value goes.
  Json& place() {
    if (open_.empty()) return root_;
    Json& parent = *open_.back();
    if (parent.is_object()) return parent[key_];
    parent.push_back(nullptr);
    return parent.back();
  }

  [[noreturn]] void fail(const std::string& what) const {
    fail(what, std::max<std::size_t>(static_cast<std::size_t>(furthest_ - text_.data()), 1) - 1);
  }

  [[noreturn]] void fail(const std::string& what, std::size_t offset) const {
    const std::string_view before = text_.substr(0, static_cast<std::size_t>(furthest_ - text_.data()));
    const std::size_t line = 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
    const std::size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    const std::size_t column = std::max<std::size_t>(before.size() - line_start, 1);
    throw JsonTextError(fmt::format("{}:{}:{}: {}", where_, line, column, what), what, offset);
  }

  std::string_view text_;
  std::string_view where_;
  std::size_t max_depth_;
  const char* furthest_;
  Json root_;
  std::vector<Json*> open_;  // the containers around the next value; a parent does not grow while a child is open
  std::string key_;
};

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view where, int max_depth) {
  return JsonBuilder(text, where, max_depth).build();
}

}  // namespace espalier
