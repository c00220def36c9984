// rank_guesses on every device against TopGuesses (decode/top_guesses.h) on the reference device, and against what
// drops ids outside the teacher's vocabulary.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "decode/top_guesses.h"
#include "round_ops/round_tables.h"

namespace espalier {
namespace {

class RankGuessesConformance : public testing::TestWithParam<DeviceUnderTest> {
 protected:
  struct Case {
    std::int64_t rows = 0, columns = 0, most = 0;
    std::int32_t vocabulary = 0;
    float scale = 1.0f;
    Ints target_ids = {};
    std::int64_t gap = 0;
  };

  void expect_guesses(const Case& c) {
    std::vector<float> logits;
    for (std::int64_t r = 0; r < c.rows; ++r) {
      const std::vector<float> row = awkward_logits(random_, c.columns);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    Device& device = test_.tested();
    const PlacedTensor placed = place(device, DType::f32, logits, c.rows, {.extra_columns = c.gap});
    const IntTable ids(device, 1, c.target_ids.empty() ? Ints(1) : c.target_ids);
    const OwnedGuesses guesses(device, c.rows, c.most);
    device.round_ops()->run(RankGuesses{.logits = placed,
                                        .target_ids = c.target_ids.empty() ? View() : ids.list(),
                                        .scale = c.scale,
                                        .vocabulary = c.vocabulary,
                                        .guesses = guesses.all()});
    expect_same(guesses, expected(logits, c), c.most);
  }

  std::vector<std::vector<DraftToken>> expected(const std::vector<float>& logits, const Case& c) {
    const PlacedTensor placed = place(test_.judge(), DType::f32, logits, c.rows);
    TopGuesses top(test_.judge(), c.rows, c.most);
    auto rows = top.read(placed.view(), c.most, {.target_ids = c.target_ids, .logit_scale = c.scale});
    for (auto& row : rows)
      std::erase_if(row, [&](const DraftToken& guess) { return guess.token < 0 || guess.token >= c.vocabulary; });
    return rows;
  }

  static void expect_same(const OwnedGuesses& guesses, const std::vector<std::vector<DraftToken>>& rows,
                          std::int64_t most) {
    const Ints token = guesses.tokens(), count = guesses.counts();
    const std::vector<double> log_probability = guesses.log_probabilities();
    for (std::size_t g = 0; g < rows.size(); ++g) {
      ASSERT_EQ(count[g], std::ssize(rows[g]));
      for (std::size_t i = 0; i < static_cast<std::size_t>(most); ++i) {
        const bool there = i < rows[g].size();
        const DraftToken guess = there ? rows[g][i] : DraftToken{.log_probability = -INFINITY};
        ASSERT_EQ(token[g * static_cast<std::size_t>(most) + i], guess.token) << "guess " << i << " of row " << g;
        ASSERT_EQ(std::bit_cast<std::uint64_t>(log_probability[g * static_cast<std::size_t>(most) + i]),
                  std::bit_cast<std::uint64_t>(sane_log_probability(guess.log_probability)))
            << "guess " << i << " of row " << g;
      }
    }
  }

  // Ids of columns as no head should have them: outside the vocabulary, and more than once.
  Ints strange_ids(std::int64_t columns, std::int32_t vocabulary) {
    Ints ids;
    for (std::int64_t c = 0; c < columns; ++c)
      ids.push_back(static_cast<std::int32_t>(random_.between(-2, vocabulary + 1)));
    return ids;
  }

  DeviceTest test_{GetParam()};
  RandomValues random_{31};
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RankGuessesConformance);  // where another kind of device is judged
INSTANTIATE_TEST_SUITE_P(Devices, RankGuessesConformance, testing::ValuesIn(devices_with_round_ops()), NameOfDevice());

TEST_P(RankGuessesConformance, AreThoseOfTheHost) {
  constexpr float kScales[] = {1.0f, 0.25f, 3.1f};
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    Case c{.rows = random_.between(1, 5), .columns = random_.between(1, 300), .gap = random_.below(4)};
    c.most = random_.between(1, std::min<std::int64_t>(c.columns, 12));
    c.vocabulary = static_cast<std::int32_t>(random_.between(1, c.columns + 3));
    c.scale = kScales[random_.below(3)];
    if (random_.one_in(2)) c.target_ids = strange_ids(c.columns, c.vocabulary);
    expect_guesses(c);
  }
}

TEST_P(RankGuessesConformance, AlsoOfAWholeVocabulary) {
  expect_guesses({.rows = 3, .columns = 49152, .most = 10, .vocabulary = 49152});
  expect_guesses({.rows = 2,
                  .columns = 32000,
                  .most = 8,
                  .vocabulary = 153376,
                  .scale = 0.5f,
                  .target_ids = strange_ids(32000, 153376)});
}

}  // namespace
}  // namespace espalier
