// Whole rounds of an EAGLE-3 head and its teacher that the host only starts and reads: every table between the passes
// is written by round ops (device/round_ops.h), and a round waits for its device once. Trees, scores and paths are
// those of the batch, which drives its rounds from the host, round by round to the end of the answers.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <optional>

#include "base/random.h"
#include "base/testing/sanitized.h"
#include "decode/batch.h"
#include "decode/eagle3_drafter.h"
#include "device/checked/checked_device.h"
#include "device/conformance/counting_device.h"
#include "device/conformance/recording_device.h"
#include "device/cpu/cpu_device.h"
#include "device/reference/reference_device.h"
#include "device/round_ops.h"
#include "testing/company.h"

namespace espalier::testing {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kContext = 420;
constexpr std::int64_t kAnswer = 40;  // tokens
constexpr std::int32_t kSeed = 77;

// What a round said.
struct ToldRound {
  std::int64_t prefix = 0;
  std::vector<TreeNode> nodes;
  std::vector<Visit> visits;
};

struct Told {
  Tokens first;                                // the token behind each prompt
  std::vector<std::vector<ToldRound>> rounds;  // of each answer
};

GenerateOptions options_of(const SamplingOptions& sampling) {
  return {.sampling = sampling, .seed = kSeed, .max_tokens = kAnswer};
}

// --- by the batch ---------------------------------------------------------------------------------------------------

Told told_by_batch(const Company& company, const TreeOptions& tree, const std::vector<Tokens>& prompts,
                   const SamplingOptions& sampling) {
  Told told;
  for (const Tokens& prompt : prompts) {
    Batch batch(company.teacher, {.context = kContext},
                {tree, [&](KvCache& cache, int sequences) {
                   DrafterSet set;
                   set.push_back(std::make_unique<Eagle3Drafter>(
                       *company.eagle3_head, cache,
                       Eagle3DrafterOptions{.context = kContext, .tree = tree, .sequences = sequences}));
                   return set;
                 }});
    auto& rounds = told.rounds.emplace_back();
    GenerateEvents events;
    events.on_round = [&](const Round& round) {
      rounds.push_back({round.prefix,
                        {round.tree.nodes().begin(), round.tree.nodes().end()},
                        {round.visits.begin(), round.visits.end()}});
    };
    told.first.push_back(batch.generate(prompt, options_of(sampling), events).tokens.at(0));
  }
  return told;
}

// --- on the device --------------------------------------------------------------------------------------------------

// Tables of integers on a device.
class DeviceInts {
 public:
  DeviceInts(Device& device, std::int64_t rows, std::int64_t columns)
      : device_(&device), tensor_(device.tensor(DType::i32, {rows, columns})) {}
  DeviceInts(Device& device, std::int64_t rows, const Tokens& values)
      : DeviceInts(device, rows, std::ssize(values) / rows) {
    fill(values);
  }

  void fill(const Tokens& values) { upload<std::int32_t>(*device_, values, tensor_); }
  View table() const { return tensor_; }
  View list() const { return tensor_.view.reshaped({tensor_.view.elements()}); }

 private:
  Device* device_;
  Tensor tensor_;
};

struct DeviceNodes {
  DeviceNodes(Device& device, std::int64_t trees, std::int64_t nodes)
      : token(device, trees, nodes),
        parent(device, trees, nodes),
        depth(device, trees, nodes),
        row(device, trees, nodes),
        score(device.tensor(DType::f64, {trees, nodes})) {}

  NodeTables first(std::int64_t nodes) const {
    return {token.table().columns(0, nodes), parent.table().columns(0, nodes), depth.table().columns(0, nodes),
            score.view.columns(0, nodes), row.table().columns(0, nodes)};
  }

  DeviceInts token, parent, depth, row;
  Tensor score;
};

struct DeviceRows {
  DeviceRows(Device& device, std::int64_t rows, std::int64_t ancestor_columns, bool inputs)
      : columns(device, 8, rows), ancestors(device, rows, ancestor_columns), with_inputs(inputs) {}

