#include "decode/ngram_drafter.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/math.h"
#include "base/random.h"
#include "cache/kv_cache.h"
#include "device/reference/reference_device.h"
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

// A drafter with one sequence.
struct LoneNgram {
  explicit LoneNgram(const NgramOptions& options = {}) : drafter(options), sequence(drafter.open(0, {})) {}

  double rate(int length) const { return drafter.acceptance_rate(length); }

  NgramDrafter drafter;
  std::unique_ptr<DraftSequence> sequence;
};

void commit(DraftSequence& sequence, std::int64_t begin, std::span<const std::int32_t> tokens) {
  CommittedRows rows;
  rows.begin = begin;
  rows.tokens = tokens;
  sequence.committed(rows);
}

// A round in which all tokens but the last, the root, are committed.
void begin_round(DraftSequence& sequence, const Tokens& tokens) {
  const std::span<const std::int32_t> before(tokens.data(), tokens.size() - 1);
  sequence.reused({});
  commit(sequence, 0, before);
  sequence.begin_round({.tokens = tokens});
}
void begin_round(LoneNgram& ngram, const Tokens& tokens) {
  begin_round(*ngram.sequence, tokens);
}

// With a branch that this drafter has nothing to tell.
void end_round(DraftSequence& sequence, const TokenTree& tree, const std::vector<Visit>& visits) {
  const auto device = make_reference_device();
  KvCache cache(*device, {.layers = 1, .kv_heads = 1, .head_size = 16, .type = DType::f32, .block_size = 16}, 16);
  std::optional<Branch> branch = cache.begin(cache.create(), 1);
  sequence.end_round({tree, visits, *branch});
}

// The candidate at the end of a path, whether or not anybody proposed it.
int add_path(Candidates& candidates, std::span<const std::int32_t> path) {
  int node = 0;
  for (std::int32_t token : path) node = candidates.add(node, {.token = token});
  return node;
}

std::vector<DraftToken> guesses_after(LoneNgram& ngram, const Tokens& tokens, const Tokens& path, int branch = kAll) {
  Candidates candidates(tokens.back());
  const int node = add_path(candidates, path);
  const DraftJob job{ngram.sequence.get(), &candidates, std::span(&node, 1), branch};
  return ngram.drafter.expand(std::span(&job, 1)).at(0).at(0);
}

