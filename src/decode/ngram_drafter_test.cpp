#include "decode/ngram_drafter.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/math.h"
#include "base/random.h"
#include "tree/dynamic_growth.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Tokens = std::vector<std::int32_t>;

constexpr int kAll = 1 << 20;

// Letters as tokens, so that a text can be read.
Tokens letters(std::string_view text) {
  return {text.begin(), text.end()};
}

std::string text_of(const std::vector<DraftToken>& guesses) {
  std::string text;
  for (const DraftToken& guess : guesses) text.push_back(static_cast<char>(guess.token));
  return text;
}

void commit(Drafter& drafter, std::int64_t begin, std::span<const std::int32_t> tokens) {
  CommittedRows rows;
  rows.begin = begin;
  rows.tokens = tokens;
  drafter.committed(rows);
}

// A round in which all tokens but the last, the root, are committed.
void begin_round(NgramDrafter& drafter, const Tokens& tokens) {
  const std::span<const std::int32_t> before(tokens.data(), tokens.size() - 1);
  drafter.rewind(0);
  commit(drafter, 0, before);
  drafter.begin_round(tokens);
}

// The candidate at the end of a path, whether or not anybody proposed it.
int add_path(Candidates& candidates, std::span<const std::int32_t> path) {
  int node = 0;
  for (std::int32_t token : path) node = candidates.add(node, {.token = token});
  return node;
}

std::vector<DraftToken> guesses_after(NgramDrafter& drafter, const Tokens& tokens, const Tokens& path,
                                      int branch = kAll) {
  Candidates candidates(tokens.back());
  const int node = add_path(candidates, path);
  return drafter.expand(candidates, std::span(&node, 1), branch).at(0);
}

TokenTree grown(Drafter& drafter, std::int32_t root, const GrowthOptions& options) {
  DynamicGrowth growth(root, options, 1);
  while (!growth.done()) {
    const std::vector<int> frontier(growth.frontier());
    const auto lists = drafter.expand(growth.candidates(), frontier, growth.branch());
    for (std::size_t i = 0; i < frontier.size(); ++i) growth.add_children(frontier[i], lists[i]);
  }
  return growth.finish();
}

// What the teacher, who says `answer`, makes of the tree.
std::vector<Visit> visits_of(const TokenTree& tree, const Tokens& answer) {
  std::vector<Visit> visits;
  std::optional<int> node = 0;
  for (std::size_t i = 0; node && i < answer.size(); ++i) {
    visits.push_back({*node, answer[i]});
    node = tree.child(*node, answer[i]);
  }
  return visits;
}

Tokens random_text(std::uint64_t seed, std::size_t size, int alphabet) {
  Tokens tokens(size);
  for (std::size_t i = 0; i < size; ++i)
    tokens[i] = static_cast<std::int32_t>(mix64(mix64(seed) + i) % static_cast<unsigned>(alphabet));
  return tokens;
}

// Every token that once followed the end of tokens + path where the match covers at least the root and the path; with
// the length of the longest such match.
std::map<std::int32_t, int> naive_continuations(const Tokens& tokens, const Tokens& path, int longest) {
  Tokens text = tokens;
  text.insert(text.end(), path.begin(), path.end());
  std::map<std::int32_t, int> found;
  for (std::size_t end = path.size() + 1; end < text.size(); ++end) {
    std::size_t length = 0;
    while (length < end && text[end - 1 - length] == text[text.size() - 1 - length]) ++length;
    if (length < path.size() + 1) continue;
    int& known = found[text[end]];
    known = std::max(known, std::min(static_cast<int>(length), longest));
  }
  return found;
}