  PlacedRows all() const {
    const auto column = [this](std::int64_t i) {
      const View row = columns.table().rows(i, 1);
      return row.reshaped({row.elements()});
    };
    return {column(0), column(1),         column(2),
            column(3), column(4),         column(5),
            column(6), ancestors.table(), with_inputs ? column(7) : View()};
  }

  DeviceInts columns, ancestors;
  bool with_inputs;
};

Tokens counting(std::int64_t count) {
  Tokens list(static_cast<std::size_t>(count));
  std::iota(list.begin(), list.end(), 0);
  return list;
}

// All answers side by side, each with a tree in every round until it has ended.
class ResidentAnswers {
 public:
  ResidentAnswers(const Company& company, const TreeOptions& tree, const std::vector<Tokens>& prompts,
                  const SamplingOptions& sampling)
      : teacher_(company.teacher),
        head_(*company.eagle3_head),
        device_(teacher_.device()),
        tree_(tree),
        sampling_(sampling),
        prompts_(prompts),
        trees_(std::ssize(prompts)),
        rows_(max_rows(tree)),
        width_(tree.shape == TreeShape::chain ? 1 : tree.expand),
        branch_(tree.shape == TreeShape::chain ? 1
                : tree.branch == 0             ? tree.expand
                                               : tree.branch),
        length_(tree.depth + 1),
        candidates_(1 + branch_ + (tree.depth - 1) * width_ * branch_),
        cache_(device_, teacher_.kv_shape(DType::f16), trees_ * 2 * kPositions),
        head_memory_(&cache_.add_memory(head_.kv_shape(DType::f16))),
        workspace_(teacher_, cache_.memory(),
                   {.rows = std::max<std::int64_t>(kContext, trees_ * rows_),
                    .outputs = trees_ * rows_,
                    .positions = kPositions,
                    .tap_boundaries = head_.taps()}),
        head_workspace_(head_, *head_memory_, std::max<std::int64_t>(kContext, trees_ * (length_ + width_)),
                        kPositions),
        taps_(device_.tensor(DType::f32, {trees_ * rows_, head_.config().feature_width()})),
        features_(device_.tensor(DType::f32, {trees_ * length_, head_.config().feature_width()})),
        vectors_(device_.tensor(DType::f32, {kContext, head_.hidden()})),
        nodes_(device_, trees_, candidates_),
        chosen_(device_, trees_, rows_),
        head_rows_(device_, trees_ * length_, 1, true),
        draft_rows_(device_, trees_ * width_, tree.depth + 1, true),
        tree_rows_(device_, trees_ * rows_, tree.depth + 1, false),
        log_probability_(device_.tensor(DType::f64, {trees_ * width_, branch_})),
        temperature_(device_.tensor(DType::f32, {trees_})),
        top_p_(device_.tensor(DType::f32, {trees_})),
        min_p_(device_.tensor(DType::f32, {trees_})) {
    for (std::int64_t s = 0; s < trees_; ++s) branches_.push_back(*cache_.begin(cache_.create(), kPositions));
    upload_settings();
    upload<float>(device_, std::vector<float>(static_cast<std::size_t>(taps_.view.elements())), taps_);
    if (!head_.target_ids().empty()) target_ids_.emplace(device_, 1, head_.target_ids());
  }

  Told run() {
    Told told;
    told.rounds.resize(prompts_.size());
    for (std::int64_t s = 0; s < trees_; ++s) told.first.push_back(prefill(s));
    start(told.first);
    while (std::ranges::any_of(left_, [](std::int32_t left) { return left > 0; })) round(told);
    return told;
  }

 private:
  static constexpr std::int64_t kPositions = kContext + 260;  // behind them rows that are not there

