#include "trace/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "decode/hostile_drafter.h"
#include "decode/oracle_drafter.h"
#include "device/checked/checked_device.h"
#include "device/conformance/faulty_device.h"
#include "device/cpu/cpu_device.h"
#include "device/passing_device.h"
#include "device/reference/reference_device.h"
#include "format/testing/temporary_folder.h"
#include "trace/failure_dumper.h"
#include "trace/testing/random_turn.h"
#include "trace/turn_recorder.h"

namespace espalier {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

constexpr std::int32_t kVocabulary = 272;
constexpr DecoderOptions kOptions{.context = 256};
const std::vector<std::int32_t> kPrompt = {5, 9, 40, 77, 120, 33};

Transformer tiny_model(Device& device) {
  return load_transformer(device, std::filesystem::path(ESPALIER_TEST_DATA) / "tiny/smollm2");
}

// Guesses everything and anything, but some of it is right: an oracle beside a hostile drafter.
Speculation wild_drafts(const KnownAnswers& answers, std::uint64_t seed) {
  return {.tree = {.nodes = 12, .depth = 5}, .drafters = [&answers, seed](KvCache&, int) {
            DrafterSet set;
            set.push_back(std::make_unique<OracleDrafter>(
                &answers, OracleOptions{.profile = {0.7}, .seed = seed, .vocabulary = kVocabulary}));
            set.push_back(std::make_unique<HostileDrafter>(seed, kVocabulary));
            return set;
          }};
}

KnownAnswers known_answer(const std::vector<std::int32_t>& tokens) {
  KnownAnswers answers;
  answers.learn(kPrompt, tokens);
  return answers;
}

TracedTurn record_turn(const Transformer& model, const GenerateOptions& options, std::uint64_t seed) {
  const KnownAnswers answers = known_answer(Batch(model, kOptions).generate(kPrompt, options).tokens);
  TurnRecorder recorder;
  Batch decoder(model, kOptions, wild_drafts(answers, seed));
  const GenerateResult result = decoder.generate(kPrompt, options, {.on_round = recorder.observer()});
  return recorder.take({.prompt_id = "p", .prompt = kPrompt}, options, result);
}

struct ReplayDevice {
  const char* name;
  std::unique_ptr<Device> (*make)();
};

class ReplayOn : public ::testing::TestWithParam<ReplayDevice> {};

TEST_P(ReplayOn, EveryRoundOfARandomRunIsIdentical) {
  const auto cpu = make_cpu_device({});
  const Transformer recorded_on = tiny_model(*cpu);
  const auto device = GetParam().make();
  const Transformer model = tiny_model(*device);
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const GenerateOptions options{
        .sampling = {.presence_penalty = 0.3f, .temperature = seed == 1 ? 0.0f : 0.9f}, .seed = seed, .max_tokens = 40};
    const TracedTurn turn = record_turn(recorded_on, options, seed);
    const auto difference = replay_turn(model, kOptions, turn);
    EXPECT_FALSE(difference.has_value()) << "seed " << seed << ": " << difference->what;
  }
}

const ReplayDevice kDevices[] = {
    {"Cpu", []() -> std::unique_ptr<Device> { return make_cpu_device({}); }},
    {"Reference", []() -> std::unique_ptr<Device> { return make_reference_device(); }},
    {"CheckedAscend",
     []() -> std::unique_ptr<Device> {
       return make_checked_device(make_cpu_device({}), {.profile = CheckedProfile::ascend});
     }},
};
INSTANTIATE_TEST_SUITE_P(Devices, ReplayOn, ::testing::ValuesIn(kDevices),
                         [](const auto& info) { return std::string(info.param.name); });

class ReplayTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_cpu_device({});
  Transformer model_ = tiny_model(*device_);
  TracedTurn turn_ = record_turn(model_, {.max_tokens = 24}, 5);
};

