// A value somewhere inside a JSON file, with its path, so that a wrong one is reported where it stands:
// "tokenizer.json: model.vocab: expected an object, got number". Borrowed: the document must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

class JsonField {
 public:
  using Json = nlohmann::json;
  // `file`: how messages begin; a path, or a path and a place in it.
  JsonField(const Json& value, std::string_view file) : value_(&value), file_(file) {}
  JsonField(Json&& value, std::string_view file) = delete;

  // Members of an object: `at` must exist, `find` may be absent or null.
  JsonField at(std::string_view key) const;
  std::optional<JsonField> find(std::string_view key) const;
  // Of an array. `element` requires that there is one.
  std::vector<JsonField> elements() const;
  JsonField element(std::size_t index) const;

  const std::string& string() const;
  // Which of these words it is.
  std::size_t one_of(std::span<const std::string_view> words) const;
  bool boolean() const;
  std::int64_t integer() const;
  std::int64_t integer(std::int64_t low, std::int64_t high) const;  // both are allowed
  std::uint64_t natural() const;                                    // 0 to 2^64 - 1
  double number() const;
  const Json& object() const;
  const Json& array() const;
  // An array of integers; long ones are what it is for.
  std::vector<std::int64_t> integers(std::int64_t low, std::int64_t high) const;
  const Json& json() const { return *value_; }  // as it is
  bool is_object() const;
  bool is_null() const;
  bool is_string() const;

  // Members of an object, or the given value when absent or null.
  bool boolean_or(std::string_view key, bool otherwise) const;
  std::string string_or(std::string_view key, std::string_view otherwise) const;

  // "file: path": how messages about this value begin.
  std::string where() const;

 private:
  JsonField child(const Json& value, const std::string& step) const;
  const Json& require(bool fits, std::string_view expected) const;

  const Json* value_;
  std::string file_;
  std::string path_;
};

}  // namespace espalier
