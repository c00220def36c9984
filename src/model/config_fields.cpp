#include "model/config_fields.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace espalier {

using Json = nlohmann::json;

void check_heads(const HeadSizes& sizes, std::string_view file) {
  if (sizes.heads % sizes.kv_heads != 0)
    input_error("{}: {} attention heads are not a multiple of {} key-value heads", file, sizes.heads, sizes.kv_heads);
  if (sizes.head_size % 2 != 0) input_error("{}: head size {}: expected an even number", file, sizes.head_size);
}

std::int64_t default_head_size(std::int64_t hidden, std::int64_t heads, std::string_view file) {
  if (hidden % heads != 0)
    input_error("{}: hidden size {} is not a multiple of {} attention heads", file, hidden, heads);
  return hidden / heads;
}

JsonFields::JsonFields(const Json& json, std::string_view file) : json_(&json), file_(file) {
  if (!json.is_object()) input_error("{}: expected a JSON object, got {}", file, json.type_name());
}

const Json* JsonFields::find(const char* key) const {
  const auto it = json_->find(key);
  return it == json_->end() || it->is_null() ? nullptr : &*it;
}

std::int64_t JsonFields::checked_integer(const char* key, const Json& value, std::int64_t low,
                                         std::int64_t high) const {
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{1} << 62))
    input_error("{}: {}: expected an integer, got {}", file_, key, value.dump());
  const auto number = value.get<std::int64_t>();
  if (number < low || number > high) input_error("{}: {}: expected {} to {}, got {}", file_, key, low, high, number);
  return number;
}

std::optional<std::int64_t> JsonFields::integer(const char* key, std::int64_t low, std::int64_t high) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  return checked_integer(key, *value, low, high);
}

std::int64_t JsonFields::require_integer(const char* key, std::int64_t low, std::int64_t high) const {
  const auto value = integer(key, low, high);
  if (!value) input_error("{}: {} is missing", file_, key);
  return *value;
}

std::optional<std::vector<std::int64_t>> JsonFields::integers(const char* key, std::int64_t low,
                                                              std::int64_t high) const {
  const Json* list = find(key);
  if (!list) return std::nullopt;
  if (!list->is_array()) input_error("{}: {}: expected a list of integers, got {}", file_, key, list->dump());
  std::vector<std::int64_t> values;
  for (const Json& value : *list) values.push_back(checked_integer(key, value, low, high));
  return values;
}

float JsonFields::factor(const char* key) const {
  const auto value = static_cast<float>(number(key).value_or(1));
  if (!(value > 0) || !std::isnormal(value))
    input_error("{}: {}: expected a number above 0 that float32 holds, got {}", file_, key, find(key)->dump());
  return value;
}

std::optional<double> JsonFields::number(const char* key) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_number()) input_error("{}: {}: expected a number, got {}", file_, key, value->dump());
  const double number = value->get<double>();
  if (!(number > 0) || !std::isfinite(number))
    input_error("{}: {}: expected a positive number, got {}", file_, key, value->dump());
  return number;
}

double JsonFields::require_number(const char* key) const {
  const auto value = number(key);
  if (!value) input_error("{}: {} is missing", file_, key);
  return *value;
}

bool JsonFields::boolean(const char* key, bool otherwise) const {
  const Json* value = find(key);
  if (!value) return otherwise;
  if (!value->is_boolean()) input_error("{}: {}: expected true or false, got {}", file_, key, value->dump());
  return value->get<bool>();
}

std::optional<std::string> JsonFields::string(const char* key) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_string()) input_error("{}: {}: expected a string, got {}", file_, key, value->dump());
  return value->get<std::string>();
}

Json with_nested(const Json& object, std::initializer_list<const char*> nested) {
  Json flat = object;
  for (const char* name : nested) {
    const auto inner = object.find(name);
    if (inner == object.end() || !inner->is_object()) continue;
    for (const auto& [key, value] : inner->items())
      if (!flat.contains(key) || flat[key].is_null()) flat[key] = value;
  }
  return flat;
}

std::optional<std::int64_t> GgufFields::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  const auto value = gguf_->integer(full(key));
  if (value && (*value < low || *value > high))
    input_error("{}: {}{}: expected {} to {}, got {}", gguf_->description(), prefix_, key, low, high, *value);
  return value;
}

std::int64_t GgufFields::require_integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  const auto value = integer(key, low, high);
  if (!value) input_error("{}: {}{} is missing", gguf_->description(), prefix_, key);
  return *value;
}

std::optional<double> GgufFields::number(std::string_view key) const {
  const auto value = gguf_->number(full(key));
  if (value && (!(*value > 0) || !std::isfinite(*value)))
    input_error("{}: {}{}: expected a positive number, got {}", gguf_->description(), prefix_, key, *value);
  return value;
}

double GgufFields::require_number(std::string_view key) const {
  const auto value = number(key);
  if (!value) input_error("{}: {}{} is missing", gguf_->description(), prefix_, key);
  return *value;
}

}  // namespace espalier