TEST_F(ReplayTest, TheFirstTokenThatCameOutOtherwiseIsNamedWithItsRound) {
  TracedTurn other = turn_;
  TracedRound& round = other.rounds[2];
  round.visits.back().token = (round.visits.back().token + 1) % kVocabulary;
  const auto difference = replay_turn(model_, kOptions, other);
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->round, 2);
  EXPECT_THAT(difference->what, HasSubstr("expected token"));
}

TEST_F(ReplayTest, AnAnswerThatAStopStringEndedIsReplayedToTheSameEnd) {
  std::int64_t left = 11;
  TurnRecorder recorder;
  Batch decoder(model_, kOptions);
  const GenerateResult result = decoder.generate(
      kPrompt, {.max_tokens = 40},
      {.on_token = [&](const GeneratedToken&) { return --left > 0; }, .on_round = recorder.observer()});
  const TracedTurn turn = recorder.take({.prompt = kPrompt}, {.max_tokens = 40}, result);
  EXPECT_EQ(turn.finish_reason, "stop");
  EXPECT_FALSE(replay_turn(model_, kOptions, turn).has_value());
}

TEST_F(ReplayTest, AnAnswerOfALeastLengthIsDrawnAgainAsItWas) {
  const std::int32_t stop = turn_.tokens[3];
  for (std::int64_t least : {0, 3, 10, 30}) {
    const GenerateOptions options{.max_tokens = 24, .stop_tokens = {stop}, .min_tokens = least};
    const TracedTurn turn = through_a_file(record_turn(model_, options, 5));
    EXPECT_EQ(turn.draw.min_tokens, least);
    EXPECT_GE(std::ssize(turn.tokens), std::min<std::int64_t>(least, 24));
    const auto difference = replay_turn(model_, kOptions, turn);
    EXPECT_FALSE(difference.has_value()) << least << ": " << difference->what;
  }
}

TEST_F(ReplayTest, ATreeThatTheModelCannotRunIsRefused) {
  TracedTurn other = turn_;
  other.rounds[0].tree.append(other.rounds[0].tree.size() - 1, {.token = kVocabulary, .score = -1e6});
  EXPECT_THROW(replay_turn(model_, kOptions, other), InputError);
  EXPECT_THROW(replay_turn(model_, {.context = 16}, turn_), InputError);
}

TEST_F(ReplayTest, BehindTheFirstDifferenceNoTreeOfTheTraceIsTaken) {
  TracedTurn other = turn_;
  TracedRound& first = other.rounds[0];
  first.visits.back().token = (first.visits.back().token + 1) % kVocabulary;
  // A tree that fits where the trace says it stood, but not behind what was really committed.
  other.rounds[1].prefix = 0;
  other.rounds[1].tree = chain(turn_.rounds[1].tree[0].token, std::vector<DraftToken>(250, {1, -0.1}), 1);
  const auto difference = replay_turn(model_, kOptions, other);
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->round, 0);
}

TEST_F(ReplayTest, AMismatchThatDoesNotComeAgainIsNotReproduced) {
  std::vector<std::int32_t> plain = turn_.tokens;
  plain[4] = (plain[4] + 1) % kVocabulary;
  const FailureDump dump = mismatch_dump(turn_, plain, "length");
  const DumpReplay replay = replay_dump(model_, kOptions, dump);
  EXPECT_FALSE(replay.reproduced);
  EXPECT_EQ(replay.speculative.tokens, dump.drawn);
  EXPECT_EQ(replay.plain->tokens, dump.drawn);
}

TEST_F(ReplayTest, ADumpThatTheModelCannotRunIsRefused) {
  std::vector<std::int32_t> plain = turn_.tokens;
  plain[4] = (plain[4] + 1) % kVocabulary;
  const FailureDump good = mismatch_dump(turn_, plain, "length");
  FailureDump bad = good;
  bad.prompt[0] = kVocabulary;
  EXPECT_THROW(replay_dump(model_, kOptions, bad), InputError);
  bad = good;
  bad.tree->append(bad.tree->size() - 1, {.token = kVocabulary, .score = -1e6});
  EXPECT_THROW(replay_dump(model_, kOptions, bad), InputError);
  bad = good;
  bad.draw.sampling.logit_bias[kVocabulary] = 1;
  EXPECT_THROW(replay_dump(model_, kOptions, bad), InputError);
  EXPECT_THROW(replay_dump(model_, {.context = 8}, good), InputError);
}

