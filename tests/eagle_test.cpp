// EAGLE heads of every layout against an independent PyTorch implementation (tests/data/heads/README.md): what they
// compute, which of them load, and which are refused. The bounds are derived in train/fixtures, not tuned.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "base/error.h"
#include "cache/kv_cache.h"
#include "device/reference/reference_device.h"
#include "format/testing/temporary_folder.h"
#include "model/eagle_head.h"
#include "testing/engine.h"
#include "testing/head_cases.h"
#include "testing/random_heads.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// --- drafting as the README of the goldens describes it -------------------------------------------------------------

struct Drafted {
  std::vector<float> fused;            // [prefix, hidden]
  std::vector<float> prefix_feedback;  // [prefix, hidden]
  std::vector<float> feedback;         // [nodes, hidden]
  std::vector<float> logits;           // [nodes, draft vocabulary]

  bool operator==(const Drafted&) const = default;
};

struct DraftSettings {
  StepForm form = {};
  std::int64_t chunk = 64;  // rows of a prefill step
};

// The golden's tree behind a prefix, drafted with a head.
class GoldenDraft {
 public:
  GoldenDraft(const EagleHead& head, const HeadGolden& golden, const DraftSettings& settings)
      : head_(head),
        device_(head.device()),
        window_(golden.window),
        tokens_(golden_tokens(golden.golden, "tokens")),
        tree_tokens_(golden_tokens(golden.golden, "tree.tokens")),
        parents_(golden_tokens(golden.golden, "tree.parents")),
        depths_(golden_tokens(golden.golden, "tree.depths")),
        prefix_(static_cast<std::int32_t>(tokens_.size()) - 1),
        chunk_(static_cast<std::int32_t>(largest_step(settings.chunk))),
        cache_(device_, head.kv_shape(DType::f32), positions()),
        workspace_(head, cache_.memory(), chunk_, positions(), settings.form),
        sequence_(cache_.create()) {}

  // features: [prefix, taps * teacher hidden].
  Drafted run(const std::vector<float>& features) {
    draft_prefix(features);
    const auto nodes = static_cast<std::int32_t>(tree_tokens_.size());
    const std::optional<Branch> tree = cache_.begin(sequence_, nodes - 1);
    check(tree.has_value(), "no room for the tree");
    for (std::int32_t begin = 1; begin < nodes;) {
      std::int32_t end = begin;
      while (end < nodes && depth(end) == depth(begin)) ++end;
      draft_level(tree->id(), begin, end);
      begin = end;
    }
    return drafted_;
  }

 private:
  std::int64_t positions() const { return static_cast<std::int64_t>(tokens_.size() + tree_tokens_.size()); }
  std::int64_t largest_step(std::int64_t wanted) const {
    const auto buckets = device_.row_buckets();
    return std::min<std::int64_t>({wanted, prefix_, buckets.empty() ? wanted : buckets.back()});
  }
  std::int32_t depth(std::int32_t node) const { return depths_[static_cast<std::size_t>(node)]; }
  std::int32_t parent(std::int32_t node) const { return parents_[static_cast<std::size_t>(node)]; }
  std::int32_t begin_of_context(std::int32_t end) const {
    return window_ == 0 ? 0 : std::max(0, end - static_cast<std::int32_t>(window_));
  }

  void draft_prefix(const std::vector<float>& features) {
    const std::int64_t width = head_.config().feature_width();
    const Tensor taps = device_.tensor(DType::f32, {prefix_, width});
    upload<float>(device_, features, taps);
    const Tensor fused = device_.tensor(DType::f32, {bucket_for(device_, chunk_), head_.hidden()});
    for (std::int32_t begin = 0; begin < prefix_; begin += chunk_) {
      const std::int32_t end = std::min(prefix_, begin + chunk_);
      std::vector<std::int32_t> numbers(static_cast<std::size_t>(end - begin));
      std::iota(numbers.begin(), numbers.end(), begin);
      head_.fuse(taps, numbers, workspace_, fused);
      append(drafted_.fused, fused.view.rows(0, end - begin));
      draft_chunk(begin, end, fused);
    }
  }