TEST(NgramDrafter, GuessesWhatANaiveSearchFindsAndItsSharesAddUpToOne) {
  int guesses_seen = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const int alphabet = 1 + static_cast<int>(seed % 5);
    const NgramOptions options = {.length = 1 + static_cast<int>(seed % 16), .occurrences = kAll, .matches = kAll};
    const Tokens tokens = random_text(seed, 1 + mix64(seed) % 60, alphabet);
    NgramDrafter drafter(options);
    begin_round(drafter, tokens);
    for (std::uint64_t depth = 0; depth < 8; ++depth) {
      const Tokens path = random_text(1000 * seed + depth, depth, alphabet);
      SCOPED_TRACE(fmt::format("seed {} depth {}", seed, depth));
      const auto expected = naive_continuations(tokens, path, options.length);
      const auto guesses = guesses_after(drafter, tokens, path);
      ASSERT_EQ(guesses.size(), expected.size());
      double shares = 0;
      for (const DraftToken& guess : guesses) {
        ASSERT_TRUE(expected.contains(guess.token));
        shares += exp_f64(guess.log_probability) / drafter.acceptance_rate(expected.at(guess.token));
        ++guesses_seen;
      }
      if (!guesses.empty()) {
        ASSERT_NEAR(shares, 1, 1e-12);
      }
    }
  }
  EXPECT_GT(guesses_seen, 2000) << "the texts are repetitive enough to say something";
}

TEST(NgramDrafter, GuessesAreBestFirstAndCutToTheBranch) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Tokens tokens = random_text(seed, 80, 6);
    NgramDrafter drafter;
    begin_round(drafter, tokens);
    const auto all = guesses_after(drafter, tokens, {});
    ASSERT_TRUE(std::is_sorted(all.begin(), all.end(), [](const DraftToken& left, const DraftToken& right) {
      return left.log_probability > right.log_probability;
    })) << seed;
    const auto two = guesses_after(drafter, tokens, {}, 2);
    ASSERT_EQ(text_of(two), text_of(all).substr(0, 2)) << seed;
    for (const DraftToken& guess : all) ASSERT_LT(guess.log_probability, 0) << seed;
  }
}

// A drafter that took the long way, with tokens committed in pieces and taken back, against one that was told at once.
TEST(NgramDrafter, AfterAnyCommitsAndRewindsItKnowsWhatAFreshOneKnows) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    NgramDrafter drafter;
    Tokens known;
    for (std::uint64_t step = 0; step < 30; ++step) {
      const std::uint64_t draw = mix64(1000 * seed + step);
      if (draw % 3 == 0) {
        known.resize(mix64(draw) % (known.size() + 1));
        drafter.rewind(static_cast<std::int64_t>(known.size()));
      } else {
        const Tokens more = random_text(draw, mix64(draw) % 20, 4);
        commit(drafter, static_cast<std::int64_t>(known.size()), more);
        known.insert(known.end(), more.begin(), more.end());
      }
      Tokens tokens = known;
      tokens.push_back(static_cast<std::int32_t>(mix64(draw + 1) % 4));
      drafter.begin_round(tokens);
      NgramDrafter fresh;
      begin_round(fresh, tokens);
      const TokenTree tree = grown(drafter, tokens.back(), {.nodes = 24, .depth = 5, .expand = 3});
      ASSERT_EQ(tree, grown(fresh, tokens.back(), {.nodes = 24, .depth = 5, .expand = 3}))
          << "seed " << seed << " step " << step;
    }
  }
}

TEST(NgramDrafter, CanGoOnFromWhatItKnows) {
  NgramDrafter drafter;
  EXPECT_EQ(drafter.resumable(5), 0);
  commit(drafter, 0, letters("abcabc"));
  EXPECT_EQ(drafter.resumable(4), 4);
  EXPECT_EQ(drafter.resumable(9), 6);
}

TEST(NgramDrafter, ATokenNeverSeenBeforeHasNoContinuation) {
  NgramDrafter drafter;
  begin_round(drafter, letters("x"));
  EXPECT_THAT(guesses_after(drafter, letters("x"), {}), IsEmpty());
  begin_round(drafter, letters("abcd"));
  EXPECT_THAT(guesses_after(drafter, letters("abcd"), {}), IsEmpty());
}

TEST(NgramDrafter, ATreeOverARepeatedTextFindsTheRepetition) {
  const Tokens tokens = letters("the wall carries the tree; then the wall c");
  NgramDrafter drafter;
  begin_round(drafter, tokens);
  const TokenTree tree = grown(drafter, tokens.back(), {.nodes = 16, .depth = 10, .expand = 4});
  EXPECT_EQ(visits_of(tree, letters("arries the ")).size(), 11u) << "all ten levels say it, and a bonus";
}

