#include "base/json_field.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

bool is_integer_in(const JsonField::Json& value, std::int64_t low, std::int64_t high) {
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX))
    return false;
  const auto number = value.get<std::int64_t>();
  return number >= low && number <= high;
}

}  // namespace

std::string JsonField::where() const {
  return path_.empty() ? file_ : fmt::format("{}: {}", file_, path_);
}

const JsonField::Json& JsonField::require(bool fits, std::string_view expected) const {
  if (!fits) input_error("{}: expected {}, got {}", where(), expected, value_->type_name());
  return *value_;
}

JsonField JsonField::child(const Json& value, const std::string& step) const {
  JsonField field(value, file_);
  field.path_ = fmt::format("{}{}{}", path_, path_.empty() || step.starts_with('[') ? "" : ".", step);
  return field;
}

JsonField JsonField::at(std::string_view key) const {
  const Json& members = object();
  const auto found = members.find(key);
  if (found == members.end()) input_error("{}: {} is missing", where(), in_quotes(key));
  return child(*found, std::string(key));
}

std::optional<JsonField> JsonField::find(std::string_view key) const {
  const Json& members = object();
  const auto found = members.find(key);
  if (found == members.end() || found->is_null()) return std::nullopt;
  return child(*found, std::string(key));
}

std::vector<JsonField> JsonField::elements() const {
  std::vector<JsonField> fields;
  for (std::size_t i = 0; i < array().size(); ++i) fields.push_back(element(i));
  return fields;
}

JsonField JsonField::element(std::size_t index) const {
  const Json& list = array();
  check(index < list.size(), "{}: element {} of {}", where(), index, list.size());
  return child(list[index], fmt::format("[{}]", index));
}

const std::string& JsonField::string() const {
  return require(value_->is_string(), "a string").get_ref<const std::string&>();
}

std::size_t JsonField::one_of(std::span<const std::string_view> words) const {
  std::string all;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (string() == words[i]) return i;
    all += fmt::format("{}{}", i == 0 ? "" : ", ", words[i]);
  }
  input_error("{}: expected one of {}, got {}", where(), all, in_quotes(string()));
}

bool JsonField::boolean() const {
  return require(value_->is_boolean(), "true or false").get<bool>();
}

std::int64_t JsonField::integer() const {
  require(value_->is_number_integer(), "an integer");
  const bool too_large = value_->is_number_unsigned() && value_->get<std::uint64_t>() > INT64_MAX;
  if (too_large) input_error("{}: {} is too large", where(), value_->get<std::uint64_t>());
  return value_->get<std::int64_t>();
}

std::int64_t JsonField::integer(std::int64_t low, std::int64_t high) const {
  const std::int64_t value = integer();
  if (value < low || value > high) input_error("{}: expected {} to {}, got {}", where(), low, high, value);
  return value;
}

std::uint64_t JsonField::natural() const {
  require(value_->is_number_integer(), "an integer");
  const bool negative = !value_->is_number_unsigned() && value_->get<std::int64_t>() < 0;
  if (negative) input_error("{}: expected 0 or more, got {}", where(), value_->get<std::int64_t>());
  return value_->get<std::uint64_t>();
}

double JsonField::number() const {
  return require(value_->is_number(), "a number").get<double>();
}

const JsonField::Json& JsonField::object() const {
  return require(value_->is_object(), "an object");
}

const JsonField::Json& JsonField::array() const {
  return require(value_->is_array(), "an array");
}

std::vector<std::int64_t> JsonField::integers(std::int64_t low, std::int64_t high) const {
  const Json& list = array();
  std::vector<std::int64_t> values;
  values.reserve(list.size());
  for (const Json& value : list)  // a path is made only for the one that is wrong
    values.push_back(is_integer_in(value, low, high) ? value.get<std::int64_t>()
                                                     : element(values.size()).integer(low, high));
  return values;
}

bool JsonField::is_object() const {
  return value_->is_object();
}

bool JsonField::is_null() const {
  return value_->is_null();
}

bool JsonField::is_string() const {
  return value_->is_string();
}

bool JsonField::boolean_or(std::string_view key, bool otherwise) const {
  const auto field = find(key);
  return field ? field->boolean() : otherwise;
}

std::string JsonField::string_or(std::string_view key, std::string_view otherwise) const {
  const auto field = find(key);
  return field ? field->string() : std::string(otherwise);
}

}  // namespace espalier