  void draft_chunk(std::int32_t begin, std::int32_t end, ConstView fused) {
    std::optional<Branch> branch = cache_.begin(sequence_, end - begin);
    check(branch.has_value(), "no room for the prefix");
    std::vector<Row> rows;
    for (std::int32_t t = begin; t < end; ++t)
      rows.push_back({.sequence = branch->id(),
                      .token = tokens_[static_cast<std::size_t>(t + 1)],
                      .position = t,
                      .place = t,
                      .begin = begin_of_context(t),
                      .end = t,
                      .input = t - begin,
                      .wants_logits = t == prefix_ - 1});
    last_ = head_.forward(rows, fused, workspace_);
    branch->commit_length(end - begin);
    append(drafted_.prefix_feedback, last_.feedback);
    seed_row_ = end - begin - 1;
    if (end == prefix_) {
      append(drafted_.feedback, last_.feedback.rows(seed_row_, 1));
      append(drafted_.logits, last_.logits);
    }
  }

  // Nodes [begin, end). Their inputs are the feedback of the level before, where the workspace left it.
  void draft_level(SequenceId tree, std::int32_t begin, std::int32_t end) {
    std::vector<Row> rows;
    for (std::int32_t node = begin; node < end; ++node)
      rows.push_back({.sequence = tree,
                      .token = tree_tokens_[static_cast<std::size_t>(node)],
                      .position = prefix_ + depth(node) - 1,
                      .place = prefix_ + node - 1,
                      .begin = begin_of_context(prefix_),
                      .end = prefix_,
                      .ancestors = ancestors(node),
                      .input = depth(node) == 1 ? seed_row_ : parent(node) - level_begin_,
                      .wants_logits = true});
    last_ = head_.forward(rows, last_.feedback, workspace_);
    append(drafted_.feedback, last_.feedback);
    append(drafted_.logits, last_.logits);
    level_begin_ = begin;
  }

  // Places, root first; the root itself is no row.
  std::vector<std::int32_t> ancestors(std::int32_t node) const {
    std::vector<std::int32_t> places;
    for (std::int32_t above = parent(node); above != 0; above = parent(above)) places.push_back(prefix_ + above - 1);
    std::ranges::reverse(places);
    return places;
  }

  void append(std::vector<float>& to, ConstView from) {
    const std::size_t old = to.size();
    to.resize(old + static_cast<std::size_t>(from.elements()));
    download<float>(device_, from, std::span(to).subspan(old));
  }

  const EagleHead& head_;
  Device& device_;
  std::int64_t window_;
  std::vector<std::int32_t> tokens_, tree_tokens_, parents_, depths_;
  std::int32_t prefix_, chunk_;
  KvCache cache_;
  EagleWorkspace workspace_;
  SequenceId sequence_;
  EagleOutput last_;
  std::int32_t seed_row_ = 0;
  std::int32_t level_begin_ = 0;
  Drafted drafted_;
};

Drafted draft(const EagleHead& head, const HeadGolden& golden, const std::vector<float>& features,
              const DraftSettings& settings = {}) {
  Drafted drafted = GoldenDraft(head, golden, settings).run(features);
  for (float& logit : drafted.logits) logit *= head.logit_scale();
  return drafted;
}

// The tapped boundaries side by side, as the teacher's golden file has them.
std::vector<float> golden_features(const HeadGolden& golden, const EagleHead& head) {
  const auto file = golden.teacher / "golden.safetensors";
  const auto width = static_cast<std::size_t>(head.config().teacher_hidden);
  const std::size_t prefix = golden_tokens(golden.golden, "tokens").size() - 1;
  std::vector<float> features(prefix * head.taps().size() * width);
  for (std::size_t i = 0; i < head.taps().size(); ++i) {
    const auto boundary = golden_floats(file, "boundary." + std::to_string(head.taps()[i]));
    for (std::size_t t = 0; t < prefix; ++t)
      std::copy_n(boundary.begin() + static_cast<std::ptrdiff_t>(t * width), width,
                  features.begin() + static_cast<std::ptrdiff_t>((t * head.taps().size() + i) * width));
  }
  return features;
}

