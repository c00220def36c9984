// How often a round waits for its device: once for plain decoding; with a tree once per draft level and once for
// acceptance, whatever its depth and whatever becomes of it. The same on a device that lends its memory, on one with
// memory of its own, and on one that has row buckets besides. And that reading less changes no text.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <limits>
#include <utility>

#include "base/error.h"
#include "decode/batch.h"
#include "decode/eagle_drafter.h"
#include "decode/medusa_drafter.h"
#include "decode/model_drafter.h"
#include "decode/ngram_drafter.h"
#include "decode/passing_drafter.h"
#include "device/checked/checked_device.h"
#include "device/conformance/counting_device.h"
#include "device/conformance/recording_device.h"
#include "device/conformance/remote_device.h"
#include "device/conformance/sparing_device.h"
#include "device/cpu/cpu_device.h"
#include "device/host_views.h"
#include "testing/company.h"

namespace espalier::testing {
namespace {

using ::testing::ThrowsMessage;

using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kContext = 200;
constexpr std::int64_t kWatchedRounds = 6;
const Tokens kPrompt = {5, 9, 40, 77, 120, 33, 5, 9, 40, 77, 120, 33, 5, 9};

// Counts the levels that it is asked for.
class CountedLevels final : public PassingDrafter {
 public:
  CountedLevels(std::unique_ptr<Drafter> inner, std::int64_t& levels)
      : PassingDrafter(std::move(inner)), levels_(&levels) {}

  std::vector<Guesses> expand(std::span<const DraftJob> jobs) override {
    ++*levels_;
    return inner().expand(jobs);
  }

 private:
  std::int64_t* levels_;
};

struct WatchedDevice {
  std::string name;
  std::function<std::unique_ptr<Device>()> make;
};
std::vector<WatchedDevice> watched_devices() {
  return {
      {"cpu", [] { return make_cpu_device({.threads = 2}); }},
      {"cpu_that_lends_nothing", [] { return make_remote_device(make_cpu_device({.threads = 2})); }},
      {"recording_some_rows",
       [] {
         return std::make_unique<SparingDevice>(make_recording_device(make_cpu_device(), Replay::compared),
                                                std::vector<std::int64_t>{1, 2, 4, 8, 16, 24});
       }},
      {"checked_ascend", [] { return make_checked_device(make_cpu_device(), {.profile = CheckedProfile::ascend}); }}};
}

// Of a round: what the device was asked, and the levels of its tree that were drafted.
struct WatchedRound {
  CallCounts device;
  std::int64_t levels = 0;
};

class Synchronisations : public ::testing::TestWithParam<WatchedDevice> {
 protected:
  std::unique_ptr<Drafter> drafter(const std::string& kind, const TreeOptions& tree, KvCache& cache,
                                   int sequences) const {
    if (kind == "ngram") return std::make_unique<NgramDrafter>();
    if (kind == "medusa") return std::make_unique<MedusaDrafter>(*company_.medusa_head, 8, sequences);
    if (const EagleHead* head = company_.eagle(kind))
      return std::make_unique<EagleDrafter>(
          *head, cache, EagleDrafterOptions{.context = kContext, .tree = tree, .sequences = sequences});
    const Transformer& model = kind == "self" ? company_.teacher : company_.draft_model();
    return std::make_unique<ModelDrafter>(
        model, cache, ModelDrafterOptions{.context = kContext, .tree = tree, .sequences = sequences});
  }
  Speculation speculation(const std::string& kind, const TreeOptions& tree) {
    if (kind == "none") return {};
    return {tree, [=, this](KvCache& cache, int sequences) {
              DrafterSet set;
              set.push_back(std::make_unique<CountedLevels>(drafter(kind, tree, cache, sequences), levels_));
              return set;
            }};
  }

  // What rounds cost, from the end of the prompt or of the round before.
  std::vector<WatchedRound> watch(const std::string& kind, const TreeOptions& tree, GenerateOptions options = {}) {
    Batch decoder(company_.teacher, {.context = kContext}, speculation(kind, tree));
    std::vector<WatchedRound> rounds;
    std::int64_t heard = 0;
    CallCounts last;
    GenerateEvents events;
    events.on_token = [&](const GeneratedToken&) {
      if (heard++ == 0) last = device_.counts(), levels_ = 0;
      return true;
    };
    events.on_round = [&](const Round&) {
      rounds.push_back({device_.counts() - last, std::exchange(levels_, 0)});
      last = device_.counts();
    };
    events.cancelled = [&] { return std::ssize(rounds) == kWatchedRounds - 1; };
    options.max_tokens = kContext;  // nothing but the tree's own depth ends its growth
    decoder.generate(kPrompt, options, events);
    EXPECT_EQ(std::ssize(rounds), kWatchedRounds);
    return rounds;
  }

