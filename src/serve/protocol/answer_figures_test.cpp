#include "serve/protocol/answer_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

using nlohmann::json;
using testing::ElementsAre;

GenerateResult some_result() {
  GenerateResult result;
  result.tokens = {1, 2, 3, 4, 5, 6};
  result.reused_tokens = 3;
  result.prefill_seconds = 0.5;
  result.decode_seconds = 2;
  result.accept_lengths = {2, 0, 0, 1};
  result.verified_rows = 4 + 10;
  result.plain_rounds = 1;
  return result;
}

TEST(AnswerFigures, ComeFromWhatTheBatchSays) {
  const ChoiceFigures figures = figures_of(some_result(), 10);
  EXPECT_EQ(figures.prompt_tokens, 10);
  EXPECT_EQ(figures.cached_tokens, 3);
  EXPECT_EQ(figures.completion_tokens, 6);
  EXPECT_EQ(figures.rounds, 3);
  EXPECT_EQ(figures.drafted, 10);
  EXPECT_EQ(figures.accepted, 3);
  EXPECT_THAT(figures.accept_histogram, ElementsAre(1, 1, 1));
}

TEST(AnswerFigures, UsageCountsPromptAndAnswer) {
  ChoiceFigures figures = figures_of(some_result(), 10);
  EXPECT_EQ(json::parse(usage_json(figures, false)),
            json::parse(R"({"prompt_tokens": 10, "completion_tokens": 6, "total_tokens": 16,
                            "prompt_tokens_details": {"cached_tokens": 3}})"));
  figures.predicted_accepted = 4;
  figures.predicted_rejected = 5;
  EXPECT_EQ(json::parse(usage_json(figures, true))["completion_tokens_details"],
            json::parse(R"({"accepted_prediction_tokens": 4, "rejected_prediction_tokens": 5})"));
}

TEST(AnswerFigures, TimingsHaveLlamaCppsNames) {
  const json timings = json::parse(timings_json(figures_of(some_result(), 10)));
  EXPECT_EQ(timings, json::parse(R"({"cache_n": 3, "prompt_n": 7, "prompt_ms": 500.0,
      "prompt_per_token_ms": 71.42857142857143, "prompt_per_second": 14.0, "predicted_n": 6, "predicted_ms": 2000.0,
      "predicted_per_token_ms": 400.0, "predicted_per_second": 2.5, "draft_n": 10, "draft_n_accepted": 3})"));
}

TEST(AnswerFigures, MetricsHaveVllmsNames) {
  ChoiceFigures figures = figures_of(some_result(), 10);
  figures.queue_seconds = 0.25;
  figures.first_token_seconds = 0.75;
  EXPECT_EQ(json::parse(metrics_json(figures)),
            json::parse(R"({"queue_time_ms": 250.0, "time_to_first_token_ms": 750.0, "generation_time_ms": 2000.0,
                "mean_itl_ms": 400.0, "tokens_per_second": 2.5, "speculative_decoding": {
                "mean_acceptance_length": 2.0, "draft_acceptance_rate": 0.3, "acceptance_histogram": [1, 1, 1],
                "num_spec_steps": 3, "num_accepted_draft_tokens": 3, "num_draft_tokens": 10}})"));
}

void expect_finite(const json& value) {
  EXPECT_FALSE(value.is_null());
  EXPECT_TRUE(!value.is_number() || std::isfinite(value.get<double>())) << value;
  for (const json& inner : value.is_structured() ? value : json::array()) expect_finite(inner);
}

TEST(AnswerFigures, AllNumbersAreFiniteWhateverTheClockSays) {
  for (const double seconds : {0.0, -1.0, 1e-320, HUGE_VAL, std::nan("")})
    for (const std::int64_t tokens : {0, 1, 5}) {
      const ChoiceFigures figures{.completion_tokens = tokens,
                                  .queue_seconds = seconds,
                                  .first_token_seconds = seconds,
                                  .prompt_seconds = seconds,
                                  .decode_seconds = seconds};
      expect_finite(json::parse(timings_json(figures)));
      expect_finite(json::parse(metrics_json(figures)));
    }
}

TEST(AnswerFigures, OneTokenHasNoRate) {
  const json timings = json::parse(timings_json({.completion_tokens = 1, .decode_seconds = 1e-6}));
  EXPECT_EQ(timings["predicted_per_second"], 0);
  EXPECT_EQ(timings["predicted_per_token_ms"], 0);
}

TEST(AnswerFigures, APromptCountsOnceHoweverManyChoicesItHas) {
  const ChoiceFigures one = figures_of(some_result(), 10);
  const ChoiceFigures four[] = {one, one, one, one};
  const ChoiceFigures total = total_figures(four, 2);
  EXPECT_EQ(total.prompt_tokens, 20);
  EXPECT_EQ(total.cached_tokens, 6);
  EXPECT_EQ(total.completion_tokens, 24);
  EXPECT_EQ(total.decode_seconds, 2);
  EXPECT_EQ(total.accepted, 12);
  EXPECT_THAT(total.accept_histogram, ElementsAre(4, 4, 4));
  EXPECT_EQ(json::parse(timings_json(total))["predicted_per_second"], 10);  // 20 tokens behind the first ones, in 2 s
}

}  // namespace
}  // namespace espalier
