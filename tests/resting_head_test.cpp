// An EAGLE-3 head that is fed when it is asked, and not at all while it rests: what it guesses then, what it has cost,
// and that what its memory is said to hold, it holds.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "decode/batch.h"
#include "decode/eagle_drafter.h"
#include "decode/top_guesses.h"
#include "device/conformance/counting_device.h"
#include "device/cpu/cpu_device.h"
#include "testing/company.h"
#include "testing/drafted_text.h"
#include "testing/engine.h"
#include "testing/head_cases.h"
#include "testing/recording_devices.h"

namespace espalier::testing {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kRemembered = 32;  // positions that a sequence keeps while it rests
constexpr std::int64_t kWholeText = 190;  // two blocks
constexpr int kBranch = 3;

std::vector<NamedDevice> devices_that_rest() {
  std::vector<NamedDevice> devices = all_devices();
  for (const NamedDevice& recording : recording_devices()) devices.push_back(recording);
  return devices;
}

// By tokens and bits.
std::vector<std::pair<std::int32_t, double>> flat(const Guesses& guesses) {
  std::vector<std::pair<std::int32_t, double>> all;
  for (const auto& list : guesses)
    for (const DraftToken& guess : list) all.emplace_back(guess.token, guess.log_probability);
  return all;
}

// A text with random features. Every test's texts are beginnings of it, so a place of one is that of all.
class TextOfAHead {
 public:
  TextOfAHead(Device& device, const EagleHead& head)
      : device_(device),
        head_(head),
        features_(device.tensor(DType::f32, {kWholeText, head.config().feature_width()})),
        cache_(device, head.kv_shape(DType::f16), 16 * 256, {.check = true}),
        drafter_(head, cache_,
                 {.context = 256,
                  .tree = {.nodes = 16, .depth = 3, .expand = kBranch},
                  .sequences = 6,
                  .invariants = true}) {
    std::mt19937 random(7);
    std::vector<float> values(static_cast<std::size_t>(features_.view.elements()));
    for (float& value : values) value = std::normal_distribution<float>()(random);
    upload<float>(device, values, features_);
    for (std::int64_t i = 0; i <= kWholeText; ++i) tokens_.push_back(static_cast<std::int32_t>(random() % 200));
  }

  DraftedText text() { return DraftedText(cache_, drafter_); }
  // Goes on with the beginning of another, as whoever finds its blocks does.
  DraftedText fork(const DraftedText& other, std::int64_t length) {
    return DraftedText(cache_, drafter_, cache_.fork(other.sequence(), length));
  }
  // A head that has nothing before place `first`, behind `length` positions.
  DraftedText cold(std::int64_t first, std::int64_t length) {
    const SequenceId sequence = cache_.create();
    if (first > 1) cache_.begin(sequence, first - 1)->commit_length(first - 1);
    DraftedText text(cache_, drafter_, sequence);
    const bool wants_again = first > 1 && text.reused(tokens_);
    EXPECT_EQ(wants_again, first == 2) << "before place 1 there is nothing to have";
    text.commit(tokens_, features_, first - 1, length);
    return text;
  }
  void release(const DraftedText& text) { cache_.release(text.sequence()); }

  bool reused(DraftedText& text) { return text.reused(tokens_); }
  void commit(DraftedText& text, std::int64_t begin, std::int64_t end) { text.commit(tokens_, features_, begin, end); }
  // One position more of each, in one step.
  void commit_together(const std::vector<DraftedText*>& texts) {
    for (DraftedText* text : texts) text->commit_with_others(tokens_, features_, text->length(), text->length() + 1);
    drafter_.all_told();
  }
  // By steps of other lengths, `steps` in turn, up to `end`.
  void commit_by(DraftedText& text, const std::vector<std::int64_t>& steps, std::int64_t end) {
    for (std::size_t i = 0; text.length() < end; ++i)
      commit(text, text.length(), std::min(end, text.length() + steps[i % steps.size()]));
  }

