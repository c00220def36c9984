#include "text/jinja/text.h"

#include <string.h>

#include <algorithm>
#include <array>
#include <utility>

#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

// Searching a byte is this much cheaper than making one.
constexpr std::size_t kSearchedBytesPerUnit = 4;

// Offsets [begin, end) that remain when characters for which `drop` holds are taken off the chosen sides.
template <typename Drop>
Text strip_where(const Text& text, Side side, Drop drop) {
  const std::string& bytes = text.bytes();
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  while (side != Side::right && begin < end) {
    const Character character = character_at(bytes, begin);
    if (!drop(character.code)) break;
    begin += character.bytes;
  }
  while (side != Side::left && begin < end) {
    const Character character = character_before(bytes, end);
    if (!drop(character.code)) break;
    end -= character.bytes;
  }
  return text.slice(begin, end);
}

// Applies `convert(offset)`, which gives the new form of the character at an offset, to every character.
template <typename Convert>
Text map_characters(Guard& guard, const Text& text, Convert convert) {
  TextBuilder builder(guard);
  for (std::size_t offset = 0; offset < text.size();) {
    builder.append(convert(offset), text.trusted(offset));
    offset += character_at(text.bytes(), offset).bytes;
  }
  return builder.take();
}

bool ends_line(char32_t code) {
  constexpr std::array<char32_t, 10> kLineEnds = {'\n', '\r', 0x0b, 0x0c, 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029};
  return std::find(kLineEnds.begin(), kLineEnds.end(), code) != kLineEnds.end();
}

bool separates_title_words(char32_t code) {
  return is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
}

}  // namespace

Text Text::slice(std::size_t begin, std::size_t end) const {
  Text part;
  part.bytes_ = bytes_.substr(begin, end - begin);
  part.marks_ = marks_.substr(begin, end - begin);
  return part;
}

void Text::append(const Text& text) {
  bytes_ += text.bytes_;
  marks_ += text.marks_;
}

void Text::append(std::string_view bytes, bool trusted) {
  bytes_ += bytes;
  marks_.append(bytes.size(), mark(trusted));
}

std::vector<TextPiece> Text::pieces() const {
  std::vector<TextPiece> pieces;
  for (std::size_t begin = 0; begin < size();) {
    const std::size_t end = std::min(marks_.find_first_not_of(marks_[begin], begin), size());
    pieces.push_back({.text = bytes_.substr(begin, end - begin), .allow_special = trusted(begin)});
    begin = end;
  }
  return pieces;
}

void TextBuilder::append(const Text& text) {
  guard_.spend_text(text.size());
  text_.append(text);
}

void TextBuilder::append(std::string_view bytes, bool trusted) {
  guard_.spend_text(bytes.size());
  text_.append(bytes, trusted);
}

Text strip_spaces(const Text& text, Side side) {
  return strip_where(text, side, is_space);
}

Text strip_characters(const Text& text, std::string_view characters, Side side) {
  std::u32string set;
  for (std::size_t offset = 0; offset < characters.size();) {
    const Character character = character_at(characters, offset);
    set += character.code;
    offset += character.bytes;
  }
  return strip_where(text, side, [&](char32_t code) { return set.find(code) != std::u32string::npos; });
}

// memmem, unlike std::string::find, is linear in the worst case: a hostile template must not buy n * m steps.
std::size_t find(Guard& guard, std::string_view text, std::string_view wanted, std::size_t from) {
  const std::string_view rest = text.substr(from);
  if (wanted.empty()) return from;
  const void* hit = memmem(rest.data(), rest.size(), wanted.data(), wanted.size());
  const std::size_t found =
      hit == nullptr ? kNowhere : static_cast<std::size_t>(static_cast<const char*>(hit) - text.data());
  guard.spend_text(((hit == nullptr ? text.size() : found) - from + wanted.size()) / kSearchedBytesPerUnit);
  return found;
}