  void upload_settings() {
    const auto same = [&](float value) { return std::vector<float>(static_cast<std::size_t>(trees_), value); };
    upload<float>(device_, same(sampling_.temperature), temperature_);
    upload<float>(device_, same(sampling_.top_p), top_p_);
    upload<float>(device_, same(sampling_.min_p), min_p_);
    Tokens blocks;
    for (const Branch& branch : branches_) {
      const auto own = cache_.blocks(branch.id());
      blocks.insert(blocks.end(), own.begin(), own.end());
    }
    blocks_.emplace(device_, trees_, blocks);
    top_k_.fill(Tokens(static_cast<std::size_t>(trees_), static_cast<std::int32_t>(sampling_.top_k)));
    Tokens seeds;
    for (std::int64_t s = 0; s < trees_; ++s) seeds.insert(seeds.end(), {kSeed, 0});
    seed_.fill(seeds);
    for (std::int32_t level = 0; level < tree_.depth; ++level) {
      Tokens entry, rank;
      for (std::int32_t e = 0; e < (level == 0 ? 1 : width_); ++e)
        for (std::int32_t r = 0; r < branch_; ++r) entry.push_back(e), rank.push_back(r);
      entries_.emplace_back(device_, 1, entry);
      ranks_.emplace_back(device_, 1, rank);
    }
  }

  // The prompt, but for the head's row behind its last position; returns the token behind it.
  std::int32_t prefill(std::int64_t s) {
    const Tokens& prompt = prompts_[static_cast<std::size_t>(s)];
    const SequenceId branch = branches_[static_cast<std::size_t>(s)].id();
    const std::int64_t length = std::ssize(prompt);
    std::vector<Row> rows;
    for (std::int64_t p = 0; p < length; ++p) {
      rows.push_back(teacher_.prefill_row(branch, p, prompt[static_cast<std::size_t>(p)]));
      rows.back().wants_taps = true;
    }
    rows.back().wants_logits = true;
    const StepOutput output = teacher_.forward(rows, workspace_);
    std::vector<float> logits(static_cast<std::size_t>(output.logits.elements()));
    download<float>(device_, output.logits, logits);
    const DeviceInts last(device_, 1, Tokens{static_cast<std::int32_t>(length - 1)});
    device_.gather_rows(output.taps, last.list(), taps_.view.rows(s * rows_, 1));
    if (length > 1) {
      head_.fuse(output.taps, counting(length - 1), head_workspace_, vectors_);
      std::vector<Row> pairs;
      for (std::int32_t t = 0; t < length - 1; ++t)
        pairs.push_back({.sequence = branch,
                         .token = prompt[static_cast<std::size_t>(t) + 1],
                         .position = t,
                         .place = t + 1,
                         .begin = 1,
                         .end = t + 1,
                         .input = t});
      head_.forward(pairs, vectors_, head_workspace_);
    }
    return sample(logits, sampling_, {}, uniform(kSeed, static_cast<std::uint64_t>(length)));
  }

  // As if a round had committed the last position of each prompt.
  void start(const Tokens& first) {
    Tokens choice(static_cast<std::size_t>(trees_ * rows_));
    for (std::int64_t s = 0; s < trees_; ++s) {
      choice[static_cast<std::size_t>(s * rows_)] = first[static_cast<std::size_t>(s)];
      before_.push_back(static_cast<std::int32_t>(prompts_[static_cast<std::size_t>(s)].size()) - 1);
      prefix_now_.push_back(before_.back() + 1);
      left_.push_back(kAnswer - 1);
    }
    choice_.fill(choice);
    path_.fill(Tokens(static_cast<std::size_t>(trees_ * length_)));
    count_.fill(Tokens(static_cast<std::size_t>(trees_), 1));
    token_.fill(first);
  }

