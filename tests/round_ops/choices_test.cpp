// choose_tokens on every device with round ops against the sampler (decode/sampler.h), and walk_trees against the walk
// of decode/accept.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/random.h"
#include "decode/accept.h"
#include "decode/sampler.h"
#include "round_ops/round_tables.h"
#include "tree/testing/random_tree.h"

namespace espalier {
namespace {

// How the tokens of one tree are chosen.
struct Choosing {
  SamplingOptions options = {};
  std::uint64_t seed = 0;
};

// Several trees of as many rows each.
struct ChoiceCase {
  std::vector<Choosing> trees;
  std::int64_t columns = 0;
  std::vector<float> logits = {};
  Ints position = {};
};

struct ChosenRows {
  Ints token, state;
};

ChosenRows chosen_on(Device& device, const ChoiceCase& c, std::int64_t gap = 0) {
  std::vector<float> temperature, top_p, min_p;
  Ints top_k, seed;
  for (const Choosing& tree : c.trees) {
    temperature.push_back(tree.options.temperature);
    top_p.push_back(tree.options.top_p);
    min_p.push_back(tree.options.min_p);
    top_k.push_back(static_cast<std::int32_t>(tree.options.top_k));
    seed.push_back(static_cast<std::int32_t>(tree.seed));
    seed.push_back(static_cast<std::int32_t>(tree.seed >> 32));
  }
  const std::int64_t rows = std::ssize(c.position);
  const PlacedTensor logits = place(device, DType::f32, c.logits, rows, {.extra_columns = gap});
  const IntTable position(device, 1, c.position), seeds(device, std::ssize(c.trees), seed), tops(device, 1, top_k);
  const FloatList temperatures(device, temperature), top_ps(device, top_p), min_ps(device, min_p);
  const IntTable token(device, 1, rows), state(device, 1, rows);
  device.round_ops()->run(ChooseTokens{.logits = logits,
                                       .position = position.list(),
                                       .temperature = temperatures.list(),
                                       .top_p = top_ps.list(),
                                       .min_p = min_ps.list(),
                                       .top_k = tops.list(),
                                       .seed = seeds.table(),
                                       .token = token.list(),
                                       .state = state.list()});
  return {token.values(), state.values()};
}

// What the host draws; nothing where it finds the logits broken.
std::optional<std::int32_t> drawn_on_host(const ChoiceCase& c, std::int64_t row) {
  const Choosing& tree = c.trees[static_cast<std::size_t>(row / (std::ssize(c.position) / std::ssize(c.trees)))];
  const auto logits =
      std::span(c.logits).subspan(static_cast<std::size_t>(row * c.columns), static_cast<std::size_t>(c.columns));
  const auto before = static_cast<std::uint64_t>(c.position[static_cast<std::size_t>(row)]) + 1;
  try {
    return sample(logits, tree.options, {}, uniform(tree.seed, before));
  } catch (const InputError&) {
    return std::nullopt;
  }
}

class ChoiceConformance : public testing::TestWithParam<DeviceUnderTest> {
 protected:
  Choosing random_choosing() {
    constexpr float kTemperatures[] = {0.0f, 0.01f, 0.7f, 1.0f, 2.5f, 90.0f};
    constexpr float kTopP[] = {1.0f, 0.999f, 0.9f, 0.3f, 1e-6f};
    constexpr float kMinP[] = {0.0f, 0.0f, 0.05f, 0.5f, 1.0f};
    constexpr std::int64_t kTopK[] = {0, 0, 1, 5, 40, 1023, 1024, 1025, 5000};
    return {.options = {.temperature = kTemperatures[random_.below(std::size(kTemperatures))],
                        .top_k = kTopK[random_.below(std::size(kTopK))],
                        .top_p = kTopP[random_.below(std::size(kTopP))],
                        .min_p = kMinP[random_.below(std::size(kMinP))]},
            .seed = static_cast<std::uint64_t>(random_.below(std::int64_t{1} << 62))};
  }

  ChoiceCase random_case(std::int64_t columns, std::int64_t rows_of_tree) {
    ChoiceCase c{.trees = {}, .columns = columns};
    for (std::int64_t s = random_.between(1, 3); s > 0; --s) c.trees.push_back(random_choosing());
    for (std::int64_t r = 0; r < rows_of_tree * std::ssize(c.trees); ++r) {
      const std::vector<float> row = awkward_logits(random_, columns);
      c.logits.insert(c.logits.end(), row.begin(), row.end());
      c.position.push_back(static_cast<std::int32_t>(random_.below(5000)));
    }
    return c;
  }

