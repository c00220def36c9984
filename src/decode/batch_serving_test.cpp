// What servers ask of a batch besides text: answers of a least length, drafts as a request wants them, predictions,
// priorities, events step by step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/random.h"
#include "base/testing/sanitized.h"
#include "decode/batch.h"
#include "decode/hostile_drafter.h"
#include "decode/model_drafter.h"
#include "decode/ngram_drafter.h"
#include "decode/oracle_drafter.h"
#include "decode/testing/tiny_model_test.h"
#include "device/conformance/remote_device.h"
#include "device/cpu/cpu_device.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;

class ServingBatch : public TinyModelTest {
 protected:
  const std::vector<std::int32_t> prompt_ = {5, 9, 40, 77, 120, 33};
  KnownAnswers answers_;

  std::vector<std::int32_t> plain(std::span<const std::int32_t> prompt, const GenerateOptions& options) const {
    return Batch(model_, {.context = 512}).generate(prompt, options).tokens;
  }
  std::unique_ptr<Drafter> drafter(const std::string& name, KvCache& cache, const TreeOptions& tree, int sequences) {
    if (name == "ngram") return std::make_unique<NgramDrafter>();
    if (name == "hostile") return std::make_unique<HostileDrafter>(7, kTinyVocabulary);
    if (name == "model")
      return std::make_unique<ModelDrafter>(model_, cache,
                                            ModelDrafterOptions{.context = 512, .tree = tree, .sequences = sequences});
    return std::make_unique<OracleDrafter>(&answers_, OracleOptions{.seed = 1, .vocabulary = kTinyVocabulary});
  }
  Speculation speculation(const std::vector<std::string>& names, const TreeOptions& tree = {.nodes = 12, .depth = 4}) {
    return {.tree = tree, .drafters = [=, this](KvCache& cache, int sequences) {
              DrafterSet set;
              for (const std::string& name : names) set.push_back(drafter(name, cache, tree, sequences));
              return set;
            }};
  }
};

// --- a least length

class LeastLength : public ServingBatch {
 protected:
  // Its fourth token, greedily, ends an answer from now on.
  GenerateOptions stopping(std::int64_t min_tokens, const SamplingOptions& sampling = {}) const {
    const std::int32_t stop = plain(prompt_, {.sampling = sampling, .seed = 4, .max_tokens = 60})[3];
    return {.sampling = sampling, .seed = 4, .max_tokens = 60, .stop_tokens = {stop, 3}, .min_tokens = min_tokens};
  }
  // Token by token, from scores and the sampler.
  std::vector<std::int32_t> judged(const GenerateOptions& options) const {
    std::vector<std::int32_t> path = prompt_, tokens;
    while (std::ssize(tokens) < options.max_tokens) {
      std::vector<float> last;
      Batch(model_, {.context = 512}).score(path, [&](std::int64_t, std::span<const float> row) {
        last.assign(row.begin(), row.end());
      });
      const bool may_stop = std::ssize(tokens) >= options.min_tokens;
      tokens.push_back(sample(last, options.sampling, {path, prompt_.size()}, uniform(options.seed, path.size()),
                              may_stop ? std::vector<std::int32_t>() : options.stop_tokens));
      path.push_back(tokens.back());
      if (std::ranges::find(options.stop_tokens, tokens.back()) != options.stop_tokens.end()) break;
    }
    return tokens;
  }
};

TEST_F(LeastLength, NoStopTokenIsDrawnBeforeIt) {
  EXPECT_EQ(plain(prompt_, stopping(0)).size(), 4u);
  for (const SamplingOptions& sampling : {SamplingOptions{}, SamplingOptions{.temperature = 0.9f}})
    for (std::int64_t least : kSanitized ? std::vector{4, 100} : std::vector{3, 4, 5, 20, 100}) {
      const GenerateOptions options = stopping(least, sampling);
      const std::vector<std::int32_t> tokens = plain(prompt_, options);
      EXPECT_EQ(tokens, judged(options)) << least;
      EXPECT_GE(std::ssize(tokens), std::min<std::int64_t>(least, 60)) << least;
      for (std::int64_t i = 0; i < std::min(least, std::ssize(tokens)); ++i)
        EXPECT_EQ(std::ranges::count(options.stop_tokens, tokens[static_cast<std::size_t>(i)]), 0) << i;
    }
}