  void round(Told& told) {
    // What the host says beforehand: lengths, and how large a tree may still get.
    Tokens levels, most, first;
    for (std::size_t s = 0; s < prompts_.size(); ++s) {
      const auto room = static_cast<std::int32_t>(kContext) - prefix_now_[s];
      levels.push_back(std::clamp(std::min(left_[s], room) - 1, 0, tree_.depth));
      most.push_back(std::min(static_cast<std::int32_t>(rows_), room));
      first.push_back(prefix_now_[s] + 1);
    }
    committed_.fill(before_);
    prefix_.fill(prefix_now_);
    first_.fill(first);
    root_position_.fill(before_of(prefix_now_));
    levels_.fill(levels);
    most_.fill(most);
    const std::int64_t waits = synchronisations();
    draft();
    verify();
    read(told);
    EXPECT_EQ(synchronisations() - waits, 1);
  }
  static Tokens before_of(Tokens list) {
    for (std::int32_t& value : list) --value;
    return list;
  }

  PlaceTables places() const { return {.blocks = blocks_->table(), .block_size = cache_.block_size()}; }
  GuessTables guesses(std::int64_t rows) const {
    return {guess_.table().rows(0, rows), log_probability_.view.rows(0, rows), guess_count_.list().rows(0, rows)};
  }
  // Who is expanded behind this level.
  View frontier(std::int32_t level) const { return (level % 2 == 1 ? odd_ : even_).table(); }
  void op(const RoundOp& op) { device_.round_ops()->run(op); }

  void draft() {
    const PlacedRows rows = head_rows_.all();
    op(CatchUp{.path = path_.table(),
               .count = count_.list(),
               .choice = choice_.list(),
               .prefix = committed_.list(),
               .begin = ones_.list(),
               .places = places(),
               .rows = rows,
               .feature = feature_.list(),
               .seed = seed_row_.list()});
    device_.gather_rows(taps_, feature_.list(), features_);
    head_.fuse(features_, counting(trees_ * length_), head_workspace_, vectors_);
    Eagle3Output output = head_.forward(
        {.number = 0, .rows = rows.tables(blocks_->table()), .input = rows.input, .output_rows = seed_row_.list()},
        vectors_, head_workspace_);
    for (std::int32_t level = 1; level <= tree_.depth; ++level) {
      grow(level, output.logits);
      if (level < tree_.depth) output = draft_pass(level, output.feedback);
    }
  }

  void grow(std::int32_t level, ConstView logits) {
    const std::int64_t rows = logits.dim(0);
    const auto index = static_cast<std::size_t>(level - 1);
    op(RankGuesses{.logits = logits,
                   .target_ids = target_ids_ ? target_ids_->list() : View(),
                   .scale = head_.logit_scale(),
                   .vocabulary = static_cast<std::int32_t>(teacher_.config().vocabulary),
                   .guesses = guesses(rows)});
    op(GrowLevel{.nodes = nodes_.first(1 + branch_ + (level - 1) * width_ * branch_),
                 .root = token_.list(),
                 .levels = levels_.list(),
                 .entry = entries_[index].list(),
                 .rank = ranks_[index].list(),
                 .frontier = level == 1 ? zeros_.table() : frontier(level - 1),
                 .guess_row = level == 1 ? by_tree_.table() : by_entry_.table(),
                 .guesses = guesses(rows),
                 .next = frontier(level),
                 .level = level});
  }

  Eagle3Output draft_pass(std::int32_t level, ConstView feedback) {
    const PlacedRows rows = draft_rows_.all();
    op(PlaceRows{.nodes = nodes_.first(1 + branch_ + (level - 1) * width_ * branch_),
                 .listed = frontier(level),
                 .first = first_.list(),
                 .root_position = root_position_.list(),
                 .begin = ones_.list(),
                 .seed = seed_row_.list(),
                 .places = places(),
                 .rows = rows,
                 .offset = static_cast<std::int32_t>((level - 1) * width_),
                 .prior_rows = static_cast<std::int32_t>(width_),
                 .prior_offset = static_cast<std::int32_t>(std::max(0, level - 2) * width_)});
    return head_.forward(
        {.number = 1, .rows = rows.tables(blocks_->table()), .input = rows.input, .output_rows = entry_rows_.list()},
        feedback, head_workspace_);
  }