  // In passes of all of them: the guesses below the root of each, and below its best ones. The root is taken.
  std::vector<Guesses> guess(const std::vector<DraftedText*>& texts) {
    std::vector<Candidates> trees;
    for (DraftedText* text : texts) {
      const auto root = static_cast<std::size_t>(text->length());
      text->begin_round(Tokens(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(root) + 1));
      trees.emplace_back(tokens_[root]);
    }
    const std::vector<int> root = {0}, level = {1, 2, 3};
    std::vector<Guesses> all = expand(texts, trees, root);
    for (std::size_t i = 0; i < texts.size(); ++i)
      for (const DraftToken& guess : all[i][0]) trees[i].add(0, {.token = guess.token, .score = -1});
    const std::vector<Guesses> below = expand(texts, trees, level);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      all[i].insert(all[i].end(), below[i].begin(), below[i].end());
      texts[i]->end_round();
      commit(*texts[i], texts[i]->length() - 1, texts[i]->length());
    }
    return all;
  }

  // What the head itself says behind the first `length` positions with rows from place `first` on, in a memory of its
  // own, when every feature is fused in its turn.
  Guesses said_by_the_head(std::int64_t first, std::int64_t length) {
    KvCache cache(device_, head_.kv_shape(DType::f16), 512);
    EagleWorkspace workspace(head_, cache.memory(), 1, 512);
    const Tensor fused = device_.tensor(DType::f32, {bucket_for(device_, 1), head_.hidden()});
    const SequenceId sequence = cache.create();
    cache.begin(sequence, first)->commit_length(first);
    EagleOutput output;
    for (std::int64_t place = first; place <= length; ++place) {
      const auto at = static_cast<std::int32_t>(place), position = at - 1;
      head_.fuse(features_, std::span(&position, 1), workspace, fused);
      std::optional<Branch> branch = cache.begin(sequence, 1);
      const Row row{.sequence = branch->id(),
                    .token = tokens_[static_cast<std::size_t>(place)],
                    .position = position,
                    .place = at,
                    .begin = static_cast<std::int32_t>(first),
                    .end = at,
                    .wants_logits = true};
      output = head_.forward(std::span(&row, 1), fused, workspace);
      branch->commit_length(1);
    }
    TopGuesses top(device_, 1, kBranch);
    return top.read(output.logits, kBranch, {.target_ids = head_.target_ids(), .logit_scale = head_.logit_scale()});
  }

  // K and V of a place of the head's memory; empty where it is not written.
  std::vector<std::byte> at_place(const DraftedText& text, std::int64_t place) {
    const KvMemory& memory = cache_.memory(1);
    const std::int64_t size = cache_.block_size();
    const SlotRange written = memory.written(cache_.blocks(text.sequence())[static_cast<std::size_t>(place / size)]);
    if (place % size < written.begin || place % size >= written.end) return {};
    std::vector<std::byte> bytes;
    for (const View& kept : {memory.layer(0).k, memory.layer(0).v}) {
      const View slots = kept.reshaped({kept.dim(0) * kept.dim(1), kept.dim(2), kept.dim(3)});
      const View slot = slots.rows(cache_.slot(text.sequence(), place), 1);
      const std::size_t old = bytes.size();
      bytes.resize(old + static_cast<std::size_t>(slot.bytes_spanned()));
      device_.download(slot, std::span(bytes).subspan(old));
    }
    return bytes;
  }
  std::int64_t written_from(const DraftedText& text, std::int64_t end) const {
    return cache_.memory(1).written_from(cache_.blocks(text.sequence()), end);
  }

 private:
  std::vector<Guesses> expand(const std::vector<DraftedText*>& texts, const std::vector<Candidates>& trees,
                              const std::vector<int>& nodes) {
    std::vector<DraftJob> jobs;
    for (std::size_t i = 0; i < texts.size(); ++i) jobs.push_back(texts[i]->job(trees[i], nodes, kBranch));
    return drafter_.expand(jobs);
  }

  Device& device_;
  const EagleHead& head_;
  Tensor features_;
  Tokens tokens_;
  KvCache cache_;
  EagleDrafter drafter_;
};

class RestingHead : public ::testing::TestWithParam<NamedDevice> {
 protected:
  void expect_said(const Guesses& guesses, std::int64_t first, std::int64_t length) {
    const Guesses below_root(guesses.begin(), guesses.begin() + 1);
    EXPECT_EQ(flat(below_root), flat(text_.said_by_the_head(first, length))) << "behind " << length;
  }

  std::unique_ptr<Device> device_ = GetParam().make(2);
  Company company_{*device_, {"llama2"}};
  TextOfAHead text_{*device_, *company_.eagle3_head};
};

