// Drafters that run a network, on whole trees. A wrong draft changes no text, so lossless_test cannot see it: here the
// drafts themselves are compared, with PyTorch's, with the teacher's own, and with those of a fresh drafter.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include "base/error.h"
#include "decode/batch.h"
#include "decode/eagle_drafter.h"
#include "decode/medusa_drafter.h"
#include "decode/model_drafter.h"
#include "device/cpu/cpu_device.h"
#include "device/reference/reference_device.h"
#include "testing/company.h"
#include "testing/drafted_text.h"
#include "testing/engine.h"
#include "testing/head_cases.h"

namespace espalier::testing {
namespace {

using Tokens = std::vector<std::int32_t>;

// --- EAGLE heads against the goldens ---------------------------------------------------------------------------------

class EagleDrafterGolden : public ::testing::TestWithParam<HeadGolden> {};

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

// The nodes of the golden's tree, level by level and for all texts together, with PyTorch's eight best tokens below
// each.
void expect_golden_tree(EagleDrafter& drafter, const std::vector<DraftedText*>& texts, const HeadGolden& golden,
                        const Tokens& tokens) {
  const Tokens tree = golden_tokens(golden.golden, "tree.tokens"),
               parents = golden_tokens(golden.golden, "tree.parents"),
               depths = golden_tokens(golden.golden, "tree.depths"), best = golden_tokens(golden.golden, "tree.best");
  const auto expected = golden_floats(golden.golden, "tree.best.log_probability");
  const float bound = 2 * golden_floats(golden.golden, "bound.logits")[0];
  Candidates candidates(tree[0]);
  for (std::size_t node = 1; node < tree.size(); ++node)
    ASSERT_EQ(candidates.add(parents[node], {.token = tree[node], .score = -1.0 * depths[node]}),
              static_cast<int>(node));
  for (DraftedText* text : texts) text->begin_round(tokens);
  for (std::size_t begin = 0; begin < tree.size();) {
    std::vector<int> level;
    for (std::size_t node = begin; node < tree.size() && depths[node] == depths[begin]; ++node)
      level.push_back(static_cast<int>(node));
    std::vector<DraftJob> jobs;
    for (const DraftedText* text : texts) jobs.push_back(text->job(candidates, level, 8));
    const std::vector<Guesses> all = drafter.expand(jobs);
    ASSERT_EQ(all.size(), texts.size());
    for (const Guesses& guesses : all) {
      ASSERT_EQ(guesses.size(), level.size());
      for (std::size_t i = 0; i < level.size(); ++i) {
        ASSERT_EQ(guesses[i].size(), 8u);
        for (std::size_t rank = 0; rank < 8; ++rank) {
          const std::size_t at = (begin + i) * 8 + rank;
          EXPECT_EQ(guesses[i][rank].token, best[at]) << "node " << begin + i << ", rank " << rank;
          EXPECT_NEAR(guesses[i][rank].log_probability, expected[at], bound);
        }
      }
    }
    begin += level.size();
  }
  for (DraftedText* text : texts) text->end_round();
}

TEST_P(EagleDrafterGolden, DraftsTheTreeThatPyTorchDrafts) {
  const HeadGolden& golden = GetParam();
  const auto device = make_reference_device();
  const Transformer teacher = load_transformer(*device, golden.teacher);
  const EagleHead head(teacher, open_head(golden.head), golden.options);
  const Tokens tokens = golden_tokens(golden.golden, "tokens");
  const auto committed = static_cast<std::int32_t>(tokens.size()) - 1;
  const std::vector<float> values = golden_features(golden, head.taps(), static_cast<std::size_t>(committed));
  const Tensor features = device->tensor(DType::f32, {committed, static_cast<std::int64_t>(values.size()) / committed});
  upload<float>(*device, values, features);
  for (std::int32_t chunk : {committed, 7, 1}) {
    SCOPED_TRACE(::testing::Message() << "committed " << chunk << " at a time");
    KvCache cache(*device, teacher.kv_shape(DType::f32), 1024, {.check = true});
    EagleDrafter drafter(head, cache,
                         {.context = 64,
                          .kv_type = DType::f32,
                          .window = golden.window,
                          .tree = {.nodes = 64, .depth = 8, .expand = 8, .branch = 8},
                          .sequences = 3,
                          .invariants = true});
    // Two texts in the same passes: one as the chunks have it, one that comes at once.
    DraftedText text(cache, drafter), company(cache, drafter);
    for (std::int32_t begin = 0; begin < committed; begin += chunk)
      text.commit(tokens, features, begin, std::min(committed, begin + chunk));
    company.commit(tokens, features, 0, committed);
    expect_golden_tree(drafter, {&text, &company}, golden, tokens);
    const KvMemory& memory = cache.memory(1);
    EXPECT_EQ(memory.written_from(cache.blocks(text.sequence()), committed + 1), 1) << "all pairs, the root's too";
    // Another text that begins as this one does, and goes on with its blocks: the same tree.
    const std::int32_t kept = committed - 3;
    DraftedText other(cache, drafter, cache.fork(text.sequence(), kept));
    EXPECT_TRUE(other.reused(tokens)) << "the feature of the last kept position is gone";
    other.commit(tokens, features, kept - 1, committed);
    expect_golden_tree(drafter, {&other}, golden, tokens);
    EXPECT_EQ(memory.written_from(cache.blocks(other.sequence()), committed + 1), 1);
  }
}

TEST(EagleDrafterTest, WantsNoFeatureAgainWhereTheHeadHasNothingBefore) {
  const auto device = make_cpu_device();
  const Company company(*device, {"llama2"});
  KvCache cache(*device, company.teacher.kv_shape(DType::f16), 512);
  EagleDrafter drafter(*company.eagle3_head, cache, {.context = 64});
  const SequenceId sequence = cache.create();
  std::optional<Branch> branch = cache.begin(sequence, 4);
  ASSERT_TRUE(branch.has_value());
  branch->commit_length(4);
  EXPECT_FALSE(DraftedText(cache, drafter, sequence).reused({1, 2, 3, 4}));
}

INSTANTIATE_TEST_SUITE_P(Heads, EagleDrafterGolden, ::testing::ValuesIn(eagle_goldens()), [](const auto& info) {
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
    const auto drafters = [&](KvCache& cache, int sequences) {
      DrafterSet set;
      set.push_back(std::make_unique<ModelDrafter>(
          teacher, cache, ModelDrafterOptions{.context = 200, .tree = tree, .sequences = sequences}));
      return set;
    };
    Batch decoder(teacher, {.context = 200}, {tree, drafters});
    const auto result = decoder.generate(Tokens(40, 7), {.max_tokens = 51});
    EXPECT_EQ(result.rounds(), 10) << "five tokens a round behind the first";
    EXPECT_EQ(result.accept_length(), 4.0);
  }
}

TEST(ModelDrafterTest, SaysNothingAboutATextWithTokensItDoesNotKnow) {
  const auto device = make_cpu_device();
  const Transformer small = load_transformer(*device, data_path("tiny/llama2"));
  const TreeOptions tree{.shape = TreeShape::chain, .nodes = 3, .depth = 2};
  KvCache cache(*device, small.kv_shape(DType::f16), 512);
  ModelDrafter drafter(small, cache, {.context = 64, .tree = tree, .sequences = 2});
  const auto unknown = static_cast<std::int32_t>(small.config().vocabulary);
  DraftedText text(cache, drafter), other(cache, drafter);
  for (auto& [drafted, tokens] : {std::pair(&text, Tokens{1, 2, unknown, 4}), {&other, Tokens{1, 2, 3, 4}}}) {
    drafted->commit(tokens, {}, 0, 3);
    drafted->begin_round(tokens);
  }
  const int root = 0;
  const Candidates candidates(4);
  const std::vector<DraftJob> jobs = {text.job(candidates, std::span(&root, 1), 1),
                                      other.job(candidates, std::span(&root, 1), 1)};
  const std::vector<Guesses> guesses = drafter.expand(jobs);
  EXPECT_TRUE(guesses[0][0].empty());
  EXPECT_EQ(guesses[1][0].size(), 1u) << "a text in the same pass that it does know";
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

  std::int64_t taps_width() const {
    const EagleHead* head = company_.eagle(GetParam());
    return head ? head->config().feature_width() : company_.teacher.config().hidden;
  }

  // A text in a round.
  struct Drafting {
    KvCache cache;
    std::unique_ptr<Drafter> drafter = {};
    std::optional<DraftedText> text = {};
    Candidates candidates{9};

    void expand(const std::vector<int>& nodes) {
      const DraftJob job = text->job(candidates, nodes, 3);
      drafter->expand(std::span(&job, 1));
    }
  };

  std::unique_ptr<Drafter> make(KvCache& cache, bool invariants) const {
    if (const EagleHead* head = company_.eagle(GetParam()))
      return std::make_unique<EagleDrafter>(
          *head, cache, EagleDrafterOptions{.context = 64, .tree = tree_, .invariants = invariants});
    return std::make_unique<ModelDrafter>(company_.draft_model(), cache,
                                          ModelDrafterOptions{.context = 64, .tree = tree_, .invariants = invariants});
  }

  // After the first pass, with three candidates below the root and one below the first of them.
  std::unique_ptr<Drafting> begin(bool invariants) {
    const Tokens tokens = {1, 2, 3, 4, 9};
    std::unique_ptr<Drafting> drafting(new Drafting{.cache{*device_, company_.teacher.kv_shape(DType::f16), 512}});
    drafting->drafter = make(drafting->cache, invariants);
    upload<float>(*device_, std::vector<float>(static_cast<std::size_t>(4 * taps_width()), 0.5f), features_);
    drafting->text.emplace(drafting->cache, *drafting->drafter);
    drafting->text->commit(tokens, features_, 0, 4);
    drafting->text->begin_round(tokens);
    for (std::int32_t token : {20, 21, 22}) drafting->candidates.add(0, {.token = token, .score = -1});
    drafting->candidates.add(1, {.token = 30, .score = -2});
    drafting->expand({0});
    return drafting;
  }
};

TEST_P(DraftPasses, OfAGoodGrowthPassTheirInvariants) {
  const auto drafting = begin(true);
  EXPECT_NO_THROW(drafting->expand({1, 3}));
  EXPECT_NO_THROW(drafting->expand({4}));
}

TEST_P(DraftPasses, ThatComputeACandidateTwiceAreCaughtBeforeTheirLaunch) {
  const auto drafting = begin(true);
  drafting->expand({1, 3});
  EXPECT_THROW(drafting->expand({3}), TreeViolation);
  EXPECT_NO_THROW(begin(false)->expand({1, 1})) << "nobody looks without --invariants";
}

TEST_P(DraftPasses, BelowACandidateThatIsNoRowAreCaughtBeforeTheirLaunch) {
  const auto drafting = begin(true);
  drafting->expand({2, 3});
  EXPECT_THROW(drafting->expand({4}), std::logic_error);
}

INSTANTIATE_TEST_SUITE_P(Networks, DraftPasses, ::testing::Values("eagle2", "eagle3", "model"),
                         [](const auto& info) { return info.param; });

// --- whatever came before
// ---------------------------------------------------------------------------------------------

class FreshDrafter : public ::testing::TestWithParam<std::string> {
 protected:
  using Random = std::mt19937;