  void verify() {
    const PlacedRows rows = tree_rows_.all();
    op(ChooseRows{.nodes = nodes_.first(candidates_),
                  .rows = most_.list(),
                  .tree = chosen_.first(rows_),
                  .drafted = drafted_.table(),
                  .size = size_.list()});
    op(PlaceRows{.nodes = chosen_.first(rows_),
                 .first = prefix_.list(),
                 .root_position = prefix_.list(),
                 .begin = zeros_.list(),
                 .places = places(),
                 .rows = rows,
                 .window = static_cast<std::int32_t>(teacher_.config().sliding_window)});
    const StepOutput output = teacher_.forward({.number = 0,
                                                .rows = rows.tables(blocks_->table()),
                                                .output_rows = step_rows_.list(),
                                                .tap_rows = step_rows_.list()},
                                               workspace_);
    device_.gather_rows(output.taps, step_rows_.list(), taps_);
    op(ChooseTokens{.logits = output.logits,
                    .position = rows.position,
                    .temperature = temperature_,
                    .top_p = top_p_,
                    .min_p = min_p_,
                    .top_k = top_k_.list(),
                    .seed = seed_.table(),
                    .token = choice_.list(),
                    .state = state_.list()});
    op(WalkTrees{.tree = chosen_.first(rows_),
                 .choice = choice_.list(),
                 .state = state_.list(),
                 .path = path_.table(),
                 .count = count_.list(),
                 .last = last_.list(),
                 .token = token_.list(),
                 .outcome = outcome_.list()});
    op(ListMoves{.path = path_.table(),
                 .count = count_.list(),
                 .row = chosen_.row.table(),
                 .first = prefix_.list(),
                 .places = places(),
                 .from = from_.list(),
                 .to = to_.list(),
                 .kept = kept_.list()});
    std::vector<KvViews> layers;
    for (std::int64_t i = 0; i < cache_.memory().shape().layers; ++i) layers.push_back(cache_.memory().layer(i));
    device_.kv_copy(layers, from_.list(), to_.list());
  }

  // The one download of a round.
  void read(Told& told) {
    const auto size = static_cast<std::size_t>(trees_), nodes = size * static_cast<std::size_t>(rows_),
               steps = size * static_cast<std::size_t>(length_);
    Tokens token(nodes), parent(nodes), depth(nodes), choice(nodes), path(steps), count(size), outcome(size),
        tree_size(size);
    std::vector<double> score(nodes);
    const auto part = [](const DeviceInts& from, Tokens& to) {
      return part_of_download(from.list(), std::span<std::int32_t>(to));
    };
    const Download parts[] = {
        part(chosen_.token, token), part(chosen_.parent, parent),
        part(chosen_.depth, depth), part_of_download(chosen_.score.view, std::span<double>(score)),
        part(choice_, choice),      part(path_, path),
        part(count_, count),        part(outcome_, outcome),
        part(size_, tree_size)};
    device_.download(parts);
    for (std::size_t s = 0; s < size; ++s) {
      ASSERT_EQ(outcome[s], 0);
      const std::size_t first = s * static_cast<std::size_t>(rows_);
      ToldRound round{.prefix = prefix_now_[s], .nodes = {}, .visits = {}};
      for (std::size_t k = first; k < first + static_cast<std::size_t>(tree_size[s]); ++k)
        round.nodes.push_back({.token = token[k], .parent = parent[k], .depth = depth[k], .score = score[k]});
      for (std::int32_t j = 0; j < count[s]; ++j) {
        const std::int32_t row = path[s * static_cast<std::size_t>(length_) + static_cast<std::size_t>(j)];
        round.visits.push_back({row, choice[first + static_cast<std::size_t>(row)]});
      }
      if (left_[s] > 0) told.rounds[s].push_back(std::move(round));
      // An answer that has ended stays where it is until the others have.
      const bool goes_on = left_[s] > count[s];
      left_[s] = goes_on ? left_[s] - count[s] : 0;
      before_[s] = prefix_now_[s];
      prefix_now_[s] += count[s];
    }
  }

