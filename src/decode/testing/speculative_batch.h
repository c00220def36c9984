// Batches with drafters on a tiny model, for tests: the text is known, so an oracle can guess it; and a drafter that
// counts what it is asked.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "decode/batch.h"
#include "decode/oracle_drafter.h"
#include "decode/testing/tiny_model_test.h"

namespace espalier {

// Counts its calls, guesses the next ids of the vocabulary.
class CountingDrafter final : public LoneDrafter {
 public:
  struct Calls {
    int opened = 0, rounds = 0, passes = 0, ended = 0, settled = 0;
    int resting = 0, awake = 0;  // commits that were heard at rest, and others
    std::vector<std::size_t> nodes = {};
    std::vector<std::int32_t> committed = {};  // of the sequence that was told of last
    bool may_hear_twice = false;               // of a position that others want computed again
    std::function<void()> on_round = [] {};
  };
  explicit CountingDrafter(Calls& calls) : calls_(calls) {}

  std::string_view name() const override { return "counting"; }
  std::unique_ptr<DraftSequence> open(SequenceId, std::span<const std::int32_t>) override {
    ++calls_.opened;
    return std::make_unique<Sequence>(calls_);
  }

 private:
  class Sequence final : public LoneSequence {
   public:
    explicit Sequence(Calls& calls) : calls_(calls) {}

    bool reused(std::span<const std::int32_t> tokens) override {
      EXPECT_GE(tokens.size(), committed_.size());
      EXPECT_TRUE(std::ranges::equal(tokens.first(std::min(tokens.size(), committed_.size())), committed_));
      committed_.assign(tokens.begin(), tokens.end());
      return false;
    }
    void rest(bool resting) override { resting_ = resting; }
    void committed(const CommittedRows& rows) override {
      ++(resting_ ? calls_.resting : calls_.awake);
      const auto length = static_cast<std::int64_t>(committed_.size());
      if (calls_.may_hear_twice && rows.begin + 1 == length)
        EXPECT_EQ(rows.tokens.front(), committed_.back());
      else
        EXPECT_EQ(rows.begin, length);
      const std::span<const std::int32_t> tokens = rows.from(length).tokens;
      committed_.insert(committed_.end(), tokens.begin(), tokens.end());
      calls_.committed = committed_;
    }
    void begin_round(const DraftRound& round) override {
      ++calls_.rounds;
      calls_.on_round();
      EXPECT_FALSE(resting_) << "whoever is asked has been told so";
      EXPECT_TRUE(std::ranges::equal(round.tokens.first(round.tokens.size() - 1), committed_));
      EXPECT_TRUE(round.branch->open());
    }
    Guesses expand(const Candidates& candidates, std::span<const int> nodes, int branch) override {
      ++calls_.passes;
      calls_.nodes.push_back(nodes.size());
      Guesses all;
      for (int node : nodes) {
        auto& guesses = all.emplace_back();
        for (int i = 1; i <= branch; ++i) guesses.push_back({(candidates[node].token + i) % kTinyVocabulary, -0.5 * i});
      }
      return all;
    }
    void end_round(const DraftVerdict&) override { ++calls_.ended; }
    void settle() override { ++calls_.settled; }

   private:
    Calls& calls_;
    bool resting_ = false;
    std::vector<std::int32_t> committed_;
  };

  Calls& calls_;
};

class SpeculativeBatch : public TinyModelTest {
 protected:
  std::vector<std::int32_t> prompt_ = {5, 9, 40, 77, 120, 33};
  std::vector<std::int32_t> text_;  // prompt and answer
  KnownAnswers answers_;

  void SetUp() override {
    Batch plain(model_, {.context = 256});
    const auto tokens = plain.generate(prompt_, {.max_tokens = 200}).tokens;
    answers_.learn(prompt_, tokens);
    text_ = prompt_;
    text_.insert(text_.end(), tokens.begin(), tokens.end());
  }

  std::vector<std::int32_t> expected(std::size_t count) const {
    const auto begin = text_.begin() + static_cast<std::ptrdiff_t>(prompt_.size());
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }

  Speculation oracle(const TreeOptions& tree, std::vector<double> profile = {}) const {
    return {tree, [this, profile](KvCache&, int) {
              DrafterSet set;
              set.push_back(std::make_unique<OracleDrafter>(
                  &answers_, OracleOptions{.profile = profile, .seed = 1, .vocabulary = kTinyVocabulary}));
              return set;
            }};
  }

  Speculation counting(const TreeOptions& tree, CountingDrafter::Calls& calls) const {
    return {tree, [&calls](KvCache&, int) {
              DrafterSet set;
              set.push_back(std::make_unique<CountingDrafter>(calls));
              return set;
            }};
  }
};

// Steps of n rows take 1 + slope (n - 1) ms; the clock stands still, so nothing corrects that.
inline ChosenBudget budget_of(double slope) {
  return {.times = StepTimes{.rows = {1, 64}, .contexts = {64}, .seconds = {1e-3, 1e-3 * (1 + 63 * slope)}},
          .clock = [] { return 0.0; }};
}

}  // namespace espalier
