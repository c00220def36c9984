#include "text/jinja/json.h"

#include <limits>
#include <nlohmann/json.hpp>

namespace espalier::jinja {
namespace {

constexpr int kMaxJsonDepth = 50;

std::int64_t integer_from(Guard& guard, const nlohmann::ordered_json& json) {
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
    guard.fail("integers beyond 64 bits are not supported");
  return json.get<std::int64_t>();
}

}  // namespace

Value from_json(Guard& guard, const nlohmann::ordered_json& json, int level) {
  if (level > kMaxJsonDepth) guard.fail("JSON variables are nested more than {} deep", kMaxJsonDepth);
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_number()) return integer_from(guard, json);
  if (json.is_string()) return Value(Text(json.get_ref<const std::string&>(), false));
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& item : json) items.push_back(from_json(guard, item, level + 1));
    return make_list(guard, std::move(items));
  }
  if (!json.is_object()) return Value();
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [key, value] : json.items())
    entries.emplace_back(Value(Text(key, false)), from_json(guard, value, level + 1));
  return make_dict(guard, std::move(entries));
}

}  // namespace espalier::jinja
