// Speculation changes the speed, never the text: random decoders against a judge that recomputes every token.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <set>

#include "decode/decoder.h"
#include "decode/eagle3_drafter.h"
#include "decode/hostile_drafter.h"
#include "decode/medusa_drafter.h"
#include "decode/model_drafter.h"
#include "decode/ngram_drafter.h"
#include "decode/oracle_drafter.h"
#include "testing/company.h"
#include "testing/engine.h"
#include "testing/judge.h"

namespace espalier::testing {
namespace {

#ifdef ESPALIER_SANITIZED
constexpr int kRounds = 250;
#else
constexpr int kRounds = 10000;
#endif
constexpr int kCpuRounds = 4000;       // two scenarios and more in each block format
constexpr int kRoundsElsewhere = 500;  // on the other devices
constexpr int kShards = 4;
constexpr int kMaxLanes = 4;
constexpr std::int64_t kShortContext = 64;
constexpr std::int64_t kLongContext = 300;  // more than two blocks of the cache

using Random = std::mt19937;

int draw(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<std::uint32_t>(high - low + 1));
}

template <typename T>
const T& pick(Random& random, const std::vector<T>& from) {
  return from[random() % from.size()];
}

const std::vector<std::string> kDrafters = {"ngram", "medusa", "eagle3", "model", "self", "oracle", "hostile"};

// Every other teacher has random blocks, of one format after the other; the rest have the float weights of tests/data.
TinyModel draw_teacher(Random& random, int scenario) {
  TinyModel model{pick(random, tiny_families())};
  const auto formats = block_types();
  if (scenario % 2 == 1) model.blocks = formats[static_cast<std::size_t>(scenario / 2) % formats.size()];
  return model;
}

// One way to decode, drawn at random; a test failure prints it.
struct Setting {
  DecoderOptions decoder;
  Speculation speculation;
  std::string description;
};

class SettingDraw {
 public:
  SettingDraw(Random& random, const Company& company, const std::vector<KnownAnswer>& answers, DType kv_type,
              std::int64_t context, const std::string& drafter)
      : random_(random), company_(company), answers_(answers) {
    setting_.decoder.context = context;
    setting_.decoder.kv_type = kv_type;
    setting_.decoder.lanes = static_cast<int>(answers.size());
    setting_.decoder.prefill_rows = draw(random, 1, 40);
    setting_.decoder.invariants = draw(random, 0, 3) == 0;
    draw_cache();
    draw_attention();
    draw_tree();
    draw_drafters(drafter);
  }

  Setting take() { return std::move(setting_); }

 private:
  void note(const std::string& text) { setting_.description += text + " "; }

  void draw_cache() {
    KvOptions& kv = setting_.decoder.kv;
    kv.strategy = draw(random_, 0, 1) ? CacheStrategy::shared : CacheStrategy::replicate;
    kv.reorder = draw(random_, 0, 1) ? Reorder::fast : Reorder::full;
    kv.check = draw(random_, 0, 3) == 0;
    note(kv.strategy == CacheStrategy::shared ? "shared" : "replicate");
    note(kv.reorder == Reorder::fast ? "fast" : "full");
  }

  void draw_attention() {
    const bool eager = draw(random_, 0, 1) == 0;
    setting_.decoder.attention = eager ? AttentionOp::eager : AttentionOp::fused;
    if (!eager)
      setting_.decoder.mask = pick(random_, std::vector{MaskChoice::automatic, MaskChoice::dense, MaskChoice::list});
    note(eager ? "eager" : "fused");
  }

  void draw_tree() {
    TreeOptions& tree = setting_.speculation.tree;
    tree.shape = pick(random_, std::vector{TreeShape::chain, TreeShape::fixed, TreeShape::dynamic});
    tree.nodes = draw(random_, 1, 64);
    tree.depth = draw(random_, 1, 10);
    tree.expand = draw(random_, 1, 6);
    tree.branch = draw(random_, 0, 8);
    if (tree.shape == TreeShape::fixed) tree.choices = random_choices();
    if (draw(random_, 0, 2) == 0) setting_.speculation.budget = draw_budget();
    note(fmt::format("{} M={} D={} K={} B={}", name(tree.shape), tree.nodes, tree.depth, tree.expand, tree.branch));
  }

