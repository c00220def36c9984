// Rounds that stay on the device (decode/resident_rounds.h): given the same rows and depth, their trees, scores and
// paths are those of the rounds that the host drives, round by round to the end of the answers, and each waits for the
// device once.
#include <gtest/gtest.h>

#include <bit>
#include <functional>

#include "base/error.h"
#include "base/random.h"
#include "base/testing/judged_device.h"
#include "base/testing/sanitized.h"
#include "decode/batch.h"
#include "decode/eagle_drafter.h"
#include "decode/medusa_drafter.h"
#include "decode/model_drafter.h"
#include "decode/ngram_drafter.h"
#include "device/checked/checked_device.h"
#include "device/conformance/counting_device.h"
#include "device/conformance/recording_device.h"
#include "device/conformance/sparing_device.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda/emulated/emulated_cuda_device.h"
#include "device/passing_device.h"
#include "device/reference/reference_device.h"
#include "testing/company.h"
#include "testing/engine.h"
#include "testing/random_shape.h"

namespace espalier::testing {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kContext = 420;
constexpr std::int64_t kAnswer = 40;  // tokens

// What a round said.
struct ToldRound {
  std::int64_t prefix = 0;
  std::vector<TreeNode> nodes;
  std::vector<Visit> visits;
  bool resident = false;
  std::int64_t waits = 0;  // synchronisations of the device since the round before
};

struct Told {
  Tokens tokens;
  std::vector<ToldRound> rounds;
};

struct Setting {
  std::string drafter = "eagle3";
  TreeOptions tree = {.nodes = 16, .depth = 5, .expand = 4};
  SamplingOptions sampling = {};
  std::int64_t window = 0;
  std::int64_t shorter = 0;  // the draft model's context
  std::int64_t max_tokens = kAnswer;
  int parallel = 1;
};

std::unique_ptr<Drafter> make_drafter(const Company& company, const Setting& setting, KvCache& cache, int sequences) {
  if (setting.drafter == "ngram") return std::make_unique<NgramDrafter>();
  if (setting.drafter == "model" || setting.drafter == "self")
    return std::make_unique<ModelDrafter>(
        setting.drafter == "self" ? company.teacher : company.draft_model(), cache,
        ModelDrafterOptions{.context = kContext - setting.shorter, .tree = setting.tree, .sequences = sequences});
  if (setting.drafter == "medusa") return std::make_unique<MedusaDrafter>(*company.medusa_head, 10, sequences);
  return std::make_unique<EagleDrafter>(
      *company.eagle(setting.drafter), cache,
      EagleDrafterOptions{.context = kContext, .window = setting.window, .tree = setting.tree, .sequences = sequences});
}

std::unique_ptr<Batch> make_batch(const Company& company, const Setting& setting, DecoderOptions options) {
  options.context = kContext;
  options.parallel = setting.parallel;
  return std::make_unique<Batch>(company.teacher, options,
                                 Speculation{.tree = setting.tree, .drafters = [&](KvCache& cache, int sequences) {
                                               DrafterSet set;
                                               set.push_back(make_drafter(company, setting, cache, sequences));
                                               return set;
                                             }});
}

struct ResidentDevice {
  std::string name;
  std::function<std::unique_ptr<Device>()> make;
};
ResidentDevice with_two_threads(const NamedDevice& device) {
  return {device.name, [make = device.make] { return make(2); }};
}
std::vector<ResidentDevice> resident_devices() {
  std::vector<ResidentDevice> devices;
  if (judged_device()) {
    for (const NamedDevice& device : all_devices())
      if (device.make(1)->round_ops() != nullptr) devices.push_back(with_two_threads(device));
    return devices;
  }
  if (kSanitized) return {{"checked", [] { return make_checked_device(make_cpu_device()); }}};
  devices = {{"reference", [] { return make_reference_device(2); }},
             {"checked", [] { return make_checked_device(make_cpu_device()); }},
             {"cpu", [] { return make_cpu_device({.threads = 2}); }},
             {"recording", [] { return make_recording_device(make_cpu_device({.threads = 2}), Replay::compared); }}};
  devices.push_back({"recording_some_rows", [] {
                       return std::make_unique<SparingDevice>(
                           make_recording_device(make_cpu_device({.threads = 2}), Replay::compared),
                           std::vector<std::int64_t>{1, 4, 16, 64});
                     }});
  for (const NamedDevice& gpu : gpu_devices()) devices.push_back(with_two_threads(gpu));
  return devices;
}

class ResidentRounds : public ::testing::TestWithParam<ResidentDevice> {
 protected:
  static std::vector<Tokens> random_prompts(std::int64_t count, std::uint64_t seed = 5) {
    std::vector<Tokens> prompts;
    for (std::uint64_t s = 0; s < static_cast<std::uint64_t>(count); ++s) {
      Tokens& prompt = prompts.emplace_back();
      for (std::uint64_t i = 0; i < 3 + mix64(s + seed) % 60; ++i)
        prompt.push_back(static_cast<std::int32_t>(mix64(i * 31 + s) % 200));
    }
    return prompts;
  }