  // A row of the table.
  static void print(const std::string& kind, const TreeOptions& tree, const std::vector<WatchedRound>& rounds) {
    std::cout << fmt::format("{:8} {:8} depth {}: ", kind, name(tree.shape), tree.depth);
    for (const WatchedRound& round : rounds)
      std::cout << fmt::format(" {} ({} levels)", round.device.synchronisations, round.levels);
    std::cout << '\n';
  }

  CountingDevice device_{GetParam().make()};
  Company company_{device_, {"smollm2"}};
  std::int64_t levels_ = 0;  // drafted since the last look
};

INSTANTIATE_TEST_SUITE_P(Devices, Synchronisations, ::testing::ValuesIn(watched_devices()),
                         [](const auto& info) { return info.param.name; });

std::vector<TreeOptions> watched_trees() {
  std::vector<TreeOptions> trees;
  for (const int depth : {1, 2, 4, 6}) {
    trees.push_back({.shape = TreeShape::chain, .nodes = depth + 1, .depth = depth});
    trees.push_back({.shape = TreeShape::dynamic, .nodes = 24, .depth = depth, .expand = 4});
  }
  const std::vector<ChoiceTree::Path> paths = {{0}, {1}, {0, 0}, {0, 1}, {1, 0}, {0, 0, 0}};
  trees.push_back(
      {.shape = TreeShape::fixed, .choices = ChoiceTree(paths, {}, "a static tree"), .nodes = 0, .depth = 3});
  return trees;
}

TEST_P(Synchronisations, PlainDecodingWaitsOnceARound) {
  const auto rounds = watch("none", {});
  print("none", {}, rounds);
  for (const WatchedRound& round : rounds) EXPECT_EQ(round.device.synchronisations, 1);
}

TEST_P(Synchronisations, ATreeWaitsOncePerDraftLevelAndOnceForAcceptance) {
  for (const std::string kind : {"eagle2", "eagle3", "model", "self"})
    for (const TreeOptions& tree : watched_trees()) {
      const auto rounds = watch(kind, tree);
      print(kind, tree, rounds);
      for (const WatchedRound& round : rounds) {
        EXPECT_EQ(round.device.synchronisations, round.levels + 1);
        EXPECT_TRUE(tree.shape == TreeShape::dynamic || round.levels == tree.depth);
      }
    }
}

TEST_P(Synchronisations, MedusaHeadsDraftAllLevelsAtOnceAndNgramsNeedNoDevice) {
  for (const auto& [kind, drafting] : {std::pair("medusa", 1), {"ngram", 0}})
    for (const TreeOptions& tree : watched_trees()) {
      const auto rounds = watch(kind, tree);
      print(kind, tree, rounds);
      for (const WatchedRound& round : rounds) EXPECT_EQ(round.device.synchronisations, drafting + 1);
    }
}

TEST_P(Synchronisations, HoweverTokensAreDrawnAcceptanceWaitsOnce) {
  const std::vector<GenerateOptions> all = {
      {.sampling = {.temperature = 0.8f, .top_p = 0.9f}}, {.sampling = {.repeat_penalty = 1.2f}},
      {.sampling = {.logit_bias = {{3, 2.0f}}}},          {.logprobs = 0},
      {.stop_tokens = {3}, .min_tokens = kContext},       {.sampling = {.temperature = 1.0f}, .logprobs = 5}};
  const TreeOptions tree{.shape = TreeShape::chain, .nodes = 5, .depth = 4};
  for (const GenerateOptions& options : all) {
    for (const WatchedRound& round : watch("none", {}, options)) EXPECT_EQ(round.device.synchronisations, 1);
    for (const WatchedRound& round : watch("self", tree, options)) EXPECT_EQ(round.device.synchronisations, 4 + 1);
  }
}

TEST_P(Synchronisations, SeveralConversationsAreAcceptedWithOneWait) {
  constexpr std::int64_t kTokens = 12;
  const std::vector<GenerateOptions> options = {{.max_tokens = kTokens},
                                                {.sampling = {.temperature = 0.7f}, .max_tokens = kTokens},
                                                {.max_tokens = kTokens, .logprobs = 2},
                                                {.max_tokens = kTokens}};
  Batch decoder(company_.teacher, {.context = kContext, .parallel = static_cast<int>(options.size())});
  std::int64_t prompts_read = 0, before = 0;
  std::vector<GenerateRequest> requests;
  for (const GenerateOptions& drawn : options) {
    requests.push_back({.prompt = kPrompt, .options = drawn});
    requests.back().events.on_token = [&, first = true](const GeneratedToken&) mutable {
      if (std::exchange(first, false) && ++prompts_read == std::ssize(options))
        before = device_.counts().synchronisations;
      return true;
    };
  }
  decoder.generate(requests);
  EXPECT_EQ(device_.counts().synchronisations - before, kTokens - 1) << "a step for each token behind the first";
}

// All answers say the same, round by round. What commits move is uploaded for each of them.
TEST_P(Synchronisations, ManyAnswersUploadLittleMoreThanOne) {
  if (!device_.row_buckets().empty()) GTEST_SKIP() << "copies of rows are padded there, each for itself";
  constexpr std::int64_t kTokens = 24, kRead = 4;  // by then all prompts are
  const TreeOptions tree{.nodes = 8, .depth = 2, .expand = 3};
  const auto uploads_a_round = [&](const std::string& kind, int answers) {
    Batch decoder(company_.teacher, {.context = kContext, .parallel = answers}, speculation(kind, tree));
    std::vector<GenerateRequest> requests(static_cast<std::size_t>(answers),
                                          {.prompt = kPrompt, .options = {.max_tokens = kTokens}});
    std::vector<CallCounts> behind_rounds;
    requests.front().events.on_round = [&](const Round&) { behind_rounds.push_back(device_.counts()); };
    decoder.generate(requests);
    const CallCounts all = behind_rounds.back() - behind_rounds[kRead];
    return static_cast<double>(all.uploads - all.kv_copies) /
           static_cast<double>(std::ssize(behind_rounds) - 1 - kRead);
  };
  for (const std::string kind : {"none", "medusa", "eagle2", "eagle3", "model"}) {
    const double alone = uploads_a_round(kind, 1), together = uploads_a_round(kind, 6);
    std::cout << fmt::format("{:8} {:.2f} uploads a round, {:.2f} of six answers\n", kind, alone, together);
    EXPECT_LE(together, alone + 1) << kind << ": a list of the rows that are kept";
  }
}

TEST_P(Synchronisations, ACommitMovesAllLayersInOneCall) {
  const TreeOptions tree{.shape = TreeShape::dynamic, .nodes = 24, .depth = 4, .expand = 4};
  std::int64_t most = 0;
  for (const WatchedRound& round : watch("eagle3", tree)) EXPECT_LE(round.device.kv_copies, 1);
  for (const WatchedRound& round : watch("self", tree)) {
    EXPECT_LE(round.device.kv_copies, 2) << "the teacher's memory, and the draft model's";
    most = std::max(most, round.device.kv_copies);
  }
  EXPECT_GE(most, 1) << "no round moved anything";
}

TEST_P(Synchronisations, ReadingTheLargestLogitsAloneChangesNoText) {
  const GenerateOptions greedy{.max_tokens = 60};
  GenerateOptions reads_all = greedy;
  reads_all.logprobs = 0;
  const Tokens expected = Batch(company_.teacher, {.context = kContext}).generate(kPrompt, reads_all).tokens;
  for (const std::string kind : {"none", "ngram", "medusa", "eagle2", "eagle3", "model", "self"})
    for (const TreeOptions& tree : watched_trees()) {
      Batch decoder(company_.teacher, {.context = kContext}, speculation(kind, tree));
      EXPECT_EQ(decoder.generate(kPrompt, greedy).tokens, expected) << kind;
    }
}

// --- broken logits --------------------------------------------------------------------------------------------------

// The teacher's logits of every row of a tree but its root become one value.
class BrokenTrees final : public PassingDevice {
 public:
  BrokenTrees(std::unique_ptr<Device> host, std::int64_t vocabulary, float value)
      : PassingDevice(*host), owned_(std::move(host)), vocabulary_(vocabulary), value_(value) {}