  // Any times will do; the clock corrects them as it likes.
  ChosenBudget draw_budget() {
    note("chosen");
    StepTimes times{.rows = {1, 2, 8, 64}, .contexts = {20, 100}};
    double seconds = 0;
    for (int i = 0; i < 8; ++i) times.seconds.push_back(seconds += 1e-4 * draw(random_, 1, 10));
    return {.times = times};
  }

  ChoiceTree random_choices() {
    std::vector<ChoiceTree::Path> paths;
    const int count = draw(random_, 1, 63);
    for (int tries = 0; static_cast<int>(paths.size()) < count && tries < 1000; ++tries) {
      ChoiceTree::Path path;
      if (!paths.empty() && draw(random_, 0, 2) > 0) path = pick(random_, paths);
      path.push_back(draw(random_, 0, 5));
      if (std::ranges::find(paths, path) == paths.end()) paths.push_back(path);
    }
    return ChoiceTree(paths, {}, "random choices");
  }

  void draw_drafters(const std::string& first) {
    std::vector<std::string> chosen = {first};
    while (draw(random_, 0, 3) == 0) chosen.push_back(pick(random_, kDrafters));
    for (const std::string& kind : chosen) note(kind);
    const auto seed = random_();
    const int window = draw(random_, 0, 1) * draw(random_, 1, 20);
    std::vector<double> profile;
    if (draw(random_, 0, 1)) profile = {0.9, 0.7, 0.8};
    // Lanes are made one after the other, and each oracle knows the answer of its own.
    auto lane = std::make_shared<std::size_t>(0);
    setting_.speculation.drafters = [=, decoder = setting_.decoder, tree = setting_.speculation.tree,
                                     &company = company_, &answers = answers_] {
      DrafterSet set;
      const KnownAnswer& answer = answers[(*lane)++];
      for (const std::string& kind : chosen)
        set.push_back(
            make(kind, company, decoder, tree, seed + static_cast<std::uint32_t>(*lane), window, profile, answer));
      return set;
    };
  }

  static std::unique_ptr<Drafter> make(const std::string& kind, const Company& company, const DecoderOptions& decoder,
                                       const TreeOptions& tree, std::uint32_t seed, int window,
                                       const std::vector<double>& profile, const KnownAnswer& answer) {
    const auto vocabulary = static_cast<std::int32_t>(company.teacher.config().vocabulary);
    const bool eager = decoder.attention == AttentionOp::eager;
    const StepForm form{decoder.attention, eager ? MaskForm::dense : MaskForm::list};
    if (kind == "ngram") return std::make_unique<NgramDrafter>();
    if (kind == "medusa") return std::make_unique<MedusaDrafter>(*company.medusa_head, 10);
    if (kind == "eagle3")
      return std::make_unique<Eagle3Drafter>(*company.eagle3_head,
                                             Eagle3DrafterOptions{.context = decoder.context,
                                                                  .kv_type = decoder.kv_type,
                                                                  .window = window,
                                                                  .form = form,
                                                                  .kv = decoder.kv,
                                                                  .tree = tree,
                                                                  .invariants = decoder.invariants});
    if (kind == "oracle")
      return std::make_unique<OracleDrafter>(&answer,
                                             OracleOptions{.profile = profile, .seed = seed, .vocabulary = vocabulary});
    if (kind == "hostile") return std::make_unique<HostileDrafter>(seed, vocabulary);
    const Transformer& model = kind == "model" ? company.draft_model() : company.teacher;
    return std::make_unique<ModelDrafter>(model, ModelDrafterOptions{.context = decoder.context - draw_once(seed),
                                                                     .kv_type = decoder.kv_type,
                                                                     .form = form,
                                                                     .kv = decoder.kv,
                                                                     .tree = tree,
                                                                     .invariants = decoder.invariants});
  }

  // Some draft models have a shorter context than the teacher.
  static std::int64_t draw_once(std::uint32_t seed) { return seed % 3 == 0 ? 30 : 0; }

