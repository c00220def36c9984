#include "text/pretokenizer.h"

#include <fmt/ranges.h>

#include <utility>

#include "base/error.h"
#include "base/untrusted_text.h"

namespace espalier {

const std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

const std::vector<NamedPretokenizer>& known_pretokenizers() {
  static const std::vector<NamedPretokenizer> kKnown = {
      {.name = "gpt-2", .patterns = {kGpt2Pattern}},
      {.name = "smollm", .patterns = {R"(\p{N})", kGpt2Pattern}},
      {.name = "llama-bpe", .patterns = {kLlama3Pattern}, .ignore_merges = true, .add_bos = true},
      {.name = "llama3", .patterns = {kLlama3Pattern}, .ignore_merges = true, .add_bos = true},
      {.name = "qwen2", .patterns = {kQwen2Pattern}, .nfc = true},
      {.name = "deepseek-r1-qwen", .patterns = {kQwen2Pattern}, .nfc = true},
      {.name = "tekken", .patterns = {kTekkenPattern}, .ignore_merges = true, .add_bos = true},
  };
  return kKnown;
}

using Words = std::vector<Pretokenizer::Word>;

void cut(const Pretokenizer::Step& step, std::string_view text, Pretokenizer::Word word, Words& words) {
  std::size_t done = word.begin;
  step.regex.for_each_match(text.substr(word.begin, word.end - word.begin), [&](std::size_t begin, std::size_t end) {
    begin += word.begin;
    end += word.begin;
    if (step.keep_gaps && done < begin) words.push_back({done, begin});
    if (begin < end) words.push_back({begin, end});
    done = end;
  });
  if (step.keep_gaps && done < word.end) words.push_back({done, word.end});
}

}  // namespace

Pretokenizer::Pretokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

std::vector<Pretokenizer::Word> Pretokenizer::split(std::string_view text) const {
  Words words;
  if (!text.empty()) words.push_back({0, text.size()});
  for (const Step& step : steps_) {
    Words finer;
    for (const Word& word : words) cut(step, text, word, finer);
    words = std::move(finer);
  }
  return words;
}

const NamedPretokenizer& find_pretokenizer(std::string_view name, std::string_view where) {
  std::vector<std::string_view> names;
  for (const NamedPretokenizer& known : known_pretokenizers()) {
    if (known.name == name) return known;
    names.push_back(known.name);
  }
  input_error("{}: unknown pre-tokenizer {}, known are: {}", where, in_quotes(name), fmt::join(names, ", "));
}

}  // namespace espalier