 private:
  void do_linear(ConstView x, std::span<const Projection> projections) override {
    inner().linear(x, projections);
    const View& y = projections[0].y;
    if (y.dim(1) == vocabulary_)
      for (std::int64_t row = 1; row < y.dim(0); ++row) std::fill_n(floats(y, row), vocabulary_, value_);
  }

  std::unique_ptr<Device> owned_;
  std::int64_t vocabulary_;
  float value_;
};

// Guesses what the answer says, or never.
class Prophecy final : public LoneSequence {
 public:
  Prophecy(const Tokens& answer, bool right) : answer_(&answer), right_(right) {}

  bool reused(std::span<const std::int32_t>) override { return false; }
  void committed(const CommittedRows&) override {}
  void begin_round(const DraftRound& round) override { drawn_ = round.tokens.size() - kPrompt.size(); }
  Guesses expand(const Candidates& candidates, std::span<const int> nodes, int) override {
    const std::int32_t next = (*answer_)[drawn_ + static_cast<std::size_t>(candidates[nodes[0]].depth)];
    return {nodes.size(), {{right_ ? next : (next + 1) % 64, -0.1}}};
  }

 private:
  const Tokens* answer_;
  bool right_;
  std::size_t drawn_ = 0;
};
class Prophet final : public LoneDrafter {
 public:
  Prophet(Tokens answer, bool right) : answer_(std::move(answer)), right_(right) {}