TEST(NgramDrafter, ALoopIsFollowedForAnyNumberOfTurns) {
  const Tokens tokens = letters("xyzabcabc");
  NgramDrafter drafter;
  begin_round(drafter, tokens);
  const TokenTree tree = grown(drafter, tokens.back(), {.nodes = 33, .depth = 32, .expand = 1});
  EXPECT_EQ(visits_of(tree, letters("abcabcabcabcabcabcabcabcabcabcabc")).size(), 33u);
}

TEST(NgramDrafter, SeveralMatchesGiveATree) {
  const Tokens tokens = letters("a1b. a2c. a3d. a");
  NgramDrafter drafter;
  begin_round(drafter, tokens);
  const TokenTree tree = grown(drafter, tokens.back(), {.nodes = 16, .depth = 2, .expand = 3});
  EXPECT_EQ(tree[0].children, 3);
  for (const char* answer : {"1b?", "2c?", "3d?"}) EXPECT_EQ(visits_of(tree, letters(answer)).size(), 3u) << answer;
}

TEST(NgramDrafter, AmongEqualMatchesTheMoreRecentIsTheBetterGuess) {
  const Tokens tokens = letters("a1 a2 a3 xa");
  NgramDrafter drafter;
  begin_round(drafter, tokens);
  EXPECT_EQ(text_of(guesses_after(drafter, tokens, {})), "321");
}

TEST(NgramDrafter, ALongerMatchOutweighsManyShorterOnesThatAreMoreRecent) {
  const Tokens tokens = letters("xyzL qzS rzS szS tzS uzS xyz");
  NgramDrafter drafter;
  begin_round(drafter, tokens);
  EXPECT_EQ(text_of(guesses_after(drafter, tokens, {})), "LS");
}

TEST(NgramDrafter, OnlyTheMostRecentOccurrencesAreLookedAtAndTheLongestOfThemFollowed) {
  const Tokens tokens = letters("xyza xyzb wza wzb vzc xyz");
  NgramDrafter two_places({.occurrences = 2});
  begin_round(two_places, tokens);
  EXPECT_EQ(text_of(guesses_after(two_places, tokens, {})), "cb");
  NgramDrafter two_matches({.matches = 2});
  begin_round(two_matches, tokens);
  EXPECT_EQ(text_of(guesses_after(two_matches, tokens, {})), "ba");
}

TEST(NgramDrafter, ALongerMatchIsTrustedMoreFromTheStart) {
  const NgramDrafter drafter;
  for (int length = 2; length <= NgramOptions().length; ++length)
    EXPECT_GT(drafter.acceptance_rate(length), drafter.acceptance_rate(length - 1));
  EXPECT_LT(drafter.acceptance_rate(1), 0.5);
  EXPECT_LT(drafter.acceptance_rate(16), 1);
}

// Rounds in which the match has length 1, b is expected and `chosen` follows.
void teach(NgramDrafter& drafter, std::int32_t chosen, int rounds) {
  const Tokens tokens = letters("ab xa");
  for (int i = 0; i < rounds; ++i) {
    begin_round(drafter, tokens);
    const TokenTree tree = grown(drafter, tokens.back(), {.nodes = 2, .depth = 1});
    drafter.end_round(tree, std::vector<Visit>{{0, chosen}});
  }
}

TEST(NgramDrafter, HitsRaiseTheRateOfTheirLengthAndMissesLowerIt) {
  NgramDrafter drafter;
  const double before = drafter.acceptance_rate(1);
  teach(drafter, 'b', 1);
  EXPECT_DOUBLE_EQ(drafter.acceptance_rate(1), (4 * before + 1) / 5) << "the prior counts as four tries";
  teach(drafter, 'c', 1);
  EXPECT_DOUBLE_EQ(drafter.acceptance_rate(1), (4 * before + 0.98) / 5.98);
  EXPECT_EQ(drafter.acceptance_rate(2), NgramDrafter().acceptance_rate(2));
}