TokenTree grown(Drafter& drafter, DraftSequence& sequence, std::int32_t root, const GrowthOptions& options) {
  DynamicGrowth growth(root, options, 1);
  while (!growth.done()) {
    const std::vector<int> frontier(growth.frontier());
    const DraftJob job{&sequence, &growth.candidates(), frontier, growth.branch()};
    const Guesses lists = drafter.expand(std::span(&job, 1)).at(0);
    for (std::size_t i = 0; i < frontier.size(); ++i) growth.add_children(frontier[i], lists[i]);
  }
  return growth.finish();
}
TokenTree grown(LoneNgram& ngram, std::int32_t root, const GrowthOptions& options) {
  return grown(ngram.drafter, *ngram.sequence, root, options);
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
    LoneNgram ngram(options);
    begin_round(ngram, tokens);
    for (std::uint64_t depth = 0; depth < 8; ++depth) {
      const Tokens path = random_text(1000 * seed + depth, depth, alphabet);
      SCOPED_TRACE(fmt::format("seed {} depth {}", seed, depth));
      const auto expected = naive_continuations(tokens, path, options.length);
      const auto guesses = guesses_after(ngram, tokens, path);
      ASSERT_EQ(guesses.size(), expected.size());
      double shares = 0;
      for (const DraftToken& guess : guesses) {
        ASSERT_TRUE(expected.contains(guess.token));
        shares += exp_f64(guess.log_probability) / ngram.rate(expected.at(guess.token));
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
    LoneNgram ngram;
    begin_round(ngram, tokens);
    const auto all = guesses_after(ngram, tokens, {});
    ASSERT_TRUE(std::is_sorted(all.begin(), all.end(), [](const DraftToken& left, const DraftToken& right) {
      return left.log_probability > right.log_probability;
    })) << seed;
    const auto two = guesses_after(ngram, tokens, {}, 2);
    ASSERT_EQ(text_of(two), text_of(all).substr(0, 2)) << seed;
    for (const DraftToken& guess : all) ASSERT_LT(guess.log_probability, 0) << seed;
  }
}

// A sequence that took the long way, with tokens committed in pieces, some of them twice, and texts that somebody else
// computed, shorter or longer or different ones, against one that was told at once.
TEST(NgramDrafter, AfterAnyCommitsAndReusesItKnowsWhatAFreshOneKnows) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    LoneNgram ngram;
    Tokens known;
    for (std::uint64_t step = 0; step < 30; ++step) {
      const std::uint64_t draw = mix64(1000 * seed + step);
      const Tokens more = random_text(draw, mix64(draw) % 20, 4);
      if (draw % 3 == 0) {
        known.resize(mix64(draw) % (known.size() + 1));
        if (draw % 2 == 0) known.insert(known.end(), more.begin(), more.end());
        ngram.sequence->reused(known);
      } else {
        const std::size_t begin = draw % 5 == 0 ? known.size() / 2 : known.size();
        known.insert(known.end(), more.begin(), more.end());
        commit(*ngram.sequence, static_cast<std::int64_t>(begin), std::span(known).subspan(begin));
      }
      Tokens tokens = known;
      tokens.push_back(static_cast<std::int32_t>(mix64(draw + 1) % 4));
      ngram.sequence->begin_round({.tokens = tokens});
      LoneNgram fresh;
      begin_round(fresh, tokens);
      const TokenTree tree = grown(ngram, tokens.back(), {.nodes = 24, .depth = 5, .expand = 3});
      ASSERT_EQ(tree, grown(fresh, tokens.back(), {.nodes = 24, .depth = 5, .expand = 3}))
          << "seed " << seed << " step " << step;
    }
  }
}

TEST(NgramDrafter, GoesOnFromTokensWithoutFeatures) {
  LoneNgram ngram;
  EXPECT_FALSE(ngram.sequence->reused({}));
  EXPECT_FALSE(ngram.sequence->reused(letters("abcab"))) << "nothing is to be computed once more";
  commit(*ngram.sequence, 5, letters("c"));
  const Tokens tokens = letters("abcabca");
  ngram.sequence->begin_round({.tokens = tokens});
  EXPECT_EQ(text_of(guesses_after(ngram, tokens, {})), "b");
  EXPECT_FALSE(ngram.sequence->reused(letters("xy"))) << "another text, in place of all";
  const Tokens others = letters("xya");
  ngram.sequence->begin_round({.tokens = others});
  EXPECT_THAT(guesses_after(ngram, others, {}), IsEmpty());
}

// Another drafter may have wanted the feature of a position that was reused.
TEST(NgramDrafter, APositionThatIsComputedOnceMoreIsNoNewToken) {
  LoneNgram ngram;
  ngram.sequence->reused(letters("a1a"));
  commit(*ngram.sequence, 2, letters("a"));
  commit(*ngram.sequence, 1, letters("1a2"));
  const Tokens tokens = letters("a1a2a");
  ngram.sequence->begin_round({.tokens = tokens});
  EXPECT_EQ(text_of(guesses_after(ngram, tokens, {})), "21");
}

TEST(NgramDrafter, ATokenNeverSeenBeforeHasNoContinuation) {
  LoneNgram ngram;
  for (const Tokens& tokens : {letters("x"), letters("abcd")}) {
    begin_round(ngram, tokens);
    EXPECT_THAT(guesses_after(ngram, tokens, {}), IsEmpty());
  }
}

TEST(NgramDrafter, ATreeOverARepeatedTextFindsTheRepetition) {
  const Tokens tokens = letters("the wall carries the tree; then the wall c");
  LoneNgram ngram;
  begin_round(ngram, tokens);
  const TokenTree tree = grown(ngram, tokens.back(), {.nodes = 16, .depth = 10, .expand = 4});
  EXPECT_EQ(visits_of(tree, letters("arries the ")).size(), 11u) << "all ten levels say it, and a bonus";
}