std::size_t find_last(Guard& guard, std::string_view text, std::string_view wanted) {
  if (wanted.empty()) return text.size();
  std::size_t last = kNowhere;
  for (std::size_t hit = find(guard, text, wanted); hit != kNowhere; hit = find(guard, text, wanted, hit + 1))
    last = hit;
  return last;
}

std::size_t count(Guard& guard, std::string_view text, std::string_view wanted) {
  if (wanted.empty()) return count_characters(text) + 1;
  std::size_t hits = 0;
  for (std::size_t hit = find(guard, text, wanted); hit != kNowhere;
       hit = find(guard, text, wanted, hit + wanted.size()))
    ++hits;
  return hits;
}

std::vector<Text> split(Guard& guard, const Text& text, std::string_view separator, std::size_t limit) {
  guard.spend_text(text.size());
  std::vector<Text> parts;
  std::size_t begin = 0;
  while (parts.size() < limit) {
    guard.spend_steps(1);
    const std::size_t hit = find(guard, text.bytes(), separator, begin);
    if (hit == kNowhere) break;
    parts.push_back(text.slice(begin, hit));
    begin = hit + separator.size();
  }
  parts.push_back(text.slice(begin, text.size()));
  return parts;
}

std::vector<Text> split_last(Guard& guard, const Text& text, std::string_view separator, std::size_t limit) {
  guard.spend_text(text.size());
  std::vector<Text> parts;
  std::size_t end = text.size();
  while (parts.size() < limit) {
    guard.spend_steps(1);
    guard.spend_text(end / kSearchedBytesPerUnit * separator.size());
    const std::size_t hit = std::string_view(text.bytes()).substr(0, end).rfind(separator);
    if (hit == kNowhere) break;
    parts.push_back(text.slice(hit + separator.size(), end));
    end = hit;
  }
  parts.push_back(text.slice(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Text> split_spaces(Guard& guard, const Text& text, std::size_t limit) {
  guard.spend_text(text.size());
  const std::string& bytes = text.bytes();
  std::vector<Text> parts;
  Text rest = strip_spaces(text, Side::left);
  std::size_t offset = text.size() - rest.size();
  while (offset < bytes.size()) {
    guard.spend_steps(1);
    if (parts.size() == limit) {
      parts.push_back(text.slice(offset, bytes.size()));
      break;
    }
    const std::size_t begin = offset;
    while (offset < bytes.size() && !is_space(character_at(bytes, offset).code))
      offset += character_at(bytes, offset).bytes;
    parts.push_back(text.slice(begin, offset));
    while (offset < bytes.size() && is_space(character_at(bytes, offset).code))
      offset += character_at(bytes, offset).bytes;
  }
  return parts;
}

std::vector<Text> split_lines(Guard& guard, const Text& text) {
  guard.spend_text(text.size());
  const std::string& bytes = text.bytes();
  std::vector<Text> lines;
  std::size_t begin = 0;
  for (std::size_t offset = 0; offset < bytes.size();) {
    const Character character = character_at(bytes, offset);
    std::size_t next = offset + character.bytes;
    if (ends_line(character.code)) {
      guard.spend_steps(1);
      lines.push_back(text.slice(begin, offset));
      if (character.code == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      begin = next;
    }
    offset = next;
  }
  if (begin < bytes.size()) lines.push_back(text.slice(begin, bytes.size()));
  return lines;
}

namespace {

// Python puts the new text before every character and at the end.
Text insert_everywhere(Guard& guard, const Text& text, const Text& inserted, std::size_t limit) {
  TextBuilder builder(guard);
  std::size_t offset = 0;
  for (std::size_t done = 0; done < limit; ++done) {
    guard.spend_steps(1);
    builder.append(inserted);
    if (offset == text.size()) break;
    const std::size_t next = offset + character_at(text.bytes(), offset).bytes;
    builder.append(text.slice(offset, next));
    offset = next;
  }
  builder.append(text.slice(offset, text.size()));
  return builder.take();
}

}  // namespace

Text replace(Guard& guard, const Text& text, std::string_view old_text, const Text& new_text, std::size_t limit) {
  if (old_text.empty()) return insert_everywhere(guard, text, new_text, limit);
  TextBuilder builder(guard);
  std::size_t begin = 0;
  for (std::size_t done = 0; done < limit; ++done) {
    guard.spend_steps(1);
    const std::size_t hit = find(guard, text.bytes(), old_text, begin);
    if (hit == kNowhere) break;
    builder.append(text.slice(begin, hit));
    builder.append(new_text);
    begin = hit + old_text.size();
  }
  builder.append(text.slice(begin, text.size()));
  return builder.take();
}

Text repeat(Guard& guard, const Text& text, std::size_t times) {
  if (text.empty() || times == 0) return {};
  guard.spend_text(times > kNowhere / text.size() ? kNowhere : times * text.size());
  Text result = text;
  std::size_t done = 1;
  for (; done <= times / 2; done *= 2) result.append(Text(result));
  result.append(result.slice(0, (times - done) * text.size()));
  return result;
}

Text upper(Guard& guard, const Text& text) {
  return map_characters(guard, text,
                        [&](std::size_t offset) { return upper(character_at(text.bytes(), offset).code); });
}

Text lower(Guard& guard, const Text& text) {
  return map_characters(guard, text, [&](std::size_t offset) { return lower(text.bytes(), offset); });
}

Text title(Guard& guard, const Text& text) {
  bool in_word = false;
  return map_characters(guard, text, [&](std::size_t offset) {
    const char32_t code = character_at(text.bytes(), offset).code;
    std::string mapped = in_word ? lower(text.bytes(), offset) : title(code);
    in_word = is_cased(code);
    return mapped;
  });
}

Text title_of_words(Guard& guard, const Text& text) {
  const std::string& bytes = text.bytes();
  TextBuilder builder(guard);
  for (std::size_t begin = 0; begin < bytes.size();) {
    const bool separator = separates_title_words(character_at(bytes, begin).code);
    const std::size_t second = begin + character_at(bytes, begin).bytes;
    std::size_t end = second;
    while (end < bytes.size() && separates_title_words(character_at(bytes, end).code) == separator)
      end += character_at(bytes, end).bytes;
    builder.append(upper(guard, text.slice(begin, second)));
    builder.append(lower(guard, text.slice(second, end)));
    begin = end;
  }
  return builder.take();
}

Text capitalize(Guard& guard, const Text& text) {
  return map_characters(guard, text, [&](std::size_t offset) {
    return offset == 0 ? title(character_at(text.bytes(), 0).code) : lower(text.bytes(), offset);
  });
}

std::vector<Text> characters(Guard& guard, const Text& text) {
  guard.spend_text(text.size());
  guard.spend_steps(text.size());
  std::vector<Text> result;
  for (std::size_t offset = 0; offset < text.size();) {
    const std::size_t next = offset + character_at(text.bytes(), offset).bytes;
    result.push_back(text.slice(offset, next));
    offset = next;
  }
  return result;
}

Text indent(Guard& guard, const Text& text, const Text& indentation, bool first, bool blank) {
  Text closed = text;
  closed.append("\n", true);  // so that a final line end gives an empty last line, as in jinja2
  const std::vector<Text> lines = split_lines(guard, closed);
  TextBuilder builder(guard);
  if (first) builder.append(indentation);
  std::size_t offset = 0;  // in `closed`, of the end of the line at hand
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0 && (blank || !lines[i].empty())) builder.append(indentation);
    builder.append(lines[i]);
    offset += lines[i].size();
    // The line end becomes "\n" but stays the work of whoever wrote it.
    if (i + 1 < lines.size()) builder.append("\n", closed.trusted(offset));
    offset += closed.bytes().compare(offset, 2, "\r\n") == 0 ? 2 : character_at(closed.bytes(), offset).bytes;
  }
  return builder.take();
}

}  // namespace espalier::jinja