 public:
  std::function<std::int64_t()> synchronisations;  // of the device so far

 private:
  const Transformer& teacher_;
  const Eagle3Head& head_;
  Device& device_;
  TreeOptions tree_;
  SamplingOptions sampling_;
  std::vector<Tokens> prompts_;
  std::int64_t trees_, rows_, width_, branch_, length_, candidates_;
  KvCache cache_;
  const KvMemory* head_memory_;
  std::vector<Branch> branches_;
  Workspace workspace_;
  Eagle3Workspace head_workspace_;
  Tensor taps_, features_, vectors_;
  DeviceNodes nodes_, chosen_;
  DeviceRows head_rows_, draft_rows_, tree_rows_;
  Tensor log_probability_, temperature_, top_p_, min_p_;
  std::optional<DeviceInts> blocks_, target_ids_;
  std::vector<DeviceInts> entries_, ranks_;  // by level
  DeviceInts by_tree_{device_, trees_, counting(trees_)}, by_entry_{device_, trees_, counting(trees_*width_)},
      entry_rows_{device_, 1, counting(trees_*width_)}, step_rows_{device_, 1, counting(trees_*rows_)},
      zeros_{device_, trees_, Tokens(static_cast<std::size_t>(trees_))},
      ones_{device_, 1, Tokens(static_cast<std::size_t>(trees_), 1)};
  DeviceInts guess_{device_, trees_*width_, branch_}, guess_count_{device_, 1, trees_*width_},
      odd_{device_, trees_, width_}, even_{device_, trees_, width_}, feature_{device_, 1, trees_*length_},
      seed_row_{device_, 1, trees_}, drafted_{device_, trees_, rows_}, size_{device_, 1, trees_},
      choice_{device_, 1, trees_*rows_}, state_{device_, 1, trees_*rows_}, path_{device_, trees_, length_},
      count_{device_, 1, trees_}, last_{device_, 1, trees_}, token_{device_, 1, trees_}, outcome_{device_, 1, trees_},
      from_{device_, 1, trees_*length_}, to_{device_, 1, trees_*length_}, kept_{device_, 1, trees_},
      committed_{device_, 1, trees_}, prefix_{device_, 1, trees_}, first_{device_, 1, trees_},
      root_position_{device_, 1, trees_}, levels_{device_, 1, trees_}, most_{device_, 1, trees_},
      top_k_{device_, 1, trees_}, seed_{device_, trees_, 2};
  // On the host: what is committed before this round and the one before it, and how many tokens are left.
  Tokens prefix_now_, before_, left_;
};

// --- both -----------------------------------------------------------------------------------------------------------

void expect_same(const Told& device, const Told& host) {
  EXPECT_EQ(device.first, host.first);
  std::size_t accepted = 0;
  for (const auto& rounds : host.rounds)
    for (const ToldRound& round : rounds) accepted += round.visits.size() - 1;
  EXPECT_GT(accepted, 0u) << "no path was longer than its root";
  for (std::size_t s = 0; s < host.rounds.size(); ++s) {
    SCOPED_TRACE(::testing::Message() << "answer " << s);
    ASSERT_EQ(device.rounds[s].size(), host.rounds[s].size());
    for (std::size_t r = 0; r < host.rounds[s].size(); ++r) {
      SCOPED_TRACE(::testing::Message() << "round " << r);
      const ToldRound &left = device.rounds[s][r], &right = host.rounds[s][r];
      EXPECT_EQ(left.prefix, right.prefix);
      EXPECT_EQ(left.visits, right.visits);
      ASSERT_EQ(left.nodes.size(), right.nodes.size());
      for (std::size_t k = 0; k < left.nodes.size(); ++k) {
        EXPECT_EQ(left.nodes[k].token, right.nodes[k].token) << "node " << k;
        EXPECT_EQ(left.nodes[k].parent, right.nodes[k].parent) << "node " << k;
        EXPECT_EQ(left.nodes[k].depth, right.nodes[k].depth) << "node " << k;
        EXPECT_EQ(std::bit_cast<std::uint64_t>(left.nodes[k].score), std::bit_cast<std::uint64_t>(right.nodes[k].score))
            << "node " << k;
      }
      if (::testing::Test::HasFailure()) return;
    }
  }
}

struct ResidentDevice {
  std::string name;
  std::function<std::unique_ptr<Device>()> make;
};
std::vector<ResidentDevice> resident_devices() {
  if (kSanitized) return {{"checked", [] { return make_checked_device(make_cpu_device()); }}};
  return {{"reference", [] { return make_reference_device(2); }},
          {"checked", [] { return make_checked_device(make_cpu_device()); }},
          {"cpu", [] { return make_cpu_device({.threads = 2}); }},
          {"recording", [] { return make_recording_device(make_cpu_device({.threads = 2}), Replay::compared); }}};
}

class ResidentRounds : public ::testing::TestWithParam<ResidentDevice> {
 protected:
  std::vector<Tokens> random_prompts(std::int64_t count) {
    std::vector<Tokens> prompts;
    for (std::int64_t s = 0; s < count; ++s) {
      Tokens& prompt = prompts.emplace_back();
      for (std::uint64_t i = 0; i < 3 + mix64(static_cast<std::uint64_t>(s) + 5) % 30; ++i)
        prompt.push_back(static_cast<std::int32_t>(mix64(i * 31 + static_cast<std::uint64_t>(s)) % 200));
    }
    return prompts;
  }

