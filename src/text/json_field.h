// A value somewhere inside a JSON file, with its path, so that a wrong type is reported where it stands:
// "tokenizer.json: model.vocab: expected an object, got a number". Borrowed: the document must outlive it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

class JsonField {
 public:
  using Json = nlohmann::json;
  JsonField(const Json& value, std::string_view file) : value_(&value), file_(file) {}

  // Members of an object: `at` must exist, `find` may be absent or null.
  JsonField at(std::string_view key) const;
  std::optional<JsonField> find(std::string_view key) const;
  std::vector<JsonField> elements() const;

  const std::string& string() const;
  bool boolean() const;
  std::int64_t integer() const;
  double number() const;
  const Json& object() const;
  const Json& array() const;
  bool is_object() const { return value_->is_object(); }
  bool is_null() const { return value_->is_null(); }
  bool is_string() const { return value_->is_string(); }

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
