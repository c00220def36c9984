#include "serve/protocol/json_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

constexpr double kVeryUnlikely = -9999.0;

}  // namespace

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

std::string json_number(double value) {
  return nlohmann::json(value).dump();
}

std::string json_number(float value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

std::string json_logprob(double value) {
  return json_number(std::isfinite(value) ? value : kVeryUnlikely);
}

JsonArray& JsonArray::raw(std::string_view json) {
  if (text_.size() > 1) text_ += ',';
  text_ += json;
  return *this;
}

JsonObject& JsonObject::raw(std::string_view key, std::string_view json) {
  if (text_.size() > 1) text_ += ',';
  text_ += json_string(key);
  text_ += ':';
  text_ += json;
  return *this;
}

}  // namespace espalier
