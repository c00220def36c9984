// Trees that grow on every device with round ops, level by level, against the trees that drafters and tree/ grow on the
// host from the same logits: chains, trees of a fixed shape and those that grow to their best, with ties, NaN, ids
// outside the vocabulary, ids given twice, and limits that end them early; and the rows of the draft passes on the way.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "base/random.h"
#include "cache/kv_cache.h"
#include "decode/draft_tree.h"
#include "decode/step_invariants.h"
#include "decode/top_guesses.h"
#include "device/reference/reference_device.h"
#include "round_ops/round_tables.h"
#include "testing/random_shape.h"
#include "tree/testing/tokens_to.h"

namespace espalier {
namespace {

// What the drafters of several trees say: logits as a pure function of a tree and the path below its root.
class LogitsOfPaths {
 public:
  LogitsOfPaths(std::uint64_t seed, std::int64_t columns) : seed_(seed), columns_(columns) {}

  std::vector<float> after(std::int64_t tree, const Ints& path) const {
    std::uint64_t state = mix64(seed_ + static_cast<std::uint64_t>(tree));
    for (const std::int32_t token : path) state = mix64(state + static_cast<std::uint64_t>(token) + 1);
    RandomValues random(state);
    return awkward_logits(random, columns_);
  }
  std::int64_t columns() const { return columns_; }

 private:
  std::uint64_t seed_;
  std::int64_t columns_;
};

// A round of several trees.
struct Growth {
  TreeOptions options = {};
  LogitsOfPaths logits;
  std::int32_t vocabulary = 0;
  float scale = 1.0f;
  Ints target_ids = {};
  Ints roots = {}, rows = {}, depths = {};  // of each tree

  std::int64_t trees() const { return std::ssize(roots); }
  std::int64_t most_guesses() const {
    std::int64_t branch = options.branch == 0 ? options.expand : options.branch;
    if (options.shape == TreeShape::chain) branch = 1;
    if (options.shape == TreeShape::fixed) branch = options.choices->ranks();
    return std::min(branch, logits.columns());
  }
};

// --- on the host ----------------------------------------------------------------------------------------------------

class TreeNumber final : public DraftSequence {
 public:
  explicit TreeNumber(std::int64_t tree) : tree(tree) {}
  bool reused(std::span<const std::int32_t>) override { return false; }
  void committed(const CommittedRows&) override {}
  void begin_round(const DraftRound&) override {}

  const std::int64_t tree;
};

class PathDrafter final : public Drafter {
 public:
  PathDrafter(Device& device, const Growth& growth)
      : device_(device), growth_(growth), top_(device, 1, growth.most_guesses()) {}

  std::string_view name() const override { return "paths"; }
  std::unique_ptr<DraftSequence> open(SequenceId sequence, std::span<const std::int32_t>) override {
    return std::make_unique<TreeNumber>(sequence);
  }
  std::vector<Guesses> expand(std::span<const DraftJob> jobs) override {
    std::vector<Guesses> all;
    for (const DraftJob& job : jobs) {
      Guesses& guesses = all.emplace_back();
      for (const int node : job.nodes) {
        const std::vector<float> logits =
            growth_.logits.after(static_cast<TreeNumber*>(job.sequence)->tree, tokens_to(*job.candidates, node));
        const PlacedTensor placed = place(device_, DType::f32, logits, 1);
        guesses.push_back(top_.read(placed.view(), std::min<std::int64_t>(job.branch, growth_.most_guesses()),
                                    {.target_ids = growth_.target_ids, .logit_scale = growth_.scale})[0]);
      }
    }
    return all;
  }