// The same from the engine's own pass over the committed tokens.
std::vector<float> engine_features(const HeadGolden& golden, const EagleHead& head, const Transformer& teacher) {
  auto tokens = golden_tokens(golden.golden, "tokens");
  tokens.pop_back();
  return run_forward(teacher, tokens, {.tap_boundaries = head.taps()}).taps;
}

// Of every node the teacher's ids of the best draft ids, best first.
std::vector<std::int32_t> best_tokens(const EagleHead& head, const std::vector<float>& logits, std::size_t count) {
  const auto width = static_cast<std::size_t>(head.draft_vocabulary());
  std::vector<std::int32_t> best;
  for (std::size_t at = 0; at < logits.size(); at += width) {
    std::vector<std::size_t> order(width);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return logits[at + i]; });
    for (std::size_t i = 0; i < count; ++i) best.push_back(head.target_ids()[order[i]]);
  }
  return best;
}

// --- goldens --------------------------------------------------------------------------------------------------------

class EagleGolden : public ::testing::TestWithParam<HeadGolden> {
 protected:
  EagleHead load_head(const Transformer& teacher, WeightMode mode = WeightMode::stored) const {
    HeadOptions options = GetParam().options;
    options.weights = mode;
    return EagleHead(teacher, open_head(GetParam().head), options);
  }
  Transformer load_teacher(Device& device) const { return load_transformer(device, GetParam().teacher); }

  void expect_golden(const EagleHead& head, const Drafted& drafted, const std::string& bounds) const {
    const auto file = GetParam().golden;
    const auto near = [&](const std::vector<float>& values, const std::string& tensor, const std::string& bound) {
      const float difference = largest_difference(values, golden_floats(file, tensor));
      const float allowed = golden_floats(file, bounds + bound)[0];
      EXPECT_LE(difference, allowed) << tensor;
      std::cout << "  " << tensor << " differs by " << difference << " (" << bounds << bound << ' ' << allowed << ")\n";
    };
    near(drafted.fused, "fused", "fused");
    near(drafted.prefix_feedback, "prefix.feedback", "feedback");
    near(drafted.feedback, "tree.feedback", "feedback");
    near(drafted.logits, "tree.logits", "logits");
    constexpr std::size_t kBest = 8;
    EXPECT_EQ(best_tokens(head, drafted.logits, kBest), golden_tokens(file, "tree.best"));
  }

  std::unique_ptr<Device> device_ = make_reference_device();
};

TEST_P(EagleGolden, TapsAndDraftVocabularyAreThose) {
  const Transformer teacher = load_teacher(*device_);
  const EagleHead head = load_head(teacher);
  const auto taps = golden_tokens(GetParam().golden, "taps");
  EXPECT_EQ(head.taps(), std::vector<std::int64_t>(taps.begin(), taps.end()));
  EXPECT_EQ(head.target_ids(), golden_tokens(GetParam().golden, "target_ids"));
}

TEST_P(EagleGolden, PrefixAndTreeEqualPyTorchFromTheTeachersGoldenBoundaries) {
  const Transformer teacher = load_teacher(*device_);
  for (WeightMode mode : {WeightMode::stored, WeightMode::f32}) {
    const EagleHead head = load_head(teacher, mode);
    expect_golden(head, draft(head, GetParam(), golden_features(GetParam(), head)), "bound.");
  }
}

TEST_P(EagleGolden, PrefixAndTreeEqualPyTorchBehindTheEnginesOwnTeacher) {
  const Transformer teacher = load_teacher(*device_);
  const EagleHead head = load_head(teacher);
  expect_golden(head, draft(head, GetParam(), engine_features(GetParam(), head, teacher)), "bound.engine.");
}

