// The JSON of a request: bytes that anybody may have sent, read with distrust. A document is at most 32 levels deep,
// UTF-8, without duplicate keys (two values for one field contradict each other; silence would pick one), and with
// numbers that fit. Whatever is wrong is an ApiError 400: with the byte offset where it is no JSON, else with the
// field's path as `param`, what was expected, and what was found. null means absent. Nothing else is ever thrown.
//
// Texts are never repeated in messages, words and numbers are: a prompt must not get into a log.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier {

inline constexpr int kMostBodyLevels = 32;

// A value inside a document. Borrowed: the document must outlive it.
class BodyField {
 public:
  const std::string& path() const { return path_; }

  bool is_string() const;
  bool is_object() const;
  bool is_array() const;
  bool is_boolean() const;
  bool is_number() const;
  bool is_null() const;

  // A member of an object, where it is there and not null.
  std::optional<BodyField> find(std::string_view key) const;
  std::vector<std::pair<std::string, BodyField>> members() const;  // by name; requires an object
  // Of an array; both require one.
  std::size_t size() const;
  BodyField element(std::size_t index) const;

  const std::string& text() const;
  const std::string& text(std::size_t low_bytes, std::size_t high_bytes) const;
  bool boolean() const;
  // Whole numbers; 5.0 is one. Both ends are allowed.
  std::int64_t integer(std::int64_t low, std::int64_t high) const;
  double number(double low, double high) const;
  // Which of these words it is.
  std::size_t one_of(std::span<const std::string_view> words) const;
  // An array of whole numbers; `most` bounds how many.
  std::vector<std::int64_t> integers(std::int64_t low, std::int64_t high, std::size_t most) const;
  const BodyField& object() const;  // itself, if it is one
  const BodyField& array(std::size_t low, std::size_t high) const;

  // The value as JSON text, keys sorted.
  std::string json() const;

  // "path: expected ..., got ...".
  [[noreturn]] void refuse(std::string_view expected) const;
  // "path: ..."
  [[noreturn]] void refuse_because(std::string_view reason) const;

 private:
  friend class JsonBody;
  BodyField(const void* value, std::string path) : value_(value), path_(std::move(path)) {}
  std::string shown() const;

  const void* value_;  // a nlohmann::json
  std::string path_;
};

class JsonBody {
 public:
  // The root must be an object.
  explicit JsonBody(std::string_view bytes);
  ~JsonBody();
  JsonBody(JsonBody&&) noexcept;
  JsonBody& operator=(JsonBody&&) noexcept;

  BodyField root() const;

 private:
  struct Document;
  std::unique_ptr<const Document> document_;
};

}  // namespace espalier
