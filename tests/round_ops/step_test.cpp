// All ops of a round inside one step, which a device may record: nothing but the contents of buffers changes from round
// to round, and path and tree are those of the host each time.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/random.h"
#include "base/testing/judged_device.h"
#include "decode/accept.h"
#include "decode/sampler.h"
#include "decode/top_guesses.h"
#include "device/conformance/recording_device.h"
#include "device/cpu/cpu_device.h"
#include "round_ops/round_tables.h"
#include "tree/dynamic_growth.h"

namespace espalier {
namespace {

constexpr std::int64_t kTrees = 2, kDraftColumns = 40, kVocabulary = 50, kBlockSize = 16, kBlockColumns = 8;
constexpr GrowthOptions kGrowth{.nodes = 12, .depth = 3, .expand = 3, .branch = 4};
constexpr std::int64_t kRows = kGrowth.nodes, kLength = kGrowth.depth + 1, kAncestors = 4;
constexpr std::int64_t kWidth = kGrowth.expand * kGrowth.branch;  // of a level below the first
constexpr std::int64_t kCandidates = 1 + kGrowth.branch + (kGrowth.depth - 1) * kWidth;

// What changes from round to round.
struct RoundInput {
  explicit RoundInput(std::uint64_t seed) {
    RandomValues random(seed);
    const auto append = [&](std::vector<float>& to, std::int64_t columns) {
      const std::vector<float> row = awkward_logits(random, columns);
      to.insert(to.end(), row.begin(), row.end());
    };
    for (std::int64_t r = 0; r < kGrowth.depth * kTrees; ++r) append(draft_logits, kDraftColumns);
    for (std::int64_t r = 0; r < kRows * kTrees; ++r) append(logits, kVocabulary);
    for (std::int64_t s = 0; s < kTrees; ++s) {
      root.push_back(static_cast<std::int32_t>(random.below(kVocabulary)));
      depth.push_back(static_cast<std::int32_t>(random.between(0, kGrowth.depth)));
      rows.push_back(static_cast<std::int32_t>(random.between(1, kRows)));
      prefix.push_back(static_cast<std::int32_t>(random.below(60)));
      top_k.push_back(static_cast<std::int32_t>(random.below(9)));
      seed_words.push_back(static_cast<std::int32_t>(random.below(1000)));
      seed_words.push_back(0);
      temperature.push_back(random.one_in(2) ? 0.0f : 0.8f);
      top_p.push_back(0.95f);
      min_p.push_back(0.01f);
      for (std::int32_t block : random.permutation(kBlockColumns)) blocks.push_back(block);
    }
  }

  std::vector<float> draft_logits, logits;  // of level l, tree s: row l * kTrees + s; of row r, tree s: s * kRows + r
  Ints root, depth, rows, prefix, top_k, seed_words, blocks;
  std::vector<float> temperature, top_p, min_p;
};

struct RoundOnHost {
  TokenTree tree;
  std::vector<Visit> visits;  // none where the logits on the way are broken
};

RoundOnHost on_host(Device& judge, const RoundInput& input, std::int64_t s) {
  const auto at = [s](const auto& list) { return list[static_cast<std::size_t>(s)]; };
  const PlacedTensor logits = place(judge, DType::f32, input.draft_logits, kGrowth.depth * kTrees);
  TopGuesses top(judge, kGrowth.depth * kTrees, kGrowth.branch);
  const auto guesses = top.read(logits.view(), kGrowth.branch, {});
  GrowthOptions options = kGrowth;
  options.nodes = at(input.rows);
  options.depth = at(input.depth);
  DynamicGrowth growth(at(input.root), options, 1);
  while (!growth.done())
    for (const int node : std::vector(growth.frontier()))
      growth.add_children(node, guesses[static_cast<std::size_t>(growth.candidates()[node].depth * kTrees + s)]);
  RoundOnHost round{growth.finish(), {}};
  const SamplingOptions sampling{.temperature = at(input.temperature),
                                 .top_k = at(input.top_k),
                                 .top_p = at(input.top_p),
                                 .min_p = at(input.min_p)};
  const auto seed = static_cast<std::uint64_t>(input.seed_words[static_cast<std::size_t>(2 * s)]);
  try {
    round.visits = walk(
        round.tree,
        [&](int node) {
          const auto row = std::span(input.logits)
                               .subspan(static_cast<std::size_t>((s * kRows + node) * kVocabulary),
                                        static_cast<std::size_t>(kVocabulary));
          const std::int32_t before = at(input.prefix) + round.tree[node].depth + 1;
          return sample(row, sampling, {}, uniform(seed, static_cast<std::uint64_t>(before)));
        },
        [](std::int32_t) { return false; });
  } catch (const InputError&) {
  }
  return round;
}

// Buffers of a round, made once.
class RoundOnDevice {
 public:
  explicit RoundOnDevice(Device& device)
      : device_(device),
        recordings_(device.make_recordings()),
        draft_logits_(device, DType::f32, kGrowth.depth * kTrees, kDraftColumns),
        logits_(device, DType::f32, kRows * kTrees, kVocabulary),
        temperature_(device, std::vector<float>(kTrees)),
        top_p_(device, std::vector<float>(kTrees)),
        min_p_(device, std::vector<float>(kTrees)),
        nodes_(device, kTrees, kCandidates),
        tree_(device, kTrees, kRows),
        guesses_(device, kGrowth.depth * kTrees, kGrowth.branch),
        draft_rows_(device, kTrees * kGrowth.expand, kAncestors),
        tree_rows_(device, kTrees * kRows, kAncestors, false),
        head_rows_(device, kTrees * kLength, kAncestors) {
    for (std::int32_t l = 0; l < kGrowth.depth; ++l) levels_.emplace_back(device, l);
  }

