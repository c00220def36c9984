#include "engine/drafting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "decode/batch.h"
#include "decode/pool_size.h"
#include "engine/model_hash.h"
#include "format/testing/complaint.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

const std::string kData = ESPALIER_TEST_DATA;
const std::string kModel = kData + "/tiny/llama2.gguf";
const std::string kEagle3 = kData + "/heads/eagle3-full-vocabulary";
const std::string kEagle2 = kData + "/heads/eagle2-vicuna";  // of the same teacher
const std::string kMedusa = kData + "/heads/medusa-d";       // of the same teacher, three heads
const std::string kStranger = kData + "/heads/medusa-b";     // of another
const std::string kTreeFile = kData + "/../../data/trees/pangu_64.json";

// Only what a difference of vocabularies is about.
class WordList : public Tokenizer {
 public:
  explicit WordList(std::vector<std::string> words) : words_(std::move(words)) {}

  std::vector<TokenId> encode(std::span<const TextPiece>) const override { return {}; }
  std::string bytes(TokenId id, bool) const override { return words_[static_cast<std::size_t>(id)]; }
  bool starts_text_after(TokenId) const override { return false; }
  TokenId vocabulary_size() const override { return static_cast<TokenId>(words_.size()); }
  bool is_special(TokenId) const override { return false; }
  std::optional<TokenId> find_special(std::string_view) const override { return std::nullopt; }
  std::optional<TokenId> bos() const override { return std::nullopt; }
  std::optional<TokenId> eos() const override { return std::nullopt; }
  bool add_bos() const override { return false; }

 private:
  std::vector<std::string> words_;
};