constexpr StepForm kForms[] = {
    {AttentionOp::fused, MaskForm::list}, {AttentionOp::fused, MaskForm::dense}, {AttentionOp::eager, MaskForm::dense}};

TEST_P(EagleGolden, EveryDeviceFormAndStepSizeGivesTheSameBits) {
  const Transformer reference_teacher = load_teacher(*device_);
  const EagleHead reference = load_head(reference_teacher);
  const auto features = golden_features(GetParam(), reference);
  const Drafted expected = draft(reference, GetParam(), features);
  for (const NamedDevice& named : all_devices()) {
    const auto device = named.make(2);
    const Transformer teacher = load_teacher(*device);
    const EagleHead head = load_head(teacher);
    const bool own_order = device->float_order() != kContractFloatOrder;  // of float weights: the device's own bits
    const Drafted judge = own_order ? draft(head, GetParam(), features) : expected;
    for (const StepForm& form : kForms)
      for (std::int64_t chunk : {64, 7})
        EXPECT_TRUE(draft(head, GetParam(), features, {.form = form, .chunk = chunk}) == judge)
            << named.name << ", form " << static_cast<int>(form.attention) << static_cast<int>(form.mask)
            << ", steps of " << chunk;
  }
}

// The same network with fewer rows at its end. A head that shares the teacher's output matrix gets its rows as f32, so
// its sums may differ in the last bits.
TEST_P(EagleGolden, AHeadCutToItsMostFrequentTokensGuessesThoseAsBefore) {
  const Transformer teacher = load_teacher(*device_);
  const EagleHead whole = load_head(teacher);
  const TemporaryFolder folder;
  std::vector<std::int32_t> order = whole.target_ids();
  std::ranges::reverse(order);
  folder.write("vocab_order.json", nlohmann::json(order).dump());
  HeadFiles files = open_head(GetParam().head);
  files.folder = folder.path();
  HeadOptions options = GetParam().options;
  options.vocabulary = 16;
  const EagleHead cut(teacher, files, options);
  const std::size_t width = order.size(), first = width - 16;
  EXPECT_TRUE(std::ranges::equal(cut.target_ids(), std::span(whole.target_ids()).subspan(first)));
  const auto features = golden_features(GetParam(), whole);
  const auto all = draft(whole, GetParam(), features).logits, few = draft(cut, GetParam(), features).logits;
  ASSERT_EQ(few.size() / 16, all.size() / width);
  for (std::size_t i = 0; i < few.size(); ++i)
    EXPECT_NEAR(few[i], all[i / 16 * width + first + i % 16], 1e-5f) << "row " << i / 16;
}

// Matrices whose rows are not whole blocks stay as they are stored.
TEST_P(EagleGolden, AHeadQuantisedAtLoadStaysClose) {
  const Transformer teacher = load_teacher(*device_);
  const EagleHead exact = load_head(teacher), quantised = load_head(teacher, WeightMode::q8_0);
  const auto features = golden_features(GetParam(), exact);
  const auto a = draft(exact, GetParam(), features).logits, b = draft(quantised, GetParam(), features).logits;
  double error = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += std::pow(a[i] - b[i], 2);
    size += std::pow(a[i], 2);
  }
  EXPECT_GT(error, 0);
  EXPECT_LT(std::sqrt(error / size), 0.1) << "8-bit weights and activations over a few layers";
}

INSTANTIATE_TEST_SUITE_P(Heads, EagleGolden, ::testing::ValuesIn(eagle_goldens()), [](const auto& info) {
  const std::string file = info.param.golden.filename().string();
  return test_name(file.substr(0, file.find(".golden")) + info.param.head.extension().string());
});

// --- heads to refuse and to accept ----------------------------------------------------------------------------------

class EagleCase : public ::testing::TestWithParam<HeadCase> {
 protected:
  std::unique_ptr<Device> device_ = make_reference_device();
  Transformer teacher_ = load_transformer(*device_, GetParam().teacher);
};