TEST_F(LeastLength, TheTextIsTheSameHoweverItIsGuessedAndWhereverLogitsLie) {
  const auto remote = make_remote_device(make_cpu_device({.threads = 1}));
  const Transformer remote_model = load_transformer(*remote, tiny_model());
  for (const SamplingOptions& sampling : {SamplingOptions{}, SamplingOptions{.temperature = 0.9f}})
    for (std::int64_t least : kSanitized ? std::vector{7} : std::vector{4, 7, 30}) {
      const GenerateOptions options = stopping(least, sampling);
      const std::vector<std::int32_t> expected = judged(options);
      answers_ = {};
      answers_.learn(prompt_, expected);
      for (const Transformer* model : std::vector<const Transformer*>{&model_, &remote_model})
        for (const std::string name : {"oracle", "hostile", "ngram"}) {
          Batch batch(*model, {.context = 512, .invariants = true}, speculation({name}));
          const GenerateResult result = batch.generate(prompt_, options);
          EXPECT_EQ(result.tokens, expected) << name << ", least " << least;
          EXPECT_TRUE(name != "oracle" || result.accept_length() > 2);
        }
    }
}

TEST_F(LeastLength, LogProbabilitiesAreThoseOfTheModel) {
  GenerateOptions options = stopping(10);
  options.logprobs = 1;
  std::vector<GeneratedToken> heard;
  GenerateEvents events;
  events.on_token = [&](const GeneratedToken& token) {
    heard.push_back(token);
    return true;
  };
  Batch(model_, {.context = 512}).generate(prompt_, options, events);
  EXPECT_EQ(heard[3].logprobs->top[0].token, options.stop_tokens[0]) << "which could not be drawn";
  EXPECT_NE(heard[3].token, options.stop_tokens[0]);
  EXPECT_LT(heard[3].logprobs->chosen.logprob, heard[3].logprobs->top[0].logprob);
}

TEST_F(LeastLength, TheBeginningOfAnAnswerThatIsKnownCounts) {
  const GenerateOptions options = stopping(6);
  const std::vector<std::int32_t> whole = plain(prompt_, options);
  for (std::size_t known : {1u, 5u, 6u}) {
    const auto answered = std::span(whole).first(std::min(known, whole.size() - 1));
    Batch batch(model_, {.context = 512});
    EXPECT_EQ(batch.generate(GenerateRequest{.prompt = prompt_, .options = options, .answered = answered}).tokens,
              whole);
  }
}

// --- drafts as a request wants them

class DraftWishes : public ServingBatch {
 protected:
  struct Seen {
    SourceSet sources = 0;
    int widest = 0;  // nodes of a level
    int deepest = 0;
    std::vector<std::int32_t> tokens = {};
  };
  Seen run(Batch& batch, const DraftCaps& caps) {
    Seen seen;
    GenerateEvents events;
    events.on_round = [&](const Round& round) {
      std::vector<int> levels(static_cast<std::size_t>(round.tree.depth()) + 1);
      for (const TreeNode& node : round.tree.nodes()) {
        seen.sources |= node.sources;
        seen.widest = std::max(seen.widest, ++levels[static_cast<std::size_t>(node.depth)]);
      }
      seen.deepest = std::max(seen.deepest, round.tree.depth());
    };
    seen.tokens = batch
                      .generate(GenerateRequest{
                          .prompt = prompt_, .options = {.max_tokens = 60}, .events = events, .draft = caps})
                      .tokens;
    return seen;
  }
  void SetUp() override { answers_.learn(prompt_, plain(prompt_, {.max_tokens = 60})); }

  // The same model, made for more positions.
  static std::filesystem::path longer_context(const TemporaryFolder& folder, int positions) {
    std::string config = read_text_file(tiny_model() / "config.json");
    const std::string before = "\"max_position_embeddings\": 512";
    config.replace(config.find(before), before.size(), fmt::format("\"max_position_embeddings\": {}", positions));
    folder.write("config.json", config);
    std::filesystem::copy(tiny_model() / "model.safetensors", folder / "model.safetensors");
    return folder.path();
  }
};

// Guesses nothing, and keeps the taps of every position that it is told of.
class TapKeeper final : public LoneDrafter {
 public:
  struct Heard {
    int opened = 0;
    std::vector<std::vector<float>> taps = {};  // by position, of the last sequence
  };
  TapKeeper(Device& device, Heard& heard) : device_(device), heard_(heard) {}

  std::string_view name() const override { return "keeper"; }
  FeatureWishes wishes() const override { return {.taps = {1}}; }
  std::unique_ptr<DraftSequence> open(SequenceId, std::span<const std::int32_t>) override {
    ++heard_.opened;
    heard_.taps.clear();
    return std::make_unique<Sequence>(device_, heard_);
  }