INSTANTIATE_TEST_SUITE_P(Devices, RestingHead, ::testing::ValuesIn(devices_that_rest()),
                         [](const auto& info) { return info.param.name; });

TEST_P(RestingHead, TapsThatWaitAreFusedTogetherAsIfEachHadBeenFusedAtOnce) {
  for (const std::vector<std::int64_t>& steps : {std::vector<std::int64_t>{1}, {40}, {2, 31, 5, 1}}) {
    DraftedText alone = text_.text(), longer = text_.text(), shorter = text_.text();
    text_.commit_by(alone, steps, 70);
    text_.commit_by(longer, {steps}, 131);
    text_.commit_by(shorter, {3}, 9);
    expect_said(text_.guess({&alone})[0], 1, 70);
    text_.commit_by(alone, steps, 90);
    const std::vector<Guesses> together = text_.guess({&alone, &longer, &shorter});
    expect_said(together[0], 1, 90);
    expect_said(together[1], 1, 131);
    expect_said(together[2], 1, 9);
    for (const DraftedText* text : {&alone, &longer, &shorter}) text_.release(*text);
  }
  expect_replays(*device_);
}

TEST_P(RestingHead, WakesAsOneThatStartsColdWhereItsMemoryOfTheTextBegins) {
  for (std::int64_t awake : {0, 20, 60})
    for (std::int64_t slept : {1, 12, 31, 32, 33, 64, 100}) {
      SCOPED_TRACE(::testing::Message() << awake << " positions awake, " << slept << " at rest");
      DraftedText text = text_.text();
      if (awake > 0) text_.commit(text, 0, awake);
      const std::int64_t waits_from = text.lacks_from() - 1, length = awake + slept;
      text.rest(true);
      text_.commit_by(text, {1, 1, 1, 2, 1, 5, 40}, length);
      text.rest(false);
      const std::int64_t first = length - waits_from <= kRemembered ? 1 : length - kRemembered + 1;
      DraftedText cold = text_.cold(first, length);
      for (int rounds = 0; rounds < 3; ++rounds) {
        const std::vector<Guesses> both = text_.guess({&text, &cold});
        EXPECT_EQ(flat(both[0]), flat(both[1]));
        expect_said(both[0], first, length + rounds);
      }
      text_.release(text);
      text_.release(cold);
    }
  expect_replays(*device_);
}

TEST_P(RestingHead, WhoRestsInCompanyRemembersWhatIsHisOwn) {
  std::vector<DraftedText> texts;
  for (int i = 0; i < 4; ++i) texts.push_back(text_.text());
  std::vector<DraftedText*> all;
  for (DraftedText& text : texts) {
    text.rest(true);
    text_.commit(text, 0, 3 + 9 * std::ssize(all));
    all.push_back(&text);
  }
  for (int i = 0; i < 45; ++i) text_.commit_together(all);
  for (DraftedText* text : all) text->rest(false);
  const std::vector<Guesses> guesses = text_.guess(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::int64_t length = 48 + 9 * static_cast<std::int64_t>(i);
    expect_said(guesses[i], length - kRemembered + 1, length);
    text_.release(texts[i]);
  }
  expect_replays(*device_);
}

