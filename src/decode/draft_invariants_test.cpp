#include "decode/draft_invariants.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>

#include "cache/kv_cache.h"
#include "decode/testing/copied_tables.h"
#include "device/checked/checked_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

constexpr KvShape kDraftShape{.layers = 1, .kv_heads = 1, .head_size = 16, .type = DType::f32, .block_size = 128};
constexpr StepLimits kDraftLimits{.tree = {.vocabulary = 1000, .positions = 4096}};

// One sequence in the second pass of a draft: some children of the root are rows already, some of their children become
// rows now.
struct DraftingSequence {
  DraftingSequence(KvCache& cache, std::mt19937& random, bool root_is_row) {
    prefix = 1 + static_cast<std::int32_t>(random() % 300);
    const SequenceId sequence = cache.create();
    cache.begin(sequence, prefix)->commit_length(prefix);
    branch = cache.begin(sequence, 64);
    grow(random, root_is_row);
    begin = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(prefix));
    root_position = root_is_row ? prefix : prefix - 1;
  }

  void grow(std::mt19937& random, bool root_is_row) {
    if (root_is_row) nodes.push_back(0);
    const int width = 2 + static_cast<int>(random() % 3);
    for (int i = 0; i < width; ++i) nodes.push_back(candidates.add(0, {.token = 10 + i, .score = -1.0 - i}));
    const std::vector<int> level(nodes.end() - width, nodes.end());
    step_rows = 2 + static_cast<std::int64_t>(random() % 6);
    for (std::int64_t i = 0; i < step_rows; ++i) {
      const int parent = level[random() % level.size()];
      nodes.push_back(candidates.add(parent, {.token = 100 + static_cast<std::int32_t>(i), .score = -9}));
    }
  }

  std::int32_t place(int node) const {
    return prefix + static_cast<std::int32_t>(std::ranges::find(nodes, node) - nodes.begin());
  }

  void append_rows(std::vector<Row>& rows) const {
    for (std::size_t i = nodes.size() - static_cast<std::size_t>(step_rows); i < nodes.size(); ++i) {
      const Candidate& node = candidates[nodes[i]];
      Row row{.sequence = branch->id(),
              .token = node.token,
              .position = root_position + node.depth,
              .place = place(nodes[i]),
              .begin = begin,
              .end = prefix};
      if (nodes[0] == 0) row.ancestors.push_back(place(0));
      row.ancestors.push_back(place(node.parent));
      rows.push_back(row);
    }
  }

  DraftedNodes drafted() const {
    return {.candidates = &candidates,
            .nodes = nodes,
            .step_rows = step_rows,
            .branch = branch->id(),
            .prefix = prefix,
            .begin = begin,
            .root_position = root_position};
  }

  std::optional<Branch> branch;
  std::int32_t prefix = 0, begin = 0, root_position = 0;
  Candidates candidates{5};
  std::vector<int> nodes;  // the candidates on rows
  std::int64_t step_rows = 0;
};

// A pass over one or two sequences. The tables are columns that a test can damage.
class Pass : public CopiedTables {
 public:
  explicit Pass(std::uint32_t seed) : Pass(seed, seed % 2 == 0, 1 + seed / 2 % 2) {}
  Pass(std::uint32_t seed, bool root_is_row, std::size_t sequences) {
    device_ = make_checked_device(make_reference_device(), {.profile = CheckedProfile::ascend});
    cache_.emplace(*device_, kDraftShape, 4096);
    std::mt19937 random(seed);
    std::vector<Row> rows;
    for (std::size_t i = 0; i < sequences; ++i) {
      drafting.emplace_back(*cache_, random, root_is_row);
      drafting.back().append_rows(rows);
    }
    step_rows_ = rows.size();
    StepTables tables(*device_, cache_->memory(), 64, 1024, {.mask = MaskForm::dense});
    tables.prepare(rows, [this](const HostTables& made) { copy(made); });
  }

  void check() const {
    std::vector<DraftedNodes> drafted;
    for (const DraftingSequence& one : drafting) drafted.push_back(one.drafted());
    check_draft_step(tables(), drafted, cache_->tables(), kDraftLimits);
  }