 private:
  struct Sequence final : LoneSequence {
    Sequence(Device& d, Heard& h) : device(d), heard(h) {}
    bool reused(std::span<const std::int32_t>) override { return false; }
    void committed(const CommittedRows& rows) override {
      EXPECT_EQ(rows.begin, std::ssize(heard.taps));
      for (const std::int32_t row : rows.rows) {
        heard.taps.emplace_back(static_cast<std::size_t>(rows.taps.dim(1)));
        download<float>(device, rows.taps.rows(row, 1), heard.taps.back());
      }
    }
    void begin_round(const DraftRound&) override {}
    Guesses expand(const Candidates&, std::span<const int> nodes, int) override { return Guesses(nodes.size()); }
    Device& device;
    Heard& heard;
  };
  Device& device_;
  Heard& heard_;
};

TEST_F(DraftWishes, WhoeverIsNotWantedHearsNothing) {
  TapKeeper::Heard heard;
  const Speculation both{.tree = {.nodes = 8, .depth = 3}, .drafters = [&](KvCache&, int) {
                           DrafterSet set;
                           set.push_back(std::make_unique<NgramDrafter>());
                           set.push_back(std::make_unique<TapKeeper>(*device_, heard));
                           return set;
                         }};
  Batch batch(model_, {.context = 512, .prefill_rows = 4, .parallel = 3, .invariants = true}, both);
  const auto request = [&](const DraftCaps& caps, std::span<const std::int32_t> prompt) {
    return GenerateRequest{.prompt = prompt, .options = {.max_tokens = 20}, .draft = caps, .cache = false};
  };
  batch.generate(request({.drafts = false}, prompt_));
  batch.generate(request({.drafters = {"ngram"}}, prompt_));
  EXPECT_EQ(heard.opened, 0);
  batch.generate(request({.drafters = {"keeper"}}, prompt_));
  EXPECT_EQ(heard.opened, 1);
  const auto alone = heard.taps;
  EXPECT_EQ(alone.size(), prompt_.size() + 19);
  const std::vector<std::int32_t> others = text(9, 3);
  const std::vector<GenerateRequest> company = {request({.drafts = false}, others), request({}, prompt_),
                                                request({.drafters = {"ngram"}}, prompt_)};
  batch.generate(company);
  EXPECT_EQ(heard.opened, 2);
  EXPECT_EQ(heard.taps, alone) << "the taps of others";
}

TEST_F(DraftWishes, OnlyTheNamedDraftersGuess) {
  Batch batch(model_, {.context = 512}, speculation({"ngram", "oracle", "hostile", "model"}));
  EXPECT_THAT(batch.drafters(), ElementsAre("ngram", "oracle", "hostile", "model"));
  const auto expected = plain(prompt_, {.max_tokens = 60});
  EXPECT_EQ(run(batch, {}).sources, 15u);
  EXPECT_EQ(run(batch, {.drafters = {"oracle"}}).sources, 2u);
  EXPECT_EQ(run(batch, {.drafters = {"model", "hostile"}}).sources, 12u);
  EXPECT_EQ(run(batch, {.drafts = false, .drafters = {"oracle"}}).sources, 0u);
  for (const std::string name : {"ngram", "oracle", "hostile", "model"})
    EXPECT_EQ(run(batch, {.drafters = {name}}).tokens, expected) << name;
  EXPECT_EQ(run(batch, {}).sources, 15u) << "those that were left out guess again";
  EXPECT_THROW(run(batch, {.drafters = {"oracle", "eagle3"}}), InputError);
}

TEST_F(DraftWishes, MixedWishesShareSteps) {
  Batch batch(model_, {.context = 512, .parallel = 4, .invariants = true}, speculation({"ngram", "oracle", "model"}));
  const std::vector<DraftCaps> wishes = {{.drafters = {"ngram"}},
                                         {.drafters = {"oracle"}, .tree = TreeShape::chain},
                                         {.drafters = {"model", "ngram"}},
                                         {.tree = TreeShape::chain}};
  std::vector<GenerateRequest> requests;
  std::vector<SourceSet> sources(wishes.size());
  for (std::size_t i = 0; i < wishes.size(); ++i)
    requests.push_back({.prompt = prompt_,
                        .options = {.max_tokens = 60},
                        .events = {.on_round =
                                       [&sources, i](const Round& round) {
                                         for (const TreeNode& node : round.tree.nodes()) sources[i] |= node.sources;
                                       }},
                        .draft = wishes[i]});
  for (const GenerateResult& result : batch.generate(requests))
    EXPECT_EQ(result.tokens, plain(prompt_, {.max_tokens = 60}));
  EXPECT_THAT(sources, ElementsAre(1u, 2u, 5u, 7u));
}