  // Returns how many rows were undecided.
  std::int64_t expect_choices(const ChoiceCase& c, std::int64_t gap = 0) {
    const auto [token, state] = chosen_on(test_.tested(), c, gap);
    std::int64_t undecided = 0;
    for (std::int64_t r = 0; r < std::ssize(token); ++r) {
      const auto i = static_cast<std::size_t>(r);
      const std::optional<std::int32_t> expected = drawn_on_host(c, r);
      EXPECT_EQ(state[i] == static_cast<std::int32_t>(RowState::broken), !expected) << "row " << r;
      EXPECT_TRUE(token[i] >= 0 && token[i] < c.columns) << "row " << r;
      if (state[i] == static_cast<std::int32_t>(RowState::decided)) {
        EXPECT_EQ(token[i], *expected) << "row " << r;
      }
      undecided += state[i] == static_cast<std::int32_t>(RowState::undecided) ? 1 : 0;
    }
    return undecided;
  }

  DeviceTest test_{GetParam()};
  RandomValues random_{59};
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ChoiceConformance);  // where another kind of device is judged
INSTANTIATE_TEST_SUITE_P(Devices, ChoiceConformance, testing::ValuesIn(devices_with_round_ops()), NameOfDevice());

TEST_P(ChoiceConformance, TokensAreThoseOfTheSampler) {
  for (int i = 0; i < 150; ++i) {
    SCOPED_TRACE(i);
    const ChoiceCase c = random_case(random_.between(1, 200), random_.between(1, 6));
    EXPECT_EQ(expect_choices(c, random_.below(3)), 0) << "with fewer ids than are ranked, everything is decided";
  }
}

TEST_P(ChoiceConformance, WithManyIdsTheyAreThoseOfTheSamplerOrUndecided) {
  std::int64_t undecided = 0, rows = 0;
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const ChoiceCase c = random_case(random_.between(1000, 3000), 2);
    undecided += expect_choices(c);
    rows += std::ssize(c.position);
  }
  EXPECT_GT(undecided, 0);
  EXPECT_LT(undecided, rows / 2);
}

TEST_P(ChoiceConformance, AlsoOfAWholeVocabulary) {
  expect_choices(random_case(49152, 3));
  expect_choices(random_case(32000, 2));
}

// Flat logits: rank i is id i, so the host's draw says whether the ranked ids hold it.
TEST_P(ChoiceConformance, ARowIsUndecidedOnlyWhereTheRankedIdsDoNotDecide) {
  for (const std::int64_t ids : {2 * kRankedTokens, 5 * kRankedTokens + 3}) {
    ChoiceCase c{.trees = {{.options = {.temperature = 1.0f}, .seed = 7}},
                 .columns = ids,
                 .logits = std::vector<float>(static_cast<std::size_t>(40 * ids))};
    for (std::int32_t r = 0; r < 40; ++r) c.position.push_back(r);
    const ChosenRows chosen = chosen_on(test_.tested(), c);
    for (std::int64_t r = 0; r < 40; ++r) {
      const std::int32_t drawn = *drawn_on_host(c, r);
      const auto i = static_cast<std::size_t>(r);
      EXPECT_EQ(chosen.state[i] == static_cast<std::int32_t>(RowState::undecided), drawn >= kRankedTokens);
      EXPECT_EQ(chosen.token[i], drawn < kRankedTokens ? drawn : 0);
    }
  }
}

// More ids of one weight than are ranked, in the middle of those that are.
TEST_P(ChoiceConformance, AmongManyEqualIdsTheLowestAreRanked) {
  constexpr std::int64_t kIds = 7000, kRows = 24;
  ChoiceCase c{.trees = {{.options = {.temperature = 0.9f, .top_k = kRankedTokens}, .seed = 11},
                         {.options = {.temperature = 40.0f, .top_k = 1000}, .seed = 12},
                         {.options = {.temperature = 0.5f, .top_p = 0.2f}, .seed = 13}},
               .columns = kIds};
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t j = 0; j < kIds; ++j) {
      const std::int64_t kind = random_.below(12);
      c.logits.push_back(kind == 0 ? 3.0f + 0.01f * random_.value() : kind < 11 ? 2.5f : -random_.value());
    }
    c.position.push_back(static_cast<std::int32_t>(r));
  }
  EXPECT_LT(expect_choices(c), kRows / 2);
}

