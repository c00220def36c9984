// Text that remembers, byte by byte, whether it may spell control tokens: bytes written by the template may (trusted),
// bytes that came with the messages may not. Every operation a template can do with a string keeps the marks, so that
// the rendered prompt can be cut into TextPieces. Positions are byte offsets at character borders; the text is valid
// UTF-8. What makes text longer than its operands goes through a TextBuilder, which asks the guard first.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/guard.h"
#include "text/text_piece.h"

namespace espalier::jinja {

class Text {
 public:
  Text() = default;
  Text(std::string_view bytes, bool trusted) : bytes_(bytes), marks_(bytes.size(), mark(trusted)) {}

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool trusted(std::size_t offset) const { return marks_[offset] == mark(true); }

  Text slice(std::size_t begin, std::size_t end) const;
  void append(const Text& text);
  void append(std::string_view bytes, bool trusted);

  // Maximal runs of one kind, in order.
  std::vector<TextPiece> pieces() const;

 private:
  static char mark(bool trusted) { return trusted ? 't' : 'u'; }

  std::string bytes_;
  std::string marks_;  // one per byte
};

// Text under construction; every byte is charged to the guard before it is stored.
class TextBuilder {
 public:
  explicit TextBuilder(Guard& guard) : guard_(guard) {}

  void append(const Text& text);
  void append(std::string_view bytes, bool trusted);
  Text take() { return std::move(text_); }

 private:
  Guard& guard_;
  Text text_;
};

// The string operations of Python, by its names.
enum class Side { left, right, both };
Text strip_spaces(const Text& text, Side side);
Text strip_characters(const Text& text, std::string_view characters, Side side);  // any of these characters

inline constexpr std::size_t kNowhere = std::string_view::npos;
// Linear in the sizes, whatever the texts are.
std::size_t find(Guard& guard, std::string_view text, std::string_view wanted, std::size_t from = 0);
std::size_t find_last(Guard& guard, std::string_view text, std::string_view wanted);
std::size_t count(Guard& guard, std::string_view text, std::string_view wanted);

inline constexpr std::size_t kUnlimited = static_cast<std::size_t>(-1);
// At most `limit` cuts. The separator may not be empty.
std::vector<Text> split(Guard& guard, const Text& text, std::string_view separator, std::size_t limit);
std::vector<Text> split_last(Guard& guard, const Text& text, std::string_view separator, std::size_t limit);
std::vector<Text> split_spaces(Guard& guard, const Text& text, std::size_t limit);
std::vector<Text> split_lines(Guard& guard, const Text& text);
Text replace(Guard& guard, const Text& text, std::string_view old_text, const Text& new_text, std::size_t limit);

Text repeat(Guard& guard, const Text& text, std::size_t times);

Text upper(Guard& guard, const Text& text);
Text lower(Guard& guard, const Text& text);
Text title(Guard& guard, const Text& text);           // str.title()
Text title_of_words(Guard& guard, const Text& text);  // jinja's filter "title", which cuts words differently
Text capitalize(Guard& guard, const Text& text);

std::vector<Text> characters(Guard& guard, const Text& text);
Text indent(Guard& guard, const Text& text, const Text& indentation, bool first, bool blank);

}  // namespace espalier::jinja