TEST_F(DraftWishes, AChainIsPossibleInEveryBatch) {
  const auto expected = plain(prompt_, {.max_tokens = 60});
  const ChoiceTree choices({{0}, {1}, {2}, {0, 0}, {0, 1}, {0, 0, 0}}, {}, "choices");
  for (const TreeOptions& tree : {TreeOptions{.nodes = 12, .depth = 4},
                                  TreeOptions{.shape = TreeShape::fixed, .choices = choices, .nodes = 0, .depth = 6}}) {
    Batch batch(model_, {.context = 512, .invariants = true}, speculation({"model"}, tree));
    const Seen wide = run(batch, {});
    EXPECT_GT(wide.widest, 1);
    const Seen narrow = run(batch, {.tree = TreeShape::chain});
    EXPECT_EQ(narrow.widest, 1);
    EXPECT_EQ(narrow.deepest, tree.shape == TreeShape::fixed ? 3 : 4);
    EXPECT_EQ(run(batch, {.tree = tree.shape}).widest, wide.widest);
    EXPECT_EQ(wide.tokens, expected);
    EXPECT_EQ(narrow.tokens, expected);
    const TreeShape other = tree.shape == TreeShape::fixed ? TreeShape::dynamic : TreeShape::fixed;
    EXPECT_THROW(run(batch, {.tree = other}), InputError);
  }
}

TEST_F(DraftWishes, ABatchWithoutDraftersTakesAnyWishThatNamesNone) {
  Batch batch(model_, {.context = 512});
  EXPECT_EQ(run(batch, {.tree = TreeShape::chain}).sources, 0u);
  EXPECT_THROW(run(batch, {.drafters = {"ngram"}}), InputError);
}

// A draft model computes a text when it first guesses behind it, and writes blocks that are shared only in copies of
// its own. A pool that has no room for these still holds the answer.
TEST_F(DraftWishes, ADraftModelThatLacksASharedPrefixDoesNotCostTheAnswer) {
  const TemporaryFolder folder;
  const Transformer model = load_transformer(*device_, longer_context(folder, 1024));
  const auto prompt = text(1000, 37);
  const auto expected = Batch(model, {.context = 1024}).generate(prompt, {.max_tokens = 20}).tokens;
  const TreeOptions tree{.nodes = 8, .depth = 3};
  const Speculation drafts{
      .tree = tree, .drafters = [&](KvCache& cache, int sequences) {
        DrafterSet set;
        set.push_back(std::make_unique<ModelDrafter>(
            model, cache, ModelDrafterOptions{.context = 1024, .tree = tree, .sequences = sequences}));
        return set;
      }};
  for (std::int64_t blocks : kSanitized ? std::vector{11, 15} : std::vector{11, 14, 15, 30}) {
    Batch batch(model, {.context = 1024, .cache_positions = blocks * 128, .kv = {.check = true}}, drafts);
    batch.generate(GenerateRequest{.prompt = prompt, .options = {.max_tokens = 2}, .draft = {.drafts = false}});
    const GenerateResult result = batch.generate(prompt, {.max_tokens = 20});
    EXPECT_EQ(result.reused_tokens, 999);
    EXPECT_EQ(result.tokens, expected) << blocks << " blocks";
    EXPECT_EQ(result.accepted_tokens() > 0, blocks >= 8 + 7) << blocks << " blocks";
    batch.check_conservation();
  }
}

// --- predictions

class Predictions : public ServingBatch {
 protected:
  const std::vector<std::int32_t> answer_ = plain(prompt_, sampled());

  // An answer that does not repeat itself: nothing else can be looked up.
  static GenerateOptions sampled() { return {.sampling = {.temperature = 1.5f}, .seed = 3, .max_tokens = 80}; }
  GenerateResult run(std::span<const std::int32_t> prediction, const DraftCaps& caps = {}) {
    Batch batch(model_, {.context = 512, .invariants = true}, speculation({"ngram"}, {.nodes = 8, .depth = 5}));
    return batch.generate(
        GenerateRequest{.prompt = prompt_, .options = sampled(), .draft = caps, .prediction = prediction});
  }
};

TEST_F(Predictions, ThatAreRightSaveSteps) {
  const GenerateResult without = run({}), with = run(answer_);
  EXPECT_EQ(with.tokens, answer_);
  EXPECT_EQ(without.tokens, answer_);
  EXPECT_EQ(without.prediction, PredictionCounts());
  EXPECT_LT(with.rounds(), without.rounds() / 3);
  EXPECT_GT(with.prediction.accepted, 50);
  EXPECT_LE(with.prediction.accepted, with.accepted_tokens());
  EXPECT_LE(with.prediction.accepted + with.prediction.rejected, with.drafted_tokens());
}