// Why the answer was cut there only the caller knows; its tokens are right.
TEST_F(ReplayTest, AnAnswerThatWasCutShortIsNoMismatchOfTokens) {
  const auto whole = Batch(model_, kOptions).generate(kPrompt, {.max_tokens = 40}).tokens;
  TurnRecorder recorder;
  std::int64_t left = 11;
  const GenerateResult result =
      Batch(model_, kOptions)
          .generate(kPrompt, {.max_tokens = 40},
                    {.on_token = [&](const GeneratedToken&) { return --left > 0; }, .on_round = recorder.observer()});
  const TracedTurn cut = recorder.take({.prompt = kPrompt}, {.max_tokens = 40}, result);
  const FailureDump dump = mismatch_dump(cut, whole, "length");
  ASSERT_EQ(dump.mismatch->token, 11);
  const DumpReplay replay = replay_dump(model_, kOptions, dump);
  EXPECT_FALSE(replay.reproduced);
  EXPECT_EQ(replay.speculative.tokens, dump.drawn);
  EXPECT_EQ(replay.plain->tokens, dump.drawn);
}

// What another device computes, but for the logits at one position of every step that has several rows: those are
// spoiled. Whoever decodes token by token never notices.
class SpoiledDevice final : public PassingDevice {
 public:
  using Spoil = std::function<void(std::span<float> logits)>;
  SpoiledDevice(Device& inner, std::size_t position, Spoil spoil)
      : PassingDevice(inner), position_(static_cast<std::int32_t>(position)), spoil_(std::move(spoil)) {}

 private:
  void do_rope(View x, ConstView position, ConstView cosine, ConstView sine) override {
    positions_.resize(static_cast<std::size_t>(position.dim(0)));
    espalier::download<std::int32_t>(inner(), position, positions_);
    inner().rope(x, position, cosine, sine);
  }

  void do_linear(ConstView x, std::span<const Projection> projections) override {
    inner().linear(x, projections);
    const View logits = projections.front().y;
    if (logits.dim(1) != kVocabulary || logits.dim(0) == 1) return;
    for (std::int64_t row = 0; row < logits.dim(0); ++row)
      if (positions_.at(static_cast<std::size_t>(row)) == position_) spoil_row(logits.rows(row, 1));
  }

  void spoil_row(View row) {
    std::vector<float> logits(kVocabulary);
    espalier::download<float>(inner(), row, logits);
    spoil_(logits);
    espalier::upload<float>(inner(), logits, row);
  }

  std::int32_t position_;
  Spoil spoil_;
  std::vector<std::int32_t> positions_;  // of the rows of the step
};

class ReplayOfASpoiledDevice : public ::testing::Test {
 protected:
  static constexpr std::size_t kToken = 10;  // of the answer: the first that comes of spoiled logits
  const std::size_t position_ = kPrompt.size() + kToken - 1;
  const GenerateOptions greedy_{.max_tokens = 24};
  TemporaryFolder folder_;
  std::unique_ptr<Device> device_ = make_reference_device();
  Transformer model_ = tiny_model(*device_);
  std::vector<std::int32_t> plain_ = Batch(model_, kOptions).generate(kPrompt, greedy_).tokens;

  std::int32_t wrong() const { return (plain_[kToken] + 1) % kVocabulary; }
  // One logit that is far too large.
  SpoiledDevice another_choice() const {
    const auto token = static_cast<std::size_t>(wrong());
    return SpoiledDevice(*device_, position_, [token](std::span<float> logits) { logits[token] = 1e6f; });
  }
};

