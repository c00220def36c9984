#include "trace/trace_stats.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trace/testing/random_turn.h"

namespace espalier {
namespace {

// A chain of two guesses, of which `accepted` are right; one row more that nobody reached.
TracedRound round_of(std::int64_t number, int accepted, std::string finish = {}) {
  TracedRound round{.number = number, .finish = std::move(finish)};
  round.tree = chain(1, std::vector<DraftToken>{{2, -0.5}, {3, -0.5}}, 1);
  for (int node = 0; node <= accepted; ++node) round.visits.push_back({node, node == accepted ? 9 : node + 2});
  round.times = {.draft = 1, .verify = 3};
  round.kv = {.branched = 5, .committed = 7};
  return round;
}

TEST(TraceStats, CountWhatTheRoundsSay) {
  TracedTurn turn{.prompt = {1}, .tokens = {1, 2, 3, 9, 9, 2, 9}, .prefill_seconds = 2, .decode_seconds = 4};
  turn.rounds = {round_of(0, 2), round_of(1, 0), round_of(2, 1, "length")};
  TraceStats stats;
  stats.add(turn);
  EXPECT_EQ(stats.rounds, 3);
  EXPECT_EQ(stats.drafted, 3);
  EXPECT_EQ(stats.accept_length(), 1);
  EXPECT_EQ(stats.tau(), 2);
  // Depth 1 was judged in all three; depth 2 in the first alone, for the last round ended behind depth 1.
  EXPECT_EQ(stats.reached, (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(stats.accepted, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(stats.rows, 9);
  EXPECT_EQ(stats.kv, (KvTraffic{15, 21}));
  EXPECT_EQ(to_json(stats)["stage_shares"]["verify"], 0.75);
  EXPECT_EQ(to_json(stats)["accept_pos"][0], 2.0 / 3);
}

TEST(TraceStats, OfNothingAreZero) {
  const TraceStats stats;
  EXPECT_EQ(stats.accept_length(), 0);
  EXPECT_EQ(stats.tau(), 0);
  EXPECT_FALSE(stats_text(stats).empty());
}

TEST(TraceStats, OfManyTurnsAreTheSums) {
  TraceStats all;
  std::int64_t tokens = 0, rounds = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const TracedTurn turn = random_turn(seed);
    all.add(turn);
    tokens += static_cast<std::int64_t>(turn.tokens.size());
    rounds += static_cast<std::int64_t>(turn.rounds.size());
  }
  EXPECT_EQ(all.tokens, tokens);
  EXPECT_EQ(all.rounds, rounds);
  // Every token but the first of an answer comes out of a round.
  EXPECT_DOUBLE_EQ(all.tau() * static_cast<double>(rounds), static_cast<double>(tokens - all.turns));
}

}  // namespace
}  // namespace espalier