  void run(const RoundInput& input) {
    draft_logits_.fill(input.draft_logits);
    logits_.fill(input.logits);
    temperature_.fill(input.temperature);
    top_p_.fill(input.top_p);
    min_p_.fill(input.min_p);
    root_.fill(input.root);
    depth_.fill(input.depth);
    rows_.fill(input.rows);
    prefix_.fill(input.prefix);
    top_k_.fill(input.top_k);
    seed_.fill(input.seed_words);
    blocks_.fill(input.blocks);
    device_.step(*recordings_, {.rows = kRows}, [this] { ops(); });
  }

  void expect(const RoundOnHost& host, std::int64_t s) const {
    const auto at = [s](const IntTable& list) { return list.values()[static_cast<std::size_t>(s)]; };
    EXPECT_EQ(at(size_), host.tree.size());
    expect_tree(tree_, s, kRows, host.tree);
    EXPECT_EQ(at(outcome_) == 0, !host.visits.empty());
    ASSERT_EQ(at(count_), std::ssize(host.visits));
    for (std::size_t j = 0; j < host.visits.size(); ++j)
      EXPECT_EQ(path_.values()[static_cast<std::size_t>(s * kLength) + j], host.visits[j].node);
    if (!host.visits.empty()) {
      EXPECT_EQ(at(token_), host.visits.back().token);
    }
    EXPECT_EQ(at(kept_), at(count_));
    for (std::size_t j = 0; j < host.visits.size(); ++j)
      EXPECT_EQ(head_rows_.token.values()[static_cast<std::size_t>(s * kLength) + j], host.visits[j].token);
  }

 private:
  // Tables of a level that never change.
  struct Level {
    Level(Device& device, std::int32_t level)
        : frontier(device, kTrees, level == 0 ? 1 : kGrowth.expand), next(device, kTrees, kGrowth.expand) {
      const std::int64_t entries = level == 0 ? 1 : kGrowth.expand;
      Ints entry_of, rank_of, row_of;
      for (std::int64_t w = 0; w < entries * kGrowth.branch; ++w) {
        entry_of.push_back(static_cast<std::int32_t>(w / kGrowth.branch));
        rank_of.push_back(static_cast<std::int32_t>(w % kGrowth.branch));
      }
      for (std::int64_t s = 0; s < kTrees; ++s)
        row_of.insert(row_of.end(), static_cast<std::size_t>(entries), static_cast<std::int32_t>(level * kTrees + s));
      entry.emplace(device, 1, entry_of);
      rank.emplace(device, 1, rank_of);
      guess_row.emplace(device, kTrees, row_of);
      frontier.fill(Ints(static_cast<std::size_t>(kTrees * entries)));
    }
    std::optional<IntTable> entry, rank, guess_row;
    IntTable frontier, next;
  };

  void ops() {
    RoundOps& round = *device_.round_ops();
    round.run(RankGuesses{.logits = draft_logits_, .vocabulary = kVocabulary, .guesses = guesses_.all()});
    for (std::int32_t l = 0; l < kGrowth.depth; ++l) grow(round, l);
    round.run(ChooseRows{.nodes = nodes_.all(),
                         .rows = rows_.list(),
                         .tree = tree_.all(),
                         .drafted = drafted_.table(),
                         .size = size_.list()});
    round.run(PlaceRows{.nodes = tree_.all(),
                        .first = prefix_.list(),
                        .root_position = prefix_.list(),
                        .begin = zero_.list(),
                        .places = places(),
                        .rows = tree_rows_.all()});
    round.run(ChooseTokens{.logits = logits_,
                           .position = tree_rows_.position.list(),
                           .temperature = temperature_.list(),
                           .top_p = top_p_.list(),
                           .min_p = min_p_.list(),
                           .top_k = top_k_.list(),
                           .seed = seed_.table(),
                           .token = choice_.list(),
                           .state = state_.list()});
    round.run(WalkTrees{.tree = tree_.all(),
                        .choice = choice_.list(),
                        .state = state_.list(),
                        .path = path_.table(),
                        .count = count_.list(),
                        .last = last_.list(),
                        .token = token_.list(),
                        .outcome = outcome_.list()});
    round.run(ListMoves{.path = path_.table(),
                        .count = count_.list(),
                        .row = tree_.all().row,
                        .first = prefix_.list(),
                        .places = places(),
                        .from = from_.list(),
                        .to = to_.list(),
                        .kept = kept_.list()});
    round.run(CatchUp{.path = path_.table(),
                      .count = count_.list(),
                      .choice = choice_.list(),
                      .prefix = prefix_.list(),
                      .begin = zero_.list(),
                      .places = places(),
                      .rows = head_rows_.all(),
                      .feature = feature_.list(),
                      .seed = seed_row_.list()});
  }