TEST_F(ReplayOfASpoiledDevice, NamesTheFirstRoundOfItsTraceThatDiffersElsewhere) {
  SpoiledDevice spoiled = another_choice();
  const Transformer spoiled_model = tiny_model(spoiled);
  const TracedTurn turn = through_a_file(record_turn(spoiled_model, greedy_, 5));
  ASSERT_EQ(turn.tokens[kToken], wrong()) << "that round had one row";
  EXPECT_FALSE(replay_turn(spoiled_model, kOptions, turn).has_value());
  const auto difference = replay_turn(model_, kOptions, turn);
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->round, static_cast<std::int64_t>(*turn.round_of_token(kToken)));
  EXPECT_THAT(difference->what, HasSubstr(fmt::format("expected token {}, got {}", wrong(), plain_[kToken])));
}

TEST_F(ReplayOfASpoiledDevice, FindsItsMismatchThereAndNowhereElse) {
  SpoiledDevice spoiled = another_choice();
  const Transformer spoiled_model = tiny_model(spoiled);
  const TracedTurn turn = record_turn(spoiled_model, greedy_, 5);
  const FailureDump dump =
      read_failure_dump(write_failure_dump(mismatch_dump(turn, plain_, "length"), {}, folder_.path())).dump;
  EXPECT_EQ(dump.round, static_cast<std::int64_t>(*turn.round_of_token(kToken)));
  const DumpReplay there = replay_dump(spoiled_model, kOptions, dump);
  EXPECT_TRUE(there.reproduced);
  ASSERT_TRUE(there.difference.has_value());
  EXPECT_EQ(dump.answered.size() + *there.difference, kToken);
  EXPECT_EQ(there.speculative.tokens.at(*there.difference), wrong());
  EXPECT_EQ(there.plain->tokens.at(*there.difference), plain_[kToken]);
  const DumpReplay elsewhere = replay_dump(model_, kOptions, dump);
  EXPECT_FALSE(elsewhere.reproduced);
  EXPECT_EQ(elsewhere.difference, std::nullopt);
  EXPECT_EQ(elsewhere.plain->tokens, elsewhere.speculative.tokens);
}

TEST_F(ReplayOfASpoiledDevice, FindsItsErrorThereAndNowhereElse) {
  SpoiledDevice spoiled(*device_, position_, [](std::span<float> logits) { std::ranges::fill(logits, NAN); });
  const Transformer spoiled_model = tiny_model(spoiled);
  const KnownAnswers answers = known_answer(plain_);
  FailureDumper dumper(folder_.path(), RecordOrigin{});
  Batch decoder(spoiled_model, kOptions, wild_drafts(answers, 5));
  EXPECT_THROW(dumper.guard("p", 1,
                            [&](const FailureObserver& on_failure) {
                              return decoder.generate(kPrompt, greedy_, {.on_failure = on_failure});
                            }),
               InputError);
  const FailureDump dump = read_failure_dump(std::filesystem::directory_iterator(folder_.path())->path()).dump;
  EXPECT_EQ(dump.stage, "accept");
  EXPECT_EQ(dump.answered.size() + dump.drawn.size(), kToken);
  EXPECT_TRUE(replay_dump(spoiled_model, kOptions, dump).reproduced);
  const DumpReplay elsewhere = replay_dump(model_, kOptions, dump);
  EXPECT_FALSE(elsewhere.reproduced);
  EXPECT_EQ(elsewhere.speculative.error, std::nullopt);
}

// Whether the same call fails again in some replay of a device that fails once.
bool reproduces_somewhere(const Transformer& model, FaultyDevice& device, const FailureDump& dump) {
  for (std::int64_t call = 1; call < 2000; ++call) {
    device.fail_at(call);
    try {
      if (replay_dump(model, kOptions, dump).reproduced) return true;
    } catch (const DeviceError&) {  // there was not even a decoder
    }
  }
  return false;
}

