#include "serve/page/chat_page.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "base/sha256.h"
#include "serve/page/chat_page_bytes.h"

namespace espalier {
namespace {

// Its 32 bytes and a zero are groups of three, six hexadecimal digits, which are four letters each. The last letter is
// of the zero alone, and "=" is written for it.
std::string base64_of_sha256(std::string_view hex) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  constexpr std::size_t kDigits = 64;
  check(hex.size() == kDigits, "a SHA-256 of {} hexadecimal digits", hex.size());
  const std::string whole = std::string(hex) + "00";
  std::string text;
  for (std::size_t i = 0; i < whole.size(); i += 6) {
    std::uint32_t group = 0;
    std::from_chars(whole.data() + i, whole.data() + i + 6, group, 16);
    for (const int shift : {18, 12, 6, 0}) text += kLetters[(group >> shift) & 63];
  }
  text.back() = '=';
  return text;
}

// As a policy names an element whose content this is.
std::string policy_hash(std::string_view content) {
  return fmt::format("'sha256-{}'", base64_of_sha256(sha256(std::as_bytes(std::span(content)))));
}

}  // namespace

std::string_view chat_page() {
  return kChatPage;
}

std::string chat_page_policy() {
  return fmt::format(
      "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; base-uri 'none'; "
      "form-action 'none'; frame-ancestors 'none'",
      policy_hash(only_element(kChatPage, "script")), policy_hash(only_element(kChatPage, "style")));
}

std::string_view only_element(std::string_view page, std::string_view name) {
  const std::string begin = fmt::format("<{}>", name), end = fmt::format("</{}>", name);
  const std::size_t first = page.find(begin), last = page.find(end);
  check(first != page.npos && last != page.npos && first < last, "a page without <{}>", name);
  check(page.find(begin, first + 1) == page.npos && page.find(end, last + 1) == page.npos, "a page with several <{}>",
        name);
  return page.substr(first + begin.size(), last - first - begin.size());
}

}  // namespace espalier