 private:
  Device& device_;
  const Growth& growth_;
  TopGuesses top_;
};

std::vector<TokenTree> grown_on_host(Device& device, const Growth& growth) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::make_unique<PathDrafter>(device, growth));
  std::vector<std::vector<std::unique_ptr<DraftSequence>>> sequences;
  for (std::int64_t s = 0; s < growth.trees(); ++s) sequences.emplace_back().push_back(drafters[0]->open(s, {}));
  std::vector<GrowthJob> jobs;
  for (std::size_t s = 0; s < sequences.size(); ++s)
    jobs.push_back({.root = growth.roots[s],
                    .limits = {.rows = growth.rows[s], .depth = growth.depths[s], .vocabulary = growth.vocabulary},
                    .sequences = sequences[s]});
  std::vector<TokenTree> trees;
  std::size_t s = 0;
  for (const Candidates& candidates : grow_candidates(jobs, growth.options, drafters))
    trees.push_back(candidates.best(growth.rows[s++]));
  return trees;
}

// --- on the device --------------------------------------------------------------------------------------------------

// The tables of a level's shape, which are the same in every round.
struct LevelShape {
  Ints entry, rank;
  Ints listed = {};       // of a fixed shape
  std::int64_t next = 0;  // how many entries the frontier has behind this level
};

std::vector<LevelShape> fixed_levels(const ChoiceTree& shape) {
  std::vector<LevelShape> levels(static_cast<std::size_t>(shape.depth()));
  Ints entry_of(static_cast<std::size_t>(shape.size()));  // of rows with children, in the frontier of their level
  std::vector<std::int32_t> entries(levels.size() + 1);
  for (int row = 0; row < shape.size(); ++row) {
    const std::size_t depth = shape.path(row).size();
    if (row > 0) {
      levels[depth - 1].entry.push_back(entry_of[static_cast<std::size_t>(shape.parent(row))]);
      levels[depth - 1].rank.push_back(shape.path(row).back());
    }
    if (shape.children(row) == 0) continue;
    entry_of[static_cast<std::size_t>(row)] = entries[depth]++;
    if (row > 0) levels[depth - 1].listed.push_back(row);
  }
  for (LevelShape& level : levels) level.next = std::ssize(level.listed);
  return levels;
}

std::vector<LevelShape> best_levels(const Growth& growth) {
  const std::int64_t expand = growth.options.shape == TreeShape::chain ? 1 : growth.options.expand;
  std::vector<LevelShape> levels(static_cast<std::size_t>(growth.options.depth));
  for (std::size_t l = 0; l < levels.size(); ++l) {
    for (std::int32_t entry = 0; entry < (l == 0 ? 1 : expand); ++entry)
      for (std::int32_t rank = 0; rank < growth.most_guesses(); ++rank) {
        levels[l].entry.push_back(entry);
        levels[l].rank.push_back(rank);
      }
    levels[l].next = l + 1 < levels.size() ? expand : 0;
  }
  return levels;
}

// A sequence in a draft memory: where the rows of its nodes go.
struct DraftPlaces {
  Branch branch;
  std::int32_t first = 0, begin = 0, root_position = 0;
};

class GrownOnDevice {
 public:
  GrownOnDevice(Device& device, const Growth& growth, std::uint64_t seed)
      : device_(device),
        growth_(growth),
        levels_(growth.options.shape == TreeShape::fixed ? fixed_levels(*growth.options.choices) : best_levels(growth)),
        candidates_(1),
        random_(seed),
        root_is_row_(random_.one_in(2)),
        ids_(device, 1, growth.target_ids.empty() ? Ints(1) : growth.target_ids),
        roots_(device, 1, growth.roots),
        depths_(device, 1, growth.depths),
        frontier_(static_cast<std::size_t>(growth.trees())),
        frontier_width_(1) {
    for (const LevelShape& level : levels_) candidates_ += std::ssize(level.entry);
    nodes_.emplace(device, growth.trees(), candidates_, random_.below(3));
    open_places();
  }