  std::vector<Told> told(const Company& company, const Setting& setting, const std::vector<Tokens>& prompts,
                         RoundRoute route) {
    const auto batch = make_batch(company, setting, {.round_route = route});
    std::vector<Told> told(prompts.size());
    std::vector<GenerateRequest> requests(prompts.size());
    std::int64_t waits = 0;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      requests[i].prompt = prompts[i];
      requests[i].options = {.sampling = setting.sampling, .seed = 77, .max_tokens = setting.max_tokens};
      requests[i].events.on_round = [&, i](const Round& round) {
        told[i].rounds.push_back({round.prefix,
                                  {round.tree.nodes().begin(), round.tree.nodes().end()},
                                  {round.visits.begin(), round.visits.end()},
                                  round.resident,
                                  device_.counts().synchronisations - waits});
        waits = device_.counts().synchronisations;
      };
    }
    const std::vector<GenerateResult> results = batch->generate(requests);
    for (std::size_t i = 0; i < results.size(); ++i) told[i].tokens = results[i].tokens;
    batch->check_conservation();
    return told;
  }

  static void expect_same(const Told& device, const Told& host) {
    EXPECT_EQ(device.tokens, host.tokens);
    ASSERT_EQ(device.rounds.size(), host.rounds.size());
    for (std::size_t r = 0; r < host.rounds.size(); ++r) {
      SCOPED_TRACE(::testing::Message() << "round " << r);
      const ToldRound &left = device.rounds[r], &right = host.rounds[r];
      EXPECT_EQ(left.prefix, right.prefix);
      EXPECT_EQ(left.visits, right.visits);
      EXPECT_EQ(left.nodes, right.nodes);
      if (::testing::Test::HasFailure()) return;
    }
  }

  // Returns how many rounds stayed on the device.
  std::int64_t compared(const Company& company, const Setting& setting, const std::vector<Tokens>& prompts) {
    const std::vector<Told> device = told(company, setting, prompts, RoundRoute::device);
    const std::vector<Told> host = told(company, setting, prompts, RoundRoute::host);
    std::int64_t resident = 0, accepted = 0;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "answer " << i);
      expect_same(device[i], host[i]);
      for (const ToldRound& round : device[i].rounds) {
        resident += round.resident ? 1 : 0;
        accepted += std::ssize(round.visits) - 1;
      }
    }
    accepted_ += accepted;
    return resident;
  }
  void expect_same_rounds(const Company& company, const Setting& setting, const std::vector<Tokens>& prompts) {
    accepted_ = 0;
    EXPECT_GT(compared(company, setting, prompts), 0);
    EXPECT_GT(accepted_, 0) << "no path was longer than its root";
  }

  CountingDevice device_{GetParam().make()};
  std::int64_t accepted_ = 0;  // drafted tokens
};

INSTANTIATE_TEST_SUITE_P(Devices, ResidentRounds, ::testing::ValuesIn(resident_devices()),
                         [](const auto& info) { return info.param.name; });

