#include "decode/draft_invariants.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>

#include "cache/kv_cache.h"
#include "device/checked/checked_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

constexpr KvShape kDraftShape{.layers = 1, .kv_heads = 1, .head_size = 16, .type = DType::f32, .block_size = 128};
constexpr StepLimits kDraftLimits{.tree = {.vocabulary = 1000, .positions = 4096}};

// The second pass of a draft: some children of the root are rows already, some of their children become rows now. The
// tables are columns that a test can damage.
class Pass {
 public:
  Pass(std::uint32_t seed, bool root_is_row) {
    device_ = make_checked_device(make_reference_device(), {.profile = CheckedProfile::ascend});
    cache_.emplace(*device_, kDraftShape, 4096);
    std::mt19937 random(seed);
    prefix_ = 1 + static_cast<std::int32_t>(random() % 300);
    sequence_ = cache_->create();
    cache_->begin(sequence_, prefix_)->commit_length(prefix_);
    branch_ = cache_->begin(sequence_, 64);
    grow(random, root_is_row);
    drafted_ = {.candidates = &candidates_,
                .nodes = nodes,
                .step_rows = step_rows_,
                .branch = branch_->id(),
                .prefix = prefix_,
                .begin = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(prefix_)),
                .root_position = root_is_row ? prefix_ : prefix_ - 1};
    StepTables tables(*device_, cache_->memory(), 64, 1024, {.mask = MaskForm::dense});
    tables.prepare(rows(), [this](const HostTables& made) { copy(made); });
  }

  void check() const {
    HostTables t = made_;
    t.token = token;
    t.position = position;
    t.slot = slot;
    t.sequence = sequence;
    t.blocks = blocks;
    t.begin = begin;
    t.end = end;
    t.ancestor_count = ancestor_count;
    t.ancestors = ancestors;
    t.mask = mask;
    DraftedNodes drafted = drafted_;
    drafted.nodes = nodes;
    check_draft_step(t, drafted, cache_->tables(), kDraftLimits);
  }

  std::size_t step_rows() const { return static_cast<std::size_t>(step_rows_); }
  std::size_t ancestor_columns() const { return static_cast<std::size_t>(made_.ancestor_columns); }
  std::size_t mask_columns() const { return static_cast<std::size_t>(made_.mask_columns); }

  std::vector<int> nodes;  // the candidates on rows
  std::vector<std::int32_t> token, position, slot, sequence, begin, end, ancestor_count, ancestors, blocks;
  std::vector<std::uint8_t> mask;

 private:
  void grow(std::mt19937& random, bool root_is_row) {
    if (root_is_row) nodes.push_back(0);
    const int width = 2 + static_cast<int>(random() % 3);
    for (int i = 0; i < width; ++i) nodes.push_back(candidates_.add(0, {.token = 10 + i, .score = -1.0 - i}));
    const std::vector<int> level(nodes.end() - width, nodes.end());
    step_rows_ = 2 + static_cast<std::int64_t>(random() % 6);
    for (std::int64_t i = 0; i < step_rows_; ++i) {
      const int parent = level[random() % level.size()];
      nodes.push_back(candidates_.add(parent, {.token = 100 + static_cast<std::int32_t>(i), .score = -9}));
    }
  }

  std::int32_t place(int node) const {
    return prefix_ + static_cast<std::int32_t>(std::ranges::find(nodes, node) - nodes.begin());
  }

  std::vector<Row> rows() const {
    std::vector<Row> rows;
    for (std::size_t i = nodes.size() - step_rows(); i < nodes.size(); ++i) {
      const Candidate& node = candidates_[nodes[i]];
      Row row{.sequence = branch_->id(),
              .token = node.token,
              .position = drafted_.root_position + node.depth,
              .place = place(nodes[i]),
              .begin = drafted_.begin,
              .end = prefix_};
      if (nodes[0] == 0) row.ancestors.push_back(place(0));
      row.ancestors.push_back(place(node.parent));
      rows.push_back(row);
    }
    return rows;
  }

  void copy(const HostTables& made) {
    made_ = made;
    const auto values = [](auto span) { return std::vector(span.begin(), span.end()); };
    token = values(made.token);
    position = values(made.position);
    slot = values(made.slot);
    sequence = values(made.sequence);
    blocks = values(made.blocks);
    begin = values(made.begin);
    end = values(made.end);
    ancestor_count = values(made.ancestor_count);
    ancestors = values(made.ancestors);
    mask = values(made.mask);
  }

  std::unique_ptr<Device> device_;
  std::optional<KvCache> cache_;
  SequenceId sequence_ = 0;
  std::int32_t prefix_ = 0;
  std::optional<Branch> branch_;
  Candidates candidates_{5};
  std::int64_t step_rows_ = 0;
  DraftedNodes drafted_;
  HostTables made_;
};

TEST(DraftInvariants, AcceptTheTablesOfEveryPass) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) EXPECT_NO_THROW(Pass(seed, seed % 2 == 0).check()) << "seed " << seed;
}