// A device that fails in the middle of a run leaves a dump of that round.
TEST(FailureDumps, OfADeviceThatFailsTellTheRoundAndReplayWithoutIt) {
  const TemporaryFolder folder;
  auto faulty = std::make_unique<FaultyDevice>(make_reference_device());
  FaultyDevice& device = *faulty;
  const Transformer model = tiny_model(device);
  FailureDumper dumper(folder.path(), RecordOrigin{});
  Batch decoder(model, kOptions);
  std::int64_t rounds = 0;
  const auto fail_later = [&](const Round&) {
    if (++rounds == 3) device.fail_at(7);
  };
  try {
    dumper.guard("p", 2, [&](const FailureObserver& on_failure) {
      return decoder.generate(kPrompt, {.max_tokens = 20}, {.on_round = fail_later, .on_failure = on_failure});
    });
    ADD_FAILURE() << "no error";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("; dump: " + folder.path().string()));
  }
  const auto path = std::filesystem::directory_iterator(folder.path())->path();
  const FailureDump dump = read_failure_dump(path).dump;
  EXPECT_EQ(dump.kind, FailureKind::error);
  EXPECT_EQ(dump.stage, "verify");
  EXPECT_EQ(dump.round, 3);
  EXPECT_EQ(dump.turn, 2);
  EXPECT_EQ(dump.answered.size(), 4u);
  EXPECT_EQ(Json::parse(dump.tables)["token"][0], dump.answered.back());
  EXPECT_EQ(Json::parse(dump.cache)["committed"], kPrompt.size() + 3);
  const DumpReplay replay = replay_dump(model, kOptions, dump);
  EXPECT_FALSE(replay.reproduced) << "the device works again";
  EXPECT_EQ(replay.speculative.tokens.size(), 1u);
  EXPECT_TRUE(reproduces_somewhere(model, device, dump));
}

TEST(FailureDumps, AnExceptionOfTheCallersIsNoFailureOfTheAnswer) {
  const TemporaryFolder folder;
  const auto device = make_reference_device();
  const Transformer model = tiny_model(*device);
  FailureDumper dumper(folder.path(), RecordOrigin{});
  Batch decoder(model, kOptions);
  EXPECT_THROW(dumper.guard("p", 1,
                            [&](const FailureObserver& on_failure) {
                              return decoder.generate(kPrompt, {},
                                                      {.on_token = [](const GeneratedToken&) -> bool {
                                                         throw DeviceError("a closed pipe");
                                                       },
                                                       .on_failure = on_failure});
                            }),
               DeviceError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(FailureDumps, AnInvariantThatDoesNotHoldLeavesTheTablesOfTheStep) {
  const TemporaryFolder folder;
  const auto device = make_reference_device();
  const Transformer model = tiny_model(*device);
  FailureDumper dumper(folder.path(), RecordOrigin{});
  const auto beyond_vocabulary = [](std::span<const std::int32_t> tokens) {
    TokenTree tree(tokens.back());
    tree.append(0, {.token = kVocabulary, .score = -1});
    return tree;
  };
  Batch decoder(model, {.context = 256, .invariants = true}, {.tree = {.nodes = 2}, .trees = beyond_vocabulary});
  try {
    dumper.guard("p", 1, [&](const FailureObserver& on_failure) {
      return decoder.generate(kPrompt, {}, {.on_failure = on_failure});
    });
    ADD_FAILURE() << "no violation";
  } catch (const std::logic_error& error) {
    const std::string_view message = error.what();
    EXPECT_THAT(std::string(message.substr(0, message.find('\n'))), HasSubstr("; dump: "));
  }
  const FailureDump dump = read_failure_dump(std::filesystem::directory_iterator(folder.path())->path()).dump;
  EXPECT_EQ(dump.kind, FailureKind::violation);
  EXPECT_EQ(dump.stage, "verify");
  EXPECT_EQ(Json::parse(dump.tables)["token"][1], kVocabulary);
  EXPECT_EQ(Json::parse(dump.cache)["positions"], kPrompt.size() + 2) << "the branch was open";
}

}  // namespace
}  // namespace espalier