  // The tree's tables, of `rows` rows each.
  void grow(OwnedNodes& tree, std::int64_t rows, IntTable& size) {
    std::int64_t known = 1;
    for (std::size_t l = 0; l < levels_.size() && !testing::Test::HasFatalFailure(); ++l) {
      known += std::ssize(levels_[l].entry);
      grow_level(static_cast<std::int32_t>(l) + 1, levels_[l], known);
    }
    const IntTable most(device_, 1, growth_.rows), drafted(device_, growth_.trees(), rows);
    device_.round_ops()->run(ChooseRows{.nodes = nodes_->first(known),
                                        .rows = most.list(),
                                        .tree = tree.all(),
                                        .drafted = drafted.table(),
                                        .size = size.list()});
    expect_drafted(tree, rows, drafted.values());
  }

 private:
  void open_places() {
    cache_.emplace(*host_, KvShape{.layers = 1, .kv_heads = 1, .head_size = 2, .type = DType::f32, .block_size = 16},
                   growth_.trees() * 512);
    for (std::int64_t s = 0; s < growth_.trees(); ++s) {
      const SequenceId sequence = cache_->create();
      const std::int64_t prefix = random_.between(1, 100);
      cache_->begin(sequence, prefix)->commit_length(prefix);
      const auto first = static_cast<std::int32_t>(prefix + (root_is_row_ ? 0 : 1));
      places_.push_back({.branch = *cache_->begin(sequence, 2 + draft_rows()),
                         .first = first,
                         .begin = static_cast<std::int32_t>(random_.below(first)),
                         .root_position = root_is_row_ ? first : first - 2});
      if (root_is_row_)
        rows_of_.push_back({{0, {first}}});
      else
        rows_of_.push_back({{0, {}}});
    }
  }
  std::int64_t draft_rows() const {
    std::int64_t rows = root_is_row_ ? 1 : 0;
    for (const LevelShape& level : levels_) rows += level.next;
    return rows;
  }
  std::vector<std::int32_t> blocks() const {
    Ints all;
    for (const DraftPlaces& places : places_) {
      const auto own = cache_->blocks(places.branch.id());
      all.insert(all.end(), own.begin(), own.end());
      all.resize(static_cast<std::size_t>((&places - places_.data() + 1) * kBlockColumns));
    }
    return all;
  }

  Ints path_of(std::int64_t tree, std::int32_t node) const {
    const Ints token = nodes_->tokens(), parent = nodes_->parents();
    Ints path;
    for (; node != 0; node = parent[static_cast<std::size_t>(tree * candidates_ + node)])
      path.insert(path.begin(), token[static_cast<std::size_t>(tree * candidates_ + node)]);
    return path;
  }

  // The logits of the pass over the frontier: of rows that are not there, anything.
  std::vector<float> logits_of_pass() {
    std::vector<float> all;
    for (std::int64_t s = 0; s < growth_.trees(); ++s)
      for (std::int64_t e = 0; e < frontier_width_; ++e) {
        const std::int32_t node = frontier_[static_cast<std::size_t>(s * frontier_width_ + e)];
        const std::vector<float> row = growth_.logits.after(s, path_of(s, node));
        all.insert(all.end(), row.begin(), row.end());
      }
    return all;
  }