TEST_P(ResidentRounds, OfAnEagleHeadAreThoseOfTheHost) {
  const Company company(device_, {"smollm2"});
  for (const TreeOptions& tree :
       {TreeOptions{.nodes = 12, .depth = 4, .expand = 3},
        TreeOptions{.nodes = 24, .depth = 3, .expand = 2, .branch = 5},
        TreeOptions{.nodes = 3, .depth = 6, .expand = 1}, TreeOptions{.nodes = 4, .depth = 1, .expand = 4},
        TreeOptions{.shape = TreeShape::chain, .nodes = 5, .depth = 4}})
    expect_same_rounds(company, {.tree = tree}, random_prompts(1));
}

TEST_P(ResidentRounds, OfAnEagle2HeadAreThoseOfTheHost) {
  const Company company(device_, {"smollm2"});
  expect_same_rounds(company,
                     {.drafter = "eagle2", .tree = {.nodes = 200, .depth = 3, .expand = 12, .branch = 60}, .window = 9},
                     random_prompts(2));
  EXPECT_GT(compared(company, {.drafter = "eagle2", .tree = {.shape = TreeShape::chain, .nodes = 5, .depth = 4}},
                     random_prompts(1)),
            0);
}

TEST_P(ResidentRounds, OfAnEagleHeadWithAWindowAreThoseOfTheHost) {
  expect_same_rounds({device_, {"smollm2"}}, {.window = 7}, random_prompts(2));
}

TEST_P(ResidentRounds, OfAFixedTreeAreThoseOfTheHost) {
  const Company company(device_, {"smollm2"});
  const TreeOptions tree{
      .shape = TreeShape::fixed,
      .choices = ChoiceTree({{0}, {1}, {3}, {0, 0}, {0, 2}, {1, 0}, {0, 0, 0}, {0, 0, 1}, {1, 0, 4}}, {}, "choices"),
      .nodes = 0,
      .depth = 3};
  expect_same_rounds(company, {.tree = tree}, random_prompts(1));
  expect_same_rounds(company, {.drafter = "medusa", .tree = tree}, random_prompts(1));
}

TEST_P(ResidentRounds, OfMedusaHeadsAreThoseOfTheHost) {
  const Company company(device_, {"smollm2"});
  for (const TreeOptions& tree : {TreeOptions{.nodes = 40, .depth = 4, .expand = 10},
                                  TreeOptions{.shape = TreeShape::chain, .nodes = 5, .depth = 4}})
    expect_same_rounds(company, {.drafter = "medusa", .tree = tree, .parallel = 2}, random_prompts(2));
}

TEST_P(ResidentRounds, OfADraftModelAreThoseOfTheHost) {
  for (const char* const family : {"smollm2", "mistral"}) {
    const Company company(device_, {family});
    EXPECT_GT(compared(company, {.drafter = "model"}, random_prompts(2)), 0);
    for (const TreeOptions& tree : {TreeOptions{.nodes = 24, .depth = 4, .expand = 3},
                                    TreeOptions{.shape = TreeShape::chain, .nodes = 5, .depth = 4}})
      expect_same_rounds(company, {.drafter = "self", .tree = tree}, random_prompts(2));
  }
}

TEST_P(ResidentRounds, OfADraftModelEndWhereItsContextEnds) {
  expect_same_rounds({device_, {"smollm2"}}, {.drafter = "self", .shorter = kContext - 60}, random_prompts(3));
}

TEST_P(ResidentRounds, WaitForTheDeviceOnce) {
  const Company company(device_, {"smollm2"});
  for (const std::string drafter : {"eagle2", "eagle3", "medusa", "model"}) {
    const auto device = told(company, {.drafter = drafter}, random_prompts(1), RoundRoute::device);
    for (std::size_t r = 1; r + 1 < device[0].rounds.size(); ++r) {
      EXPECT_TRUE(device[0].rounds[r].resident) << drafter << ", round " << r;
      EXPECT_EQ(device[0].rounds[r].waits, 1) << drafter << ", round " << r;
    }
  }
}