TEST(DraftInvariants, CatchEverySingleFault) {
  struct Fault {
    const char* what;
    std::function<void(Pass&, std::mt19937&)> inject;
  };
  const auto row = [](Pass& pass, std::mt19937& random) { return random() % pass.step_rows(); };
  const std::vector<Fault> faults = {
      {"token", [&](Pass& p, auto& r) { p.token[row(p, r)] += 1; }},
      {"position", [&](Pass& p, auto& r) { p.position[row(p, r)] += 1; }},
      {"slot", [&](Pass& p, auto& r) { p.slot[row(p, r)] ^= 1; }},
      {"slot of a neighbour", [&](Pass& p, auto&) { p.slot[0] = p.slot[1]; }},
      {"sequence", [&](Pass& p, auto& r) { p.sequence[row(p, r)] ^= 1; }},
      {"block of the table", [&](Pass& p, auto&) { p.blocks[0] += 1; }},
      {"begin of the context", [&](Pass& p, auto& r) { p.begin[row(p, r)] += 1; }},
      {"end of the context", [&](Pass& p, auto& r) { p.end[row(p, r)] += 1; }},
      {"number of ancestors", [&](Pass& p, auto& r) { p.ancestor_count[row(p, r)] -= 1; }},
      {"slot of an ancestor", [&](Pass& p, auto& r) { p.ancestors[row(p, r) * p.ancestor_columns()] += 1; }},
      {"bit of the mask",
       [&](Pass& p, auto& r) { p.mask[row(p, r) * p.mask_columns() + r() % p.mask_columns()] ^= 1; }},
      {"candidate that is a row twice", [&](Pass& p, auto&) { p.nodes.back() = p.nodes[p.nodes.size() - 2]; }},
      {"candidate before its parent", [&](Pass& p, auto&) { std::swap(p.nodes[1], p.nodes.back()); }},
      {"slot of a padding row",
       [&](Pass& p, auto&) { p.slot.size() > p.step_rows() ? p.slot.back() += 1 : p.slot[0] += 1; }},
  };
  fmt::print("{:32} injected caught\n", "fault");
  for (const Fault& fault : faults) {
    int caught = 0;
    constexpr int kTimes = 100;
    for (std::uint32_t seed = 0; seed < kTimes; ++seed) {
      std::mt19937 random(seed);
      Pass pass(seed, seed % 2 == 0);
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

TEST(DraftInvariants, AViolationShowsTheRows) {
  Pass pass(1, true);
  pass.token[0] += 1;
  try {
    pass.check();
    FAIL() << "not caught";
  } catch (const TreeViolation& violation) {
    EXPECT_EQ(violation.rule(), TreeRule::tree);
    EXPECT_NE(std::string(violation.what()).find("row parent depth"), std::string::npos) << violation.what();
  }
}

// Text that a drafter catches up with.
TEST(DraftInvariants, CatchAWrongTokenPlaceOrContextOfARun) {
  const auto device = make_reference_device();
  KvCache cache(*device, kDraftShape, 1024);
  const SequenceId sequence = cache.create();
  cache.begin(sequence, 5)->commit_length(5);
  const auto branch = cache.begin(sequence, 3);
  const std::vector<std::int32_t> tokens = {7, 8, 9};
  StepTables tables(*device, cache.memory(), 64, 1024);
  const auto check = [&](const std::function<void(std::vector<Row>&)>& damage, std::int32_t window) {
    std::vector<Row> rows;
    for (std::int32_t p = 5; p < 8; ++p)
      rows.push_back({.sequence = branch->id(),
                      .token = tokens[static_cast<std::size_t>(p - 5)],
                      .position = p,
                      .place = p,
                      .begin = window == 0 ? 0 : std::max(0, p - (window - 1)),
                      .end = p});
    damage(rows);
    StepLimits limits = kDraftLimits;
    limits.window = window;
    tables.prepare(rows, [&](const HostTables& made) {
      check_draft_step(made, DraftRun{branch->id(), 5, tokens}, cache.tables(), limits);
    });
  };
  for (std::int32_t window : {0, 3}) {
    EXPECT_NO_THROW(check([](auto&) {}, window));
    EXPECT_THROW(check([](auto& rows) { rows[1].token = 1; }, window), TreeViolation);
    EXPECT_THROW(check([](auto& rows) { rows[2].position = 6; }, window), TreeViolation);
    EXPECT_THROW(check([](auto& rows) { rows[0].place = 6; }, window), TreeViolation);
    EXPECT_THROW(check([](auto& rows) { rows[2].end -= 1; }, window), TreeViolation);
    EXPECT_THROW(check([](auto& rows) { rows[2].begin += 1; }, window), TreeViolation);
    EXPECT_THROW(check([](auto& rows) { rows[2].ancestors = {6}; }, window), TreeViolation);
    EXPECT_THROW(check([](auto& rows) { rows.pop_back(); }, window), TreeViolation);
  }
}

}  // namespace
}  // namespace espalier
