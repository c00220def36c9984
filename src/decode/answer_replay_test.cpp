#include "decode/answer_replay.h"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "decode/batch.h"
#include "decode/draw.h"
#include "decode/testing/tiny_model_test.h"

namespace espalier {
namespace {

constexpr std::int64_t kReplayContext = 64;

class AnswerReplayTest : public TinyModelTest {
 protected:
  Batch batch(std::int64_t context) const {
    return Batch(model_, {.context = context, .prefill_rows = 8, .scored_rows = 5});
  }

  // Of every position from `first` on.
  std::map<std::int64_t, std::vector<float>> scores(std::span<const std::int32_t> tokens, std::int64_t first) const {
    std::map<std::int64_t, std::vector<float>> rows;
    Batch scoring = batch(kReplayContext);
    scoring.score_behind(first, tokens, [&](std::int64_t position, std::span<const std::span<const float>> step) {
      for (const std::span<const float> row : step) rows[position++] = {row.begin(), row.end()};
    });
    scoring.cache().check_conservation();
    return rows;
  }

  // Draws the answer again as far as it goes, from the logits of a prefill, and expects it to come out and to end
  // alike.
  void expect_replayed(const GenerateRequest& request, std::int64_t context) {
    const GenerateResult result = batch(context).generate(request);
    std::vector<std::int32_t> text(prompt_);
    text.insert(text.end(), result.tokens.begin(), result.tokens.end());
    const auto rows =
        scores(std::span(text).first(text.size() - (result.tokens.empty() ? 0 : 1)), std::ssize(prompt_) - 1);
    AnswerReplay replay(request, context);
    std::vector<std::int32_t> drawn;
    for (const auto& [position, logits] : rows) {
      if (replay.finish()) break;
      const auto path = std::span(text).first(static_cast<std::size_t>(position) + 1);
      drawn.push_back(draw_token(logits, request.options, {path, prompt_.size()}));
      replay.take(drawn.back());
    }
    EXPECT_EQ(drawn, result.tokens);
    EXPECT_EQ(replay.finish(), result.finish_reason);
  }

  std::vector<std::int32_t> prompt_ = {5, 9, 40, 77, 120, 33, 8, 250, 17, 60, 61};
};

TEST_F(AnswerReplayTest, GivesTheTokensAndTheEndOfTheBatch) {
  const SamplingOptions warm{.temperature = 0.8f, .top_k = 40, .top_p = 0.95f};
  const SamplingOptions penalised{.logit_bias = {{7, 2.0f}, {9, -4.0f}},
                                  .repeat_penalty = 1.2f,
                                  .presence_penalty = 0.5f,
                                  .frequency_penalty = 0.25f,
                                  .temperature = 1.1f,
                                  .min_p = 0.01f};
  for (const SamplingOptions& sampling : {SamplingOptions(), warm, penalised})
    for (const std::uint64_t seed : {0u, 1u, 77u}) {
      SCOPED_TRACE(seed);
      expect_replayed({.prompt = prompt_, .options = {.sampling = sampling, .seed = seed, .max_tokens = 20}},
                      kReplayContext);
    }
}

TEST_F(AnswerReplayTest, EndsAsTheBatchDoes) {
  expect_replayed({.prompt = prompt_, .options = {.max_tokens = 0}}, kReplayContext);
  expect_replayed({.prompt = prompt_, .options = {.max_tokens = 1}}, kReplayContext);
  expect_replayed({.prompt = prompt_, .options = {.max_tokens = 50}}, 16);  // the context is full before
  const std::vector<std::int32_t> whole = batch(kReplayContext).generate(prompt_, {.max_tokens = 12}).tokens;
  expect_replayed({.prompt = prompt_, .options = {.max_tokens = 12, .stop_tokens = {whole[5]}}}, kReplayContext);
  expect_replayed({.prompt = prompt_, .options = {.max_tokens = 12, .stop_tokens = {whole[5]}, .min_tokens = 8}},
                  kReplayContext);
  int heard = 0;
  const auto third_is_enough = [&](const GeneratedToken&) { return ++heard % 3 != 0; };
  expect_replayed({.prompt = prompt_, .options = {.max_tokens = 12}, .events = {.on_token = third_is_enough}},
                  kReplayContext);
  EXPECT_EQ(heard, 6) << "three by the batch, three by the replay";
}

TEST_F(AnswerReplayTest, AnAnswerThatHasEndedTakesNothingMore) {
  AnswerReplay replay({.prompt = prompt_, .options = {.max_tokens = 0}}, kReplayContext);
  EXPECT_EQ(replay.finish(), FinishReason::token_limit);
  EXPECT_THROW(replay.take(5), std::logic_error);
}

TEST_F(AnswerReplayTest, ScoresFromAnyPlaceOnAreThoseOfTheWholeText) {
  std::vector<std::int32_t> text(prompt_);
  for (std::int32_t i = 0; i < 20; ++i) text.push_back((i * 37 + 11) % 272);
  const auto whole = scores(text, 0);
  ASSERT_EQ(whole.size(), text.size());
  for (std::int64_t first = 0; first <= std::ssize(text); ++first) {
    auto expected = whole;
    expected.erase(expected.begin(), expected.lower_bound(first));
    EXPECT_EQ(scores(text, first), expected) << "from " << first << " on";
  }
  EXPECT_THROW(scores(text, std::ssize(text) + 1), std::logic_error);
}

}  // namespace
}  // namespace espalier
