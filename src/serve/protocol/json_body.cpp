#include "serve/protocol/json_body.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/untrusted_text.h"
#include "serve/protocol/api_error.h"

namespace espalier {
namespace {

using Json = nlohmann::json;

const Json& json_of(const void* value) {
  return *static_cast<const Json*>(value);
}

// The parser's words without the text it has just read, which may be the prompt.
std::string without_text(const std::string& reason) {
  return reason.substr(0, reason.find("; last read"));
}

Json parse_body(std::string_view bytes) {
  try {
    return parse_json(bytes, "body", kMostBodyLevels);
  } catch (const JsonTextError& error) {
    throw invalid_request(fmt::format("the body, at byte {}: {}", error.offset, without_text(error.reason)));
  }
}

// Doubles hold whole numbers exactly up to here.
constexpr double kMostExact = 9007199254740992.0;

std::optional<std::int64_t> whole_number(const Json& value) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (std::trunc(number) != number || std::abs(number) > kMostExact) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

}  // namespace

struct JsonBody::Document {
  Json root;
};

JsonBody::JsonBody(std::string_view bytes) : document_(new Document{parse_body(bytes)}) {
  if (!document_->root.is_object())
    throw invalid_request(fmt::format("the body: expected a JSON object, got {}", document_->root.type_name()));
}
JsonBody::~JsonBody() = default;
JsonBody::JsonBody(JsonBody&&) noexcept = default;
JsonBody& JsonBody::operator=(JsonBody&&) noexcept = default;

BodyField JsonBody::root() const {
  return BodyField(&document_->root, "");
}

bool BodyField::is_string() const {
  return json_of(value_).is_string();
}

bool BodyField::is_object() const {
  return json_of(value_).is_object();
}

bool BodyField::is_array() const {
  return json_of(value_).is_array();
}

bool BodyField::is_boolean() const {
  return json_of(value_).is_boolean();
}

bool BodyField::is_number() const {
  return json_of(value_).is_number();
}

bool BodyField::is_null() const {
  return json_of(value_).is_null();
}

// Numbers and words as they are; of texts and containers only what they are.
std::string BodyField::shown() const {
  const Json& value = json_of(value_);
  if (value.is_number() || value.is_boolean() || value.is_null()) return value.dump();
  if (value.is_string()) return value.get_ref<const std::string&>().empty() ? "an empty string" : "a string";
  const std::size_t size = value.size();
  return fmt::format("{} of {}", value.is_array() ? "an array" : "an object", size);
}

void BodyField::refuse(std::string_view expected) const {
  refuse_because(fmt::format("expected {}, got {}", expected, shown()));
}

void BodyField::refuse_because(std::string_view reason) const {
  throw invalid_request(fmt::format("{}: {}", path_.empty() ? "the body" : path_, reason), path_);
}

std::optional<BodyField> BodyField::find(std::string_view key) const {
  const Json& value = json_of(object().value_);
  const auto found = value.find(key);
  if (found == value.end() || found->is_null()) return std::nullopt;
  return BodyField(&*found, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key));
}

std::vector<std::pair<std::string, BodyField>> BodyField::members() const {
  std::vector<std::pair<std::string, BodyField>> fields;
  for (const auto& [key, value] : json_of(object().value_).items())
    fields.emplace_back(key, BodyField(&value, fmt::format("{}[{}]", path_, in_quotes(key))));
  return fields;
}

std::size_t BodyField::size() const {
  if (!is_array()) refuse("an array");
  return json_of(value_).size();
}

BodyField BodyField::element(std::size_t index) const {
  return BodyField(&json_of(value_).at(index), fmt::format("{}[{}]", path_, index));
}

const std::string& BodyField::text() const {
  if (!is_string()) refuse("a string");
  return json_of(value_).get_ref<const std::string&>();
}

const std::string& BodyField::text(std::size_t low_bytes, std::size_t high_bytes) const {
  const std::string& found = text();
  if (found.size() < low_bytes || found.size() > high_bytes)
    refuse_because(fmt::format("expected {} to {} bytes, got {}", low_bytes, high_bytes, found.size()));
  return found;
}

bool BodyField::boolean() const {
  if (!is_boolean()) refuse("true or false");
  return json_of(value_).get<bool>();
}

std::int64_t BodyField::integer(std::int64_t low, std::int64_t high) const {
  const std::optional<std::int64_t> found = whole_number(json_of(value_));
  if (!found || *found < low || *found > high) refuse(fmt::format("a whole number from {} to {}", low, high));
  return *found;
}

double BodyField::number(double low, double high) const {
  const Json& value = json_of(value_);
  const double found = value.is_number() ? value.get<double>() : 0;
  if (!value.is_number() || !(found >= low && found <= high)) refuse(fmt::format("a number from {} to {}", low, high));
  return found;
}

std::size_t BodyField::one_of(std::span<const std::string_view> words) const {
  std::string all;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (is_string() && text() == words[i]) return i;
    all += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", words[i]);
  }
  refuse_because(fmt::format("expected {}{}, got {}", words.size() > 1 ? "one of " : "", all,
                             is_string() ? in_quotes(text()) : shown()));
}

std::vector<std::int64_t> BodyField::integers(std::int64_t low, std::int64_t high, std::size_t most) const {
  array(0, most);
  std::vector<std::int64_t> values;
  values.reserve(size());
  for (std::size_t i = 0; i < size(); ++i) {
    // A path is made only for the one that is wrong: prompts are long.
    const std::optional<std::int64_t> found = whole_number(json_of(value_)[i]);
    values.push_back(found && *found >= low && *found <= high ? *found : element(i).integer(low, high));
  }
  return values;
}

const BodyField& BodyField::object() const {
  if (!is_object()) refuse("an object");
  return *this;
}

const BodyField& BodyField::array(std::size_t low, std::size_t high) const {
  if (size() < low || size() > high) refuse(fmt::format("{} to {} elements", low, high));
  return *this;
}

std::string BodyField::json() const {
  return json_of(value_).dump();
}

}  // namespace espalier
