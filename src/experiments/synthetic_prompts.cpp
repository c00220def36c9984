#include "experiments/synthetic_prompts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace espalier {
namespace {

constexpr std::string_view kQuestion = "Summarize the following notes in a few sentences.\n\n";

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// Where words end in a text, ascending.
std::vector<std::size_t> word_ends(std::string_view text) {
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (!is_space(text[i]) && (i + 1 == text.size() || is_space(text[i + 1]))) ends.push_back(i + 1);
  return ends;
}

std::string joined(std::span<const std::string> texts, std::size_t first, std::int64_t tokens,
                   const TokenCounter& count) {
  std::string all;
  for (std::size_t i = first; all.empty() || count(all) <= tokens; ++i) {
    const std::size_t before = all.size();
    all += (all.empty() ? "" : "\n\n") + texts[i % texts.size()];
    check(all.size() > before, "synthetic prompts: texts without words");
  }
  return all;
}

std::string line_of(const std::string& id, const std::vector<std::string>& turns) {
  return nlohmann::ordered_json({{"id", id}, {"turns", turns}}).dump() + "\n";
}

// Enough texts lie between the firsts of two prompts that they do not begin alike.
std::size_t first_of(std::int64_t prompt, std::size_t texts, std::int64_t prompts) {
  return static_cast<std::size_t>(prompt) * std::max<std::size_t>(1, texts / static_cast<std::size_t>(prompts));
}

std::vector<std::string> turns_of(Growth growth, std::int64_t length, std::size_t first,
                                  std::span<const std::string> texts, const TokenCounter& count) {
  if (growth == Growth::prompt) {
    const std::int64_t left = std::max<std::int64_t>(1, length - count(kQuestion));
    return {std::string(kQuestion) + text_of_length(texts, first, left, count)};
  }
  std::vector<std::string> turns;
  const std::int64_t all = growth == Growth::history ? length + 1 : 1;
  for (std::int64_t i = 0; i < all; ++i) turns.push_back(texts[(first + static_cast<std::size_t>(i)) % texts.size()]);
  return turns;
}

}  // namespace

std::string text_of_length(std::span<const std::string> texts, std::size_t first, std::int64_t tokens,
                           const TokenCounter& count) {
  const std::string all = joined(texts, first, tokens, count);
  const std::vector<std::size_t> ends = word_ends(all);
  // More words have more tokens, near enough: the largest number of words that fits.
  std::size_t fits = 0, too_many = ends.size() + 1;
  while (too_many - fits > 1) {
    const std::size_t middle = (fits + too_many) / 2;
    (count(std::string_view(all).substr(0, ends[middle - 1])) <= tokens ? fits : too_many) = middle;
  }
  return fits == 0 ? "" : all.substr(0, ends[fits - 1]);
}

SyntheticPrompts synthetic_prompts(Growth growth, std::int64_t length, std::int64_t prompts,
                                   std::span<const std::string> texts, const TokenCounter& count) {
  check(!texts.empty() && prompts >= 1, "synthetic prompts of {} texts", texts.size());
  SyntheticPrompts result{.turns_each = growth == Growth::history ? length + 1 : 1};
  if (growth == Growth::prefix && length > 0) result.system = text_of_length(texts, 0, length, count);
  for (std::int64_t i = 0; i < prompts; ++i) {
    const std::size_t first = first_of(i, texts.size(), prompts);
    result.jsonl +=
        line_of(fmt::format("{}-{}-{}", name(growth), length, i + 1), turns_of(growth, length, first, texts, count));
  }
  return result;
}

}  // namespace espalier