  Random& random_;
  const Company& company_;
  const std::vector<KnownAnswer>& answers_;
  Setting setting_;
};

SamplingOptions draw_sampling(Random& random) {
  switch (draw(random, 0, 2)) {
    case 0: return {};
    case 1: return {.temperature = 0.8f, .top_p = 0.9f};
    default:
      return {.logit_bias = {{3, 4.0f}, {17, -2.5f}},
              .repeat_penalty = 1.2f,
              .presence_penalty = 0.3f,
              .frequency_penalty = 0.2f,
              .temperature = draw(random, 0, 1) ? 0.8f : 0.0f,
              .top_p = 0.95f};
  }
}

// Prompts repeat themselves, as texts do, so that lookup has something to find.
std::vector<std::int32_t> draw_prompt(Random& random, std::int64_t vocabulary, std::int64_t context) {
  std::vector<std::int32_t> phrase, prompt;
  for (int i = draw(random, 1, 8); i > 0; --i) phrase.push_back(draw(random, 0, static_cast<int>(vocabulary) - 1));
  const int length = context == kShortContext ? draw(random, 1, 60) : draw(random, 100, 290);
  while (static_cast<int>(prompt.size()) < length)
    prompt.push_back(draw(random, 0, 9) == 0 ? draw(random, 0, static_cast<int>(vocabulary) - 1)
                                             : phrase[prompt.size() % phrase.size()]);
  return prompt;
}

JudgedRequest draw_request(Random& random, std::int64_t vocabulary, DType kv_type, std::int64_t context) {
  JudgedRequest request;
  request.prompt = draw_prompt(random, vocabulary, context);
  request.sampling = draw_sampling(random);
  request.seed = random();
  request.max_tokens = draw(random, 1, context == kShortContext ? 40 : 14);
  request.context = context;
  request.kv_type = kv_type;
  if (draw(random, 0, 1))
    for (int i = 0; i < 6; ++i) request.stop_tokens.push_back(draw(random, 0, static_cast<int>(vocabulary) - 1));
  // A text that ends with a pair of tokens, as a stop string may.
  if (draw(random, 0, 2) == 0) {
    const int residue = draw(random, 0, 11);
    request.complete = [residue](std::span<const std::int32_t> answer) {
      return answer.size() >= 2 && (answer[answer.size() - 1] + answer[answer.size() - 2]) % 12 == residue;
    };
  }
  return request;
}

struct Tally {
  std::int64_t rounds = 0;     // with a tree: those of one row are plain decoding
  std::int64_t wide = 0;       // of more than 16 rows
  std::int64_t in_blocks = 0;  // of a teacher with blocks
  std::int64_t accepted = 0, tokens = 0;
  std::map<std::string, std::int64_t> by_finish = {};
  std::set<DType> formats = {};  // blocks
};

GenerateRequest to_generate(const JudgedRequest& judged, std::vector<std::int32_t>& shown, Tally& tally) {
  GenerateRequest request{.prompt = judged.prompt,
                          .options = {.sampling = judged.sampling,
                                      .seed = judged.seed,
                                      .max_tokens = judged.max_tokens,
                                      .stop_tokens = judged.stop_tokens}};
  request.events.on_token = [&shown, complete = judged.complete](const GeneratedToken& token) {
    shown.push_back(token.token);
    return token.stops || !complete || !complete(shown);
  };
  request.events.on_round = [&tally](const Round& round) {
    if (round.tree.size() > 1) ++tally.rounds;
    if (round.tree.size() > 16) ++tally.wide;
    tally.accepted += round.accepted();
  };
  return request;
}

// The answers of one decoder, each against its verdict: tokens, finish reason, KV length and KV bits.
void expect_verdicts(Decoder& decoder, const std::vector<JudgedRequest>& requests, const std::vector<Verdict>& verdicts,
                     Tally& tally) {
  std::vector<std::vector<std::int32_t>> shown(requests.size());
  std::vector<GenerateRequest> generate;
  for (std::size_t i = 0; i < requests.size(); ++i) generate.push_back(to_generate(requests[i], shown[i], tally));
  const std::vector<GenerateResult> results = decoder.generate(generate);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Verdict& verdict = verdicts[i];
    ASSERT_EQ(results[i].tokens, verdict.tokens);
    EXPECT_EQ(shown[i], verdict.tokens);
    EXPECT_EQ(name(results[i].finish_reason), verdict.finish);
    const SequenceId sequence = decoder.sequence(static_cast<int>(i));
    const auto length = static_cast<std::int64_t>(requests[i].prompt.size() + verdict.tokens.size()) - 1;
    ASSERT_EQ(decoder.cache().length(sequence), length);
    EXPECT_EQ(read_kv(decoder.device(), decoder.cache(), sequence, length), verdict.kv);
    tally.tokens += static_cast<std::int64_t>(verdict.tokens.size());
    ++tally.by_finish[verdict.finish];
  }
  EXPECT_EQ(decoder.cache().counts().reorder_fallbacks, 0);
  decoder.cache().check_conservation();
}