TEST(NgramDrafter, ALoopIsFollowedForAnyNumberOfTurns) {
  const Tokens tokens = letters("xyzabcabc");
  LoneNgram ngram;
  begin_round(ngram, tokens);
  const TokenTree tree = grown(ngram, tokens.back(), {.nodes = 33, .depth = 32, .expand = 1});
  EXPECT_EQ(visits_of(tree, letters("abcabcabcabcabcabcabcabcabcabcabc")).size(), 33u);
}

TEST(NgramDrafter, SeveralMatchesGiveATree) {
  const Tokens tokens = letters("a1b. a2c. a3d. a");
  LoneNgram ngram;
  begin_round(ngram, tokens);
  const TokenTree tree = grown(ngram, tokens.back(), {.nodes = 16, .depth = 2, .expand = 3});
  EXPECT_EQ(tree[0].children, 3);
  for (const char* answer : {"1b?", "2c?", "3d?"}) EXPECT_EQ(visits_of(tree, letters(answer)).size(), 3u) << answer;
}

TEST(NgramDrafter, AmongEqualMatchesTheMoreRecentIsTheBetterGuess) {
  const Tokens tokens = letters("a1 a2 a3 xa");
  LoneNgram ngram;
  begin_round(ngram, tokens);
  EXPECT_EQ(text_of(guesses_after(ngram, tokens, {})), "321");
}

TEST(NgramDrafter, ALongerMatchOutweighsManyShorterOnesThatAreMoreRecent) {
  const Tokens tokens = letters("xyzL qzS rzS szS tzS uzS xyz");
  LoneNgram ngram;
  begin_round(ngram, tokens);
  EXPECT_EQ(text_of(guesses_after(ngram, tokens, {})), "LS");
}

