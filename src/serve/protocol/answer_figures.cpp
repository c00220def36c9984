#include "serve/protocol/answer_figures.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "serve/protocol/json_writer.h"

namespace espalier {
namespace {

// 0 where there is nothing to divide by, or the clock has said something odd.
double share(double part, double whole) {
  const double result = whole > 0 ? part / whole : 0;
  return std::isfinite(result) ? result : 0;
}

double milliseconds(double seconds) {
  return std::isfinite(seconds) ? std::max(0.0, seconds) * 1e3 : 0;
}

// Tokens behind the first, which the prompt's own step gives: those that decoding took time for.
double decoded_tokens(const ChoiceFigures& figures) {
  return static_cast<double>(std::max<std::int64_t>(0, figures.completion_tokens - figures.choices));
}

void add_histogram(const std::vector<std::int64_t>& counts, std::vector<std::int64_t>& sums) {
  sums.resize(std::max(sums.size(), counts.size()));
  for (std::size_t i = 0; i < counts.size(); ++i) sums[i] += counts[i];
}

}  // namespace

ChoiceFigures figures_of(const GenerateResult& result, std::int64_t prompt_tokens) {
  ChoiceFigures figures{.prompt_tokens = prompt_tokens,
                        .cached_tokens = result.reused_tokens,
                        .completion_tokens = std::ssize(result.tokens),
                        .prompt_seconds = result.prefill_seconds,
                        .decode_seconds = result.decode_seconds,
                        .rounds = result.rounds() - result.plain_rounds,
                        .drafted = result.drafted_tokens(),
                        .accepted = result.accepted_tokens(),
                        .predicted_accepted = result.prediction.accepted,
                        .predicted_rejected = result.prediction.rejected};
  for (const std::int64_t length : result.accept_lengths) {
    const auto slot = static_cast<std::size_t>(length);
    figures.accept_histogram.resize(std::max(figures.accept_histogram.size(), slot + 1));
    ++figures.accept_histogram[slot];
  }
  // Rounds with a root alone had nothing to accept.
  if (!figures.accept_histogram.empty()) figures.accept_histogram[0] -= result.plain_rounds;
  return figures;
}

ChoiceFigures total_figures(std::span<const ChoiceFigures> choices, int n) {
  check(n > 0, "figures of prompts with {} choices each", n);
  ChoiceFigures total{.choices = 0};
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const ChoiceFigures& one = choices[i];
    if (i % static_cast<std::size_t>(n) == 0) {
      total.prompt_tokens += one.prompt_tokens;
      total.cached_tokens += one.cached_tokens;
    }
    total.choices += one.choices;
    total.completion_tokens += one.completion_tokens;
    total.queue_seconds = std::max(total.queue_seconds, one.queue_seconds);
    total.first_token_seconds = std::max(total.first_token_seconds, one.first_token_seconds);
    total.prompt_seconds = std::max(total.prompt_seconds, one.prompt_seconds);
    total.decode_seconds = std::max(total.decode_seconds, one.decode_seconds);
    total.rounds += one.rounds;
    total.drafted += one.drafted;
    total.accepted += one.accepted;
    add_histogram(one.accept_histogram, total.accept_histogram);
    total.predicted_accepted += one.predicted_accepted;
    total.predicted_rejected += one.predicted_rejected;
  }
  return total;
}

std::string usage_json(const ChoiceFigures& figures, bool prediction) {
  JsonObject usage;
  usage.integer("prompt_tokens", figures.prompt_tokens);
  usage.integer("completion_tokens", figures.completion_tokens);
  usage.integer("total_tokens", figures.prompt_tokens + figures.completion_tokens);
  usage.raw("prompt_tokens_details", JsonObject().integer("cached_tokens", figures.cached_tokens).text());
  if (prediction)
    usage.raw("completion_tokens_details", JsonObject()
                                               .integer("accepted_prediction_tokens", figures.predicted_accepted)
                                               .integer("rejected_prediction_tokens", figures.predicted_rejected)
                                               .text());
  return usage.text();
}

std::string timings_json(const ChoiceFigures& figures) {
  const std::int64_t computed = figures.prompt_tokens - figures.cached_tokens;
  const double prompt_ms = milliseconds(figures.prompt_seconds), decode_ms = milliseconds(figures.decode_seconds);
  const auto prompt = static_cast<double>(computed);
  JsonObject timings;
  timings.integer("cache_n", figures.cached_tokens);
  timings.integer("prompt_n", computed);
  timings.number("prompt_ms", prompt_ms);
  timings.number("prompt_per_token_ms", share(prompt_ms, prompt));
  timings.number("prompt_per_second", share(prompt * 1e3, prompt_ms));
  timings.integer("predicted_n", figures.completion_tokens);
  timings.number("predicted_ms", decode_ms);
  timings.number("predicted_per_token_ms", share(decode_ms, decoded_tokens(figures)));
  timings.number("predicted_per_second", share(decoded_tokens(figures) * 1e3, decode_ms));
  timings.integer("draft_n", figures.drafted);
  timings.integer("draft_n_accepted", figures.accepted);
  return timings.text();
}

std::string metrics_json(const ChoiceFigures& figures) {
  const auto accepted = static_cast<double>(figures.accepted);
  const auto rounds = static_cast<double>(figures.rounds);
  const double decode_ms = milliseconds(figures.decode_seconds);
  JsonObject speculative;
  speculative.number("mean_acceptance_length", figures.rounds > 0 ? 1 + share(accepted, rounds) : 0.0);
  speculative.number("draft_acceptance_rate", share(accepted, static_cast<double>(figures.drafted)));
  speculative.raw("acceptance_histogram", json_integers(figures.accept_histogram));
  speculative.integer("num_spec_steps", figures.rounds);
  speculative.integer("num_accepted_draft_tokens", figures.accepted);
  speculative.integer("num_draft_tokens", figures.drafted);
  JsonObject metrics;
  metrics.number("queue_time_ms", milliseconds(figures.queue_seconds));
  metrics.number("time_to_first_token_ms", milliseconds(figures.first_token_seconds));
  metrics.number("generation_time_ms", decode_ms);
  metrics.number("mean_itl_ms", share(decode_ms, decoded_tokens(figures)));
  metrics.number("tokens_per_second", share(decoded_tokens(figures) * 1e3, decode_ms));
  metrics.raw("speculative_decoding", speculative.text());
  return metrics.text();
}

}  // namespace espalier