  int draw(int low, int high) { return low + static_cast<int>(random_() % static_cast<std::uint32_t>(high - low + 1)); }

  std::unique_ptr<Drafter> make(const Company& company, const TreeOptions& tree, std::int64_t window,
                                std::int64_t context, KvCache& cache, int sequences) const {
    if (GetParam() == "medusa") return std::make_unique<MedusaDrafter>(*company.medusa_head, 10, sequences);
    if (const EagleHead* head = company.eagle(GetParam()))
      return std::make_unique<EagleDrafter>(
          *head, cache,
          EagleDrafterOptions{
              .context = context, .window = window, .tree = tree, .sequences = sequences, .invariants = true});
    return std::make_unique<ModelDrafter>(
        company.draft_model(), cache,
        ModelDrafterOptions{.context = context, .tree = tree, .sequences = sequences, .invariants = true});
  }

  // Turns of a conversation go on, go back, or take another turn some tokens ago: most of their beginnings are cached.
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

TEST_P(FreshDrafter, GivesTheTreeOfADrafterWithAHistoryAndCompany) {
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
      const DecoderOptions alone{.context = kContext, .prefill_rows = draw(1, 40)};
      DecoderOptions options = alone;
      options.parallel = draw(1, 3);
      const std::int64_t window = variant % 2 == 0 ? 0 : draw(1, 20);
      const Speculation speculation{tree, [&](KvCache& cache, int sequences) {
                                      DrafterSet set;
                                      set.push_back(make(company, tree, window, kContext, cache, sequences));
                                      return set;
                                    }};
      Batch decoder(company.teacher, options, speculation);
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
        std::vector<GenerateRequest> requests = {
            {.prompt = prompt, .options = {.max_tokens = limit}, .events = events}};
        std::vector<Tokens> others;
        for (int i = 1; i < options.parallel; ++i) others.push_back(next_prompt(prompt, vocabulary));
        for (const Tokens& other : others)
          requests.push_back({.prompt = other, .options = {.max_tokens = draw(1, 24)}});
        try {
          decoder.generate(requests);
        } catch (const std::runtime_error&) {
        }
        for (const SeenRound& round : seen) {
          if (draw(0, 2) != 0) continue;
          Batch fresh(company.teacher, alone, speculation);
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

// The branch of a round is as long as the tree, so its table may have more blocks than the drafts alone need.
TEST_P(FreshDrafter, DraftsToTheEndOfAContextWhereTheTreeBeginsAnotherBlock) {
  const auto device = make_cpu_device();
  const Company company(*device, {"llama2"});
  const TreeOptions tree{.nodes = 16, .depth = 1, .expand = 1, .branch = 15};
  const DecoderOptions options{.context = 125, .invariants = true};
  const Tokens prompt(100, 9);
  const Tokens expected = Batch(company.teacher, options).generate(prompt, {.max_tokens = 40}).tokens;
  Batch decoder(company.teacher, options, {tree, [&](KvCache& cache, int sequences) {
                                             DrafterSet set;
                                             set.push_back(make(company, tree, 0, 125, cache, sequences));
                                             return set;
                                           }});
  EXPECT_EQ(decoder.generate(prompt, {.max_tokens = 40}).tokens, expected);
}

INSTANTIATE_TEST_SUITE_P(Drafters, FreshDrafter, ::testing::Values("eagle2", "eagle3", "medusa", "model"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace espalier::testing