// Commits, rests, rounds, and texts that go on with others' blocks, in any order. What is said to be written is what
// one that never rests has written there.
TEST_P(RestingHead, WhatIsSaidToBeWrittenIsInAnyOrderOfThings) {
  DraftedText whole = text_.text();
  text_.commit_by(whole, {17}, kWholeText);
  whole.settle();
  std::vector<std::vector<std::byte>> expected;
  for (std::int64_t place = 0; place < kWholeText; ++place) expected.push_back(text_.at_place(whole, place));
  EXPECT_TRUE(expected[0].empty());
  EXPECT_FALSE(expected[1].empty());
  std::int64_t rounds = 0, forks = 0, asked_again = 0;
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto draw = [&](std::int64_t low, std::int64_t high) {
      return low + static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(high - low + 1));
    };
    auto text = std::make_unique<DraftedText>(text_.text());
    bool resting = false;
    while (text->length() < kWholeText - 45) {
      switch (draw(0, 7)) {
        case 0:
        case 1: text->rest(resting = !resting); break;
        case 2: text_.commit(*text, text->length(), text->length() + draw(1, 40)); break;
        case 3: {
          if (text->length() == 0) break;
          const std::int64_t kept = text->length() - std::min<std::int64_t>(text->length() - 1, draw(0, 8));
          text->settle();
          auto other = std::make_unique<DraftedText>(text_.fork(*text, kept));
          text_.release(*text);
          text = std::move(other);
          text->rest(resting = draw(0, 1) == 0);
          const bool again = text_.reused(*text);
          EXPECT_FALSE(again && resting);
          text_.commit(*text, kept - (again ? 1 : 0), kept + 1);
          ++forks;
          asked_again += again ? 1 : 0;
          break;
        }
        case 4:
          if (text->length() == 0) break;
          text->rest(resting = false);
          text_.guess({text.get()});
          ++rounds;
          break;
        default: text_.commit(*text, text->length(), text->length() + 1);
      }
      std::int64_t written = 0;
      for (std::int64_t place = 0; place < text->length(); ++place)
        if (const auto bytes = text_.at_place(*text, place); !bytes.empty()) {
          ASSERT_TRUE(bytes == expected[static_cast<std::size_t>(place)]) << "place " << place;
          ++written;
        }
      ASSERT_LE(text->lacks_from(), text->length() + 1);
      ASSERT_TRUE(written > 0 || text_.written_from(*text, text->length()) == text->length());
    }
    text_.release(*text);
  }
  EXPECT_GT(rounds, 10);
  EXPECT_GT(forks, 10);
  EXPECT_GT(asked_again, 0);
}

class CountedHead : public ::testing::Test {
 protected:
  std::int64_t ops_of(const std::function<void()>& calls) {
    const CallCounts before = device_.counts();
    calls();
    return (device_.counts() - before).ops;
  }

  CountingDevice device_{make_cpu_device()};
  Company company_{device_, {"llama2"}};
  TextOfAHead text_{device_, *company_.eagle3_head};
};

TEST_F(CountedHead, AtRestCopiesTheTapsOfEveryPositionAndComputesNothing) {
  DraftedText text = text_.text();
  text.rest(true);
  EXPECT_LE(ops_of([&] { text_.commit(text, 0, 70); }), 2) << "of a prompt its end, around the end of the ring";
  for (std::int64_t i = 0; i < 100; ++i)
    EXPECT_EQ(ops_of([&] { text_.commit(text, text.length(), text.length() + 1); }), 1);
  EXPECT_EQ(ops_of([&] { text.settle(); }), 0);
  EXPECT_EQ(text_.written_from(text, text.length()), text.length()) << "nothing";
}

TEST_F(CountedHead, AtRestOfManySequencesTakesAnOpOrTwoForAll) {
  std::vector<DraftedText> texts;
  for (int i = 0; i < 5; ++i) texts.push_back(text_.text());
  std::vector<DraftedText*> all;
  for (DraftedText& text : texts) {
    text.rest(true);
    text_.commit(text, 0, 10 + 7 * std::ssize(all));
    all.push_back(&text);
  }
  for (int i = 0; i < 50; ++i) EXPECT_LE(ops_of([&] { text_.commit_together(all); }), 2);
}

TEST_F(CountedHead, AwakeCopiesTooUntilTheRingIsFull) {
  DraftedText text = text_.text();
  for (std::int64_t i = 0; i < kRemembered; ++i)
    EXPECT_EQ(ops_of([&] { text_.commit(text, text.length(), text.length() + 1); }), 1);
  EXPECT_GT(ops_of([&] { text_.commit(text, text.length(), text.length() + 1); }), 10) << "what waited is written";
  EXPECT_EQ(text.lacks_from(), kRemembered + 1);
}

TEST_F(CountedHead, OfOthersBlocksWantsNothingAtRest) {
  DraftedText text = text_.text();
  text_.commit(text, 0, 60);
  text.settle();
  EXPECT_TRUE([&] {
    DraftedText awake = text_.fork(text, 50);
    return text_.reused(awake);
  }());
  DraftedText resting = text_.fork(text, 50);
  resting.rest(true);
  EXPECT_FALSE(text_.reused(resting)) << "no feature has to be computed again for it";
  resting.rest(false);
  text_.commit(resting, 50, 55);
  DraftedText cold = text_.cold(51, 55);
  const std::vector<Guesses> both = text_.guess({&resting, &cold});
  EXPECT_EQ(flat(both[0]), flat(both[1]));
}