TEST_P(ResidentRounds, OfSeveralAnswersAreThoseOfEachAlone) {
  // Answers come and go meanwhile, so that rounds move between host and device.
  const Company company(device_, {"smollm2"});
  const auto prompts = random_prompts(7);
  const Setting together{.parallel = 3};
  const std::vector<Told> device = told(company, together, prompts, RoundRoute::device);
  std::int64_t resident = 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "answer " << i);
    expect_same(device[i], told(company, {}, {prompts[i]}, RoundRoute::host)[0]);
    for (const ToldRound& round : device[i].rounds) resident += round.resident ? 1 : 0;
  }
  EXPECT_GT(resident, 0);
}

TEST_P(ResidentRounds, OfATeacherWithAWindowAreThoseOfTheHost) {
  // It sees sixteen positions. Its head knows nothing, so the trees are wide enough to be right by chance.
  expect_same_rounds({device_, {"mistral"}}, {.tree = {.nodes = 200, .depth = 3, .expand = 12, .branch = 60}},
                     random_prompts(2));
}

TEST_P(ResidentRounds, ThatSampleAreThoseOfTheHost) {
  expect_same_rounds({device_, {"smollm2"}},
                     {.tree = {.nodes = 200, .depth = 4, .expand = 12, .branch = 60},
                      .sampling = {.temperature = 0.8f, .top_k = 40, .top_p = 0.9f, .min_p = 0.02f}},
                     random_prompts(2));
}

TEST_P(ResidentRounds, EndWhereTheContextEnds) {
  Tokens prompt;
  for (std::uint64_t i = 0; i < kContext - 30; ++i) prompt.push_back(static_cast<std::int32_t>(mix64(i) % 200));
  expect_same_rounds({device_, {"smollm2"}},
                     {.tree = {.nodes = 200, .depth = 4, .expand = 12, .branch = 60}, .max_tokens = 100}, {prompt});
}

TEST_P(ResidentRounds, BesideNgramsChangeNoToken) {
  const Company company(device_, {"smollm2"});
  // A text that repeats itself: sometimes n-grams promise more than a round on the device.
  Tokens prompt;
  for (std::int32_t i = 0; i < 60; ++i) prompt.push_back(7 + i % 9);
  const auto generate = [&](RoundRoute route, std::int64_t& resident) {
    const Setting head;
    Speculation speculation{
        .tree = head.tree, .drafters = [&](KvCache& cache, int sequences) {
          DrafterSet set;
          for (const char* const drafter : {"ngram", "eagle3"})
            set.push_back(make_drafter(company, {.drafter = drafter, .tree = head.tree}, cache, sequences));
          return set;
        }};
    speculation.budget =
        ChosenBudget{.times = StepTimes{.rows = {1, 8, 64}, .contexts = {64}, .seconds = {1e-3, 1.1e-3, 2e-3}}};
    Batch batch(company.teacher, {.context = kContext, .parallel = 2, .round_route = route}, speculation);
    std::vector<GenerateRequest> requests(3);
    for (GenerateRequest& request : requests) {
      request.prompt = prompt;
      request.options.max_tokens = 60;
      request.events.on_round = [&](const Round& round) { resident += round.resident ? 1 : 0; };
    }
    std::vector<Tokens> tokens;
    for (const GenerateResult& result : batch.generate(requests)) tokens.push_back(result.tokens);
    batch.check_conservation();
    return tokens;
  };
  std::int64_t resident = 0, none = 0;
  EXPECT_EQ(generate(RoundRoute::device, resident), generate(RoundRoute::host, none));
  EXPECT_GT(resident, 0);
}

TEST_P(ResidentRounds, AreLeftToTheHostWhereItHasToDraw) {
  const Company company(device_, {"smollm2"});
  Setting setting;
  setting.sampling.repeat_penalty = 1.3f;
  const auto prompts = random_prompts(1);
  const auto device = told(company, setting, prompts, RoundRoute::device);
  expect_same(device[0], told(company, setting, prompts, RoundRoute::host)[0]);
  for (const ToldRound& round : device[0].rounds) EXPECT_FALSE(round.resident);
}