  std::size_t step_rows() const { return step_rows_; }
  std::size_t ancestor_columns() const { return static_cast<std::size_t>(made_.ancestor_columns); }
  std::size_t mask_columns() const { return static_cast<std::size_t>(made_.mask_columns); }
  std::size_t block_columns() const { return static_cast<std::size_t>(made_.block_columns); }

 private:
  std::unique_ptr<Device> device_;
  std::optional<KvCache> cache_;  // outlives the branches

 public:
  std::vector<DraftingSequence> drafting;

 private:
  std::size_t step_rows_ = 0;
};

TEST(DraftInvariants, AcceptTheTablesOfEveryPass) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) EXPECT_NO_THROW(Pass(seed).check()) << "seed " << seed;
}

TEST(DraftInvariants, CatchEverySingleFault) {
  struct Fault {
    const char* what;
    std::function<void(Pass&, std::mt19937&)> inject;
  };
  const auto row = [](Pass& pass, std::mt19937& random) { return random() % pass.step_rows(); };
  const auto nodes = [](Pass& pass, std::mt19937& random) -> std::vector<int>& {
    return pass.drafting[random() % pass.drafting.size()].nodes;
  };
  const std::vector<Fault> faults = {
      {"token", [&](Pass& p, auto& r) { p.token[row(p, r)] += 1; }},
      {"position", [&](Pass& p, auto& r) { p.position[row(p, r)] += 1; }},
      {"slot", [&](Pass& p, auto& r) { p.slot[row(p, r)] ^= 1; }},
      {"slot of a neighbour", [&](Pass& p, auto&) { p.slot[0] = p.slot[1]; }},
      {"sequence", [&](Pass& p, auto& r) { p.sequence[row(p, r)] ^= 1; }},
      {"block of the table", [&](Pass& p, auto& r) { p.blocks[r() % p.drafting.size() * p.block_columns()] += 1; }},
      {"begin of the context", [&](Pass& p, auto& r) { p.begin[row(p, r)] += 1; }},
      {"end of the context", [&](Pass& p, auto& r) { p.end[row(p, r)] += 1; }},
      {"number of ancestors", [&](Pass& p, auto& r) { p.ancestor_count[row(p, r)] -= 1; }},
      {"slot of an ancestor", [&](Pass& p, auto& r) { p.ancestors[row(p, r) * p.ancestor_columns()] += 1; }},
      {"bit of the mask",
       [&](Pass& p, auto& r) { p.mask[row(p, r) * p.mask_columns() + r() % p.mask_columns()] ^= 1; }},
      {"candidate that is a row twice",
       [&](Pass& p, auto& r) {
         std::vector<int>& own = nodes(p, r);
         own.back() = own[own.size() - 2];
       }},
      {"candidate before its parent",
       [&](Pass& p, auto& r) {
         std::vector<int>& own = nodes(p, r);
         std::swap(own[1], own.back());
       }},
      {"slot of a padding row",
       [&](Pass& p, auto&) { p.slot.size() > p.step_rows() ? p.slot.back() += 1 : p.slot[0] += 1; }},
  };
  fmt::print("{:32} injected caught\n", "fault");
  for (const Fault& fault : faults) {
    int caught = 0;
    constexpr int kTimes = 100;
    for (std::uint32_t seed = 0; seed < kTimes; ++seed) {
      std::mt19937 random(seed);
      Pass pass(seed);
      fault.inject(pass, random);
      try {
        pass.check();
        ADD_FAILURE() << fault.what << ", seed " << seed << ": not caught";
      } catch (const TreeViolation&) {
        ++caught;
      }
    }
    fmt::print("{:32} {:8} {:6}\n", fault.what, kTimes, caught);
  }
}

TEST(DraftInvariants, CatchRowsThatBelongToAnotherSequence) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const bool root_is_row = seed % 2 == 0;
    Pass swapped(seed, root_is_row, 2);
    std::swap(swapped.drafting[0], swapped.drafting[1]);
    EXPECT_THROW(swapped.check(), TreeViolation) << "the other order";
    Pass missing(seed, root_is_row, 2);
    missing.drafting.pop_back();
    EXPECT_THROW(missing.check(), TreeViolation) << "rows that nobody told of";
    Pass shifted(seed, root_is_row, 2);
    shifted.drafting[0].step_rows -= 1;
    EXPECT_THROW(shifted.check(), TreeViolation) << "a row too few of the first";
    Pass foreign(seed, root_is_row, 2);
    const auto second = static_cast<std::size_t>(foreign.drafting[0].step_rows);
    foreign.slot[second] = foreign.slot[0];
    EXPECT_THROW(foreign.check(), TreeViolation) << "a row of the second that writes into the first";
  }
}

