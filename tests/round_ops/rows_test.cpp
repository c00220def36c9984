// The tables that round ops write for the teacher's step, for the commit of a path and for a head's catch-up, on every
// device that has them, against the checks of decode/step_invariants.h and against a cache that commits the same path.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "base/random.h"
#include "cache/kv_cache.h"
#include "decode/step_invariants.h"
#include "device/reference/reference_device.h"
#include "round_ops/round_tables.h"
#include "tree/testing/random_tree.h"
#include "tree/tree_tensors.h"

namespace espalier {
namespace {

constexpr std::int64_t kBlock = 16, kColumns = 16;  // of a table of blocks
constexpr KvShape kShape{.layers = 2, .kv_heads = 1, .head_size = 4, .type = DType::f32, .block_size = kBlock};

// Sequences with an open branch each, whose blocks do not lie one behind the other.
class Sequences {
 public:
  // padding: slots for padding rows, where it is to have the same as another device's.
  Sequences(Device& device, RandomValues& random, std::int64_t count, std::int64_t rows, std::int64_t padding = 0)
      : cache_(device, kShape, 4 * kColumns * kBlock, {.padding_slots = padding}) {
    std::vector<SequenceId> all;
    for (std::int64_t s = 0; s < count; ++s) {
      all.push_back(cache_.create());
      prefix.push_back(0);
    }
    for (std::int64_t turn = 0; turn < 2; ++turn)
      for (std::size_t s = 0; s < all.size(); ++s) {
        const std::int64_t more = random.between(1, 50);
        cache_.begin(all[s], more)->commit_length(more);
        prefix[s] += static_cast<std::int32_t>(more);
      }
    for (const SequenceId sequence : all) branches.push_back(*cache_.begin(sequence, rows));
  }

  KvCache& cache() { return cache_; }
  Ints blocks() const {
    Ints all;
    for (const Branch& branch : branches) {
      const auto own = cache_.blocks(branch.id());
      all.insert(all.end(), own.begin(), own.end());
      all.resize(static_cast<std::size_t>((&branch - branches.data() + 1) * kColumns));
    }
    return all;
  }

  Ints prefix;

 private:
  KvCache cache_;

 public:
  std::vector<Branch> branches;  // gone before their cache
};

class RoundRowsConformance : public testing::TestWithParam<DeviceUnderTest> {
 protected:
  // Trees of one round, some of them smaller than the rows there are.
  std::vector<TokenTree> random_trees(std::int64_t count, std::int64_t rows, bool full) {
    std::vector<TokenTree> trees;
    for (std::int64_t s = 0; s < count; ++s)
      trees.push_back(random_tree(mix64(static_cast<std::uint64_t>(random_.below(1 << 30))),
                                  static_cast<int>(full ? rows : random_.between(1, rows))));
    return trees;
  }
  static std::int64_t deepest(const std::vector<TokenTree>& trees) {
    std::int64_t depth = 1;
    for (const TokenTree& tree : trees) depth = std::max<std::int64_t>(depth, tree.depth());
    return depth;
  }

  // Runs place_rows over whole trees.
  ReadRows placed(const std::vector<TokenTree>& trees, const Sequences& sequences, OwnedNodes& tables,
                  std::int64_t rows, std::int32_t window) {
    Device& device = test_.tested();
    const std::int64_t count = std::ssize(trees), columns = deepest(trees) + random_.below(3);
    tables.fill(trees);
    const IntTable prefix(device, 1, sequences.prefix), zeros(device, 1, Ints(trees.size())),
        blocks(device, count, sequences.blocks());
    const OwnedRows out(device, count * rows, columns, false);
    device.round_ops()->run(PlaceRows{.nodes = tables.all(),
                                      .first = prefix.list(),
                                      .root_position = prefix.list(),
                                      .begin = zeros.list(),
                                      .places = {.blocks = blocks.table(), .block_size = kBlock},
                                      .rows = out.all(),
                                      .window = window});
    return ReadRows(out, columns, sequences.blocks(), kColumns);
  }