TEST(NgramDrafter, WhatWasLearnedLongAgoIsForgotten) {
  NgramDrafter drafter;
  teach(drafter, 'b', 1000);
  EXPECT_GT(drafter.acceptance_rate(1), 0.9);
  teach(drafter, 'c', 34);
  EXPECT_NEAR(drafter.acceptance_rate(1), 0.5, 0.05) << "34 tries are the half-life";
  teach(drafter, 'c', 1000);
  EXPECT_LT(drafter.acceptance_rate(1), 0.1);
}

TEST(NgramDrafter, RatesOutliveTheTextTheyWereLearnedFrom) {
  NgramDrafter drafter;
  teach(drafter, 'b', 5);
  const double rate = drafter.acceptance_rate(1);
  drafter.rewind(0);
  EXPECT_EQ(drafter.acceptance_rate(1), rate);
}

TEST(NgramDrafter, EachVisitedNodeTeachesTheRateOfItsOwnLength) {
  const Tokens tokens = letters("abcd xa");
  NgramDrafter drafter;
  begin_round(drafter, tokens);
  const TokenTree tree = grown(drafter, tokens.back(), {.nodes = 8, .depth = 4});
  drafter.end_round(tree, visits_of(tree, letters("bcz")));
  const NgramDrafter untaught;
  EXPECT_GT(drafter.acceptance_rate(1), untaught.acceptance_rate(1)) << "b after a";
  EXPECT_GT(drafter.acceptance_rate(2), untaught.acceptance_rate(2)) << "c after ab";
  EXPECT_LT(drafter.acceptance_rate(3), untaught.acceptance_rate(3)) << "d after abc, but it was z";
  EXPECT_EQ(drafter.acceptance_rate(4), untaught.acceptance_rate(4)) << "never reached";
}

TEST(NgramDrafter, NodesOfOtherDraftersTeachNothing) {
  const Tokens tokens = letters("abcd xa");
  NgramDrafter drafter;
  begin_round(drafter, tokens);
  grown(drafter, tokens.back(), {.nodes = 8, .depth = 4});
  const TokenTree tree = chain('a', std::vector<DraftToken>{{'q', -1}, {'b', -1}}, 2);
  drafter.end_round(tree, visits_of(tree, letters("qbc")));
  const NgramDrafter untaught;
  EXPECT_LT(drafter.acceptance_rate(1), untaught.acceptance_rate(1)) << "the root was its own: q was not expected";
  for (int length : {2, 3, 4}) EXPECT_EQ(drafter.acceptance_rate(length), untaught.acceptance_rate(length));
}

TEST(NgramDrafter, AContinuationThatDidNotFitIntoTheBranchIsStillAHit) {
  const Tokens tokens = letters("a1 a2 a3 xa");
  NgramDrafter drafter;
  begin_round(drafter, tokens);
  const TokenTree tree = grown(drafter, tokens.back(), {.nodes = 2, .depth = 1, .expand = 1});
  drafter.end_round(tree, visits_of(tree, letters("1")));
  EXPECT_GT(drafter.acceptance_rate(1), NgramDrafter().acceptance_rate(1));
}

TEST(NgramDrafter, RefusesASequenceWithGaps) {
  NgramDrafter drafter;
  commit(drafter, 0, letters("abc"));
  EXPECT_THROW(commit(drafter, 4, letters("d")), std::logic_error);
  EXPECT_THROW(commit(drafter, 2, letters("d")), std::logic_error);
  EXPECT_THROW(drafter.rewind(4), std::logic_error);
  EXPECT_THROW(drafter.rewind(-1), std::logic_error);
  EXPECT_THROW(drafter.begin_round(letters("abc")), std::logic_error) << "without a root";
  EXPECT_THROW(drafter.acceptance_rate(0), std::logic_error);
  EXPECT_THROW(drafter.acceptance_rate(17), std::logic_error);
  EXPECT_THROW(NgramDrafter({.length = 0}), std::logic_error);
}

TEST(PathTokens, AreThoseFromBelowTheRootToTheNode) {
  Candidates candidates(7);
  const int node = add_path(candidates, Tokens{1, 2, 3});
  EXPECT_THAT(path_tokens(candidates, 0), IsEmpty());
  EXPECT_THAT(path_tokens(candidates, node), ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace espalier