  void grow(RoundOps& round, std::int32_t l) {
    Level& level = levels_[static_cast<std::size_t>(l)];
    const NodeTables known = nodes_.first(1 + kGrowth.branch + l * kWidth);
    round.run(
        GrowLevel{.nodes = known,
                  .root = root_.list(),
                  .levels = depth_.list(),
                  .entry = level.entry->list(),
                  .rank = level.rank->list(),
                  .frontier = l == 0 ? level.frontier.table() : levels_[static_cast<std::size_t>(l - 1)].next.table(),
                  .guess_row = level.guess_row->table(),
                  .guesses = guesses_.all(),
                  .next = level.next.table(),
                  .level = l + 1});
    round.run(PlaceRows{.nodes = known,
                        .listed = level.next.table(),
                        .first = prefix_.list(),
                        .root_position = prefix_.list(),
                        .begin = zero_.list(),
                        .seed = zero_.list(),
                        .places = places(),
                        .rows = draft_rows_.all(),
                        .offset = l * kGrowth.expand,
                        .prior_rows = kGrowth.expand,
                        .prior_offset = (l - 1) * kGrowth.expand * (l > 0 ? 1 : 0)});
  }
  PlaceTables places() const { return {.blocks = blocks_.table(), .block_size = kBlockSize}; }

  Device& device_;
  std::unique_ptr<Recordings> recordings_;
  PlacedTensor draft_logits_, logits_;
  FloatList temperature_, top_p_, min_p_;
  IntTable root_{device_, 1, kTrees}, depth_{device_, 1, kTrees}, rows_{device_, 1, kTrees},
      prefix_{device_, 1, kTrees}, top_k_{device_, 1, kTrees}, seed_{device_, kTrees, 2},
      blocks_{device_, kTrees, kBlockColumns}, zero_{device_, 1, Ints(kTrees)};
  OwnedNodes nodes_, tree_;
  OwnedGuesses guesses_;
  OwnedRows draft_rows_, tree_rows_, head_rows_;
  std::vector<Level> levels_;
  IntTable drafted_{device_, kTrees, kRows}, size_{device_, 1, kTrees}, choice_{device_, 1, kTrees*kRows},
      state_{device_, 1, kTrees*kRows}, path_{device_, kTrees, kLength}, count_{device_, 1, kTrees},
      last_{device_, 1, kTrees}, token_{device_, 1, kTrees}, outcome_{device_, 1, kTrees},
      from_{device_, 1, kTrees*kLength}, to_{device_, 1, kTrees*kLength}, kept_{device_, 1, kTrees},
      feature_{device_, 1, kTrees*kLength}, seed_row_{device_, 1, kTrees};
};

class RoundStepConformance : public testing::TestWithParam<DeviceUnderTest> {};

std::vector<DeviceUnderTest> devices_and_recorders() {
  std::vector<DeviceUnderTest> devices = devices_with_round_ops();
  if (!judged_device())
    devices.push_back(
        {"comparing_cpu", [] { return make_recording_device(make_cpu_device({.threads = 2}), Replay::compared); }});
  return devices;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RoundStepConformance);  // where another kind of device is judged
INSTANTIATE_TEST_SUITE_P(Devices, RoundStepConformance, testing::ValuesIn(devices_and_recorders()), NameOfDevice());

TEST_P(RoundStepConformance, ARoundIsOneStepThatCanBeReplayed) {
  DeviceTest test(GetParam());
  RoundOnDevice round(test.tested());
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const RoundInput input(mix64(seed));
    round.run(input);
    for (std::int64_t s = 0; s < kTrees; ++s) {
      SCOPED_TRACE(testing::Message() << "tree " << s);
      round.expect(on_host(test.judge(), input, s), s);
    }
    if (HasFailure()) return;
  }
}

TEST(RoundOpsOfDevices, AreThereWhereTheSuiteExpectsThem) {
  for (const DeviceUnderTest& device : devices_under_test()) {
    DeviceTest test(device);
    EXPECT_EQ(test.tested().round_ops() != nullptr, device.round_ops) << device.name;
  }
}

}  // namespace
}  // namespace espalier