  // A path from the root down, as far as it likes; nothing where the walk was not decided.
  Ints random_path(const TokenTree& tree) {
    if (random_.one_in(8)) return {};
    Ints path = {0};
    while (tree[path.back()].children > 0 && !random_.one_in(6))
      path.push_back(tree[path.back()].first_child +
                     static_cast<std::int32_t>(random_.below(tree[path.back()].children)));
    return path;
  }
  // As walk_trees writes them.
  static void append_path(const Ints& path, std::int64_t length, Ints& all) {
    all.insert(all.end(), path.begin(), path.end());
    all.resize(all.size() + static_cast<std::size_t>(length) - path.size(), path.empty() ? 0 : path.back());
  }

  DeviceTest test_{GetParam()};
  RandomValues random_{71};
  std::unique_ptr<Device> host_ = make_reference_device();
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RoundRowsConformance);  // where another kind of device is judged
INSTANTIATE_TEST_SUITE_P(Devices, RoundRowsConformance, testing::ValuesIn(devices_with_round_ops()), NameOfDevice());

TEST_P(RoundRowsConformance, TheTeachersRowsAreThoseOfTheTrees) {
  for (int i = 0; i < 120; ++i) {
    SCOPED_TRACE(i);
    const bool full = random_.one_in(2);
    const std::int64_t rows = random_.between(1, 48), count = random_.between(1, 3);
    const auto window = static_cast<std::int32_t>(random_.one_in(2) ? 0 : random_.between(1, 40));
    const std::vector<TokenTree> trees = random_trees(count, rows, full);
    Sequences sequences(*host_, random_, count, rows);
    OwnedNodes tables(test_.tested(), count, rows, 1);
    const ReadRows read = placed(trees, sequences, tables, rows, window);
    const StepLimits limits{.window = window};
    std::vector<TreeOfStep> of_step;
    for (std::size_t s = 0; s < trees.size(); ++s)
      of_step.push_back({&trees[s], tensorize(trees[s], sequences.prefix[s]), sequences.branches[s].id()});
    const BlockTables& blocks = sequences.cache().tables();
    const HostTables host_tables = read.tables();
    if (full) {
      ASSERT_NO_THROW(check_step(host_tables, of_step, {}, blocks, limits));
    }
    const Ints numbers = tables.rows();
    for (std::int64_t s = 0; s < count; ++s)
      for (std::int64_t r = 0; r < rows; ++r) {
        const TreeOfStep& own = of_step[static_cast<std::size_t>(s)];
        const bool there = r < own.tree->size();
        EXPECT_EQ(numbers[static_cast<std::size_t>(s * rows + r)], there ? r + 1 : 0);
        EXPECT_EQ(read.sequence[static_cast<std::size_t>(s * rows + r)], s);
        const std::int32_t first = sequences.prefix[static_cast<std::size_t>(s)];
        ExpectedRow expected{.place = static_cast<std::int32_t>(first + r)};
        if (there) {
          const int row = static_cast<int>(r);
          expected.token = own.tensors.token[static_cast<std::size_t>(r)];
          expected.position = first + (*own.tree)[row].depth;
          expected.begin = limits.oldest_visible(expected.position);
          expected.end = first;
          for (const std::int32_t above : own.tensors.ancestors(row))
            if (first + (*own.tree)[above].depth >= expected.begin) expected.ancestors.push_back(first + above);
        }
        const StepRows checked(host_tables, s * rows + r, own.branch, blocks, limits, own.tensors);
        ASSERT_NO_THROW(checked.check_row(0, expected)) << "row " << r << " of tree " << s;
      }
  }
}

// One cache commits the path itself; beside it another whose slots are moved by the lists of the device.
TEST_P(RoundRowsConformance, CopyingByTheListsCommitsThePath) {
  Device& device = test_.tested();
  for (int i = 0; i < 40; ++i) {
    SCOPED_TRACE(i);
    const std::int64_t rows = random_.between(1, 32), count = random_.between(1, 3);
    const std::vector<TokenTree> trees = random_trees(count, rows, random_.one_in(2));
    const std::int64_t length = std::min(rows, deepest(trees) + 1);
    const std::uint64_t seed = static_cast<std::uint64_t>(random_.below(1 << 30));
    RandomValues same(seed), again(seed);
    Sequences committed(*host_, same, count, rows, most_padding(device)), moved(device, again, count, rows);
    const std::int64_t slots = committed.cache().tables().block_count() * kBlock;
    std::vector<std::vector<float>> contents;
    for (std::int64_t layer = 0; layer < kShape.layers; ++layer)
      for (int kv = 0; kv < 2; ++kv) {
        const auto& values = contents.emplace_back(random_.values(slots * kShape.head_size));
        const auto view = [&](Sequences& of) {
          const KvViews& views = of.cache().memory().layer(layer);
          return kv == 0 ? views.k : views.v;
        };
        upload<float>(*host_, values, view(committed));
        upload<float>(device, values, view(moved));
      }

    OwnedNodes tables(device, count, rows);
    placed(trees, moved, tables, rows, 0);
    Ints paths, counts;
    for (const TokenTree& tree : trees) {
      const Ints path = random_path(tree);
      append_path(path, length, paths);
      counts.push_back(static_cast<std::int32_t>(path.size()));
    }
    const IntTable path(device, count, paths), sizes(device, 1, counts), prefix(device, 1, moved.prefix),
        blocks(device, count, moved.blocks()), from(device, 1, count * length), to(device, 1, count * length),
        kept(device, 1, count);
    device.round_ops()->run(ListMoves{.path = path.table(),
                                      .count = sizes.list(),
                                      .row = tables.all().row,
                                      .first = prefix.list(),
                                      .places = {.blocks = blocks.table(), .block_size = kBlock},
                                      .from = from.list(),
                                      .to = to.list(),
                                      .kept = kept.list()});
    EXPECT_EQ(kept.values(), counts);
    std::vector<KvViews> layers;
    for (std::int64_t layer = 0; layer < kShape.layers; ++layer) layers.push_back(moved.cache().memory().layer(layer));
    device.kv_copy(layers, from.list(), to.list());

    for (std::size_t s = 0; s < trees.size(); ++s) {
      Ints positions;
      for (std::int32_t j = 0; j < counts[s]; ++j)
        positions.push_back(committed.prefix[s] +
                            paths[s * static_cast<std::size_t>(length) + static_cast<std::size_t>(j)]);
      std::vector<std::int32_t> targets;
      for (std::int32_t p = 0; p < committed.prefix[s] + counts[s]; ++p)
        targets.push_back(committed.cache().slot(committed.branches[s].id(), p));
      if (!positions.empty()) committed.branches[s].commit_path(positions);
      for (std::int64_t layer = 0; layer < kShape.layers; ++layer)
        for (const std::int32_t slot : targets) {
          const auto read = [&](Device& on, const KvViews& views) {
            std::vector<float> values(static_cast<std::size_t>(kShape.head_size));
            download<float>(on, views.v.reshaped({slots, kShape.head_size}).rows(slot, 1), values);
            return values;
          };
          ASSERT_EQ(read(device, layers[static_cast<std::size_t>(layer)]),
                    read(*host_, committed.cache().memory().layer(layer)))
              << "slot " << slot;
        }
    }
  }
}

// In a drafter's memory only some nodes have rows: the path is kept as far as they reach.
TEST_P(RoundRowsConformance, APathIsKeptAsFarAsAMemoryHasItsRows) {
  Device& device = test_.tested();
  Sequences sequences(*host_, random_, 2, 16);
  const IntTable path(device, 2, Ints{0, 1, 4, 5, 0, 2, 3, 3}), count(device, 1, Ints{4, 3});
  const IntTable row(device, 2, Ints{1, 3, 0, 0, 6, 0, 0, 2, 5, 4, 0, 0}), prefix(device, 1, sequences.prefix),
      blocks(device, 2, sequences.blocks()), from(device, 1, 8), to(device, 1, 8), kept(device, 1, 2);
  device.round_ops()->run(ListMoves{.path = path.table(),
                                    .count = count.list(),
                                    .row = row.table(),
                                    .first = prefix.list(),
                                    .places = {.blocks = blocks.table(), .block_size = kBlock},
                                    .from = from.list(),
                                    .to = to.list(),
                                    .kept = kept.list()});
  EXPECT_EQ(kept.values(), (Ints{3, 0}));
  const auto slots = [&](std::size_t s, const Ints& numbers) {
    Ints all;
    for (const std::int32_t n : numbers)
      all.push_back(sequences.cache().slot(sequences.branches[s].id(), sequences.prefix[s] + n));
    return all;
  };
  const auto both = [](Ints left, const Ints& right) {
    left.insert(left.end(), right.begin(), right.end());
    return left;
  };
  EXPECT_EQ(to.values(), both(slots(0, {0, 1, 2, 3}), slots(1, {0, 1, 2, 3})));
  EXPECT_EQ(from.values(), both(slots(0, {0, 2, 5, 3}), slots(1, {0, 1, 2, 3})));
}

// As EagleDrafter makes the rows of its first pass from what waits.
TEST_P(RoundRowsConformance, AHeadCatchesUpWithThePath) {
  Device& device = test_.tested();
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    const std::int64_t rows = random_.between(1, 24), count = random_.between(1, 3);
    const std::vector<TokenTree> trees = random_trees(count, rows, false);
    const std::int64_t length = deepest(trees) + 1 + random_.below(2);
    const auto window = static_cast<std::int32_t>(random_.one_in(2) ? 0 : random_.between(1, 30));
    Sequences sequences(*host_, random_, count, length + 2);
    Ints paths, counts, choice, begins;
    for (std::size_t s = 0; s < trees.size(); ++s) {
      const Ints path = random_path(trees[s]);
      append_path(path, length, paths);
      counts.push_back(static_cast<std::int32_t>(path.size()));
      begins.push_back(1 + static_cast<std::int32_t>(random_.below(sequences.prefix[s])));
      for (std::int64_t r = 0; r < rows; ++r) choice.push_back(static_cast<std::int32_t>(random_.below(1000)));
    }
    const IntTable path(device, count, paths), sizes(device, 1, counts), choices(device, 1, choice),
        prefix(device, 1, sequences.prefix), begin(device, 1, begins), blocks(device, count, sequences.blocks()),
        feature(device, 1, count * length), seed(device, 1, count);
    const OwnedRows out(device, count * length, 1);
    device.round_ops()->run(CatchUp{.path = path.table(),
                                    .count = sizes.list(),
                                    .choice = choices.list(),
                                    .prefix = prefix.list(),
                                    .begin = begin.list(),
                                    .places = {.blocks = blocks.table(), .block_size = kBlock},
                                    .rows = out.all(),
                                    .feature = feature.list(),
                                    .seed = seed.list(),
                                    .window = window});
    const ReadRows read(out, 1, sequences.blocks(), kColumns);
    const Ints inputs = out.input.values(), features = feature.values(), seeds = seed.values();
    const StepLimits limits;
    const TreeTensors shown;
    const HostTables host_tables = read.tables();
    for (std::int64_t s = 0; s < count; ++s) {
      const auto tree = static_cast<std::size_t>(s);
      EXPECT_EQ(seeds[tree], s * length + std::max(counts[tree], 1) - 1);
      for (std::int64_t j = 0; j < length; ++j) {
        const auto r = static_cast<std::size_t>(s * length + j);
        const std::int64_t step_row = s * rows + paths[r];
        const std::int32_t position = sequences.prefix[tree] + static_cast<std::int32_t>(j), place = position + 1;
        ExpectedRow expected{.place = place};
        if (j < counts[tree])
          expected = {.token = choice[static_cast<std::size_t>(step_row)],
                      .position = position,
                      .place = place,
                      .begin = std::max(begins[tree], window == 0 ? 0 : place - window),
                      .end = place};
        const StepRows checked(host_tables, s * length + j, sequences.branches[tree].id(), sequences.cache().tables(),
                               limits, shown);
        ASSERT_NO_THROW(checked.check_row(0, expected)) << "row " << j << " of tree " << s;
        EXPECT_EQ(read.sequence[r], s);
        EXPECT_EQ(inputs[r], s * length + j);
        EXPECT_EQ(features[r], step_row);
      }
    }
  }
}

}  // namespace
}  // namespace espalier