// Logits that a temperature rounds to the same number rank by id, whichever was larger.
TEST_P(ChoiceConformance, IdsThatATemperatureMakesEqualRankById) {
  ChoiceCase c{.trees = {{.options = {.temperature = 100.0f}, .seed = 3}}, .columns = 300};
  for (int r = 0; r < 30; ++r) {
    for (int j = 0; j < 300; ++j) c.logits.push_back(-1e-30f * static_cast<float>((j * 7 + r) % 300));
    c.logits.back() = 1e10f;
    c.logits[c.logits.size() - 2] = 1e10f;
    c.position.push_back(r);
  }
  expect_choices(c);
}

// --- the walk -------------------------------------------------------------------------------------------------------

class WalkConformance : public testing::TestWithParam<DeviceUnderTest> {
 protected:
  // What the teacher chooses at each row: often what a child carries.
  Ints choices(const TokenTree& tree, std::int64_t rows) {
    Ints chosen;
    for (std::int64_t r = 0; r < rows; ++r) {
      const int node = static_cast<int>(r);
      const bool inner = r < tree.size() && tree[node].children > 0 && !random_.one_in(5);
      chosen.push_back(inner ? tree[tree[node].first_child + static_cast<int>(random_.below(tree[node].children))].token
                             : static_cast<std::int32_t>(random_.below(2000)));
    }
    return chosen;
  }

  DeviceTest test_{GetParam()};
  RandomValues random_{61};
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(WalkConformance);  // where another kind of device is judged
INSTANTIATE_TEST_SUITE_P(Devices, WalkConformance, testing::ValuesIn(devices_with_round_ops()), NameOfDevice());

TEST_P(WalkConformance, PathsAreThoseOfTheHost) {
  Device& device = test_.tested();
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const std::int64_t rows = random_.between(1, 64), trees = random_.between(1, 3);
    std::vector<TokenTree> all;
    Ints choice, state(static_cast<std::size_t>(rows * trees));
    std::int64_t levels = 1;
    for (std::int64_t s = 0; s < trees; ++s) {
      const TokenTree& tree = all.emplace_back(
          random_tree(mix64(seed) + static_cast<std::uint64_t>(s), static_cast<int>(random_.between(1, rows))));
      const Ints chosen = choices(tree, rows);
      choice.insert(choice.end(), chosen.begin(), chosen.end());
      levels = std::max<std::int64_t>(levels, tree.depth() + 1);
    }
    for (std::int32_t& value : state) value = random_.one_in(20) ? static_cast<std::int32_t>(random_.below(3)) : 0;
    OwnedNodes tables(device, trees, rows, random_.below(2));
    tables.fill(all);
    const std::int64_t length = levels + random_.below(3);
    const IntTable choices(device, 1, choice), states(device, 1, state), path(device, trees, length),
        count(device, 1, trees), last(device, 1, trees), token(device, 1, trees), outcome(device, 1, trees);
    device.round_ops()->run(WalkTrees{.tree = tables.all(),
                                      .choice = choices.list(),
                                      .state = states.list(),
                                      .path = path.table(),
                                      .count = count.list(),
                                      .last = last.list(),
                                      .token = token.list(),
                                      .outcome = outcome.list()});
    for (std::int64_t s = 0; s < trees; ++s) {
      const auto at = [&](const Ints& list, int node) { return list[static_cast<std::size_t>(s * rows + node)]; };
      std::vector<Visit> visits = walk(
          all[static_cast<std::size_t>(s)], [&](int node) { return at(choice, node); },
          [](std::int32_t) { return false; });
      std::int32_t expected = 0;
      for (const Visit& visit : visits)
        if (expected == 0) expected = at(state, visit.node);
      const std::size_t walked = expected == 0 ? visits.size() : 0;
      const auto tree = static_cast<std::size_t>(s);
      EXPECT_EQ(outcome.values()[tree], expected);
      EXPECT_EQ(count.values()[tree], static_cast<std::int32_t>(walked));
      const int end = walked == 0 ? 0 : visits.back().node;
      EXPECT_EQ(last.values()[tree], s * rows + end);
      EXPECT_EQ(token.values()[tree], at(choice, end));
      for (std::int64_t j = 0; j < length; ++j)
        EXPECT_EQ(path.values()[static_cast<std::size_t>(s * length + j)],
                  static_cast<std::size_t>(j) < walked ? visits[static_cast<std::size_t>(j)].node : end);
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace espalier
