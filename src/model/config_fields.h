// Fields of a config.json and of GGUF metadata, read with distrust: an absent field is nullopt (or an InputError where
// it is required), a field of another type or out of range is an InputError naming file, field, expected and got.
// A field that is null in JSON counts as absent.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"

namespace espalier {

// Bounds that no real model exceeds; they keep every later product far from overflow.
inline constexpr std::int64_t kMaxLayers = 1024;
inline constexpr std::int64_t kMaxWidth = 1 << 20;
inline constexpr std::int64_t kMaxVocabulary = 1 << 24;
inline constexpr std::int64_t kMaxContext = std::int64_t{1} << 26;

// What a config says of attention, under whatever names.
struct HeadSizes {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
};

// Query heads share key-value heads evenly, and rotation takes pairs.
void check_heads(const HeadSizes& sizes, std::string_view file);
// What a head has where the file does not say.
std::int64_t default_head_size(std::int64_t hidden, std::int64_t heads, std::string_view file);

// JSON and file name must outlive this.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& json, std::string_view file);

  std::string_view file() const { return file_; }
  const nlohmann::json* find(const char* key) const;

  std::optional<std::int64_t> integer(const char* key, std::int64_t low, std::int64_t high) const;
  std::int64_t require_integer(const char* key, std::int64_t low, std::int64_t high) const;
  std::optional<std::vector<std::int64_t>> integers(const char* key, std::int64_t low, std::int64_t high) const;
  // A factor: a number above 0 that a float holds; 1 when absent.
  float factor(const char* key) const;
  std::optional<double> number(const char* key) const;  // positive
  double require_number(const char* key) const;
  bool boolean(const char* key, bool otherwise) const;
  std::optional<std::string> string(const char* key) const;

 private:
  std::int64_t checked_integer(const char* key, const nlohmann::json& value, std::int64_t low, std::int64_t high) const;

  const nlohmann::json* json_;
  std::string_view file_;
};

// The object with the fields of these objects in it, as far as it has none of their names itself; null counts as
// absent, and those named first beat the others.
nlohmann::json with_nested(const nlohmann::json& object, std::initializer_list<const char*> nested);

// Fields under the architecture's own prefix: llama.block_count, qwen2.block_count, ... The file must outlive this.
class GgufFields {
 public:
  GgufFields(const Gguf& gguf, std::string_view architecture)
      : gguf_(&gguf), prefix_(std::string(architecture) + ".") {}

  const Gguf& gguf() const { return *gguf_; }

  std::optional<std::int64_t> integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  std::int64_t require_integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  const std::vector<std::int64_t>* integers(std::string_view key) const { return gguf_->integers(full(key)); }
  std::optional<double> number(std::string_view key) const;  // positive
  double require_number(std::string_view key) const;
  bool boolean(std::string_view key, bool otherwise) const { return gguf_->boolean(full(key)).value_or(otherwise); }
  const std::string* string(std::string_view key) const { return gguf_->string(full(key)); }

 private:
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }

  const Gguf* gguf_;
  std::string prefix_;
};

}  // namespace espalier