TEST_P(ResidentRounds, AreRefusedInOneLineWhereThereAreNone) {
  const Company company(device_, {"smollm2"});
  const auto refusal = [&](const Setting& setting, DecoderOptions options) -> std::string {
    options.round_route = RoundRoute::device;
    try {
      make_batch(company, setting, options);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({.drafter = "ngram"}, {}), "--round-route device: rounds of ngram are driven from the host");
  EXPECT_EQ(refusal({}, {.mask = MaskChoice::dense}),
            "--round-route device: who sees whom is told by lists there, not by a mask");
  EXPECT_EQ(refusal({}, {.invariants = true}),
            "--round-route device: the tables of its steps cannot be looked at before their launch");
}

// Answers that end one after the other: rounds of four, three, two, and one.
TEST(PaddedRounds, OfFewerAnswersShareTheRecordingOfMore) {
  const auto told = [](const std::vector<std::int64_t>& rows, const std::string& drafter, std::int64_t& recorded) {
    auto recording = make_recording_device(make_checked_device(make_cpu_device({.threads = 1})), Replay::compared);
    const RecordingCounts& counts = recording->counts();
    SparingDevice device(std::move(recording), rows);
    const Company company(device, {"smollm2"});
    const auto batch = make_batch(company, {.drafter = drafter, .parallel = 4}, {.round_route = RoundRoute::device});
    const std::vector<Tokens> prompts = {{3, 14, 15, 92}, {6, 53, 58, 97}, {9, 32, 38, 46}, {26, 43, 38, 32}};
    std::vector<GenerateRequest> requests(prompts.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].prompt = prompts[i];
      requests[i].options.max_tokens = 12 * (static_cast<std::int64_t>(i) + 1);
    }
    std::vector<Tokens> tokens;
    for (const GenerateResult& result : batch->generate(requests)) tokens.push_back(result.tokens);
    batch->check_conservation();
    recorded = counts.recorded;
    return tokens;
  };
  for (const char* const drafter : {"eagle3", "medusa", "self"}) {
    std::int64_t of_every_number = 0, of_some = 0;
    EXPECT_EQ(told({1, 4, 16, 64}, drafter, of_some), told({}, drafter, of_every_number)) << drafter;
    EXPECT_LE(of_some + 2, of_every_number) << drafter << ": rounds of two and of three";
  }
}

// Every seventeenth choice is one that the host has to make.
class UndecidedDevice final : public PassingDevice {
 public:
  explicit UndecidedDevice(Device& inner) : PassingDevice(inner) {}

 private:
  void do_round(const RoundOp& op) override {
    inner().round_ops()->run(op);
    const auto* const choice = std::get_if<ChooseTokens>(&op);
    if (choice == nullptr) return;
    auto* const state = reinterpret_cast<std::int32_t*>(choice->state.data());  // of a device in host memory
    for (std::int64_t r = 0; r < choice->state.elements(); ++r)
      if (++choices_ % 17 == 0) state[r] = static_cast<std::int32_t>(RowState::undecided);
  }

  std::int64_t choices_ = 0;
};

TEST(UndecidedRounds, AreVerifiedByTheHostOnceMore) {
  const auto cpu = make_cpu_device({.threads = 1});
  UndecidedDevice device(*cpu);
  const Company company(device, {"smollm2"});
  for (const char* const drafter : {"eagle2", "eagle3", "medusa", "self"}) {
    const auto generate = [&](RoundRoute route, std::int64_t& resident) {
      const Setting setting{.drafter = drafter};
      GenerateEvents events;
      events.on_round = [&](const Round& round) { resident += round.resident ? 1 : 0; };
      const Tokens prompt = {3, 14, 15, 92, 6, 5, 35};
      const auto batch = make_batch(company, setting, {.round_route = route});
      const GenerateResult result = batch->generate(prompt, {.max_tokens = kAnswer}, events);
      batch->check_conservation();
      return std::pair(result.tokens, result.accept_lengths);
    };
    std::int64_t resident = 0, none = 0;
    const auto told = generate(RoundRoute::device, resident);
    EXPECT_EQ(told, generate(RoundRoute::host, none)) << drafter;
    EXPECT_GT(resident, 0) << drafter << ": some rounds are decided";
    EXPECT_LT(resident, std::ssize(told.second)) << drafter << ": and some are not";
  }
}