struct LosslessCase {
  NamedDevice device;
  int threads = 0;
  int rounds = 0;
  int first_scenario = 0;
  std::uint32_t seed = 0;
};
void PrintTo(const LosslessCase& test, std::ostream* out) {
  *out << test.device.name << ", " << test.threads << " threads, seed " << test.seed;
}

class Lossless : public ::testing::TestWithParam<LosslessCase> {};

TEST_P(Lossless, EveryWayOfDecodingGivesTheJudgesTokensAndCache) {
  const LosslessCase& test = GetParam();
  Random random(test.seed);
  const auto device = test.device.make(test.threads), judges_device = test.device.make(1);
  std::map<TinyModel, std::unique_ptr<Company>> companies;
  std::map<TinyModel, Transformer> judges_models;
  Tally tally;
  for (int scenario = test.first_scenario; tally.rounds < test.rounds; ++scenario) {
    const TinyModel model = draw_teacher(random, scenario);
    auto& company = companies[model];
    if (!company) {
      company = std::make_unique<Company>(*device, model);
      judges_models.emplace(model, load_tiny(*judges_device, model));
    }
    const DType kv_type = pick(random, std::vector{DType::f16, DType::bf16, DType::f32});
    const std::int64_t context = draw(random, 0, 9) == 0 ? kLongContext : kShortContext;
    std::vector<JudgedRequest> requests;
    std::vector<Verdict> verdicts;
    std::vector<KnownAnswer> answers;
    for (int i = draw(random, 1, kMaxLanes); i > 0; --i) {
      requests.push_back(draw_request(random, company->teacher.config().vocabulary, kv_type, context));
      verdicts.push_back(judge(judges_models.at(model), requests.back()));
      answers.push_back({requests.back().prompt});
      answers.back().tokens.insert(answers.back().tokens.end(), verdicts.back().tokens.begin(),
                                   verdicts.back().tokens.end());
    }
    const std::int64_t before = tally.rounds;
    for (std::size_t i = 0; i <= kDrafters.size(); ++i) {
      const bool plain = i == kDrafters.size();
      const Setting setting =
          SettingDraw(random, *company, answers, kv_type, context, kDrafters[i % kDrafters.size()]).take();
      SCOPED_TRACE(::testing::Message() << "seed " << test.seed << ", scenario " << scenario << "." << i << ", "
                                        << name(model) << ", " << requests.size()
                                        << " sequences: " << setting.description);
      Decoder decoder(company->teacher, setting.decoder, plain ? Speculation{} : setting.speculation);
      expect_verdicts(decoder, requests, verdicts, tally);
      // Once more with what is left of the first time in caches and drafters.
      if (!HasFailure() && draw(random, 0, 2) == 0) expect_verdicts(decoder, requests, verdicts, tally);
      if (HasFailure()) return;
    }
    if (!model.blocks) continue;
    tally.in_blocks += tally.rounds - before;
    tally.formats.insert(*model.blocks);
  }
  std::string finishes;
  for (const auto& [finish, count] : tally.by_finish) finishes += fmt::format(" {} {}", finish, count);
  fmt::print("{} rounds with a tree, {} of more than 16 rows, {} drafted tokens accepted, {} tokens; ended by{}\n",
             tally.rounds, tally.wide, tally.accepted, tally.tokens, finishes);
  fmt::print("{} of these rounds with a teacher in blocks, of {} formats\n", tally.in_blocks, tally.formats.size());
}

std::vector<LosslessCase> cases() {
  std::vector<LosslessCase> all;
  for (const NamedDevice& device : all_devices()) {
#ifdef ESPALIER_SANITIZED
    if (device.name != "reference") continue;  // sanitizers look at the same host code
#endif
    const int rounds = device.name == "reference" ? kRounds : device.name == "cpu" ? kCpuRounds : kRoundsElsewhere;
    for (int shard = 0; shard < kShards; ++shard)
      all.push_back({device, 1 + shard % 3, rounds / kShards + 1, 4 * shard + shard % 2,
                     20261115 + static_cast<std::uint32_t>(shard)});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Tiny, Lossless, ::testing::ValuesIn(cases()), [](const auto& info) {
  return info.param.device.name + "_" + std::to_string(info.param.seed);
});

}  // namespace
}  // namespace espalier::testing
