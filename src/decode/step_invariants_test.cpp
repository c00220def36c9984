#include "decode/step_invariants.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "base/testing/sanitized.h"
#include "cache/kv_cache.h"
#include "decode/testing/copied_tables.h"
#include "device/checked/checked_device.h"
#include "device/reference/reference_device.h"
#include "tree/testing/random_tree.h"

namespace espalier {
namespace {

constexpr KvShape kTeacherShape{.layers = 1, .kv_heads = 1, .head_size = 16, .type = DType::f32, .block_size = 128};
constexpr StepLimits kTeacherLimits{.tree = {.vocabulary = 1 << 20, .positions = 4096}};

// The tables of a step over random trees and, behind them, runs of text, as columns that a test can damage.
class Step : public CopiedTables {
 public:
  Step(std::uint32_t seed, bool ascend, std::int32_t window, int trees = 2, int runs = 2) : window_(window) {
    std::unique_ptr<Device> device = make_reference_device();
    if (ascend) device = make_checked_device(std::move(device), {.profile = CheckedProfile::ascend});
    device_ = std::move(device);
    cache_.emplace(*device_, kTeacherShape, 4096);
    std::mt19937 random(seed);
    std::vector<Row> rows;
    for (int i = 0; i < trees; ++i) {
      const auto prefix = static_cast<std::int32_t>(random() % 300);
      trees_.push_back(random_tree(random(), 2 + static_cast<int>(random() % 25)));
      open_branch(prefix, trees_.back().size());
      add_rows(prefix, rows);
    }
    for (int i = 0; i < runs; ++i) add_run(random, rows);
    for (std::size_t i = 0; i < trees_.size(); ++i) of_step_[i].tree = &trees_[i];
    StepTables tables(*device_, cache_->memory(), 64, 1024, {.mask = MaskForm::dense});
    tables.prepare(rows, [this](const HostTables& made) { copy(made); });
    real_rows_ = std::ssize(rows);
  }

  void check() const {
    StepLimits limits = kTeacherLimits;
    limits.window = window_;
    check_step(tables(), of_step_, runs_, cache_->tables(), limits);
  }

  std::int64_t nodes() const {
    std::int64_t nodes = 0;
    for (const TokenTree& tree : trees_) nodes += tree.size();
    return nodes;
  }
  // Of trees and text, without padding.
  std::int64_t real_rows() const { return real_rows_; }
  std::int64_t rows() const { return made_.rows; }
  std::int64_t ancestor_columns() const { return made_.ancestor_columns; }
  std::int64_t mask_columns() const { return made_.mask_columns; }
  std::int64_t block_columns() const { return made_.block_columns; }
  // How many block tables there are: those of the trees, then those of the text.
  std::size_t sequences() const { return branches_.size(); }
  std::vector<TreeOfStep>& trees() { return of_step_; }
  std::vector<RunOfStep>& runs() { return runs_; }

 private:
  void open_branch(std::int32_t prefix, std::int64_t rows) {
    const SequenceId owner = cache_->create();
    if (prefix > 0) cache_->begin(owner, prefix)->commit_length(prefix);
    branches_.push_back(std::move(*cache_->begin(owner, rows)));
  }

  // A part of a prompt, whose text need not begin at place 0 nor have its places for positions.
  void add_run(std::mt19937& random, std::vector<Row>& rows) {
    const auto first = static_cast<std::int32_t>(random() % 300), size = 2 + static_cast<std::int32_t>(random() % 5);
    open_branch(first, size);
    RunOfStep& run = runs_.emplace_back();
    run = {.branch = branches_.back().id(),
           .first = first,
           .position = first + static_cast<std::int32_t>(random() % 3),
           .begin = random() % 2 == 0 ? 0 : static_cast<std::int32_t>(random() % static_cast<unsigned>(first + 1))};
    for (std::int32_t i = 0; i < size; ++i) {
      const std::int32_t place = first + i, oldest = window_ == 0 ? 0 : std::max(0, place - (window_ - 1));
      run.tokens.push_back(1 + static_cast<std::int32_t>(random() % 1000));
      rows.push_back({.sequence = run.branch,
                      .token = run.tokens.back(),
                      .position = run.position + i,
                      .place = place,
                      .begin = std::max(run.begin, oldest),
                      .end = place});
    }
  }

  void add_rows(std::int32_t prefix, std::vector<Row>& rows) {
    const TreeTensors tensors = tensorize(trees_.back(), prefix);
    for (int k = 0; k < tensors.nodes; ++k) {
      const auto at = static_cast<std::size_t>(k);
      const std::int32_t oldest = window_ == 0 ? 0 : std::max(0, tensors.position[at] - (window_ - 1));
      Row row{.sequence = branches_.back().id(),
              .token = tensors.token[at],
              .position = tensors.position[at],
              .place = prefix + k,
              .begin = oldest,
              .end = prefix};
      for (std::int32_t ancestor : tensors.ancestors(k))
        if (tensors.position[static_cast<std::size_t>(ancestor)] >= oldest) row.ancestors.push_back(prefix + ancestor);
      rows.push_back(row);
    }
    of_step_.push_back({nullptr, tensors, branches_.back().id()});
  }

