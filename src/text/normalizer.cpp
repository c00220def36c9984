#include "text/normalizer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace espalier {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// The marks that every byte of [begin, end) has.
char shared_marks(const MarkedText& text, std::size_t begin, std::size_t end) {
  char marks = static_cast<char>(MarkedText::kAllowSpecial | MarkedText::kLiteral);
  for (std::size_t i = begin; i < end; ++i) marks = static_cast<char>(marks & text.marks[i]);
  return marks;
}

// The end of the stretch from `begin` that composes independently of what follows.
std::size_t composition_end(const MarkedText& text, std::size_t begin) {
  const std::string_view view = text.text;
  std::size_t end = begin + utf8_length(view[begin]);
  while (end < view.size() && !starts_composition(utf8_step(view.substr(end)).code_point)) {
    end += utf8_length(view[end]);
  }
  return end;
}

MarkedText compose(MarkedText text) {
  if (is_ascii(text.text)) return text;
  if (nfc(text.text) == text.text) return text;
  MarkedText composed;
  for (std::size_t begin = 0; begin < text.text.size();) {
    const std::size_t end = composition_end(text, begin);
    const std::string_view stretch = std::string_view(text.text).substr(begin, end - begin);
    if (stretch.size() == 1) {
      composed.append(text, begin, end);
    } else {
      composed.append(nfc(stretch), shared_marks(text, begin, end));
    }
    begin = end;
  }
  return composed;
}

MarkedText prepend(MarkedText text, const std::string& prefix) {
  if (text.text.empty()) return text;
  const char mark = static_cast<char>(text.marks.front() & MarkedText::kAllowSpecial);
  text.text.insert(0, prefix);
  text.marks.insert(0, prefix.size(), mark);
  return text;
}

}  // namespace

MarkedText replace_all(const MarkedText& text, const std::string& from, const std::string& to) {
  MarkedText replaced;
  std::size_t done = 0;
  for (std::size_t at = text.text.find(from); at != std::string::npos; at = text.text.find(from, at)) {
    const std::size_t end = at + from.size();
    if ((text.marks[at] & MarkedText::kLiteral) != 0) {
      at += utf8_length(text.text[at]);
      continue;
    }
    replaced.append(text, done, at);
    replaced.append(to, shared_marks(text, at, end));
    at = done = end;
  }
  replaced.append(text, done, text.text.size());
  return replaced;
}

Normalizer::Normalizer(std::vector<Step> steps) : steps_(std::move(steps)) {
  for (const Step& step : steps_) {
    const auto* replace = std::get_if<Replace>(&step);
    check(replace == nullptr || !replace->from.empty(), "Normalizer: nothing to replace");
  }
}

MarkedText Normalizer::apply(MarkedText text) const {
  for (const Step& step : steps_) {
    if (std::holds_alternative<Nfc>(step)) {
      text = compose(std::move(text));
    } else if (const auto* prefix = std::get_if<Prepend>(&step)) {
      text = prepend(std::move(text), prefix->text);
    } else {
      const auto& replace = std::get<Replace>(step);
      text = replace_all(text, replace.from, replace.to);
    }
  }
  return text;
}

}  // namespace espalier