  void grow_level(std::int32_t level, const LevelShape& shape, std::int64_t known) {
    const std::int64_t trees = growth_.trees(), rows = trees * frontier_width_;
    const PlacedTensor logits = level == 1 ? place(device_, DType::f32, first_logits(), rows)
                                           : place(device_, DType::f32, logits_of_pass(), rows);
    const OwnedGuesses guesses(device_, rows, growth_.most_guesses());
    device_.round_ops()->run(RankGuesses{.logits = logits,
                                         .target_ids = growth_.target_ids.empty() ? View() : ids_.list(),
                                         .scale = growth_.scale,
                                         .vocabulary = growth_.vocabulary,
                                         .guesses = guesses.all()});
    Ints numbers(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int32_t>(i);
    const IntTable frontier(device_, trees, frontier_), guess_row(device_, trees, numbers);
    const IntTable entry(device_, 1, shape.entry), rank(device_, 1, shape.rank);
    const IntTable listed(device_, 1, shape.listed.empty() ? Ints(1) : shape.listed);
    const std::int64_t next_width = std::max<std::int64_t>(shape.next, 1);
    const IntTable next(device_, trees, next_width);
    device_.round_ops()->run(GrowLevel{.nodes = nodes_->first(known),
                                       .root = roots_.list(),
                                       .levels = depths_.list(),
                                       .entry = entry.list(),
                                       .rank = rank.list(),
                                       .frontier = frontier.table(),
                                       .guess_row = guess_row.table(),
                                       .guesses = guesses.all(),
                                       .listed = shape.listed.empty() ? View() : listed.list(),
                                       .next = shape.next == 0 ? View() : next.table(),
                                       .level = level,
                                       .root_row = root_is_row_ ? 1 : 0});
    if (shape.next == 0) return;
    const std::int64_t prior_width = frontier_width_;
    frontier_ = next.values();
    frontier_width_ = next_width;
    for (std::size_t i = 0; i < frontier_.size(); ++i) {
      const bool last = level >= growth_.depths[i / static_cast<std::size_t>(next_width)];
      if (last) {
        EXPECT_EQ(frontier_[i], 0) << "nobody is expanded below the last level";
      }
    }
    place_level(next, known, prior_width);
  }

  std::vector<float> first_logits() {
    std::vector<float> all;
    for (std::int64_t s = 0; s < growth_.trees(); ++s) {
      const std::vector<float> row = growth_.logits.after(s, {});
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }

  // --- the rows of the next pass, as EagleDrafter and ModelDrafter place them ---------------------------------------
  void place_level(const IntTable& next, std::int64_t known, std::int64_t prior_width) {
    const std::int64_t trees = growth_.trees(), columns = std::max<std::int64_t>(1, growth_.options.depth + 1);
    Ints first, position, begin, seed;
    for (const DraftPlaces& places : places_) {
      first.push_back(places.first);
      position.push_back(places.root_position);
      begin.push_back(places.begin);
      seed.push_back(static_cast<std::int32_t>(100 + std::ssize(seed)));
    }
    const IntTable firsts(device_, 1, first), positions(device_, 1, position), begins(device_, 1, begin),
        seeds(device_, 1, seed), tables(device_, trees, blocks());
    const OwnedRows rows(device_, trees * frontier_width_, columns);
    device_.round_ops()->run(PlaceRows{.nodes = nodes_->first(known),
                                       .listed = next.table(),
                                       .first = firsts.list(),
                                       .root_position = positions.list(),
                                       .begin = begins.list(),
                                       .seed = seeds.list(),
                                       .places = {.blocks = tables.table(), .block_size = 16},
                                       .rows = rows.all(),
                                       .offset = offset(),
                                       .prior_rows = static_cast<std::int32_t>(prior_width),
                                       .prior_offset = prior_offset_});
    expect_rows(rows, columns, prior_width);
    prior_offset_ = offset();
    placed_ += static_cast<std::int32_t>(frontier_width_);
  }
  std::int32_t offset() const { return (root_is_row_ ? 1 : 0) + placed_; }

  void expect_rows(const OwnedRows& rows, std::int64_t columns, std::int64_t prior_width) {
    const ReadRows read(rows, columns, blocks(), kBlockColumns);
    const HostTables tables = read.tables();
    const Ints input = rows.input.values();
    const Ints tokens = nodes_->tokens(), parents = nodes_->parents(), depths = nodes_->depths(),
               numbers = nodes_->rows();
    const StepLimits limits;
    const TreeTensors shown;
    for (std::int64_t r = 0; r < tables.rows; ++r) {
      const std::int64_t s = r / frontier_width_, i = r % frontier_width_;
      const auto at = static_cast<std::size_t>(r);
      const DraftPlaces& places = places_[static_cast<std::size_t>(s)];
      const auto place = static_cast<std::int32_t>(places.first + offset() + i);
      const std::int32_t node = frontier_[at];
      const StepRows checked(tables, r, places.branch.id(), cache_->tables(), limits, shown);
      if (node == 0) {
        EXPECT_NO_THROW(checked.check_row(0, {.place = place})) << "padding row " << r;
        EXPECT_EQ(input[at], 0);
        continue;
      }
      const auto index = static_cast<std::size_t>(s * candidates_ + node);
      auto& known = rows_of_[static_cast<std::size_t>(s)];
      Ints above = known.at(parents[index]);
      ASSERT_NO_THROW(checked.check_row(0, {.token = tokens[index],
                                            .position = places.root_position + depths[index],
                                            .place = place,
                                            .begin = places.begin,
                                            .end = places.first,
                                            .ancestors = above}));
      EXPECT_EQ(read.sequence[at], s);
      EXPECT_EQ(numbers[index], 1 + place - places.first);
      const std::int64_t prior =
          parents[index] == 0 ? 100 + s
                              : s * prior_width + numbers[static_cast<std::size_t>(s * candidates_ + parents[index])] -
                                    1 - prior_offset_;
      EXPECT_EQ(input[at], prior);
      above.push_back(place);
      known[node] = above;
    }
  }

  // The rows of the tree know which row of the drafter's memory they were.
  void expect_drafted(const OwnedNodes& tree, std::int64_t rows, const Ints& drafted) const {
    const Ints tokens = tree.tokens(), parents = tree.parents(), depths = tree.depths();
    for (std::int64_t s = 0; s < growth_.trees(); ++s) {
      std::map<Ints, std::int32_t> expected;
      for (const auto& [node, places] : rows_of_[static_cast<std::size_t>(s)])
        if (!places.empty())
          expected[path_of(s, node)] = 1 + places.back() - places_[static_cast<std::size_t>(s)].first;
      for (std::int64_t r = 0; r < rows; ++r) {
        Ints path;
        for (std::int64_t k = r; k != 0; k = parents[static_cast<std::size_t>(s * rows + k)])
          path.insert(path.begin(), tokens[static_cast<std::size_t>(s * rows + k)]);
        const bool there = r == 0 || depths[static_cast<std::size_t>(s * rows + r)] > 0;
        EXPECT_EQ(drafted[static_cast<std::size_t>(s * rows + r)],
                  there && expected.contains(path) ? expected[path] : 0);
      }
    }
  }

  static constexpr std::int64_t kBlockColumns = 32;

  Device& device_;
  const Growth& growth_;
  std::vector<LevelShape> levels_;
  std::int64_t candidates_;
  RandomValues random_;
  bool root_is_row_;
  IntTable ids_, roots_, depths_;
  std::optional<OwnedNodes> nodes_;
  Ints frontier_;
  std::int64_t frontier_width_;

  // Where rows of the drafts go.
  std::unique_ptr<Device> host_ = make_reference_device();
  std::optional<KvCache> cache_;
  std::vector<DraftPlaces> places_;
  std::vector<std::map<std::int32_t, Ints>> rows_of_;  // of each node with a row: the places of those above and its own
  std::int32_t placed_ = 0, prior_offset_ = 0;
};

class GrowthConformance : public testing::TestWithParam<DeviceUnderTest> {
 protected:
  void expect_same_trees(const Growth& growth, std::uint64_t seed) {
    const std::vector<TokenTree> expected = grown_on_host(test_.judge(), growth);
    const std::int64_t rows = max_rows(growth.options);
    OwnedNodes tree(test_.tested(), growth.trees(), rows, 1);
    IntTable size(test_.tested(), 1, growth.trees());
    GrownOnDevice(test_.tested(), growth, seed).grow(tree, rows, size);
    for (std::int64_t s = 0; s < growth.trees(); ++s) {
      SCOPED_TRACE(testing::Message() << "tree " << s);
      EXPECT_EQ(size.values()[static_cast<std::size_t>(s)], expected[static_cast<std::size_t>(s)].size());
      expect_tree(tree, s, rows, expected[static_cast<std::size_t>(s)]);
    }
  }

  // Several trees of one shape, each with limits and logits of its own.
  Growth random_growth(std::uint64_t seed, TreeOptions options) {
    Growth growth{.options = std::move(options), .logits = LogitsOfPaths(seed, random_.between(1, 24))};
    growth.vocabulary = static_cast<std::int32_t>(random_.between(1, growth.logits.columns() + 4));
    growth.scale = random_.one_in(2) ? 1.0f : 0.7f;
    if (random_.one_in(2))
      for (std::int64_t c = 0; c < growth.logits.columns(); ++c)
        growth.target_ids.push_back(static_cast<std::int32_t>(random_.between(-1, growth.vocabulary)));
    const std::int64_t trees = random_.one_in(2) ? 1 : random_.between(2, 4);
    for (std::int64_t s = 0; s < trees; ++s) {
      const bool limited = random_.one_in(3);
      growth.roots.push_back(static_cast<std::int32_t>(random_.below(1000)));
      growth.rows.push_back(
          static_cast<std::int32_t>(limited ? random_.between(1, max_rows(growth.options)) : max_rows(growth.options)));
      growth.depths.push_back(
          static_cast<std::int32_t>(limited ? random_.between(0, growth.options.depth) : growth.options.depth));
    }
    return growth;
  }

  DeviceTest test_{GetParam()};
  RandomValues random_{47};
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GrowthConformance);  // where another kind of device is judged
INSTANTIATE_TEST_SUITE_P(Devices, GrowthConformance, testing::ValuesIn(devices_with_round_ops()), NameOfDevice());

TEST_P(GrowthConformance, TreesThatGrowToTheirBestAreThoseOfTheHost) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    const Growth growth = random_growth(seed, {.nodes = static_cast<int>(random_.between(1, 40)),
                                               .depth = static_cast<int>(random_.between(1, 6)),
                                               .expand = static_cast<int>(random_.between(1, 6)),
                                               .branch = static_cast<int>(random_.between(0, 6))});
    expect_same_trees(growth, seed);
    if (HasFatalFailure()) return;
  }
}

