#include "engine/answer_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/answer_json.h"
#include "engine/near_tie.h"
#include "text/token_text.h"

namespace espalier {

bool AnswerComparison::equal() const {
  return plain_.generated.tokens == drafted_.generated.tokens &&
         plain_.generated.finish_reason == drafted_.generated.finish_reason;
}

// The first position at which the answers differ; one past the end of the shorter where it is a part of the other.
std::optional<std::size_t> AnswerComparison::first_difference() const {
  const std::vector<std::int32_t>&a = plain_.generated.tokens, &b = drafted_.generated.tokens;
  if (a == b) return std::nullopt;
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// By how much, as log-probabilities, the plain answer liked its own token better than the other's where they part.
// Nothing: they do not part at a token, or it did not think of the other one.
std::optional<double> AnswerComparison::margin() const {
  const auto at = first_difference();
  if (!at || *at >= plain_.logprobs.size() || *at >= drafted_.generated.tokens.size()) return std::nullopt;
  const Logprobs& liked = plain_.logprobs[*at];
  const auto other = std::ranges::find(liked.top, drafted_.generated.tokens[*at], &TokenLogprob::token);
  return other == liked.top.end() ? std::nullopt : std::optional(liked.chosen.logprob - other->logprob);
}

bool AnswerComparison::near_tie() const {
  return !device_.row_independent && is_near_tie(margin());
}

double AnswerComparison::ratio() const {
  const double base = tokens_per_second(plain_.generated);
  return base > 0 ? tokens_per_second(drafted_.generated) / base : 0;
}

std::string AnswerComparison::token_at(const GenerateResult& answer, std::size_t at) const {
  if (at >= answer.tokens.size()) return fmt::format("the end ({})", name(answer.finish_reason));
  return fmt::format("{} {}", answer.tokens[at], quoted_token(tokenizer_.bytes(answer.tokens[at], false)));
}

std::string AnswerComparison::difference() const {
  const std::size_t length = plain_.generated.tokens.size();
  if (equal()) return fmt::format("tokens equal: {}", length);
  const std::size_t place = first_difference().value_or(length);
  const std::string both = fmt::format("{}: {} without, {} with", place, token_at(plain_.generated, place),
                                       token_at(drafted_.generated, place));
  if (device_.row_independent) return "tokens DIFFER at position " + both;
  const std::optional<double> apart = margin();
  const std::string how = apart ? fmt::format("{:.4f}", *apart) : "unknown";
  return near_tie()
             ? fmt::format("tokens equal outside near-ties: one difference, margin {}, at position {}", how, both)
             : fmt::format("tokens DIFFER, margin {}, at position {}", how, both);
}

std::string AnswerComparison::text() const {
  std::string line = difference();
  if (device_.timed)
    line += fmt::format("; {:.1f} tokens/s without, {:.1f} with speculation: {:.2f}x",
                        tokens_per_second(plain_.generated), tokens_per_second(drafted_.generated), ratio());
  return line + fmt::format("; accept_L {:.2f}", drafted_.generated.accept_length());
}

nlohmann::ordered_json AnswerComparison::json(nlohmann::ordered_json plain, nlohmann::ordered_json drafted) const {
  nlohmann::ordered_json object = {{"equal", equal()}, {"first_difference", nullptr}};
  if (const auto at = first_difference())
    object["first_difference"] = {
        {"position", *at}, {"without", token_at(plain_.generated, *at)}, {"with", token_at(drafted_.generated, *at)}};
  if (!device_.row_independent) {
    const std::optional<double> apart = margin();
    object["equal_outside_near_ties"] = holds();
    object["margin"] = apart ? nlohmann::ordered_json(*apart) : nlohmann::ordered_json(nullptr);
  }
  object["ratio"] = device_.timed ? nlohmann::ordered_json(ratio()) : nlohmann::ordered_json(nullptr);
  object["accept_L"] = drafted_.generated.accept_length();
  object["without"] = std::move(plain);
  object["with"] = std::move(drafted);
  return object;
}

}  // namespace espalier