// The kernels of the CUDA device, slowly.
TEST(ResidentRoundsOfEmulatedCuda, AreThoseOfTheReferenceDevice) {
  if (judged_device() || kSanitized) GTEST_SKIP() << "emulated kernels run in release builds, where no device is named";
  const auto tokens = [](Device& device, RoundRoute route, const std::string& drafter) {
    const Company company(device, {"smollm2"});
    const Setting setting{.drafter = drafter, .tree = {.nodes = 6, .depth = 2, .expand = 2}};
    const Tokens prompt = {3, 14, 15, 92, 6};
    return make_batch(company, setting, {.round_route = route})->generate(prompt, {.max_tokens = 8}).tokens;
  };
  const auto cuda = make_emulated_cuda_device(), reference = make_reference_device(2);
  for (const char* const drafter : {"eagle2", "eagle3", "medusa", "self"})
    EXPECT_EQ(tokens(*cuda, RoundRoute::device, drafter), tokens(*reference, RoundRoute::host, drafter)) << drafter;
}

TEST(ResidentRoundsOfEmulatedCuda, AreLeftToTheHostWhereTreesAreLarge) {
  const auto cuda = make_emulated_cuda_device();
  const Company company(*cuda, {"smollm2"});
  const Setting large{.tree = {.nodes = 64, .depth = 6, .expand = 32}};
  EXPECT_FALSE(make_batch(company, large, {})->resident()) << "5,153 nodes may be guessed";
  EXPECT_TRUE(make_batch(company, {}, {})->resident());
}

// --- at random ------------------------------------------------------------------------------------------------------

Setting random_setting(RandomValues& random) {
  const auto between = [&](int low, int high) { return static_cast<int>(random.between(low, high)); };
  Setting setting;
  const char* const drafters[] = {"eagle2", "eagle3", "medusa", "model", "self"};
  setting.drafter = drafters[random.below(5)];
  setting.tree = {.nodes = between(2, 64), .depth = between(1, 7), .expand = between(1, 6), .branch = between(0, 8)};
  switch (random.below(4)) {
    case 0: setting.tree = {.shape = TreeShape::chain, .nodes = between(2, 9), .depth = between(1, 8)}; break;
    case 1:
      setting.tree = {.shape = TreeShape::fixed, .choices = random_shape(random), .nodes = 0, .depth = between(1, 6)};
      break;
    default: break;
  }
  if (random.one_in(2)) setting.sampling = {.temperature = 0.9f, .top_k = between(0, 50), .top_p = 0.95f};
  setting.window = random.one_in(3) ? between(1, 20) : 0;
  setting.parallel = between(1, 4);
  return setting;
}

class RandomResidentRounds : public ResidentRounds {
 protected:
  void run(std::int64_t wanted) {
    const Company plain(device_, {"smollm2"}), windowed(device_, {"mistral"});
    RandomValues random(20261118);
    std::int64_t rounds = 0;
    for (std::uint64_t i = 0; rounds < wanted; ++i) {
      const Setting setting = random_setting(random);
      SCOPED_TRACE(::testing::Message() << "setting " << i << ", drafter " << setting.drafter);
      rounds += compared(random.one_in(3) ? windowed : plain, setting, random_prompts(random.between(1, 6), i));
      if (HasFailure()) return;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, RandomResidentRounds, ::testing::ValuesIn(resident_devices()),
                         [](const auto& info) { return info.param.name; });

TEST_P(RandomResidentRounds, AreThoseOfTheHost) {
  run(300);
}

TEST_P(RandomResidentRounds, AreThoseOfTheHostTenThousandTimes) {
  if (GetParam().name != "cpu" && !judged_device())
    GTEST_SKIP() << "so many run on the cpu device, and on one that ESPALIER_JUDGED_DEVICE names";
  run(10000);
}

}  // namespace
}  // namespace espalier::testing