TEST(DraftInvariants, AViolationShowsTheRows) {
  Pass pass(1, true, 1);
  pass.token[0] += 1;
  try {
    pass.check();
    FAIL() << "not caught";
  } catch (const TreeViolation& violation) {
    EXPECT_EQ(violation.rule(), TreeRule::tree);
    EXPECT_NE(std::string(violation.what()).find("row parent depth"), std::string::npos) << violation.what();
  }
}

// Text of two sequences that a drafter catches up with. That of the second begins at place 2, and its positions are
// one behind its places.
TEST(DraftInvariants, CatchAWrongTokenPlaceOrContextOfARun) {
  const auto device = make_reference_device();
  KvCache cache(*device, kDraftShape, 1024);
  std::vector<Branch> branches;
  for (std::int64_t prefix : {5, 20}) {
    const SequenceId sequence = cache.create();
    cache.begin(sequence, prefix)->commit_length(prefix);
    branches.push_back(std::move(*cache.begin(sequence, 3)));
  }
  const std::vector<RunOfStep> runs = {
      {.branch = branches[0].id(), .first = 5, .position = 5, .tokens = {7, 8, 9}},
      {.branch = branches[1].id(), .first = 20, .position = 19, .begin = 2, .tokens = {4, 5, 6}}};
  StepTables tables(*device, cache.memory(), 64, 1024);
  const auto check = [&](const std::function<void(std::vector<Row>&)>& damage, std::int32_t window) {
    std::vector<Row> rows;
    for (const RunOfStep& run : runs)
      for (std::int32_t i = 0; i < 3; ++i)
        rows.push_back({.sequence = run.branch,
                        .token = run.tokens[static_cast<std::size_t>(i)],
                        .position = run.position + i,
                        .place = run.first + i,
                        .begin = window == 0 ? run.begin : std::max(run.begin, run.first + i - (window - 1)),
                        .end = run.first + i});
    damage(rows);
    StepLimits limits = kDraftLimits;
    limits.window = window;
    tables.prepare(rows, [&](const HostTables& made) { check_draft_step(made, runs, cache.tables(), limits); });
  };
  for (std::int32_t window : {0, 3}) {
    EXPECT_NO_THROW(check([](auto&) {}, window));
    for (const std::size_t run : {0u, 3u}) {
      SCOPED_TRACE(run);
      EXPECT_THROW(check([=](auto& rows) { rows[run + 1].token = 1; }, window), TreeViolation);
      EXPECT_THROW(check([=](auto& rows) { rows[run + 2].position -= 1; }, window), TreeViolation);
      EXPECT_THROW(check([=](auto& rows) { rows[run].place += 1; }, window), TreeViolation);
      EXPECT_THROW(check([=](auto& rows) { rows[run + 2].end -= 1; }, window), TreeViolation);
      EXPECT_THROW(check([=](auto& rows) { rows[run + 2].begin += 1; }, window), TreeViolation);
      EXPECT_THROW(check([=](auto& rows) { rows[run].begin += 1; }, window), TreeViolation);
      EXPECT_THROW(check([=](auto& rows) { rows[run + 2].ancestors = {rows[run + 1].place}; }, window), TreeViolation);
    }
    EXPECT_THROW(check([](auto& rows) { rows.pop_back(); }, window), TreeViolation);
    EXPECT_THROW(check([](auto& rows) { rows.push_back(rows.back()); }, window), TreeViolation);
    EXPECT_THROW(check([](auto& rows) { std::swap(rows[2], rows[3]); }, window), TreeViolation);
    EXPECT_THROW(check([&](auto& rows) { rows[3].sequence = branches[0].id(), rows[3].place = 7; }, window),
                 TreeViolation);
  }
}

}  // namespace
}  // namespace espalier