  std::string_view name() const override { return "prophet"; }
  std::unique_ptr<DraftSequence> open(SequenceId, std::span<const std::int32_t>) override {
    return std::make_unique<Prophecy>(answer_, right_);
  }

 private:
  Tokens answer_;
  bool right_;
};

class BrokenLogits : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  BrokenLogits() {
    const auto device = make_cpu_device();
    const Transformer teacher = load_tiny(*device, {"smollm2"});
    vocabulary_ = teacher.config().vocabulary;
    answer_ = Batch(teacher, {.context = kContext}).generate(kPrompt, {.max_tokens = 40}).tokens;
  }
  Tokens decode(float value, bool right, const GenerateOptions& options) {
    std::unique_ptr<Device> device = std::make_unique<BrokenTrees>(make_cpu_device(), vocabulary_, value);
    if (!GetParam()) device = make_remote_device(std::move(device));
    const Transformer teacher = load_tiny(*device, {"smollm2"});
    const auto drafters = [&](KvCache&, int) {
      DrafterSet set;
      set.push_back(std::make_unique<Prophet>(answer_, right));
      return set;
    };
    Batch decoder(teacher, {.context = kContext}, {{.shape = TreeShape::chain, .nodes = 4, .depth = 3}, drafters});
    return decoder.generate(kPrompt, options).tokens;
  }

  std::int64_t vocabulary_ = 0;
  Tokens answer_;
};

INSTANTIATE_TEST_SUITE_P(Devices, BrokenLogits, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "lent" : "downloaded"; });

TEST_P(BrokenLogits, DoNoHarmAtANodeThatNobodyVisits) {
  const Tokens expected(answer_.begin(), answer_.begin() + 20);
  for (const float value : {kNan, -kInfinity, kInfinity})
    for (const std::int64_t logprobs : {-1, 0})
      EXPECT_EQ(decode(value, false, {.max_tokens = 20, .logprobs = logprobs}), expected) << value;
}

TEST_P(BrokenLogits, AreTheSameErrorAtAVisitedNodeHoweverTheyAreRead) {
  const auto visit = [&](float value, std::int64_t logprobs) {
    return [=, this] { decode(value, true, {.max_tokens = 20, .logprobs = logprobs}); };
  };
  for (const std::int64_t logprobs : {-1, 0}) {
    for (const float value : {kNan, -kInfinity})
      EXPECT_THAT(visit(value, logprobs), ThrowsMessage<InputError>("the model's logits contain no finite number"));
    EXPECT_THAT(visit(kInfinity, logprobs), ThrowsMessage<InputError>("the model's logits contain plus infinity"));
  }
}

}  // namespace
}  // namespace espalier::testing