TEST_P(EagleCase, IsRefusedOrAcceptedAsItsFolderSays) {
  const HeadCase& expected = GetParam();
  try {
    const EagleHead head(teacher_, open_head(expected.head), expected.options);
    EXPECT_FALSE(expected.refused) << "expected a refusal";
    EXPECT_EQ(head.taps(), expected.taps);
    EXPECT_EQ(head.target_ids(), expected.target_ids);
  } catch (const InputError& error) {
    EXPECT_TRUE(expected.refused) << error.what();
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    for (const std::string& text : expected.says) EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, EagleCase, ::testing::ValuesIn(eagle_cases()),
                         [](const auto& info) { return test_name(info.param.name); });

TEST(EagleKind, MedusaHeadsAreNotTakenForAnEagleHead) {
  const auto device = make_reference_device();
  const Transformer teacher = load_transformer(*device, data_path("tiny/llama3"));
  EXPECT_THROW(EagleHead(teacher, open_head(data_path("heads/medusa-a"))), InputError);
}

// --- what it says of the teacher ------------------------------------------------------------------------------------

// fc hands the feature on, and the layer adds nothing: the guess behind position t is what the teacher says there. So
// feature, halves of fc, output matrix and pairing are right at once.
TEST(Eagle2, AHeadThatHandsItsFeatureOnSaysWhatTheTeacherSays) {
  for (const char* family : {"llama2", "smollm2", "qwen2"}) {
    const auto device = make_reference_device();
    const Transformer teacher = load_transformer(*device, data_path(std::string("tiny/") + family));
    const TemporaryFolder folder;
    write_echoing_eagle2(folder.path(), teacher.config());
    const EagleHead head(teacher, open_head(folder.path()));
    const std::vector<std::int32_t> tokens = {5, 17, 3, 99, 42, 8};
    const auto expected = run_forward(teacher, tokens, {.tap_boundaries = head.taps()});
    KvCache cache(*device, head.kv_shape(DType::f32), 128);
    const auto rows = static_cast<std::int64_t>(tokens.size());
    EagleWorkspace workspace(head, cache.memory(), rows, 16);
    const Tensor taps = device->tensor(DType::f32, {rows, head.config().feature_width()});
    const Tensor features = device->tensor(DType::f32, {rows, head.hidden()});
    upload<float>(*device, expected.taps, taps);
    head.fuse(taps, workspace, features);
    const Branch branch = *cache.begin(cache.create(), rows);
    std::vector<Row> steps;
    for (std::int32_t t = 0; t < rows; ++t)
      steps.push_back({.sequence = branch.id(),
                       .token = 200 - t,
                       .position = t,
                       .place = t,
                       .begin = 0,
                       .end = t,
                       .input = t,
                       .wants_logits = true});
    const EagleOutput output = head.forward(steps, features, workspace);
    std::vector<float> logits(static_cast<std::size_t>(output.logits.elements()));
    download<float>(*device, output.logits, logits);
    EXPECT_EQ(logits, expected.logits) << family;
  }
}

// --- steps ----------------------------------------------------------------------------------------------------------

class EagleStep : public ::testing::Test {
 protected:
  // Rows of a fresh sequence whose input vectors begin at row `input` of inputs_.
  std::vector<Row> prefix_rows(SequenceId table, std::int32_t count, std::int32_t input) const {
    std::vector<Row> rows;
    for (std::int32_t t = 0; t < count; ++t)
      rows.push_back({.sequence = table,
                      .token = 7 * t + input,
                      .position = t,
                      .place = t,
                      .begin = 0,
                      .end = t,
                      .input = input + t,
                      .wants_logits = true});
    return rows;
  }
  // Feedback, then logits.
  std::vector<float> run(const std::vector<Row>& rows) {
    const EagleOutput output = head_.forward(rows, inputs_, workspace_);
    std::vector<float> values(static_cast<std::size_t>(output.feedback.elements() + output.logits.elements()));
    const auto feedback = static_cast<std::size_t>(output.feedback.elements());
    download<float>(*device_, output.feedback, std::span(values).first(feedback));
    download<float>(*device_, output.logits, std::span(values).subspan(feedback));
    return values;
  }
  Tensor random_inputs() const {
    Tensor tensor = device_->tensor(DType::f32, {kRows, head_.hidden()});
    std::vector<float> values(static_cast<std::size_t>(tensor.view.elements()));
    std::mt19937 random(4);
    for (float& value : values) value = std::normal_distribution<float>()(random);
    upload<float>(*device_, values, tensor);
    return tensor;
  }

  static constexpr std::int64_t kRows = 16, kPositions = 32;
  std::unique_ptr<Device> device_ = make_reference_device();
  Transformer teacher_ = load_transformer(*device_, data_path("tiny/llama2"));
  EagleHead head_{teacher_, open_head(data_path("heads/eagle3-two-layers"))};
  KvCache cache_{*device_, head_.kv_shape(DType::f16), 8 * 128};
  EagleWorkspace workspace_{head_, cache_.memory(), kRows, kPositions, {}, 14};
  Tensor inputs_ = random_inputs();
};

TEST_F(EagleStep, SequencesInOneStepGiveTheBitsOfEachAlone) {
  const auto open = [&](std::int64_t rows) { return *cache_.begin(cache_.create(), rows); };
  const Branch a = open(9), b = open(5), both_a = open(9), both_b = open(5);
  const std::vector<float> alone_a = run(prefix_rows(a.id(), 9, 0)), alone_b = run(prefix_rows(b.id(), 5, 9));
  std::vector<Row> rows = prefix_rows(both_a.id(), 9, 0);
  std::ranges::copy(prefix_rows(both_b.id(), 5, 9), std::back_inserter(rows));
  const std::vector<float> together = run(rows);
  const auto hidden = static_cast<std::ptrdiff_t>(head_.hidden());
  const auto vocabulary = static_cast<std::ptrdiff_t>(head_.draft_vocabulary());
  std::vector<float> expected(alone_a.begin(), alone_a.begin() + 9 * hidden);
  expected.insert(expected.end(), alone_b.begin(), alone_b.begin() + 5 * hidden);
  expected.insert(expected.end(), alone_a.begin() + 9 * hidden, alone_a.begin() + 9 * (hidden + vocabulary));
  expected.insert(expected.end(), alone_b.begin() + 5 * hidden, alone_b.begin() + 5 * (hidden + vocabulary));
  EXPECT_EQ(together, expected);
}

TEST_F(EagleStep, ContractsAreChecked) {
  const Branch branch = *cache_.begin(cache_.create(), kPositions);
  const auto with = [&](auto change) {
    std::vector<Row> rows = prefix_rows(branch.id(), 3, 0);
    change(rows[2]);
    return rows;
  };
  EXPECT_THROW(run({}), std::logic_error);
  EXPECT_THROW(run(prefix_rows(branch.id(), kRows + 1, 0)), std::logic_error);
  EXPECT_THROW(run(prefix_rows(branch.id(), 15, 0)), std::logic_error) << "14 outputs";
  EXPECT_THROW(run(with([](Row& row) { row.position = kPositions; })), std::logic_error);
  EXPECT_THROW(run(with([](Row& row) { row.input = kRows; })), std::logic_error);
  EXPECT_THROW(run(with([](Row& row) { row.wants_hidden = true; })), std::logic_error);
  const Tensor features = device_->tensor(DType::f32, {4, head_.config().feature_width()});
  EXPECT_THROW(head_.fuse(features, std::vector<std::int32_t>{4}, workspace_, inputs_), std::logic_error);
  EXPECT_THROW(head_.fuse(inputs_, std::vector<std::int32_t>{0}, workspace_, inputs_), std::logic_error);
}

}  // namespace
}  // namespace espalier::testing