struct Remarks : Listener {
  void remark(std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

class DraftingTest : public testing::Test {
 protected:
  static OpenEngine open(const std::string& checked = "off") {
    EngineOptions options;
    options.model = kModel;
    options.modes.checked = AskedMode{checked, "--checked"};
    options.threads = 1;
    options.context = 128;
    return open_engine(options);
  }
  std::unique_ptr<Drafting> draft(const DraftOptions& options) const {
    return std::make_unique<Drafting>(plan_drafting(options, engine_.places, "none"), engine_, 1);
  }
  std::string refusal(const DraftOptions& options) const {
    return complaint([&] { draft(options); });
  }

  const OpenEngine engine_ = open();
};

TEST_F(DraftingTest, AutoTakesTheFirstHeadThatMatchesTheTeacherElseNgrams) {
  EXPECT_EQ(draft({.draft = "auto", .heads = {kStranger, kEagle3, kMedusa}})->name(), "eagle3");
  EXPECT_EQ(draft({.draft = "auto", .heads = {kMedusa, kEagle3}})->name(), "medusa");
  EXPECT_EQ(draft({.draft = "auto", .heads = {kStranger}})->name(), "ngram");
  EXPECT_EQ(draft({.draft = "auto"})->name(), "ngram");
  EXPECT_THAT(refusal({.draft = "auto", .heads = {"no/such/head"}}), testing::HasSubstr("no/such/head: no such file"));
}

TEST_F(DraftingTest, EagleTakesAHeadOfEitherGenerationAndSaysWhich) {
  Remarks remarks;
  OpenEngine engine = open();
  engine.listener = &remarks;
  const auto name = [&](const char* drafters, const std::string& head) {
    return Drafting(plan_drafting({.draft = drafters, .heads = {head}}, engine.places), engine, 1).name();
  };
  EXPECT_EQ(name("eagle", kEagle2), "eagle2");
  EXPECT_EQ(name("ngram+eagle", kEagle3), "ngram+eagle3");
  EXPECT_THAT(remarks.lines, testing::ElementsAre("drafts with an EAGLE-2 head", "drafts with an EAGLE-3 head"));
  EXPECT_EQ(name("eagle2", kEagle2), "eagle2");
  EXPECT_EQ(name("auto", kEagle2), "eagle2");
  EXPECT_EQ(remarks.lines.size(), 2u) << "whoever names a generation knows it";
  EXPECT_THAT(refusal({.draft = "eagle3", .heads = {kEagle2}}),
              testing::HasSubstr("a head for --draft eagle2, got --draft eagle3"));
  EXPECT_THAT(refusal({.draft = "eagle", .heads = {kEagle2, kEagle3}}), testing::HasSubstr("a second EAGLE head"));
  EXPECT_THAT(refusal({.draft = "eagle2", .heads = {kEagle2}, .head_options = {"taps=1,2"}}),
              testing::HasSubstr("head option taps: an EAGLE-2 head reads the teacher's last state"));
}

TEST_F(DraftingTest, AHeadThatNobodyAskedForIsRefused) {
  EXPECT_THAT(refusal({.draft = "medusa", .heads = {kEagle3}}),
              testing::HasSubstr("a head for --draft eagle3, got --draft medusa"));
  EXPECT_THAT(refusal({.draft = "eagle3+medusa", .heads = {kEagle3}}),
              testing::HasSubstr("--draft eagle3+medusa: no Medusa head for " + kModel + " in "));
  EXPECT_THAT(refusal({.draft = "eagle3", .heads = {kEagle3, kEagle3}}), testing::HasSubstr("a second EAGLE head"));
  EXPECT_THAT(refusal({.draft = "medusa", .heads = {kStranger}}), testing::HasSubstr("medusa-b"));
}

TEST_F(DraftingTest, WithMedusaAloneATreeHasNoMoreLevelsThanHeads) {
  EXPECT_EQ(draft({.draft = "medusa", .heads = {kMedusa}})->tree().depth, 3);
  const auto fixed = draft({.draft = "medusa", .tree = "static:" + kTreeFile, .heads = {kMedusa}});
  EXPECT_EQ(fixed->tree().depth, 3);
  EXPECT_EQ(fixed->tree().choices->depth(), 3);
  EXPECT_EQ(draft({.draft = "medusa+ngram", .heads = {kMedusa}})->tree().depth, 6);
}

TEST_F(DraftingTest, AStaticTreeThatIsDeeperThanTheHeadsIsCutInOneLine) {
  Remarks remarks;
  OpenEngine engine = open();
  engine.listener = &remarks;
  engine.places.roots = {kData + "/../.."};
  const auto tree = [&](const DraftOptions& options) {
    remarks.lines.clear();
    return Drafting(plan_drafting(options, engine.places), engine, 1).tree();
  };
  EXPECT_EQ(tree({.draft = "medusa", .tree = "static:vicuna_7b_stage2", .heads = {kMedusa}}).nodes, 57);
  EXPECT_THAT(remarks.lines, testing::ElementsAre("tree vicuna_7b_stage2: 4 levels, the heads have 3: cut to 57 rows"));
  EXPECT_EQ(tree({.draft = "medusa", .tree = "static:pangu_stage2", .heads = {kMedusa}}).nodes, 57);
  EXPECT_EQ(tree({.draft = "medusa+ngram", .tree = "static:vicuna_7b_stage2", .heads = {kMedusa}}).nodes, 64);
  EXPECT_EQ(tree({.draft = "eagle3", .tree = "static:eagle1_25", .heads = {kEagle3}}).nodes, 26);
  EXPECT_EQ(tree({.draft = "medusa", .heads = {kMedusa}}).depth, 3);
  EXPECT_THAT(remarks.lines, testing::IsEmpty());
}

TEST_F(DraftingTest, AStaticTreeOfTheRootAloneIsPlainDecoding) {
  const TemporaryFolder folder;
  const std::string wide = folder.write("wide.json", "[[300]]").string();
  const std::vector<std::int32_t> prompt = {5, 6, 7, 5, 6, 7, 5};
  Batch plain(*engine_.model, engine_.decoder);
  const GenerateResult expected = plain.generate(prompt, {.max_tokens = 8});
  for (const auto& [drafter, head] :
       {std::pair("eagle2", kEagle2), std::pair("eagle3", kEagle3), std::pair("medusa", kMedusa)})
    for (DraftOptions options :
         {DraftOptions{.tree = "static:" + kTreeFile, .nodes = 1},
          DraftOptions{.tree = "static:" + kTreeFile, .depth = 0}, DraftOptions{.tree = "static:" + wide}}) {
      options.draft = drafter;
      options.heads = {head};
      const auto drafting = draft(options);
      EXPECT_EQ(max_rows(drafting->tree()), 1) << drafter;
      Batch decoder(*engine_.model, engine_.decoder, drafting->speculation());
      EXPECT_EQ(decoder.generate(prompt, {.max_tokens = 8}).tokens, expected.tokens) << drafter;
    }
}

TEST_F(DraftingTest, ATreeIsHeldToTheLargestStepOfTheDevice) {
  const OpenEngine ascend = open("ascend");
  const std::int64_t most = ascend.device->row_buckets().back();
  ASSERT_LE(most, kMaxDraftRows);
  const DraftPlan plan = plan_drafting({.draft = "ngram", .nodes = static_cast<int>(most)}, {});
  EXPECT_EQ(Drafting(plan, ascend, 1).tree().nodes, most);
}

TEST_F(DraftingTest, AnyDrafterGivesTheTextOfPlainDecoding) {
  const std::vector<std::int32_t> prompt = {5, 6, 7, 5, 6, 7, 5};
  const GenerateOptions options{.max_tokens = 12};
  Batch plain(*engine_.model, engine_.decoder);
  const GenerateResult expected = plain.generate(prompt, options);
  const std::vector<std::int32_t> other = {9, 8, 9, 8, 9};
  const GenerateResult expected_other = plain.generate(other, options);
  const DraftOptions all[] = {{.draft = "ngram"},
                              {.draft = "medusa", .heads = {kMedusa}},
                              {.draft = "eagle2", .heads = {kEagle2}},
                              {.draft = "eagle3", .heads = {kEagle3}, .window = 4},
                              {.draft = "model", .draft_model = kModel},
                              {.draft = "oracle", .oracle_profile = "0.9,0.5"},
                              {.draft = "hostile"},
                              {.draft = "eagle3+medusa+ngram", .heads = {kMedusa, kEagle3}}};
  for (const DraftOptions& options_of : all) {
    const auto drafting = draft(options_of);
    drafting->learn(prompt, expected.tokens);
    Batch decoder(*engine_.model, engine_.decoder, drafting->speculation());
    const GenerateResult result = decoder.generate(prompt, options);
    EXPECT_EQ(result.tokens, expected.tokens) << drafting->name();
    EXPECT_EQ(drafting->name(), *options_of.draft);
    DecoderOptions together = engine_.decoder;
    together.parallel = 2;
    Batch pair(*engine_.model, together, drafting->speculation());
    const auto results = pair.generate(
        std::vector<GenerateRequest>{{.prompt = other, .options = options}, {.prompt = prompt, .options = options}});
    EXPECT_EQ(results[0].tokens, expected_other.tokens) << drafting->name();
    EXPECT_EQ(results[1].tokens, expected.tokens) << drafting->name();
  }
}

TEST_F(DraftingTest, TheBytesOfAPositionAreKnownBeforeABatchIsMade) {
  for (const std::string drafters : {"none", "ngram", "eagle3+ngram", "model", "eagle3+model"}) {
    DraftOptions options{.draft = drafters, .draft_model = kModel};
    if (drafters.find("eagle3") != std::string::npos) options.heads = {kEagle3};
    if (drafters.find("model") == std::string::npos) options.draft_model.clear();
    const auto drafting = draft(options);
    const Speculation speculation = drafting->speculation();
    const Batch batch(*engine_.model, engine_.decoder, speculation);
    std::int64_t bytes = batch.cache().memory(0).slot_bytes();
    for (std::size_t i = 1; i <= speculation.memories.size(); ++i) bytes += batch.cache().memory(i).slot_bytes();
    EXPECT_EQ(kv_position_bytes(*engine_.model, engine_.decoder.kv_type, speculation), bytes) << drafters;
    EXPECT_THROW(batch.cache().memory(speculation.memories.size() + 1), std::out_of_range) << drafters;
  }
}

TEST_F(DraftingTest, AnOracleThatLearnedTheAnswerIsRight) {
  const std::vector<std::int32_t> prompt = {5, 6, 7};
  Batch plain(*engine_.model, engine_.decoder);
  const GenerateResult expected = plain.generate(prompt, {.max_tokens = 13});
  const auto drafting = draft({.draft = "oracle", .tree = "chain", .depth = 5});
  EXPECT_TRUE(drafting->wants_answer());
  drafting->learn(prompt, expected.tokens);
  Batch decoder(*engine_.model, engine_.decoder, drafting->speculation());
  EXPECT_THAT(decoder.generate(prompt, {.max_tokens = 13}).accept_lengths, testing::ElementsAre(5, 5));
}

// A folder of heads beside a teacher that knows it.
class TrainedHeads : public DraftingTest {
 protected:
  TrainedHeads() : model_(open()) { model_.places.heads = {folder_.path()}; }

  // A copy of a fixture that says it was trained for the model.
  std::filesystem::path add(const std::string& from, const std::string& name, nlohmann::json espalier = {}) const {
    const std::filesystem::path to = folder_.path() / name;
    std::filesystem::copy(from, to);
    nlohmann::json config = nlohmann::json::parse(std::ifstream(to / "config.json"));
    espalier["teacher_sha256"] = *model_sha256(kModel, std::nullopt);
    espalier["teacher_bytes"] = *model_bytes(kModel);
    config["espalier"] = espalier;
    std::ofstream(to / "config.json") << config;
    return to;
  }
  std::unique_ptr<Drafting> draft(const DraftOptions& options) const {
    return std::make_unique<Drafting>(plan_drafting(options, model_.places), model_, 1);
  }
  std::string refusal(const DraftOptions& options) const {
    return complaint([&] { draft(options); });
  }

  TemporaryFolder folder_;
  OpenEngine model_;
};

TEST_F(TrainedHeads, ReferenceModeMeasuresNoStepsUnlessAsked) {
  model_.modes.mode = "reference";
  EXPECT_FALSE(draft({})->chooses_nodes());
  EXPECT_EQ(draft({})->tree().nodes, 16);
  EXPECT_TRUE(draft({.chooses_nodes = true})->chooses_nodes());
}

TEST_F(TrainedHeads, AutoTakesTheBestAndSaysWhy) {
  EXPECT_EQ(draft({})->name(), "ngram");
  EXPECT_EQ(draft({})->reason(), "auto: no head for " + kModel + " in " + folder_.path().string());
  const auto medusa = add(kMedusa, "a-medusa");
  EXPECT_EQ(draft({})->name(), "medusa");
  add(kEagle2, "c-eagle2");
  EXPECT_EQ(draft({})->name(), "eagle2");
  const auto eagle3 = add(kEagle3, "d-eagle3");
  const auto best = draft({});
  EXPECT_EQ(best->name(), "eagle3");
  EXPECT_EQ(best->reason(), "auto: " + eagle3.string() + " was trained for this model");
  EXPECT_TRUE(best->chooses_nodes());
  EXPECT_EQ(best->tree().depth, 6);
  EXPECT_EQ(best->tree().expand, 4);
  EXPECT_EQ(draft({.draft = "none"})->name(), "none");
  EXPECT_EQ(draft({.draft = "none"})->reason(), "--draft none");
}

TEST_F(TrainedHeads, AreFoundForTheDraftersThatNeedThem) {
  EXPECT_EQ(refusal({.draft = "eagle3"}), "--draft eagle3: no EAGLE-3 head for " + kModel + " in " +
                                              folder_.path().string() + "; --head PATH gives one");
  const auto medusa = add(kMedusa, "a-medusa");
  const auto eagle3 = add(kEagle3, "b-eagle3");
  const auto both = draft({.draft = "eagle3+medusa"});
  EXPECT_EQ(both->name(), "eagle3+medusa");
  EXPECT_EQ(both->reason(), "--draft eagle3+medusa: " + eagle3.string() + " was trained for this model, " +
                                medusa.string() + " was trained for this model");
  EXPECT_EQ(draft({.draft = "medusa", .heads = {kMedusa}})->reason(), "--draft medusa");
  EXPECT_THAT(refusal({.draft = "eagle2"}), testing::StartsWith("--draft eagle2: no EAGLE-2 head for "));
  EXPECT_EQ(draft({.draft = "eagle"})->name(), "eagle3");
  add(kEagle2, "c-eagle2");
  EXPECT_EQ(draft({.draft = "eagle2"})->name(), "eagle2");
  EXPECT_EQ(draft({.draft = "eagle"})->name(), "eagle3") << "the better generation first";
}

TEST_F(TrainedHeads, MedusaDraftsTheTreeBesideItsHeadsUnlessTheUserShapesOne) {
  const auto medusa = add(kMedusa, "medusa");
  EXPECT_EQ(draft({.draft = "medusa"})->tree().shape, TreeShape::dynamic);
  std::ofstream(medusa / "choices.json") << "[[0], [1], [0, 0], [2]]";
  const auto own = draft({.draft = "medusa"});
  EXPECT_EQ(own->tree().shape, TreeShape::fixed);
  EXPECT_EQ(own->tree().nodes, 5);
  model_.places.roots = {kData + "/../.."};  // where the usual static tree lies
  EXPECT_EQ(draft({.draft = "medusa", .tree = "static", .nodes = 3})->tree().nodes, 3);
  EXPECT_EQ(draft({.draft = "medusa", .tree = "static:" + kTreeFile})->tree().nodes, 55)
      << "three levels of another file";
  EXPECT_EQ(draft({.draft = "medusa", .nodes = 8})->tree().shape, TreeShape::dynamic);
  EXPECT_EQ(draft({.draft = "medusa+ngram"})->tree().shape, TreeShape::dynamic);
  EXPECT_EQ(draft({})->tree().shape, TreeShape::dynamic) << "auto chooses rows round by round";
}

TEST_F(TrainedHeads, ASuggestionIsFollowedWhereTheUserSaysNothing) {
  add(kEagle3, "eagle3",
      {{"suggested", {{"drafters", {"eagle3", "ngram"}}, {"nodes", 9}, {"depth", 3}, {"expand", 2}}}});
  const auto suggested = draft({});
  EXPECT_EQ(suggested->name(), "eagle3+ngram");
  EXPECT_FALSE(suggested->chooses_nodes());
  EXPECT_EQ(suggested->tree().nodes, 9);
  EXPECT_EQ(suggested->tree().depth, 3);
  EXPECT_EQ(suggested->tree().expand, 2);
  const auto own = draft({.draft = "auto", .nodes = 5, .depth = 4});
  EXPECT_EQ(own->tree().nodes, 5);
  EXPECT_EQ(own->tree().depth, 4);
  EXPECT_TRUE(draft({.draft = "auto", .chooses_nodes = true})->chooses_nodes());
  EXPECT_EQ(draft({.draft = "auto", .tree = "chain"})->tree().shape, TreeShape::chain);
  EXPECT_EQ(draft({.draft = "eagle3"})->tree().nodes, 16) << "only auto follows";
}

TEST_F(TrainedHeads, ASuggestionFromOtherInstructionSetsIsFollowedAndSaidToBeOne) {
  const auto eagle3 = add(kEagle3, "eagle3", {{"suggested", {{"depth", 3}, {"isa", {{"vax", {{"depth", 9}}}}}}}});
  const auto suggested = draft({});
  EXPECT_EQ(suggested->tree().depth, 3);
  EXPECT_THAT(
      suggested->reason(),
      testing::StartsWith("auto: " + eagle3.string() +
                          " was trained for this model; its tree was measured on other instruction sets than "));
}

TEST_F(TrainedHeads, ThatAreDamagedArePassedOver) {
  const auto eagle3 = add(kEagle3, "a-eagle3");
  add(kEagle3, "b-eagle3", {{"suggested", {{"nodes", -1}}}});
  std::ofstream(eagle3 / "model.safetensors") << "no longer weights";
  EXPECT_EQ(draft({})->name(), "ngram");
  add(kMedusa, "medusa");
  EXPECT_EQ(draft({})->name(), "medusa");
}

TEST_F(TrainedHeads, AVocabularyThatIsCutStillDraftsTheTextOfPlainDecoding) {
  const auto eagle3 = add(kEagle3, "eagle3");
  EXPECT_THAT(refusal({.draft = "eagle3", .vocabulary = 9}), testing::HasSubstr("vocab_order.json: no such file"));
  nlohmann::json order;
  for (std::int64_t id = model_.model->config().vocabulary; id-- > 0;) order.push_back(id);
  std::ofstream(eagle3 / "vocab_order.json") << order;
  const std::vector<std::int32_t> prompt = {5, 6, 7, 5, 6, 7, 5};
  Batch plain(*model_.model, model_.decoder);
  const GenerateResult expected = plain.generate(prompt, {.max_tokens = 12});
  for (const char* weights : {"q8_0", "file", "f32"}) {
    const auto drafting = draft({.draft = "eagle3", .head_weights = weights, .vocabulary = 9});
    Batch decoder(*model_.model, model_.decoder, drafting->speculation());
    EXPECT_EQ(decoder.generate(prompt, {.max_tokens = 12}).tokens, expected.tokens) << weights;
  }
  Remarks remarks;
  model_.listener = &remarks;
  model_.places.roots = {kData + "/../.."};
  const auto narrow = draft({.draft = "eagle3", .tree = "static:mc_sim_7b_63", .vocabulary = 4});
  EXPECT_THAT(remarks.lines,
              testing::ElementsAre("tree mc_sim_7b_63: 10 guesses below a node, there are 4: cut to 33 rows"));
  Batch decoder(*model_.model, model_.decoder, narrow->speculation());
  EXPECT_EQ(decoder.generate(prompt, {.max_tokens = 12}).tokens, expected.tokens);
  const auto wide = draft({.draft = "eagle3+ngram", .tree = "static:mc_sim_7b_63", .vocabulary = 4});
  EXPECT_EQ(wide->tree().nodes, 64) << "n-grams may be any tokens";
}

TEST(Vocabularies, TheFirstDifferenceIsNamed) {
  const WordList teacher({"a", "b", "\n"});
  EXPECT_NO_THROW(check_same_vocabulary(teacher, WordList({"a", "b", "\n"}), "m"));
  EXPECT_EQ(complaint([&] {
              check_same_vocabulary(teacher, WordList({"a", "b"}), "m");
            }),
            "m: another vocabulary: 2 tokens, expected the 3 of the model");
  EXPECT_EQ(complaint([&] {
              check_same_vocabulary(teacher, WordList({"a", "c", "d"}), "m");
            }),
            "m: another vocabulary: token 1 is \"c\", expected \"b\" as in the model");
}

}  // namespace
}  // namespace espalier
