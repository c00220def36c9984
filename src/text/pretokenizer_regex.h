// The regular expressions of pre-tokenizers, in the dialect model files are written in (Oniguruma, Unicode on), run by
// PCRE2. The dialects agree on what the published patterns use, except for \s (PCRE2 counts U+180E as white space) and
// \v; those are rewritten. A construct on which they differ in a way we do not rewrite is refused, never guessed.
// Characters are classified by the Unicode version of PCRE2 (14.0 for 10.40 to 10.42).
// Immutable after construction, safe to share between threads.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace espalier {

class PretokenizerRegex {
 public:
  // Throws InputError naming `where`, the offset and the construct.
  PretokenizerRegex(std::string_view pattern, std::string_view where);

  // Calls found(begin, end) for each match from left to right; matches do not overlap, but may be empty. Requires
  // valid UTF-8. Throws InputError when a match takes unreasonably many steps.
  void for_each_match(std::string_view text, const std::function<void(std::size_t, std::size_t)>& found) const;

 private:
  struct Program;
  std::shared_ptr<const Program> program_;  // shared by the copies of this value; never changes
};

// The pattern in PCRE2's dialect.
std::string translate_pattern(std::string_view pattern, std::string_view where);

// A pattern that matches exactly this text.
std::string pattern_for_literal(std::string_view literal);

}  // namespace espalier
