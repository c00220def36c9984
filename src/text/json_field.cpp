#include "text/json_field.h"

#include "base/error.h"
#include "base/untrusted_text.h"

namespace espalier {

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
  for (const Json& element : array()) fields.push_back(child(element, fmt::format("[{}]", fields.size())));
  return fields;
}

const std::string& JsonField::string() const {
  return require(value_->is_string(), "a string").get_ref<const std::string&>();
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

double JsonField::number() const {
  return require(value_->is_number(), "a number").get<double>();
}

const JsonField::Json& JsonField::object() const {
  return require(value_->is_object(), "an object");
}

const JsonField::Json& JsonField::array() const {
  return require(value_->is_array(), "an array");
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
