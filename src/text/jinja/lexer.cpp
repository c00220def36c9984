#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "text/jinja/unicode.h"
#include "text/utf8.h"

namespace espalier::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_name_part(char c) {
  return is_name_start(c) || is_digit(c);
}

// jinja2 reads every kind of line end as \n and drops one at the end of the template.
std::string normalize_lines(std::string_view source) {
  std::string text;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normalize_lines(source)) {}

  std::vector<Token> run() {
    while (offset_ < text_.size()) read_data();
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_at(position_, format, std::forward<Args>(args)...);
  }

  std::string_view rest() const { return std::string_view(text_).substr(offset_); }
  bool text_has(std::size_t offset, std::string_view wanted) const {
    return offset <= text_.size() && text_.compare(offset, wanted.size(), wanted) == 0;
  }
  bool at(std::string_view wanted) const { return rest().starts_with(wanted); }
  char peek(std::size_t ahead = 0) const { return offset_ + ahead < text_.size() ? text_[offset_ + ahead] : '\0'; }

  void add(TokenKind kind, std::string text) {
    tokens_.push_back({.kind = kind, .text = std::move(text), .position = position_});
  }

  // Moves on, keeping the position of the next character.
  void skip(std::size_t bytes) {
    for (const std::size_t end = offset_ + bytes; offset_ < end;) {
      position_.column += 1;
      if (text_[offset_] == '\n') position_ = {.line = position_.line + 1, .column = 1};
      offset_ += character_at(text_, offset_).bytes;
    }
  }

  void skip_spaces() {
    while (offset_ < text_.size()) {
      const Character character = character_at(text_, offset_);
      if (!is_space(character.code)) return;
      skip(character.bytes);
    }
  }

  // The next "{{", "{%" or "{#".
  std::size_t find_tag() const {
    for (std::size_t i = text_.find('{', offset_); i != std::string::npos; i = text_.find('{', i + 1))
      if (i + 1 < text_.size() && (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#')) return i;
    return std::string::npos;
  }

  void read_data() {
    const std::size_t tag = find_tag();
    if (tag == std::string::npos) {
      add(TokenKind::data, std::string(rest()));
      return skip(text_.size() - offset_);
    }
    const bool is_output = text_[tag + 1] == '{';
    add_data(tag, tag + 2 < text_.size() ? text_[tag + 2] : '\0', is_output);
    skip(tag - offset_);
    if (is_output) return read_output();
    if (text_[tag + 1] == '#') return read_comment();
    if (!read_raw()) read_block();
  }

  // The data before the tag at `end`, less what the tag's sign or lstrip_blocks takes away.
  void add_data(std::size_t end, char sign, bool before_output) {
    std::string data = text_.substr(offset_, end - offset_);
    if (sign == '-') {
      while (!data.empty() && is_space(character_before(data, data.size()).code))
        data.resize(data.size() - character_before(data, data.size()).bytes);
    } else if (sign != '+' && !before_output) {
      strip_blanks_of_line(data);
    }
    if (!data.empty()) add(TokenKind::data, std::move(data));
  }

  void strip_blanks_of_line(std::string& data) const {
    const std::size_t line = data.rfind('\n') == std::string::npos ? 0 : data.rfind('\n') + 1;
    if (line == 0 && !line_starting_) return;
    for (std::size_t i = line; i < data.size(); i += character_at(data, i).bytes)
      if (!is_space(character_at(data, i).code)) return;
    data.resize(line);
  }

  void skip_tag_begin() {
    skip(2);
    if (peek() == '-' || peek() == '+') skip(1);
  }

  // After a closing tag: whether the next tag stands at the beginning of a line as far as lstrip_blocks is concerned.
  void remember_line_start() { line_starting_ = offset_ > 0 && text_[offset_ - 1] == '\n'; }

  // "-%}" takes all white space after it, "%}" one line end, "+%}" nothing. False when no such end is here.
  bool skip_block_end(std::string_view mark) {
    const char sign = peek() == '-' || peek() == '+' ? peek() : '\0';
    const std::size_t sign_size = sign == '\0' ? 0 : 1;
    if (!text_has(offset_ + sign_size, mark)) return false;
    skip(sign_size + mark.size());
    if (sign == '-') skip_spaces();
    if (sign == '\0' && peek() == '\n') skip(1);
    remember_line_start();
    return true;
  }

  void read_comment() {
    const Position begin = position_;
    skip_tag_begin();
    while (offset_ < text_.size()) {
      if (skip_block_end("#}")) return;
      skip(character_at(text_, offset_).bytes);
    }
    fail_at(begin, "comment without end, expected '#}}'");
  }

  std::size_t after_spaces(std::size_t offset) const {
    while (offset < text_.size() && is_space(character_at(text_, offset).code))
      offset += character_at(text_, offset).bytes;
    return offset;
  }

  // Where the tag at `tag` goes on after its sign and its name, if that is `name`.
  std::optional<std::size_t> after_name(std::size_t tag, std::string_view name) const {
    std::size_t offset = tag + 2;
    if (text_has(offset, "-") || text_has(offset, "+")) ++offset;
    offset = after_spaces(offset);
    if (!text_has(offset, name)) return std::nullopt;
    return after_spaces(offset + name.size());
  }

  // {% raw %} ... {% endraw %}; false when the block at hand is another one.
  bool read_raw() {
    const std::optional<std::size_t> end = after_name(offset_, "raw");
    if (!end || !(text_has(*end, "%}") || text_has(*end, "-%}"))) return false;
    skip(*end - offset_);
    const bool strips = peek() == '-';
    skip(strips ? 3 : 2);
    if (strips) skip_spaces();
    remember_line_start();
    read_raw_text();
    return true;
  }

  void read_raw_text() {
    for (std::size_t tag = text_.find("{%", offset_); tag != std::string::npos; tag = text_.find("{%", tag + 1)) {
      const std::optional<std::size_t> end = after_name(tag, "endraw");
      if (!end || !(text_has(*end, "%}") || text_has(*end, "-%}") || text_has(*end, "+%}"))) continue;
      add_data(tag, text_[tag + 2], false);
      skip(*end - offset_);
      skip_block_end("%}");
      return;
    }
    fail("raw block without end, expected 'endraw'");
  }

  void read_output() {
    add(TokenKind::output_begin, "");
    const Position begin = position_;
    skip_tag_begin();
    while (true) {
      skip_spaces();
      if (offset_ == text_.size()) fail_at(begin, "'{{{{' without end, expected '}}}}'");
      if (brackets_.empty() && (at("}}") || at("-}}"))) break;
      read_expression_token();
    }
    add(TokenKind::output_end, "");
    const bool strips = at("-");
    skip(strips ? 3 : 2);
    if (strips) skip_spaces();
    remember_line_start();
  }

  void read_block() {
    add(TokenKind::block_begin, "");
    const Position begin = position_;
    skip_tag_begin();
    while (true) {
      skip_spaces();
      if (offset_ == text_.size()) fail_at(begin, "'{{%' without end, expected '%}}'");
      if (brackets_.empty() && (at("%}") || at("-%}") || at("+%}"))) break;
      read_expression_token();
    }
    add(TokenKind::block_end, "");
    skip_block_end("%}");
  }

  void read_expression_token() {
    const char c = peek();
    if (is_digit(c)) return read_number();
    if (is_name_start(c)) return read_name();
    if (c == '"' || c == '\'') return read_string();
    read_symbol();
  }

  void read_name() {
    std::size_t size = 1;
    while (is_name_part(peek(size))) ++size;
    if (static_cast<unsigned char>(peek(size)) >= 0x80) fail("names in other scripts are not supported");
    add(TokenKind::name, std::string(rest().substr(0, size)));
    skip(size);
  }

  // Digits with single underscores between them, from `ahead`; the offset behind them, or `ahead` if there are none.
  std::size_t digits_end(std::size_t ahead) const {
    std::size_t end = ahead;
    while (is_digit(peek(end)) || (end > ahead && peek(end) == '_' && is_digit(peek(end + 1)))) ++end;
    return end;
  }

  void read_number() {
    if (peek() == '0' && std::isalpha(static_cast<unsigned char>(peek(1))) && std::tolower(peek(1)) != 'e')
      fail("numbers in another base are not supported");
    const std::size_t whole = digits_end(0);
    std::size_t end = whole;
    const bool after_dot = offset_ > 0 && text_[offset_ - 1] == '.';  // a.0.1 is two subscripts
    if (!after_dot && peek(end) == '.' && is_digit(peek(end + 1))) end = digits_end(end + 1);
    if (!after_dot) end = exponent_end(end);
    std::string digits(rest().substr(0, end));
    std::erase(digits, '_');
    const bool leading_zero = end == whole && digits.size() > 1 && digits[0] == '0';
    if (leading_zero && digits.find_first_not_of('0') != std::string::npos) fail("malformed number '{}'", digits);
    add(end == whole ? TokenKind::integer : TokenKind::real, std::move(digits));
    skip(end);
  }

  std::size_t exponent_end(std::size_t end) const {
    if (peek(end) != 'e' && peek(end) != 'E') return end;
    const std::size_t sign = peek(end + 1) == '+' || peek(end + 1) == '-' ? 1 : 0;
    const std::size_t digits = end + 1 + sign;
    return is_digit(peek(digits)) ? digits_end(digits) : end;
  }

  void read_string() {
    const char quote = peek();
    std::size_t size = 1;
    while (offset_ + size < text_.size() && peek(size) != quote) size += peek(size) == '\\' ? 2 : 1;
    if (offset_ + size >= text_.size()) fail("string without end, expected {}", quote);
    add(TokenKind::string, unescape(rest().substr(1, size - 1)));
    skip(size + 1);
  }

  // Python's escapes; one it does not know stays as it is, backslash included.
  std::string unescape(std::string_view raw) const {
    std::string value;
    for (std::size_t i = 0; i < raw.size();) {
      if (raw[i] != '\\') {
        value += raw[i++];
        continue;
      }
      const char c = raw[i + 1];
      if (const std::optional<char> plain = plain_escape(c)) {
        value += *plain;
        i += 2;
      } else if (c == '\n') {
        i += 2;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_code(value, raw.substr(i + 2, digits), digits, 16);
        i += 2 + digits;
      } else if (c >= '0' && c <= '7') {
        std::size_t digits = 1;
        while (digits < 3 && i + 1 + digits < raw.size() && raw[i + 1 + digits] >= '0' && raw[i + 1 + digits] <= '7')
          ++digits;
        append_code(value, raw.substr(i + 1, digits), digits, 8);
        i += 1 + digits;
      } else if (c == 'N') {
        fail("character names in strings are not supported");
      } else {
        value += '\\';
        i += 1;
      }
    }
    return value;
  }

  static std::optional<char> plain_escape(char c) {
    constexpr std::string_view kNames = "\\'\"abfnrtv";
    constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
    const std::size_t place = kNames.find(c);
    return place == std::string_view::npos ? std::nullopt : std::optional<char>(kValues[place]);
  }

  void append_code(std::string& value, std::string_view digits, std::size_t expected, int base) const {
    const bool complete = digits.size() == expected && std::all_of(digits.begin(), digits.end(), [](char c) {
                            return std::isxdigit(static_cast<unsigned char>(c)) != 0;
                          });
    if (!complete) fail("malformed escape in a string, expected {} hexadecimal digits", expected);
    const unsigned long code = std::stoul(std::string(digits), nullptr, base);
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) fail("escape in a string is not a character");
    append_utf8(value, static_cast<char32_t>(code));
  }

  void read_symbol() {
    constexpr std::array<std::string_view, 24> kSymbols = {"//", "**", "==", "!=", "<=", ">=", "+", "-",
                                                           "*",  "/",  "%",  "~",  "<",  ">",  "=", ".",
                                                           ",",  ":",  "|",  "(",  ")",  "[",  "]", "{"};
    for (const std::string_view symbol : kSymbols)
      if (at(symbol)) return add_symbol(std::string(symbol));
    if (at("}")) return add_symbol("}");
    const Character character = character_at(text_, offset_);
    if (character.code >= 0x80) fail("names in other scripts are not supported");
    fail("unexpected character '{}'", rest().substr(0, character.bytes));
  }

  void add_symbol(std::string symbol) {
    if (symbol == "(") brackets_ += ')';
    if (symbol == "[") brackets_ += ']';
    if (symbol == "{") brackets_ += '}';
    if (symbol == ")" || symbol == "]" || symbol == "}") {
      if (brackets_.empty() || brackets_.back() != symbol[0]) fail("unexpected '{}'", symbol);
      brackets_.pop_back();
    }
    const std::size_t size = symbol.size();
    add(TokenKind::symbol, std::move(symbol));
    skip(size);
  }

  std::string text_;
  std::size_t offset_ = 0;
  Position position_;
  bool line_starting_ = true;
  std::string brackets_;  // the closing ones we wait for; a tag cannot end before them
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (const auto bad = first_invalid_utf8(source)) input_error("chat template: invalid UTF-8 at byte {}", *bad);
  return Lexer(source).run();
}

}  // namespace espalier::jinja