  std::int32_t window_;
  std::unique_ptr<Device> device_;
  std::optional<KvCache> cache_;
  std::vector<TokenTree> trees_;
  std::vector<Branch> branches_;
  std::vector<TreeOfStep> of_step_;
  std::vector<RunOfStep> runs_;
  std::int64_t real_rows_ = 0;
};

TEST(StepInvariants, AcceptTheTablesOfEveryStep) {
  for (std::uint32_t seed = 0; seed < 60; ++seed)
    for (std::int32_t window : {0, 3, 40})
      for (const auto& [trees, runs] : {std::pair(2, 0), std::pair(0, 2), std::pair(2, 2)})
        EXPECT_NO_THROW(Step(seed, seed % 2 == 0, window, trees, runs).check())
            << "seed " << seed << ", window " << window << ", " << trees << " trees, " << runs << " runs";
}

TEST(StepInvariants, CatchEverySingleFault) {
  struct Fault {
    const char* what;
    std::function<void(Step&, std::mt19937&)> inject;
  };
  // A row of a tree; a row of the text behind them.
  const auto node = [](Step& step, std::mt19937& random) { return random() % static_cast<std::size_t>(step.nodes()); };
  const auto text = [](Step& step, std::mt19937& random) {
    return static_cast<std::size_t>(step.nodes()) +
           random() % static_cast<std::size_t>(step.real_rows() - step.nodes());
  };
  const std::vector<Fault> faults = {
      {"token", [&](Step& s, auto& r) { s.token[node(s, r)] += 1; }},
      {"position", [&](Step& s, auto& r) { s.position[node(s, r)] += 1; }},
      {"slot", [&](Step& s, auto& r) { s.slot[node(s, r)] ^= 1; }},
      {"slot of a neighbour",
       [&](Step& s, auto& r) {
         const std::size_t row = node(s, r);
         s.slot[row] = s.slot[(row + 1) % static_cast<std::size_t>(s.nodes())];
       }},
      {"sequence", [&](Step& s, auto& r) { s.sequence[node(s, r)] ^= 1; }},
      {"block of a table",
       [&](Step& s, auto& r) { s.blocks[r() % s.sequences() * static_cast<std::size_t>(s.block_columns())] += 1; }},
      {"begin of the context", [&](Step& s, auto& r) { s.begin[node(s, r)] += 1; }},
      {"end of the context", [&](Step& s, auto& r) { s.end[node(s, r)] += 1; }},
      {"number of ancestors", [&](Step& s, auto& r) { s.ancestor_count[node(s, r)] += 1; }},
      {"slot of an ancestor",
       [&](Step& s, auto& r) {
         std::size_t row = node(s, r);
         while (s.ancestor_count[row] == 0) row = node(s, r);
         const auto column = r() % static_cast<std::size_t>(s.ancestor_count[row]);
         s.ancestors[row * static_cast<std::size_t>(s.ancestor_columns()) + column] += 1;
       }},
      {"unused entry of the ancestors",
       [&](Step& s, auto& r) {
         const auto columns = static_cast<std::size_t>(s.ancestor_columns());
         std::size_t row = node(s, r);
         while (s.ancestor_count[row] == s.ancestor_columns()) row = node(s, r);
         s.ancestors[(row + 1) * columns - 1] = r() % 2 ? 1 : -1;
       }},
      {"bit of the mask",
       [&](Step& s, auto& r) {
         const std::size_t row = node(s, r), column = r() % static_cast<std::size_t>(s.mask_columns());
         s.mask[row * static_cast<std::size_t>(s.mask_columns()) + column] ^= 1;
       }},
      {"bit of the mask, inside the tree",
       [&](Step& s, auto& r) {
         const auto row = static_cast<std::size_t>(s.trees()[0].tensors.nodes) - 1;
         const auto column = static_cast<std::size_t>(s.trees()[0].tensors.prefix) + r() % (row + 1);
         s.mask[row * static_cast<std::size_t>(s.mask_columns()) + column] ^= 1;
       }},
      {"oldest key of a row hidden",  // a window that is one too small
       [&](Step& s, auto& r) {
         const auto first = s.mask.begin() + static_cast<std::ptrdiff_t>(node(s, r)) * s.mask_columns();
         *std::find(first, first + s.mask_columns(), 0) = 1;
       }},
      {"byte of the mask, not 0 or 1", [&](Step& s, auto& r) { s.mask[r() % s.mask.size()] = 255; }},
      {"mask too short", [&](Step& s, auto&) { s.mask.pop_back(); }},
      {"parent of the tables",
       [&](Step& s, auto& r) {
         auto& tensors = s.trees()[r() % 2].tensors;
         tensors.parent[1 + r() % static_cast<std::size_t>(tensors.nodes - 1)] += 1;
       }},
      {"depth of the tables",
       [&](Step& s, auto& r) {
         auto& tensors = s.trees()[r() % 2].tensors;
         tensors.depth[1 + r() % static_cast<std::size_t>(tensors.nodes - 1)] += 1;
       }},
      {"token of text", [&](Step& s, auto& r) { s.token[text(s, r)] += 1; }},
      {"position of text", [&](Step& s, auto& r) { s.position[text(s, r)] += 1; }},
      {"slot of text", [&](Step& s, auto& r) { s.slot[text(s, r)] ^= 1; }},
      {"slot of another row for text",
       [&](Step& s, auto& r) {
         const std::size_t row = text(s, r);
         s.slot[row] = s.slot[row - 1];
       }},
      {"sequence of text", [&](Step& s, auto& r) { s.sequence[text(s, r)] ^= 1; }},
      {"begin of the context of text", [&](Step& s, auto& r) { s.begin[text(s, r)] += r() % 2 ? 1 : -1; }},
      {"end of the context of text", [&](Step& s, auto& r) { s.end[text(s, r)] += r() % 2 ? 1 : -1; }},
      {"ancestors of text", [&](Step& s, auto& r) { s.ancestor_count[text(s, r)] += 1; }},
      {"bit of the mask of text",
       [&](Step& s, auto& r) {
         const std::size_t row = text(s, r), column = r() % static_cast<std::size_t>(s.mask_columns());
         s.mask[row * static_cast<std::size_t>(s.mask_columns()) + column] ^= 1;
       }},
      {"run that nobody told of", [&](Step& s, auto&) { s.runs().pop_back(); }},
      {"run with a row too few", [&](Step& s, auto& r) { s.runs()[r() % 2].tokens.pop_back(); }},
      {"run with a row too many", [&](Step& s, auto& r) { s.runs()[r() % 2].tokens.push_back(1); }},
      {"runs in the other order", [&](Step& s, auto&) { std::swap(s.runs()[0], s.runs()[1]); }},
      {"token of a padding row", [&](Step& s, auto&) { s.token.back() += 1; }},
      {"position of a padding row", [&](Step& s, auto&) { s.position.back() += 1; }},
      {"slot of a padding row",
       [&](Step& s, auto&) {
         if (s.rows() > s.real_rows())
           s.slot.back() += 1;
         else
           s.slot[0] += 1;
       }},
      {"padding row that sees a node",
       [&](Step& s, auto&) { s.mask[s.mask.size() - 2] = s.mask[s.mask.size() - 2] == 0 ? 1 : 0; }},
  };
  fmt::print("{:32} injected caught\n", "fault");
  for (const Fault& fault : faults) {
    int caught = 0;
    constexpr int kTimes = kSanitized ? 25 : 100;
    for (std::uint32_t seed = 0; seed < kTimes; ++seed) {
      std::mt19937 random(seed);
      Step step(seed, true, seed % 3 == 0 ? 5 : 0);
      fault.inject(step, random);
      try {
        step.check();
        ADD_FAILURE() << fault.what << ", seed " << seed << ": not caught";
      } catch (const std::logic_error&) {
        ++caught;
      }
    }
    fmt::print("{:32} {:8} {:6}\n", fault.what, kTimes, caught);
  }
}

TEST(StepInvariants, AViolationShowsTheTree) {
  Step step(1, false, 0);
  step.slot[0] += 1;
  try {
    step.check();
    FAIL() << "not caught";
  } catch (const TreeViolation& violation) {
    EXPECT_EQ(violation.rule(), TreeRule::slot);
    EXPECT_EQ(violation.row(), 0);
    EXPECT_NE(std::string(violation.what()).find("row parent depth"), std::string::npos) << violation.what();
  }
}

TEST(StepInvariants, AViolationOfTextSaysWhichRowOfItsRun) {
  Step step(1, false, 0);
  const auto second_run = static_cast<std::size_t>(step.nodes() + std::ssize(step.runs()[0].tokens));
  step.position[second_run + 1] += 1;
  try {
    step.check();
    FAIL() << "not caught";
  } catch (const TreeViolation& violation) {
    EXPECT_EQ(violation.rule(), TreeRule::position);
    EXPECT_EQ(violation.row(), 1);
    EXPECT_NE(std::string(violation.what()).find(std::to_string(step.runs()[1].tokens[1])), std::string::npos)
        << violation.what();
  }
}

TEST(StepInvariants, TextOutsideTheLimitsIsCaught) {
  for (const bool token : {false, true}) {
    Step step(2, false, 0, 0, 1);
    auto& column = token ? step.token : step.position;
    column[0] = token ? 1 << 20 : 4096;
    (token ? step.runs()[0].tokens[0] : step.runs()[0].position) = column[0];
    try {
      step.check();
      FAIL() << "not caught";
    } catch (const TreeViolation& violation) {
      EXPECT_EQ(violation.rule(), TreeRule::range);
    }
  }
}

TEST(StepInvariants, PaddingBehindTextAloneIsCheckedToo) {
  Step step(3, true, 0, 0, 1);
  ASSERT_GT(step.rows(), step.real_rows());
  EXPECT_NO_THROW(step.check());
  step.token.back() += 1;
  try {
    step.check();
    FAIL() << "not caught";
  } catch (const TreeViolation& violation) {
    EXPECT_EQ(violation.rule(), TreeRule::padding);
  }
}

}  // namespace
}  // namespace espalier