TEST_F(Predictions, ThatAreWrongCostNothingButSteps) {
  auto wrong = text(80, 5);
  for (std::int32_t& token : wrong) token = token % 5;
  const GenerateResult result = run(wrong);
  EXPECT_EQ(result.tokens, answer_);
  const GenerateResult none = run(answer_, {.drafts = false});
  EXPECT_EQ(none.tokens, answer_);
  EXPECT_EQ(none.prediction, PredictionCounts()) << "nobody looked at it";
}

TEST_F(Predictions, AreFollowedAgainBehindAnError) {
  auto edited = answer_;
  for (std::size_t i : {10u, 30u, 50u}) edited[i] = (edited[i] + 1) % kTinyVocabulary;
  edited.erase(edited.begin() + 40);
  const GenerateResult result = run(edited);
  EXPECT_EQ(result.tokens, answer_);
  EXPECT_GT(result.prediction.accepted, 30);
  EXPECT_GT(result.prediction.rejected, 0);
}

TEST_F(Predictions, AreCopied) {
  Batch batch(model_, {.context = 512}, speculation({"ngram"}, {.nodes = 8, .depth = 5}));
  std::vector<std::int32_t> prediction = answer_;
  GenerateResult result;
  batch.submit({.prompt = prompt_,
                .options = sampled(),
                .events = {.on_end = [&](const AnswerEnd& end) { result = end.result; }},
                .prediction = prediction});
  std::ranges::fill(prediction, 1);
  while (batch.step()) continue;
  EXPECT_GT(result.prediction.accepted, 50);
}

// --- who goes first

TEST_F(ServingBatch, LowerPrioritiesAreAnsweredFirst) {
  Batch batch(model_, {.context = 512});
  std::vector<int> ended;
  for (int priority : {5, 0, -10, 0, 10, -3})
    batch.submit({.prompt = prompt_,
                  .options = {.max_tokens = 3},
                  .events = {.on_end = [&ended, priority](const AnswerEnd&) { ended.push_back(priority); }},
                  .priority = priority});
  while (batch.step()) continue;
  EXPECT_THAT(ended, ElementsAre(-10, -3, 0, 0, 5, 10));
  EXPECT_THROW(batch.submit({.prompt = prompt_, .priority = 11}), InputError);
}

// --- steps

TEST_F(ServingBatch, EachStepIsToldBehindItsTokens) {
  answers_.learn(prompt_, plain(prompt_, {.max_tokens = 40}));
  Batch batch(model_, {.context = 512}, speculation({"oracle"}));
  std::vector<std::size_t> told;  // tokens of each step
  std::size_t tokens = 0, rounds = 0;
  GenerateEvents events;
  events.on_token = [&](const GeneratedToken&) { return ++tokens > 0; };
  events.on_round = [&](const Round& round) {
    EXPECT_EQ(round.visits.size(), tokens) << "the round comes before its step is over";
    ++rounds;
  };
  events.on_step = [&] { told.push_back(std::exchange(tokens, 0)); };
  const GenerateResult result = batch.generate(prompt_, {.max_tokens = 40}, events);
  ASSERT_EQ(told.size(), rounds + 1);
  EXPECT_EQ(told[0], 1u) << "the prompt's own step gives the first";
  for (std::size_t i = 1; i < told.size(); ++i)
    EXPECT_EQ(told[i], static_cast<std::size_t>(result.accept_lengths[i - 1]) + 1);
}

TEST_F(ServingBatch, WhatAListenerOfStepsThrowsEndsItsAnswerAlone) {
  Batch batch(model_, {.context = 512, .parallel = 2});
  std::vector<std::int32_t> other;
  int steps = 0;
  std::exception_ptr failure;
  batch.submit({.prompt = prompt_,
                .options = {.max_tokens = 20},
                .events = {.on_step =
                               [&] {
                                 if (++steps == 5) throw std::runtime_error("enough");
                               },
                           .on_end = [&](const AnswerEnd& end) { failure = end.failure; }}});
  batch.submit({.prompt = prompt_, .options = {.max_tokens = 20}, .events = {.on_end = [&](const AnswerEnd& end) {
                                                                    other = end.result.tokens;
                                                                  }}});
  while (batch.step()) batch.check_conservation();
  ASSERT_TRUE(failure);
  EXPECT_THROW(std::rethrow_exception(failure), std::runtime_error);
  EXPECT_EQ(other, plain(prompt_, {.max_tokens = 20}));
}

}  // namespace
}  // namespace espalier
