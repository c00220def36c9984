#include "decode/accept.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "decode/sampler.h"

namespace espalier {
namespace {

using Tokens = std::vector<std::int32_t>;
constexpr std::int32_t kThreeTokens = 3;

const auto kNeverEnds = [](std::int32_t) { return false; };

TEST(Walk, DescendsWhileAChildCarriesTheTeachersChoice) {
  TokenTree tree(7);
  const int a = tree.append(0, {.token = 1, .score = -1});
  const int b = tree.append(0, {.token = 2, .score = -2});
  const int c = tree.append(b, {.token = 1, .score = -3});
  const Tokens choices = {2, 9, 1, 5};
  const auto draw = [&](int node) { return choices[static_cast<std::size_t>(node)]; };
  EXPECT_EQ(walk(tree, draw, kNeverEnds), (std::vector<Visit>{{0, 2}, {b, 1}, {c, 5}}));
  EXPECT_NE(a, b);
}

TEST(Walk, EndsWhereTheAnswerEndsAlthoughAChildCarriesTheToken) {
  TokenTree tree(7);
  tree.append(0, {.token = 1, .score = -1});
  const auto visits = walk(
      tree, [](int) { return 1; }, [](std::int32_t token) { return token == 1; });
  EXPECT_EQ(visits, (std::vector<Visit>{{0, 1}}));
}

TEST(Walk, AsksTheTeacherOnlyAtNodesItVisits) {
  TokenTree tree(7);
  for (std::int32_t token = 0; token < 3; ++token) tree.append(0, {.token = token, .score = -1});
  std::vector<int> asked;
  walk(
      tree,
      [&](int node) {
        asked.push_back(node);
        return 2;
      },
      kNeverEnds);
  EXPECT_EQ(asked, (std::vector<int>{0, 3}));
}

// A teacher over three tokens: some logits for every path.
std::vector<float> teacher_logits(std::uint32_t seed, const Tokens& path) {
  std::seed_seq sequence(path.begin(), path.end());
  std::uint32_t mixed = 0;
  sequence.generate(&mixed, &mixed + 1);
  std::mt19937 random(mixed ^ seed);
  std::vector<float> logits;
  for (int i = 0; i < kThreeTokens; ++i) logits.push_back(static_cast<float>(random() % 4001) / 1000.0f - 2.0f);
  return logits;
}

struct Choice {
  std::int32_t token = 0;
  double probability = 0;  // the length of the interval of u
};

// The sampler's choice as a function of u is a staircase; its steps, found exactly by bisection over all multiples of
// 2^-53, which are the numbers u can be.
std::vector<Choice> staircase(const std::vector<float>& logits, const SamplingOptions& options, const Tokens& path) {
  constexpr std::uint64_t kEnd = std::uint64_t{1} << 53;
  const auto at = [&](std::uint64_t k) { return sample(logits, options, {path, 1}, static_cast<double>(k) * 0x1p-53); };
  std::vector<Choice> steps;
  for (std::uint64_t begin = 0; begin < kEnd;) {
    const std::int32_t token = at(begin);
    std::uint64_t low = begin, high = kEnd;  // at(low) is the token, high is behind its step
    while (high - low > 1) {
      const std::uint64_t middle = low + (high - low) / 2;
      (at(middle) == token ? low : high) = middle;
    }
    steps.push_back({token, static_cast<double>(high - begin) * 0x1p-53});
    begin = high;
  }
  return steps;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  double sum = 0;
  for (float logit : logits) sum += p.emplace_back(std::exp(double{logit} / temperature));
  for (double& value : p) value /= sum;
  return p;
}

// Every tree of up to `nodes` nodes over the vocabulary, below the root token 0.
void all_trees(const TokenTree& tree, int nodes, std::vector<TokenTree>& trees) {
  trees.push_back(tree);
  if (tree.size() == nodes) return;
  const int last = tree.size() - 1;
  for (int parent = tree[last].parent; parent < tree.size(); ++parent)
    for (std::int32_t token = 0; token < kThreeTokens; ++token) {
      // Children in ascending order of tokens: each tree once.
      const bool continues = parent == tree[last].parent && last != 0;
      if (continues && token <= tree[last].token) continue;
      TokenTree larger = tree;
      larger.append(parent, {.token = token, .score = -1.0 - larger[parent].depth});
      all_trees(larger, nodes, trees);
    }
}

// Sums the measure of u over every way a walk can go; emitted[s] is the probability that exactly s comes out.
class Integral {
 public:
  Integral(const TokenTree& tree, std::uint32_t seed, const SamplingOptions& options)
      : tree_(tree), seed_(seed), options_(options) {}

  const std::map<Tokens, double>& emitted() {
    descend({tree_[0].token}, 1.0, {});
    return emitted_;
  }

 private:
  // Fixes the choices of the first draws, walks, and where the walk wants one more, tries each in turn.
  void descend(const Tokens& path, double measure, const Tokens& fixed) {
    Tokens out;
    bool wants_more = false;
    walk(
        tree_,
        [&](int) {
          wants_more = out.size() == fixed.size();
          out.push_back(wants_more ? -1 : fixed[out.size()]);
          return out.back();
        },
        kNeverEnds);
    if (!wants_more) {
      emitted_[out] += measure;
      return;
    }
    for (const Choice& choice : staircase(teacher_logits(seed_, path), options_, path)) {
      Tokens next_path = path, next_fixed = fixed;
      next_path.push_back(choice.token);
      next_fixed.push_back(choice.token);
      descend(next_path, measure * choice.probability, next_fixed);
    }
  }

  const TokenTree& tree_;
  std::uint32_t seed_;
  SamplingOptions options_;
  std::map<Tokens, double> emitted_;
};

TEST(Walk, WhatComesOutHasTheTeachersDistributionForEveryTreeOfUpToFiveNodes) {
  std::vector<TokenTree> trees;
  all_trees(TokenTree(0), 5, trees);
  EXPECT_EQ(trees.size(), 1u + 3 + 12 + 55 + 273) << "ternary trees of 1 to 5 nodes";
  const double temperature = 0.8;
  for (std::uint32_t seed = 1; seed <= 2; ++seed)
    for (const TokenTree& tree : trees) {
      Integral integral(tree, seed, {.temperature = static_cast<float>(temperature)});
      double total = 0;
      for (const auto& [tokens, probability] : integral.emitted()) {
        double expected = 1;
        Tokens path = {0};
        for (std::int32_t token : tokens) {
          expected *= softmax(teacher_logits(seed, path),
                              double{static_cast<float>(temperature)})[static_cast<std::size_t>(token)];
          path.push_back(token);
        }
        // The sampler's exponentials are floats: each factor is good to a few parts in 2^24.
        EXPECT_NEAR(probability, expected, 4e-7 * static_cast<double>(tokens.size()));
        total += probability;
      }
      EXPECT_NEAR(total, 1.0, 1e-12);
    }
}

}  // namespace
}  // namespace espalier
