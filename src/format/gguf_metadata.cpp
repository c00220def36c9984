#include "format/gguf_metadata.h"

#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/untrusted_text.h"

namespace espalier {
namespace {

enum class ValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };

constexpr std::uint32_t kValueTypes = 13;
// The fewest bytes a value of the type takes: an empty string is its length, an empty array its type and count.
constexpr std::array<std::uint64_t, kValueTypes> kFewestBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
constexpr std::uint64_t kFewestEntryBytes = 8 + 1 + 4 + 1;  // key length, one letter, type, a u8

ValueType read_type(GgufCursor& cursor) {
  const auto number = cursor.number<std::uint32_t>();
  if (number >= kValueTypes) cursor.fail("unknown value type {}, expected 0 to {}", number, kValueTypes - 1);
  return static_cast<ValueType>(number);
}

std::int64_t read_u64(GgufCursor& cursor) {
  const auto value = cursor.number<std::uint64_t>();
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    cursor.fail("integer {} is above the supported maximum of {}", value, std::numeric_limits<std::int64_t>::max());
  return static_cast<std::int64_t>(value);
}

// Requires an integer type.
std::int64_t read_integer(GgufCursor& cursor, ValueType type) {
  switch (type) {
    case ValueType::u8: return cursor.number<std::uint8_t>();
    case ValueType::i8: return cursor.number<std::int8_t>();
    case ValueType::u16: return cursor.number<std::uint16_t>();
    case ValueType::i16: return cursor.number<std::int16_t>();
    case ValueType::u32: return cursor.number<std::uint32_t>();
    case ValueType::i32: return cursor.number<std::int32_t>();
    case ValueType::u64: return read_u64(cursor);
    default: return cursor.number<std::int64_t>();
  }
}

bool read_boolean(GgufCursor& cursor) {
  const auto value = cursor.number<std::uint8_t>();
  if (value > 1) cursor.fail("expected a bool of 0 or 1, got {}", value);
  return value == 1;
}

double read_float(GgufCursor& cursor, ValueType type) {
  return type == ValueType::f32 ? cursor.number<float>() : cursor.number<double>();
}

template <typename T, typename Read>
std::vector<T> read_elements(std::uint64_t count, Read read) {
  std::vector<T> elements;
  elements.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) elements.push_back(read());
  return elements;
}

GgufValue read_array(GgufCursor& cursor, int depth) {
  if (depth > kMaxGgufArrayDepth) cursor.fail("arrays nested deeper than {} levels", kMaxGgufArrayDepth);
  const ValueType type = read_type(cursor);
  const auto count = cursor.number<std::uint64_t>();
  cursor.expect_room(count, kFewestBytes[static_cast<std::size_t>(type)], "array elements");
  switch (type) {
    case ValueType::array: return {read_elements<GgufValue>(count, [&] { return read_array(cursor, depth + 1); })};
    case ValueType::text: return {read_elements<std::string>(count, [&] { return std::string(cursor.text()); })};
    case ValueType::boolean: return {read_elements<bool>(count, [&] { return read_boolean(cursor); })};
    case ValueType::f32:
    case ValueType::f64: return {read_elements<double>(count, [&] { return read_float(cursor, type); })};
    default: return {read_elements<std::int64_t>(count, [&] { return read_integer(cursor, type); })};
  }
}

GgufValue read_value(GgufCursor& cursor, ValueType type) {
  switch (type) {
    case ValueType::array: return read_array(cursor, 1);
    case ValueType::text: return {std::string(cursor.text())};
    case ValueType::boolean: return {read_boolean(cursor)};
    case ValueType::f32:
    case ValueType::f64: return {read_float(cursor, type)};
    default: return {read_integer(cursor, type)};
  }
}

}  // namespace

GgufMetadata read_gguf_metadata(GgufCursor& cursor, std::uint64_t count) {
  cursor.expect_room(count, kFewestEntryBytes, "metadata keys");
  if (count > kMaxGgufKeys) cursor.fail("expected at most {} metadata keys, got {}", kMaxGgufKeys, count);
  GgufMetadata metadata;
  for (std::uint64_t i = 0; i < count; ++i) {
    cursor.enter(fmt::format("metadata key {} of {}", i + 1, count));
    std::string key(read_gguf_name(cursor));
    cursor.enter(fmt::format("key {}", in_quotes(key)));
    if (metadata.contains(key)) cursor.fail("duplicate key");
    const ValueType type = read_type(cursor);
    metadata.emplace(std::move(key), read_value(cursor, type));
  }
  return metadata;
}

std::string_view read_gguf_name(GgufCursor& cursor) {
  const std::string_view name = cursor.text();
  if (name.empty() || name.size() > kMaxGgufNameBytes)
    cursor.fail("expected a name of 1 to {} bytes, got {}", kMaxGgufNameBytes, name.size());
  if (!is_utf8(name)) cursor.fail("expected a name in UTF-8, got {}", in_quotes(name));
  return name;
}

std::string_view kind_name(const GgufValue& value) {
  constexpr std::array<std::string_view, 9> kNames = {
      "integer",        "number",           "bool",           "string", "array of integers", "array of numbers",
      "array of bools", "array of strings", "array of arrays"};
  static_assert(std::variant_size_v<decltype(value.data)> == kNames.size());
  return kNames[value.data.index()];
}

}  // namespace espalier