  void expect_same_rounds(const Company& company, const TreeOptions& tree, const std::vector<Tokens>& prompts,
                          const SamplingOptions& sampling = {}) {
    ResidentAnswers answers(company, tree, prompts, sampling);
    answers.synchronisations = [this] { return device_.counts().synchronisations; };
    expect_same(answers.run(), told_by_batch(company, tree, prompts, sampling));
  }

  CountingDevice device_{GetParam().make()};
};

INSTANTIATE_TEST_SUITE_P(Devices, ResidentRounds, ::testing::ValuesIn(resident_devices()),
                         [](const auto& info) { return info.param.name; });

TEST_P(ResidentRounds, AreThoseOfTheHost) {
  const Company company(device_, {"smollm2"});
  for (const TreeOptions& tree : {TreeOptions{.nodes = 12, .depth = 4, .expand = 3},
                                  TreeOptions{.nodes = 24, .depth = 3, .expand = 2, .branch = 5},
                                  TreeOptions{.shape = TreeShape::chain, .nodes = 5, .depth = 4}})
    expect_same_rounds(company, tree, random_prompts(1));
}

TEST_P(ResidentRounds, OfSeveralAnswersSideBySideAreThoseOfEachAlone) {
  expect_same_rounds({device_, {"smollm2"}}, {.nodes = 16, .depth = 5, .expand = 4}, random_prompts(3));
}

TEST_P(ResidentRounds, OfATeacherWithAWindowAreThoseOfTheHost) {
  // It sees sixteen positions. Its head knows nothing, so the trees are wide enough to be right by chance.
  expect_same_rounds({device_, {"mistral"}}, {.nodes = 200, .depth = 3, .expand = 12, .branch = 60}, random_prompts(2));
}

TEST_P(ResidentRounds, ThatSampleAreThoseOfTheHost) {
  expect_same_rounds({device_, {"smollm2"}}, {.nodes = 200, .depth = 4, .expand = 12, .branch = 60}, random_prompts(2),
                     {.temperature = 0.8f, .top_k = 40, .top_p = 0.9f, .min_p = 0.02f});
}

}  // namespace
}  // namespace espalier::testing
