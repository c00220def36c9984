// Drafters that run a network, on whole trees. A wrong draft changes no text, so lossless_test cannot see it: here the
// drafts themselves are compared, with PyTorch's, with the teacher's own, and with those of a fresh drafter.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "decode/decoder.h"
#include "decode/eagle3_drafter.h"
#include "decode/medusa_drafter.h"
#include "decode/model_drafter.h"
#include "device/cpu/cpu_device.h"
#include "device/reference/reference_device.h"
#include "testing/company.h"
#include "testing/engine.h"
#include "testing/head_cases.h"

namespace espalier::testing {
namespace {

using Tokens = std::vector<std::int32_t>;

// --- EAGLE-3 against the goldens
// --------------------------------------------------------------------------------------

class Eagle3DrafterGolden : public ::testing::TestWithParam<HeadGolden> {};

// The teacher's golden boundaries side by side: f32 [rows, taps * hidden].
std::vector<float> golden_features(const HeadGolden& golden, const std::vector<std::int64_t>& taps, std::size_t rows) {
  std::vector<std::vector<float>> boundaries;
  for (std::int64_t tap : taps)
    boundaries.push_back(golden_floats(golden.teacher / "golden.safetensors", "boundary." + std::to_string(tap)));
  const std::size_t hidden =
      boundaries[0].size() / golden_tokens(golden.teacher / "golden.safetensors", "tokens").size();
  std::vector<float> features;
  for (std::size_t t = 0; t < rows; ++t)
    for (const auto& boundary : boundaries)
      features.insert(features.end(), boundary.begin() + static_cast<std::ptrdiff_t>(t * hidden),
                      boundary.begin() + static_cast<std::ptrdiff_t>((t + 1) * hidden));
  return features;
}

// Tells the drafter of the positions [begin, end).
void commit(Eagle3Drafter& drafter, const Tokens& tokens, ConstView features, std::int32_t begin, std::int32_t end) {
  std::vector<std::int32_t> rows;
  for (std::int32_t t = begin; t < end; ++t) rows.push_back(t);
  drafter.committed({.begin = begin,
                     .tokens = std::span(tokens).subspan(static_cast<std::size_t>(begin), rows.size()),
                     .taps = features,
                     .rows = rows,
                     .hidden = {}});
}

// The nodes of the golden's tree, level by level, with PyTorch's eight best tokens below each.
void expect_golden_tree(Eagle3Drafter& drafter, const HeadGolden& golden, const Tokens& tokens) {
  const Tokens tree = golden_tokens(golden.golden, "tree.tokens"),
               parents = golden_tokens(golden.golden, "tree.parents"),
               depths = golden_tokens(golden.golden, "tree.depths"), best = golden_tokens(golden.golden, "tree.best");
  const auto expected = golden_floats(golden.golden, "tree.best.log_probability");
  const float bound = 2 * golden_floats(golden.golden, "bound.logits")[0];
  Candidates candidates(tree[0]);
  for (std::size_t node = 1; node < tree.size(); ++node)
    ASSERT_EQ(candidates.add(parents[node], {.token = tree[node], .score = -1.0 * depths[node]}),
              static_cast<int>(node));
  drafter.begin_round(tokens);
  for (std::size_t begin = 0; begin < tree.size();) {
    std::vector<int> level;
    for (std::size_t node = begin; node < tree.size() && depths[node] == depths[begin]; ++node)
      level.push_back(static_cast<int>(node));
    const auto guesses = drafter.expand(candidates, level, 8);
    ASSERT_EQ(guesses.size(), level.size());
    for (std::size_t i = 0; i < level.size(); ++i) {
      ASSERT_EQ(guesses[i].size(), 8u);
      for (std::size_t rank = 0; rank < 8; ++rank) {
        const std::size_t at = (begin + i) * 8 + rank;
        EXPECT_EQ(guesses[i][rank].token, best[at]) << "node " << begin + i << ", rank " << rank;
        EXPECT_NEAR(guesses[i][rank].log_probability, expected[at], bound);
      }
    }
    begin += level.size();
  }
}

TEST_P(Eagle3DrafterGolden, DraftsTheTreeThatPyTorchDrafts) {
  const HeadGolden& golden = GetParam();
  const auto device = make_reference_device();
  const Transformer teacher = load_transformer(*device, golden.teacher);
  const Eagle3Head head(teacher, open_head(golden.head), golden.options);
  const Tokens tokens = golden_tokens(golden.golden, "tokens");
  const auto committed = static_cast<std::int32_t>(tokens.size()) - 1;
  const std::vector<float> values = golden_features(golden, head.taps(), static_cast<std::size_t>(committed));
  const Tensor features = device->tensor(DType::f32, {committed, static_cast<std::int64_t>(values.size()) / committed});
  upload<float>(*device, values, features);
  for (std::int32_t chunk : {committed, 7, 1}) {
    SCOPED_TRACE(::testing::Message() << "committed " << chunk << " at a time");
    Eagle3Drafter drafter(head, {.context = 64,
                                 .kv_type = DType::f32,
                                 .window = golden.window,
                                 .tree = {.nodes = 64, .depth = 8, .expand = 8, .branch = 8},
                                 .invariants = true});
    for (std::int32_t begin = 0; begin < committed; begin += chunk)
      commit(drafter, tokens, features, begin, std::min(committed, begin + chunk));
    expect_golden_tree(drafter, golden, tokens);
    drafter.end_round(TokenTree(tokens.back()), {});
    // Back into the text and forward again: the same tree.
    const std::int64_t kept = drafter.resumable(committed - 3);
    EXPECT_EQ(kept, committed - 4) << "the feature of the last kept position is gone";
    drafter.rewind(kept);
    commit(drafter, tokens, features, static_cast<std::int32_t>(kept), committed);
    expect_golden_tree(drafter, golden, tokens);
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, Eagle3DrafterGolden, ::testing::ValuesIn(head_goldens(HeadKind::eagle3)),
                         [](const auto& info) {
                           return test_name(info.param.golden.stem().string()) + "_" + std::to_string(info.index);
                         });

// --- a draft model
// ----------------------------------------------------------------------------------------------------

TEST(ModelDrafterTest, TheTeacherAsItsOwnDraftModelIsAlwaysRight) {
  const auto device = make_cpu_device();
  for (const std::string& family : tiny_families()) {
    SCOPED_TRACE(family);
    const Transformer teacher = load_transformer(*device, data_path("tiny/" + family));
    // On a chain: a tree may leave out the teacher's choice for two others that look better together.
    const TreeOptions tree{.shape = TreeShape::chain, .nodes = 12, .depth = 4};
    Decoder decoder(teacher, {.context = 200}, {tree, [&] {
                                                  DrafterSet set;
                                                  set.push_back(std::make_unique<ModelDrafter>(
                                                      teacher, ModelDrafterOptions{.context = 200, .tree = tree}));
                                                  return set;
                                                }});
    const auto result = decoder.generate(Tokens(40, 7), {.max_tokens = 51});
    EXPECT_EQ(result.rounds(), 10) << "five tokens a round behind the first";
    EXPECT_EQ(result.accept_length(), 4.0);
  }
}

TEST(ModelDrafterTest, SaysNothingAboutATextWithTokensItDoesNotKnow) {
  const auto device = make_cpu_device();
  const Transformer small = load_transformer(*device, data_path("tiny/llama2"));
  const TreeOptions tree{.shape = TreeShape::chain, .nodes = 3, .depth = 2};
  ModelDrafter drafter(small, {.context = 64, .tree = tree});
  const Tokens text = {1, 2, static_cast<std::int32_t>(small.config().vocabulary), 4};
  drafter.begin_round(text);
  const int root = 0;
  EXPECT_TRUE(drafter.expand(Candidates(4), std::span(&root, 1), 1)[0].empty());
}

// --- invariants of draft passes
// ---------------------------------------------------------------------------------------------

// A growth that names a candidate whose parent is no row, or a candidate twice, is our own mistake; a network
// would compute something for it all the same.
class DraftPasses : public ::testing::TestWithParam<std::string> {
 protected:
  const TreeOptions tree_{.nodes = 16, .depth = 4, .expand = 3};

  std::unique_ptr<Device> device_ = make_cpu_device();
  Company company_{*device_, {"llama2"}};
  Tensor features_ = device_->tensor(DType::f32, {4, taps_width()});
  Candidates candidates_{9};

  std::int64_t taps_width() const {
    return static_cast<std::int64_t>(company_.eagle3_head->taps().size()) * company_.teacher.config().hidden;
  }

  // After the first pass, with three candidates below the root and one below the first of them.
  std::unique_ptr<Drafter> begin(bool invariants) {
    const Tokens text = {1, 2, 3, 4, 9};
    std::unique_ptr<Drafter> drafter;
    if (GetParam() == "eagle3")
      drafter = std::make_unique<Eagle3Drafter>(
          *company_.eagle3_head, Eagle3DrafterOptions{.context = 64, .tree = tree_, .invariants = invariants});
    else
      drafter = std::make_unique<ModelDrafter>(
          company_.draft_model(), ModelDrafterOptions{.context = 64, .tree = tree_, .invariants = invariants});
    upload<float>(*device_, std::vector<float>(static_cast<std::size_t>(4 * taps_width()), 0.5f), features_);
    drafter->committed(
        {.begin = 0, .tokens = std::span(text).first(4), .taps = features_, .rows = Tokens{0, 1, 2, 3}, .hidden = {}});
    drafter->begin_round(text);
    candidates_ = Candidates(9);
    for (std::int32_t token : {20, 21, 22}) candidates_.add(0, {.token = token, .score = -1});
    candidates_.add(1, {.token = 30, .score = -2});
    expand(*drafter, {0});
    return drafter;
  }

  void expand(Drafter& drafter, const std::vector<int>& nodes) { drafter.expand(candidates_, nodes, 3); }
};

TEST_P(DraftPasses, OfAGoodGrowthPassTheirInvariants) {
  const auto drafter = begin(true);
  EXPECT_NO_THROW(expand(*drafter, {1, 3}));
  EXPECT_NO_THROW(expand(*drafter, {4}));
}

TEST_P(DraftPasses, ThatComputeACandidateTwiceAreCaughtBeforeTheirLaunch) {
  const auto drafter = begin(true);
  expand(*drafter, {1, 3});
  EXPECT_THROW(expand(*drafter, {3}), TreeViolation);
  EXPECT_NO_THROW(expand(*begin(false), {1, 1})) << "nobody looks without --invariants";
}

TEST_P(DraftPasses, BelowACandidateThatIsNoRowAreCaughtBeforeTheirLaunch) {
  const auto drafter = begin(true);
  expand(*drafter, {2, 3});
  EXPECT_THROW(expand(*drafter, {4}), std::logic_error);
}

INSTANTIATE_TEST_SUITE_P(Networks, DraftPasses, ::testing::Values("eagle3", "model"),
                         [](const auto& info) { return info.param; });

// --- whatever came before
// ---------------------------------------------------------------------------------------------

class FreshDrafter : public ::testing::TestWithParam<std::string> {
 protected:
  using Random = std::mt19937;

  int draw(int low, int high) { return low + static_cast<int>(random_() % static_cast<std::uint32_t>(high - low + 1)); }

  std::unique_ptr<Drafter> make(const Company& company, const TreeOptions& tree, std::int64_t window) const {
    if (GetParam() == "medusa") return std::make_unique<MedusaDrafter>(*company.medusa_head, 10);
    if (GetParam() == "eagle3")
      return std::make_unique<Eagle3Drafter>(
          *company.eagle3_head,
          Eagle3DrafterOptions{.context = kContext, .window = window, .tree = tree, .invariants = true});
    return std::make_unique<ModelDrafter>(company.draft_model(),
                                          ModelDrafterOptions{.context = kContext, .tree = tree, .invariants = true});
  }

  // Turns of a conversation go on, go back, or take another turn some tokens ago.
  Tokens next_prompt(Tokens text, std::int32_t vocabulary) {
    const int back = draw(0, std::min<int>(12, static_cast<int>(text.size()) - 1));
    text.resize(text.size() - static_cast<std::size_t>(back));
    for (int i = draw(1, 4); i > 0; --i) text.push_back(draw(0, vocabulary - 1));
    if (text.size() > 140) text.resize(20);
    return text;
  }

  static constexpr std::int64_t kContext = 200;
  Random random_{20261115};
};

// A round as it was, and what is needed to have it again.
struct SeenRound {
  Tokens before;
  TokenTree tree;
  std::int64_t tokens_left;
};

TEST_P(FreshDrafter, GivesTheTreeOfADrafterWithAHistory) {
  const auto device = make_cpu_device();
  int compared = 0;
  for (const char* family : {"llama2", "mistral", "pangu7b"}) {
    const Company company(*device, {family});
    const auto vocabulary = static_cast<std::int32_t>(company.teacher.config().vocabulary);
    for (int variant = 0; variant < 8; ++variant) {
      const TreeOptions tree{.shape = variant % 3 == 0 ? TreeShape::chain : TreeShape::dynamic,
                             .nodes = draw(2, 20),
                             .depth = draw(1, 6),
                             .expand = draw(1, 4)};
      const DecoderOptions options{.context = kContext, .prefill_rows = draw(1, 40)};
      const std::int64_t window = variant % 2 == 0 ? 0 : draw(1, 20);
      const Speculation speculation{tree, [&] {
                                      DrafterSet set;
                                      set.push_back(make(company, tree, window));
                                      return set;
                                    }};
      Decoder decoder(company.teacher, options, speculation);
      Tokens prompt(static_cast<std::size_t>(draw(1, 50)), 9);
      for (int turn = 0; turn < 5; ++turn) {
        SCOPED_TRACE(::testing::Message() << family << ", variant " << variant << ", turn " << turn);
        std::vector<SeenRound> seen;
        Tokens text = prompt;
        const std::int64_t limit = draw(2, 24);
        int until_exception = draw(0, 2) == 0 ? draw(0, 12) : -1;
        GenerateEvents events;
        events.on_token = [&](const GeneratedToken& token) {
          text.push_back(token.token);
          if (until_exception-- == 0) throw std::runtime_error("in the middle of a round");
          return true;
        };
        events.on_round = [&](const Round& round) {
          seen.push_back({Tokens(text.begin(), text.begin() + round.prefix), round.tree,
                          limit - (round.prefix - static_cast<std::int64_t>(prompt.size()))});
        };
        try {
          decoder.generate(prompt, {.max_tokens = limit}, events);
        } catch (const std::runtime_error&) {
        }
        for (const SeenRound& round : seen) {
          if (draw(0, 2) != 0) continue;
          Decoder fresh(company.teacher, options, speculation);
          std::optional<TokenTree> first;
          GenerateEvents listen;
          listen.on_round = [&](const Round& r) {
            if (!first) first = r.tree;
          };
          fresh.generate(round.before, {.max_tokens = round.tokens_left}, listen);
          ASSERT_TRUE(first.has_value());
          ASSERT_EQ(*first, round.tree);
          ++compared;
        }
        prompt = next_prompt(text, vocabulary);
      }
    }
  }
  fmt::print("{} trees compared\n", compared);
}

INSTANTIATE_TEST_SUITE_P(Drafters, FreshDrafter, ::testing::Values("eagle3", "medusa", "model"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace espalier::testing
