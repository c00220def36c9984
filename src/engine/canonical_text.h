// Facts as one text that two programs write alike, to be hashed: a line for each, "name value", in the order they are
// given. Numbers are decimal, floats the eight hexadecimal digits of their bits, texts the hexadecimal digits of their
// bytes, words as they are; a list has its values on one line. What does not exist is "-". docs/receipts.md has the
// form for those who write it in another language. A value.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

class CanonicalText {
 public:
  // title: the first line, which says what it is and in which version of the form.
  explicit CanonicalText(std::string_view title);

  // A word of our own, or a hash: one that could be anything has to go through text(). Empty: there is none.
  void word(std::string_view name, std::string_view value);
  void number(std::string_view name, std::int64_t value);
  void natural(std::string_view name, std::uint64_t value);
  void real(std::string_view name, float value);
  void flag(std::string_view name, bool value);
  void text(std::string_view name, std::string_view bytes);
  void texts(std::string_view name, const std::vector<std::string>& all);
  void numbers(std::string_view name, std::span<const std::int32_t> values);
  // Values that are already in this form, separated by spaces.
  void line(std::string_view name, std::string_view values);

  const std::string& lines() const { return lines_; }
  std::string sha256() const;

 private:
  std::string lines_;
};

std::string canonical_real(float value);              // "3f4ccccd"
std::string canonical_bytes(std::string_view bytes);  // "0a2d"; "-" for no bytes

}  // namespace espalier