// With further layers a place depends on where the head started, and others may find it.
TEST(RestingHeads, OfSeveralLayersNeverStartColdForARest) {
  const auto device = make_cpu_device();
  for (const HeadGolden& golden : eagle_goldens()) {
    const Transformer teacher = load_transformer(*device, golden.teacher);
    const EagleHead head(teacher, open_head(golden.head), golden.options);
    TextOfAHead texts(*device, head);
    DraftedText text = texts.text();
    text.rest(true);
    texts.commit_by(text, {1}, 2 * kRemembered);
    EXPECT_EQ(texts.written_from(text, kRemembered), head.kv_shape(DType::f16).layers == 1 ? kRemembered : 1)
        << golden.name;
  }
}

// --- whole answers --------------------------------------------------------------------------------------------------

TEST(RestingAnswers, LeaveBlocksThatOthersReuseInFull) {
  const auto device = make_cpu_device();
  const Company company(*device, {"llama2"});
  const TreeOptions tree{.nodes = 8, .depth = 3, .expand = 2};
  const DecoderOptions options{.context = 250, .prefill_rows = 48, .kv = {.check = true}, .invariants = true};
  Batch batch(company.teacher, options,
              {tree, [&](KvCache& cache, int sequences) {
                 DrafterSet set;
                 set.push_back(std::make_unique<EagleDrafter>(
                     *company.eagle3_head, cache,
                     EagleDrafterOptions{.context = 250, .tree = tree, .sequences = sequences, .invariants = true}));
                 return set;
               }});
  Tokens text;
  for (std::int32_t i = 0; i < 140; ++i) text.push_back((7 * i + 3) % 250);
  for (bool drafts : {false, true, false, true}) {
    const auto result =
        batch.generate(GenerateRequest{.prompt = text, .options = {.max_tokens = 20}, .draft = {.drafts = drafts}});
    EXPECT_EQ(result.tokens, Batch(company.teacher, options).generate(text, {.max_tokens = 20}).tokens);
    EXPECT_EQ(result.reused_tokens, text.size() == 140 ? 0 : std::ssize(text) - 3) << "the last token, and two more";
    text.insert(text.end(), result.tokens.begin(), result.tokens.end());
    text.insert(text.end(), {11, 12});
  }
}

// Among four guesses do not pay, and the one that is left at the end was not the one that found that out.
TEST(RestingAnswers, WhoseHeadHeardNothingInCompanyDraftAloneAndSayTheSame) {
  const auto device = make_cpu_device();
  const Company company(*device, {"llama2"});
  const TreeOptions tree{.nodes = 8, .depth = 3, .expand = 2};
  const DecoderOptions options{.context = 250, .parallel = 4, .kv = {.check = true}, .invariants = true};
  Speculation speculation{
      tree, [&](KvCache& cache, int sequences) {
        DrafterSet set;
        set.push_back(std::make_unique<EagleDrafter>(
            *company.eagle3_head, cache,
            EagleDrafterOptions{.context = 250, .tree = tree, .sequences = sequences, .invariants = true}));
        return set;
      }};
  speculation.budget = ChosenBudget{.times = StepTimes{.rows = {1, 64}, .contexts = {64}, .seconds = {1, 32.5}},
                                    .clock = [] { return 0.0; }};
  const Tokens text = {5, 9, 40, 77, 120, 33};
  std::vector<GenerateRequest> requests;
  for (std::int64_t tokens : {90, 12, 12, 12})
    requests.push_back({.prompt = text, .options = {.max_tokens = tokens}, .cache = false});
  Batch batch(company.teacher, options, speculation);
  const std::vector<GenerateResult> results = batch.generate(requests);
  EXPECT_EQ(results[0].tokens, Batch(company.teacher, {.context = 250}).generate(text, {.max_tokens = 90}).tokens);
  EXPECT_GE(results[0].undrafted_rounds, 11) << "in company";
  EXPECT_LT(results[0].undrafted_rounds, results[0].rounds()) << "alone";
}

}  // namespace
}  // namespace espalier::testing
