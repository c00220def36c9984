#include "serve/http/api_keys.h"

#include <algorithm>
#include <span>
#include <string>

#include "base/error.h"
#include "base/sha256.h"
#include "base/text_stream.h"

namespace espalier {
namespace {

constexpr std::size_t kMaxKey = 512;
constexpr std::size_t kMaxKeyFile = std::size_t{1} << 20;
constexpr std::string_view kBearer = "Bearer ";

std::array<char, 64> key_digest(std::string_view key) {
  const std::string text = sha256(std::as_bytes(std::span(key)));
  std::array<char, 64> digest{};
  check(text.size() == digest.size(), "a SHA-256 of {} digits", text.size());
  std::ranges::copy(text, digest.begin());
  return digest;
}

bool is_visible(char c) {
  return c > ' ' && c < 0x7f;
}

// Looks at every byte, whatever the first ones say.
bool same_digest(const std::array<char, 64>& a, const std::array<char, 64>& b) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

std::string_view key_of_line(std::string_view line) {
  const std::size_t begin = line.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos || line[begin] == '#') return {};
  return line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
}

}  // namespace

void ApiKeys::add(std::string_view key, std::string_view where) {
  if (key.empty() || key.size() > kMaxKey)
    input_error("{}: an API key has 1 to {} characters, got {}", where, kMaxKey, key.size());
  if (!std::ranges::all_of(key, is_visible))
    input_error("{}: an API key consists of visible ASCII characters without spaces, and this one does not", where);
  if (!find(key)) digests_.push_back(key_digest(key));
}

void ApiKeys::add_file(const std::filesystem::path& path) {
  const std::string text = read_text_stream(path, kMaxKeyFile);
  std::string_view rest = text;
  bool any = false;
  for (int number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view key = key_of_line(rest.substr(0, end));
    if (!key.empty()) add(key, fmt::format("{}:{}", path.string(), number));
    any = any || !key.empty();
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (!any) input_error("{}: expected API keys, one per line, got none", path.string());
}

std::optional<int> ApiKeys::find(std::string_view key) const {
  const Digest digest = key_digest(key);
  int found = -1;
  for (std::size_t i = 0; i < digests_.size(); ++i)
    found = same_digest(digest, digests_[i]) ? static_cast<int>(i) : found;
  return found < 0 ? std::nullopt : std::optional(found);
}

std::optional<int> ApiKeys::find(const HttpHead& head) const {
  std::string_view bearer = head.header("Authorization").value_or("");
  const bool is_bearer = equal_ignoring_case(bearer.substr(0, kBearer.size()), kBearer);
  bearer.remove_prefix(is_bearer ? kBearer.size() : bearer.size());
  bearer.remove_prefix(std::min(bearer.find_first_not_of(' '), bearer.size()));
  const std::optional<int> by_bearer = find(bearer);
  const std::optional<int> by_header = find(head.header("X-Api-Key").value_or(""));
  return by_bearer ? by_bearer : by_header;
}

}  // namespace espalier
