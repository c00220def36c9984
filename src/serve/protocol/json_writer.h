// JSON as text, member by member: what answers and events are written with. Always one line and valid UTF-8 (bytes that
// are no character become U+FFFD); numbers read back to the same bits. Order of members is the order of calls.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace espalier {

std::string json_string(std::string_view text);
// The shortest text that reads back to the same double. JSON has no NaN and no infinities: they are null.
std::string json_number(double value);
// Likewise of a float: 0.8 and not 0.800000011920929.
std::string json_number(float value);
// A log-probability: what is not finite is -9999, as with OpenAI ("very unlikely").
std::string json_logprob(double value);

class JsonArray {
 public:
  JsonArray& raw(std::string_view json);  // a value that is JSON already
  JsonArray& string(std::string_view text) { return raw(json_string(text)); }
  template <std::integral Integer>
  JsonArray& integer(Integer value) {
    return raw(std::to_string(value));
  }
  std::string text() const { return text_ + "]"; }

 private:
  std::string text_ = "[";
};

// Anything that can be walked, as an array of integers.
template <typename Integers>
std::string json_integers(const Integers& values) {
  JsonArray array;
  for (const auto value : values) array.integer(value);
  return array.text();
}

class JsonObject {
 public:
  JsonObject& raw(std::string_view key, std::string_view json);
  JsonObject& string(std::string_view key, std::string_view text) { return raw(key, json_string(text)); }
  JsonObject& number(std::string_view key, std::floating_point auto value) { return raw(key, json_number(value)); }
  JsonObject& boolean(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
  JsonObject& null(std::string_view key) { return raw(key, "null"); }
  template <std::integral Integer>
  JsonObject& integer(std::string_view key, Integer value) {
    return raw(key, std::to_string(value));
  }
  std::string text() const { return text_ + "}"; }

 private:
  std::string text_ = "{";
};

}  // namespace espalier