TEST(NgramDrafter, OnlyTheMostRecentOccurrencesAreLookedAtAndTheLongestOfThemFollowed) {
  const Tokens tokens = letters("xyza xyzb wza wzb vzc xyz");
  LoneNgram two_places({.occurrences = 2});
  begin_round(two_places, tokens);
  EXPECT_EQ(text_of(guesses_after(two_places, tokens, {})), "cb");
  LoneNgram two_matches({.matches = 2});
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
void teach(LoneNgram& ngram, std::int32_t chosen, int rounds) {
  const Tokens tokens = letters("ab xa");
  for (int i = 0; i < rounds; ++i) {
    begin_round(ngram, tokens);
    const TokenTree tree = grown(ngram, tokens.back(), {.nodes = 2, .depth = 1});
    end_round(*ngram.sequence, tree, {{0, chosen}});
  }
}

TEST(NgramDrafter, HitsRaiseTheRateOfTheirLengthAndMissesLowerIt) {
  LoneNgram ngram;
  const double before = ngram.rate(1);
  teach(ngram, 'b', 1);
  EXPECT_DOUBLE_EQ(ngram.rate(1), (4 * before + 1) / 5) << "the prior counts as four tries";
  teach(ngram, 'c', 1);
  EXPECT_DOUBLE_EQ(ngram.rate(1), (4 * before + 0.98) / 5.98);
  EXPECT_EQ(ngram.rate(2), NgramDrafter().acceptance_rate(2));
}

TEST(NgramDrafter, WhatWasLearnedLongAgoIsForgotten) {
  LoneNgram ngram;
  teach(ngram, 'b', 1000);
  EXPECT_GT(ngram.rate(1), 0.9);
  teach(ngram, 'c', 34);
  EXPECT_NEAR(ngram.rate(1), 0.5, 0.05) << "34 tries are the half-life";
  teach(ngram, 'c', 1000);
  EXPECT_LT(ngram.rate(1), 0.1);
}

TEST(NgramDrafter, RatesOutliveTheTextTheyWereLearnedFrom) {
  LoneNgram ngram;
  teach(ngram, 'b', 5);
  const double rate = ngram.rate(1);
  EXPECT_NE(rate, NgramDrafter().acceptance_rate(1));
  ngram.sequence->reused({});
  EXPECT_EQ(ngram.rate(1), rate);
  ngram.sequence.reset();
  EXPECT_EQ(ngram.rate(1), rate) << "and the sequence";
}

TEST(NgramDrafter, RatesAreSharedByTheSequencesOfOneDrafterAndTextsAreNot) {
  LoneNgram ngram;
  const std::unique_ptr<DraftSequence> other = ngram.drafter.open(1, {});
  teach(ngram, 'b', 5);
  const Tokens tokens = letters("qr sq");
  begin_round(*other, tokens);
  const Candidates candidates('q');
  const int root = 0;
  const auto guesses = [&] {
    const DraftJob job{other.get(), &candidates, std::span(&root, 1), kAll};
    return ngram.drafter.expand(std::span(&job, 1)).at(0).at(0);
  };
  ASSERT_EQ(text_of(guesses()), "r");
  EXPECT_EQ(guesses()[0].log_probability, log_f64(ngram.rate(1)));
  const double before = ngram.rate(1);
  end_round(*other, TokenTree('q'), {{0, 'x'}});
  EXPECT_LT(ngram.rate(1), before) << "this one teaches too";
  const Tokens unknown = letters("qr sa");
  begin_round(*other, unknown);
  EXPECT_THAT(guesses(), IsEmpty()) << "what follows a stands in the other text";
}

TEST(NgramDrafter, EachVisitedNodeTeachesTheRateOfItsOwnLength) {
  const Tokens tokens = letters("abcd xa");
  LoneNgram ngram;
  begin_round(ngram, tokens);
  const TokenTree tree = grown(ngram, tokens.back(), {.nodes = 8, .depth = 4});
  end_round(*ngram.sequence, tree, visits_of(tree, letters("bcz")));
  const NgramDrafter untaught;
  EXPECT_GT(ngram.rate(1), untaught.acceptance_rate(1)) << "b after a";
  EXPECT_GT(ngram.rate(2), untaught.acceptance_rate(2)) << "c after ab";
  EXPECT_LT(ngram.rate(3), untaught.acceptance_rate(3)) << "d after abc, but it was z";
  EXPECT_EQ(ngram.rate(4), untaught.acceptance_rate(4)) << "never reached";
}

TEST(NgramDrafter, NodesOfOtherDraftersTeachNothing) {
  const Tokens tokens = letters("abcd xa");
  LoneNgram ngram;
  begin_round(ngram, tokens);
  grown(ngram, tokens.back(), {.nodes = 8, .depth = 4});
  const TokenTree tree = chain('a', std::vector<DraftToken>{{'q', -1}, {'b', -1}}, 2);
  end_round(*ngram.sequence, tree, visits_of(tree, letters("qbc")));
  const NgramDrafter untaught;
  EXPECT_LT(ngram.rate(1), untaught.acceptance_rate(1)) << "the root was its own: q was not expected";
  for (int length : {2, 3, 4}) EXPECT_EQ(ngram.rate(length), untaught.acceptance_rate(length));
}

TEST(NgramDrafter, AContinuationThatDidNotFitIntoTheBranchIsStillAHit) {
  const Tokens tokens = letters("a1 a2 a3 xa");
  LoneNgram ngram;
  begin_round(ngram, tokens);
  const TokenTree tree = grown(ngram, tokens.back(), {.nodes = 2, .depth = 1, .expand = 1});
  end_round(*ngram.sequence, tree, visits_of(tree, letters("1")));
  EXPECT_GT(ngram.rate(1), NgramDrafter().acceptance_rate(1));
}

TEST(NgramDrafter, RefusesASequenceWithGaps) {
  LoneNgram ngram;
  commit(*ngram.sequence, 0, letters("abc"));
  EXPECT_THROW(commit(*ngram.sequence, 4, letters("d")), std::logic_error);
  const Tokens rootless = letters("abc"), too_long = letters("abcde");
  EXPECT_THROW(ngram.sequence->begin_round({.tokens = rootless}), std::logic_error) << "without a root";
  EXPECT_THROW(ngram.sequence->begin_round({.tokens = too_long}), std::logic_error) << "one was never committed";
  EXPECT_THROW(ngram.rate(0), std::logic_error);
  EXPECT_THROW(ngram.rate(17), std::logic_error);
  EXPECT_THROW(NgramDrafter({.length = 0}), std::logic_error);
}

// --- predictions of the answer

TEST(NgramDrafter, APredictionIsFollowedFromItsBeginningAsIfItStoodBehindThePrompt) {
  LoneNgram ngram;
  const Tokens prompt = letters("say it:"), prediction = letters("hello");
  ngram.sequence->predict(prompt, prediction);
  begin_round(ngram, letters("say it:h"));
  const auto first = guesses_after(ngram, letters("say it:h"), {});
  EXPECT_EQ(text_of(first), "e");
  EXPECT_NEAR(first[0].log_probability, log_f64(ngram.rate(8)), 1e-12) << "the prompt belongs to the match";
  EXPECT_EQ(text_of(guesses_after(ngram, letters("say it:h"), letters("el"))), "l");
  EXPECT_EQ(text_of(guesses_after(ngram, letters("say it:h"), letters("ello"))), "") << "there it ends";
  EXPECT_EQ(text_of(guesses_after(ngram, letters("say it:h"), letters("ex"))), "") << "it says something else";
}

TEST(NgramDrafter, APredictionIsFoundAgainWhereTheAnswerReturnsToIt) {
  LoneNgram ngram;
  ngram.sequence->predict(letters("p"), letters("one two three"));
  begin_round(ngram, letters("pxyz tw"));
  EXPECT_EQ(text_of(guesses_after(ngram, letters("pxyz tw"), {})), "o");
  EXPECT_EQ(text_of(guesses_after(ngram, letters("pxyz tw"), letters("o t"))), "h");
}

TEST(NgramDrafter, AmongMatchesOfEqualLengthThePredictionComesFirst) {
  LoneNgram ngram;
  ngram.sequence->predict(letters(""), letters("ab"));
  begin_round(ngram, letters("ac a"));
  EXPECT_EQ(text_of(guesses_after(ngram, letters("ac a"), {})), "bc");
  begin_round(ngram, letters("xac xa"));
  EXPECT_EQ(text_of(guesses_after(ngram, letters("xac xa"), {})), "cb") << "the longer one before all";
}

TEST(NgramDrafter, ThePromptBeforeAPredictionIsNoSecondText) {
  LoneNgram ngram;
  ngram.sequence->predict(letters("abc"), letters("x"));
  begin_round(ngram, letters("zzb"));
  EXPECT_THAT(guesses_after(ngram, letters("zzb"), {}), IsEmpty());
}

TEST(NgramDrafter, CountsWhatThePredictionProposedAndWhatBecameOfIt) {
  LoneNgram ngram;
  ngram.sequence->predict(letters(":"), letters("abcdef"));
  begin_round(ngram, letters(":a"));
  const TokenTree tree = grown(ngram, 'a', {.nodes = 5, .depth = 4, .expand = 1, .branch = 1});
  ASSERT_EQ(tree.size(), 5) << "bcde";
  end_round(*ngram.sequence, tree, visits_of(tree, letters("bcx")));
  EXPECT_EQ(ngram.sequence->take_prediction_counts(), (PredictionCounts{.accepted = 2, .rejected = 2}));
  EXPECT_EQ(ngram.sequence->take_prediction_counts(), PredictionCounts()) << "once";
}

TEST(NgramDrafter, RowsThatTheTextProposedAreNotThePredictions) {
  LoneNgram ngram;
  ngram.sequence->predict(letters(":"), letters("ab"));
  begin_round(ngram, letters(":a:a"));
  const TokenTree tree = grown(ngram, 'a', {.nodes = 3, .depth = 1, .expand = 1, .branch = 2});
  ASSERT_EQ(tree.size(), 3) << "b of the prediction, a colon of the text";
  end_round(*ngram.sequence, tree, visits_of(tree, letters(":")));
  EXPECT_EQ(ngram.sequence->take_prediction_counts(), (PredictionCounts{.accepted = 0, .rejected = 1}));
}

TEST(NgramDrafter, APredictionStaysWhenTheSequenceGoesOnWithWhatOthersComputed) {
  LoneNgram ngram;
  ngram.sequence->predict(letters(":"), letters("abc"));
  ngram.sequence->reused(letters(":"));
  ngram.sequence->begin_round({.tokens = letters(":a")});
  EXPECT_EQ(text_of(guesses_after(ngram, letters(":a"), {})), "b");
}

TEST(LoneDrafter, GivesEachJobTheGuessesOfItsOwnSequence) {
  NgramDrafter drafter;
  const auto one = drafter.open(0, {}), two = drafter.open(1, {});
  const Tokens first = letters("a1b a2c xa"), second = letters("a7a8a9 xa");
  begin_round(*one, first);
  begin_round(*two, second);
  Candidates below_first('a');
  const std::vector<int> level = {below_first.add(0, {.token = '1'}), below_first.add(0, {.token = '2'})};
  const Candidates below_second('a');
  const std::vector<int> root = {0};
  const std::vector<DraftJob> jobs = {{two.get(), &below_second, root, 2}, {one.get(), &below_first, level, kAll}};
  const std::vector<Guesses> all = drafter.expand(jobs);
  ASSERT_EQ(all.size(), 2u);
  ASSERT_EQ(all[0].size(), 1u);
  EXPECT_EQ(text_of(all[0][0]), "98") << "two were wanted";
  ASSERT_EQ(all[1].size(), 2u);
  EXPECT_EQ(text_of(all[1][0]), "b");
  EXPECT_EQ(text_of(all[1][1]), "c");
  EXPECT_THAT(drafter.expand({}), IsEmpty());
}

TEST(CommittedRows, FromAPositionOnLoseWhatStandsBefore) {
  const Tokens tokens = {4, 5, 6}, taps = {7, 8, 9};
  CommittedRows rows;
  rows.begin = 10;
  rows.tokens = tokens;
  rows.rows = taps;
  rows.hidden_row = 2;
  for (std::int64_t first : {0, 10}) {
    EXPECT_EQ(rows.from(first).begin, 10);
    EXPECT_THAT(rows.from(first).tokens, ElementsAre(4, 5, 6));
  }
  const CommittedRows later = rows.from(12);
  EXPECT_EQ(later.begin, 12);
  EXPECT_THAT(later.tokens, ElementsAre(6));
  EXPECT_THAT(later.rows, ElementsAre(9));
  EXPECT_EQ(later.hidden_row, 2) << "of the last position still";
  for (std::int64_t first : {13, 20}) {
    EXPECT_EQ(rows.from(first).begin, 13);
    EXPECT_THAT(rows.from(first).tokens, IsEmpty());
    EXPECT_THAT(rows.from(first).rows, IsEmpty());
  }
  rows.rows = {};
  EXPECT_THAT(rows.from(12).tokens, ElementsAre(6)) << "without taps";
  EXPECT_THAT(rows.from(12).rows, IsEmpty());
}

TEST(DraftVerdict, TheAcceptedTokensAreThoseOfTheTreeBelowTheRoot) {
  const auto device = make_reference_device();
  KvCache cache(*device, {.layers = 1, .kv_heads = 1, .head_size = 16, .type = DType::f32, .block_size = 16}, 16);
  std::optional<Branch> branch = cache.begin(cache.create(), 1);
  const TokenTree tree = chain('a', std::vector<DraftToken>{{'b', -1}, {'c', -1}}, 1);
  const std::vector<Visit> whole = visits_of(tree, letters("bcd")), root = visits_of(tree, letters("x"));
  EXPECT_THAT((DraftVerdict{tree, whole, *branch}.accepted()), ElementsAre('b', 'c')) << "d is the bonus";
  EXPECT_THAT((DraftVerdict{tree, root, *branch}.accepted()), IsEmpty());
}

TEST(PathTokens, AreThoseFromBelowTheRootToTheNode) {
  Candidates candidates(7);
  const int node = add_path(candidates, Tokens{1, 2, 3});
  EXPECT_THAT(path_tokens(candidates, 0), IsEmpty());
  EXPECT_THAT(path_tokens(candidates, node), ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace espalier