// More nodes than a device may rank by comparing all with all.
TEST_P(GrowthConformance, TreesOfManyNodesAreThoseOfTheHost) {
  for (std::uint64_t seed = 500; seed < 506; ++seed) {
    SCOPED_TRACE(seed);
    const Growth growth = random_growth(seed, {.nodes = static_cast<int>(random_.between(20, 64)),
                                               .depth = 4,
                                               .expand = static_cast<int>(random_.between(13, 16))});
    expect_same_trees(growth, seed);
    if (HasFatalFailure()) return;
  }
}

TEST_P(GrowthConformance, ChainsAreThoseOfTheHost) {
  for (std::uint64_t seed = 1000; seed < 1050; ++seed) {
    SCOPED_TRACE(seed);
    const Growth growth = random_growth(seed, {.shape = TreeShape::chain,
                                               .nodes = static_cast<int>(random_.between(1, 9)),
                                               .depth = static_cast<int>(random_.between(1, 8))});
    expect_same_trees(growth, seed);
    if (HasFatalFailure()) return;
  }
}

TEST_P(GrowthConformance, TreesOfAFixedShapeAreThoseOfTheHost) {
  for (std::uint64_t seed = 2000; seed < 2100; ++seed) {
    SCOPED_TRACE(seed);
    TreeOptions options{.shape = TreeShape::fixed, .choices = random_shape(random_)};
    options.depth = options.choices->depth();
    expect_same_trees(random_growth(seed, options), seed);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace espalier
