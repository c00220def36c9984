#include "text/pretokenizer_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <limits>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "text/utf8.h"

namespace espalier {
namespace {

constexpr std::uint32_t kMatchSteps = 10'000'000;  // for a short text; a long one may take more, see match_limit()
constexpr std::uint32_t kHeapKib = 256 * 1024;

// Walks a pattern once and copies it, construct by construct.
class PatternTranslator {
 public:
  PatternTranslator(std::string_view pattern, std::string_view where) : pattern_(pattern), where_(where) {}

  std::string translate() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_character();
      } else if (c == '[') {
        open_class();
      } else if (c == '(') {
        open_group();
      } else {
        if (c == '}' && next_is('+')) refuse(2);  // greedy there, possessive here
        copy(1);
      }
    }
    return std::move(translated_);
  }

 private:
  bool next_is(char c) const { return at_ + 1 < pattern_.size() && pattern_[at_ + 1] == c; }

  void copy(std::size_t size) {
    translated_ += pattern_.substr(at_, size);
    at_ += size;
  }

  void replace(std::size_t size, std::string_view replacement) {
    translated_ += replacement;
    at_ += size;
  }

  [[noreturn]] void refuse(std::size_t size) const {
    input_error("{}: pattern {}: {} at byte {} is not supported", where_, in_quotes(pattern_),
                in_quotes(pattern_.substr(at_, size)), at_);
  }

  void escape() {
    if (at_ + 1 == pattern_.size()) refuse(1);
    const char c = pattern_[at_ + 1];
    if (c == 's') return replace(2, "\\p{White_Space}");
    if (c == 'S') return replace(2, "\\P{White_Space}");
    if (c == 'v') return replace(2, "\\x{0b}");
    if (c == 'u') return four_hex_digits();
    if (c == 'p' || c == 'P') return property();
    const bool same_in_both = std::string_view("dDrntfx").find(c) != std::string_view::npos;
    if (!same_in_both && (std::isalnum(static_cast<unsigned char>(c)) != 0 || static_cast<unsigned char>(c) >= 0x80)) {
      refuse(2);
    }
    copy(2);
  }

  // \p{Name}, to its closing brace.
  void property() {
    const std::size_t end = pattern_.find('}', at_);
    if (at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{' || end == std::string_view::npos) refuse(2);
    copy(end + 1 - at_);
  }

  void four_hex_digits() {
    const std::string_view digits = pattern_.substr(at_ + 2, 4);
    const bool hex = digits.size() == 4 && std::all_of(digits.begin(), digits.end(), [](char d) {
                       return std::isxdigit(static_cast<unsigned char>(d)) != 0;
                     });
    if (!hex) refuse(2);
    replace(6, "\\x{" + std::string(digits) + "}");
  }

  void open_class() {
    in_class_ = true;
    copy(next_is('^') ? 2 : 1);
    if (at_ < pattern_.size() && pattern_[at_] == ']') refuse(1);
  }

  void class_character() {
    const char c = pattern_[at_];
    if (c == '[' || (c == '&' && next_is('&'))) refuse(c == '[' ? 1 : 2);  // nested classes and intersections
    if (c == ']') in_class_ = false;
    copy(1);
  }

  void open_group() {
    if (next_is('*')) refuse(2);
    if (!next_is('?')) return copy(1);
    for (const std::string_view known : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (pattern_.substr(at_).starts_with(known)) return copy(known.size());
    }
    refuse(3);
  }

  std::string_view pattern_;
  std::string_view where_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string translated_;
};

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// Backtracking over a run of white space is linear in the run, so the limit grows with the text: it stops explosions,
// not long texts.
std::uint32_t match_limit(std::size_t text_bytes) {
  const std::uint64_t limit = kMatchSteps + std::uint64_t{16} * text_bytes;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(limit, std::numeric_limits<std::uint32_t>::max()));
}

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

}  // namespace

struct PretokenizerRegex::Program {
  explicit Program(pcre2_code* compiled) : code(compiled) {}
  ~Program() { pcre2_code_free(code); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pcre2_code* code;
};

PretokenizerRegex::PretokenizerRegex(std::string_view pattern, std::string_view where) {
  const std::string translated = translate_pattern(pattern, where);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // In the dialect of the files ^ and $ always mean lines.
  constexpr std::uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), kOptions, &error,
                                   &offset, nullptr);
  if (code == nullptr) input_error("{}: pattern {}: {}", where, in_quotes(pattern), error_text(error));
  program_ = std::make_shared<const Program>(code);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it the interpreter gives the same matches, slower
}

void PretokenizerRegex::for_each_match(std::string_view text,
                                       const std::function<void(std::size_t, std::size_t)>& found) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> data(pcre2_match_data_create(1, nullptr));
  const std::unique_ptr<pcre2_match_context, FreeMatch> context(pcre2_match_context_create(nullptr));
  if (!data || !context) device_error("pre-tokenizer: PCRE2 has no memory for a match");
  pcre2_set_match_limit(context.get(), match_limit(text.size()));
  pcre2_set_heap_limit(context.get(), kHeapKib);

  const auto match = [&](std::size_t offset, std::uint32_t options) {
    return pcre2_match(program_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), offset,
                       PCRE2_NO_UTF_CHECK | options, data.get(), context.get());
  };
  for (std::size_t offset = 0; offset < text.size();) {
    int result = match(offset, 0);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(offset, PCRE2_NO_JIT);
    if (result == PCRE2_ERROR_NOMATCH) return;
    if (result < 0) input_error("text: the pre-tokenizer gives up at byte {}: {}", offset, error_text(result));
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    found(bounds[0], bounds[1]);
    offset = bounds[1];
    if (bounds[0] == bounds[1] && offset < text.size()) offset += utf8_length(text[offset]);
  }
}

std::string translate_pattern(std::string_view pattern, std::string_view where) {
  if (!is_utf8(pattern)) input_error("{}: pattern {}: not valid UTF-8", where, in_quotes(pattern));
  return PatternTranslator(pattern, where).translate();
}

std::string pattern_for_literal(std::string_view literal) {
  std::string pattern;
  for (const char c : literal) {
    if (std::ispunct(static_cast<unsigned char>(c)) != 0) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace espalier
