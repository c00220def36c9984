// Reads little-endian numbers and strings from the bytes of a GGUF file, front to back, never past the end. Remembers
// which part of the file is being read, for the messages.
#pragma once

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace espalier {

class GgufCursor {
 public:
  GgufCursor(std::span<const std::byte> bytes, std::string_view path) : bytes_(bytes), path_(path) {}

  // What is being read from here on: `the header`, `key "a"`.
  void enter(std::string part) { part_ = std::move(part); }

  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return bytes_.size() - position_; }

  template <typename T>
  T number() {
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

  // A u64 length and that many bytes; the view is into the file.
  std::string_view text() {
    const auto length = number<std::uint64_t>();
    if (length > remaining()) fail("string of {} bytes, but only {} bytes are left in the file", length, remaining());
    const auto bytes = take(length);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  // Refuses a count that the rest of the file cannot hold, before anyone allocates for it.
  void expect_room(std::uint64_t count, std::uint64_t bytes_each, std::string_view what) const {
    if (count > remaining() / bytes_each)
      fail("{} {} need at least {} bytes each, but only {} bytes are left in the file", count, what, bytes_each,
           remaining());
  }

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    input_error("{}: {}: {}", path_, part_, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::span<const std::byte> take(std::uint64_t count) {
    if (count > remaining())
      fail("file ends too early: {} bytes expected at byte {}, {} left", count, position_, remaining());
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }

  std::span<const std::byte> bytes_;
  std::uint64_t position_ = 0;
  std::string_view path_;
  std::string part_ = "the header";
};

}  // namespace espalier
