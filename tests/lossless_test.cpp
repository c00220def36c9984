// Neither speculation nor company nor what was computed before changes the text: random batches against a judge that
// recomputes every token.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "base/testing/judged_device.h"
#include "decode/batch.h"
#include "decode/eagle_drafter.h"
#include "decode/hostile_drafter.h"
#include "decode/medusa_drafter.h"
#include "decode/model_drafter.h"
#include "decode/ngram_drafter.h"
#include "decode/oracle_drafter.h"
#include "testing/company.h"
#include "testing/ended_answer.h"
#include "testing/engine.h"
#include "testing/judge.h"
#include "testing/recording_devices.h"

namespace espalier::testing {
namespace {

constexpr int kRounds = kSanitized ? 250 : 10000;
constexpr int kCpuRounds = 4000;       // two scenarios and more in each block format
constexpr int kRoundsElsewhere = 500;  // on the other devices
constexpr int kRecordedRounds = kSanitized ? 50 : 500;
constexpr int kShards = 4;
constexpr int kMaxRequests = 4;
constexpr std::int64_t kShortContext = 64;
// More than two blocks of the cache; a tree at the end of the second takes one more than the context does.
const std::vector<std::int64_t> kLongContexts = {300, 380};

using Random = std::mt19937;

int draw(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<std::uint32_t>(high - low + 1));
}

template <typename T>
const T& pick(Random& random, const std::vector<T>& from) {
  return from[random() % from.size()];
}

const std::vector<std::string> kDrafters = {"ngram", "medusa", "eagle2", "eagle3",
                                            "model", "self",   "oracle", "hostile"};

// Every other teacher has random blocks, of one format after the other; the rest have the float weights of tests/data.
// Every fifth has a window.
TinyModel draw_teacher(Random& random, int scenario) {
  TinyModel model{scenario % 5 == 0 ? "mistral" : pick(random, tiny_families())};
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
  // The answers must outlive the setting.
  SettingDraw(Random& random, const Company& company, const KnownAnswers& answers, int requests, DType kv_type,
              std::int64_t context, const std::string& drafter)
      : random_(random), company_(company), answers_(answers) {
    setting_.decoder.context = context;
    setting_.decoder.kv_type = kv_type;
    // All of them together, or some wait for others.
    setting_.decoder.parallel = draw(random, 0, 1) ? requests : draw(random, 1, requests);
    setting_.decoder.prefill_rows = draw(random, 1, 40);
    setting_.decoder.invariants = draw(random, 0, 3) == 0;
    draw_cache();
    draw_attention();
    draw_tree();
    draw_drafters(drafter);
    draw_room();
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

  // Half of the caches are as small as one answer allows, or nearly: whoever does not fit waits, or is preempted.
  void draw_room() {
    DecoderOptions& decoder = setting_.decoder;
    note(fmt::format("parallel={}", decoder.parallel));
    if (draw(random_, 0, 1)) return;
    const Transformer& teacher = company_.teacher;
    const std::int64_t needed =
        decoder_choices(teacher.config(), teacher.device(), decoder, setting_.speculation).cache_positions;
    decoder.cache_positions = needed / decoder.parallel + draw(random_, 0, 2) * KvShape{}.block_size;
    note(fmt::format("cache={}", decoder.cache_positions));
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
    // A chain that is deeper than the tiny window, which then begins inside it: nothing may cut it short.
    const bool deep = draw(random_, 0, 3) == 0;
    if (deep) tree = {.shape = TreeShape::chain, .nodes = draw(random_, 20, 30), .depth = draw(random_, 18, 24)};
    if (!deep && draw(random_, 0, 2) == 0) setting_.speculation.budget = draw_budget();
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
    while (draw(random_, 0, 3) == 0) chosen.push_back(beside(chosen, pick(random_, kDrafters)));
    for (const std::string& kind : chosen) note(kind);
    if (chosen.size() == 1) draw_route(chosen[0]);
    const auto seed = random_();
    const int window = draw(random_, 0, 1) * draw(random_, 1, 20);
    std::vector<double> profile;
    if (draw(random_, 0, 1)) profile = {0.9, 0.7, 0.8};
    setting_.speculation.drafters = [=, decoder = setting_.decoder, tree = setting_.speculation.tree,
                                     &company = company_, &answers = answers_](KvCache& cache, int sequences) {
      DrafterSet set;
      for (const std::string& kind : chosen)
        set.push_back(make(kind, company, {cache, sequences}, decoder, tree, static_cast<std::uint32_t>(seed), window,
                           profile, answers));
      return set;
    };
  }

  // Half of the settings whose rounds may stay on the device, with what else that takes.
  void draw_route(const std::string& drafter) {
    DecoderOptions& decoder = setting_.decoder;
    Device& device = company_.teacher.device();
    if (device.round_ops() == nullptr || drafter == "ngram" || drafter == "oracle" || drafter == "hostile" ||
        draw(random_, 0, 1) || max_rows(setting_.speculation.tree) == 1)
      return;
    decoder.round_route = RoundRoute::device;
    decoder.attention = AttentionOp::fused;
    decoder.mask = MaskChoice::list;
    decoder.kv.reorder = Reorder::fast;
    decoder.invariants = false;
    note("resident");
  }

  // Of the batch that a drafter serves.
  struct Served {
    KvCache& cache;
    int sequences;
  };

  static std::unique_ptr<Drafter> make(const std::string& kind, const Company& company, const Served& served,
                                       const DecoderOptions& decoder, const TreeOptions& tree, std::uint32_t seed,
                                       int window, const std::vector<double>& profile, const KnownAnswers& answers) {
    const auto vocabulary = static_cast<std::int32_t>(company.teacher.config().vocabulary);
    const bool eager = decoder.attention == AttentionOp::eager;
    const StepForm form{decoder.attention, eager ? MaskForm::dense : MaskForm::list};
    if (kind == "ngram") return std::make_unique<NgramDrafter>();
    if (kind == "medusa") return std::make_unique<MedusaDrafter>(*company.medusa_head, 10, served.sequences);
    if (const EagleHead* head = company.eagle(kind))
      return std::make_unique<EagleDrafter>(*head, served.cache,
                                            EagleDrafterOptions{.context = decoder.context,
                                                                .kv_type = decoder.kv_type,
                                                                .window = window,
                                                                .form = form,
                                                                .tree = tree,
                                                                .sequences = served.sequences,
                                                                .invariants = decoder.invariants});
    if (kind == "oracle")
      return std::make_unique<OracleDrafter>(&answers,
                                             OracleOptions{.profile = profile, .seed = seed, .vocabulary = vocabulary});
    if (kind == "hostile") return std::make_unique<HostileDrafter>(seed, vocabulary);
    const Transformer& model = kind == "model" ? company.draft_model() : company.teacher;
    return std::make_unique<ModelDrafter>(model, served.cache,
                                          ModelDrafterOptions{.context = decoder.context - draw_once(seed),
                                                              .kv_type = decoder.kv_type,
                                                              .form = form,
                                                              .tree = tree,
                                                              .sequences = served.sequences,
                                                              .invariants = decoder.invariants});
  }

  // Some draft models have a shorter context than the teacher.
  static std::int64_t draw_once(std::uint32_t seed) { return seed % 3 == 0 ? 30 : 0; }

  Random& random_;
  const Company& company_;
  const KnownAnswers& answers_;
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

// Of a prompt: in a long context mostly around the beginning of a tile of keys, which the answer or its trees cross.
int prompt_length(Random& random, std::int64_t context) {
  if (context == kShortContext) return draw(random, 1, 60);
  switch (draw(random, 0, 2)) {
    case 0: return draw(random, 120, 136);
    case 1: return draw(random, 250, 260);
    default: return draw(random, 100, static_cast<int>(context) - 10);
  }
}

// Prompts repeat themselves, as texts do, so that lookup has something to find.
std::vector<std::int32_t> draw_prompt(Random& random, std::int64_t vocabulary, std::int64_t context) {
  std::vector<std::int32_t> phrase, prompt;
  for (int i = draw(random, 1, 8); i > 0; --i) phrase.push_back(draw(random, 0, static_cast<int>(vocabulary) - 1));
  const int length = prompt_length(random, context);
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
  // An answer that nothing ends early leaves room for trees deeper than the window.
  if (draw(random, 0, 2) == 0) {
    request.max_tokens = draw(random, 24, 40);
    return request;
  }
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

// As turns of a conversation do, it may begin as another text does.
void share_beginning(Random& random, const JudgedRequest& other, const Verdict& verdict,
                     std::vector<std::int32_t>& prompt) {
  std::vector<std::int32_t> text = other.prompt;
  text.insert(text.end(), verdict.tokens.begin(), verdict.tokens.end());
  const auto most = static_cast<int>(std::min(text.size(), prompt.size()));
  std::copy_n(text.begin(), draw(random, most / 2, most), prompt.begin());
}

struct Tally {
  std::int64_t window = 0;     // of the scenario's teacher; 0: none
  std::int64_t rounds = 0;     // with a tree: those of one row are plain decoding
  std::int64_t wide = 0;       // of more than 16 rows
  std::int64_t deep = 0;       // in which the teacher's window begins inside the tree
  std::int64_t resident = 0;   // that stayed on the device
  std::int64_t in_blocks = 0;  // of a teacher with blocks
  std::int64_t accepted = 0, tokens = 0;
  std::int64_t reused = 0;  // tokens of prompts
  std::map<std::string, std::int64_t> by_finish = {};
  std::set<DType> formats = {};  // blocks
};

DraftCaps draw_caps(Random& random) {
  return {.drafts = draw(random, 0, 3) > 0,
          .nodes = draw(random, 0, 1) * draw(random, 1, 20),
          .depth = draw(random, 0, 1) * draw(random, 1, 5)};
}

// What a batch tells of one request.
struct Heard {
  std::vector<std::int32_t> shown = {};
  EndedAnswer end = {};
};

// A judged request with whatever else may be asked for without changing its answer.
GenerateRequest to_generate(Random& random, Device& device, const JudgedRequest& judged, const Verdict& verdict,
                            Heard& heard, Tally& tally) {
  GenerateRequest request{.prompt = judged.prompt,
                          .options = {.sampling = judged.sampling,
                                      .seed = judged.seed,
                                      .max_tokens = judged.max_tokens,
                                      .stop_tokens = judged.stop_tokens}};
  if (draw(random, 0, 2) == 0) request.draft = draw_caps(random);
  request.salt = draw(random, 0, 3) == 0 ? "another" : "";
  request.cache = draw(random, 0, 4) > 0;
  request.key = draw(random, 0, 2);
  // Now and then the answer has begun already.
  if (draw(random, 0, 4) == 0) {
    const int known = draw(random, 0, static_cast<int>(verdict.tokens.size()) - 1);
    request.answered = std::span(verdict.tokens).first(static_cast<std::size_t>(known));
    heard.shown.assign(request.answered.begin(), request.answered.end());
  }
  request.events.on_token = [&heard, complete = judged.complete](const GeneratedToken& token) {
    heard.shown.push_back(token.token);
    return token.stops || !complete || !complete(heard.shown);
  };
  request.events.on_round = [&tally, caps = request.draft](const Round& round) {
    if (round.tree.size() > 1) ++tally.rounds;
    if (round.tree.size() > 16) ++tally.wide;
    if (tally.window > 0 && round.tree.depth() >= tally.window) ++tally.deep;
    if (round.resident) ++tally.resident;
    tally.accepted += round.accepted();
    EXPECT_TRUE(caps.drafts || round.tree.size() == 1);
    EXPECT_TRUE(caps.nodes == 0 || round.tree.size() <= caps.nodes);
    EXPECT_TRUE(caps.depth == 0 || round.tree.depth() <= caps.depth);
  };
  request.events.on_end = keep_end(device, heard.end);
  return request;
}

// All at once, or one after the other while those before are on their way, and others come and go.
void answer(Random& random, Batch& batch, const std::vector<GenerateRequest>& requests) {
  if (draw(random, 0, 1) == 0) {
    batch.generate(requests);
    return;
  }
  std::vector<RequestId> strangers;
  for (std::size_t next = 0; next < requests.size();) {
    if (draw(random, 0, 2) == 0) batch.submit(requests[next++]);
    if (draw(random, 0, 7) == 0)
      strangers.push_back(batch.submit({.prompt = pick(random, requests).prompt, .options = {.max_tokens = 30}}));
    batch.step();
  }
  for (RequestId stranger : strangers) batch.cancel(stranger);
  while (batch.step()) continue;
}

// The answers of one batch, each against its verdict: tokens, finish reason, KV length and KV bits.
void expect_verdicts(Random& random, Batch& batch, const std::vector<JudgedRequest>& requests,
                     const std::vector<Verdict>& verdicts, Tally& tally) {
  std::vector<Heard> heard(requests.size());
  std::vector<GenerateRequest> generate;
  for (std::size_t i = 0; i < requests.size(); ++i)
    generate.push_back(to_generate(random, batch.device(), requests[i], verdicts[i], heard[i], tally));
  answer(random, batch, generate);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Verdict& verdict = verdicts[i];
    const EndedAnswer& end = heard[i].end;
    ASSERT_TRUE(end.ended);
    if (end.failure) std::rethrow_exception(end.failure);
    ASSERT_EQ(end.result.tokens, verdict.tokens);
    EXPECT_EQ(heard[i].shown, verdict.tokens);
    EXPECT_EQ(name(end.result.finish_reason), verdict.finish);
    ASSERT_EQ(end.length, static_cast<std::int64_t>(requests[i].prompt.size() + verdict.tokens.size()) - 1);
    EXPECT_EQ(end.kv, verdict.kv);
    EXPECT_TRUE(generate[i].cache || end.result.reused_tokens == 0);
    tally.tokens += static_cast<std::int64_t>(verdict.tokens.size());
    tally.reused += end.result.reused_tokens;
    ++tally.by_finish[verdict.finish];
  }
  EXPECT_EQ(batch.running() + batch.waiting(), 0);
  EXPECT_EQ(batch.cache().counts().reorder_fallbacks, 0);
  batch.cache().check_conservation();
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
    const std::int64_t context = draw(random, 0, 9) == 0 ? pick(random, kLongContexts) : kShortContext;
    std::vector<JudgedRequest> requests;
    std::vector<Verdict> verdicts;
    KnownAnswers answers;
    for (int i = draw(random, 1, kMaxRequests); i > 0; --i) {
      JudgedRequest request = draw_request(random, company->teacher.config().vocabulary, kv_type, context);
      if (!requests.empty() && draw(random, 0, 1)) {
        const std::size_t other = random() % requests.size();
        share_beginning(random, requests[other], verdicts[other], request.prompt);
      }
      verdicts.push_back(judge(judges_models.at(model), request));
      answers.learn(request.prompt, verdicts.back().tokens);
      requests.push_back(std::move(request));
    }
    tally.window = company->teacher.config().sliding_window;
    const std::int64_t before = tally.rounds;
    for (std::size_t i = 0; i <= kDrafters.size(); ++i) {
      const bool plain = i == kDrafters.size();
      Setting setting = SettingDraw(random, *company, answers, static_cast<int>(requests.size()), kv_type, context,
                                    kDrafters[i % kDrafters.size()])
                            .take();
      SCOPED_TRACE(::testing::Message() << "seed " << test.seed << ", scenario " << scenario << "." << i << ", "
                                        << name(model) << ", " << requests.size()
                                        << " requests: " << setting.description);
      if (plain) setting.decoder.round_route = RoundRoute::host;
      Batch batch(company->teacher, setting.decoder, plain ? Speculation{} : setting.speculation);
      const std::int64_t free = batch.cache().free_positions();
      expect_verdicts(random, batch, requests, verdicts, tally);
      // Once more with what is left of the first time in cache and drafters.
      if (!HasFailure() && draw(random, 0, 2) == 0) expect_verdicts(random, batch, requests, verdicts, tally);
      batch.forget();
      EXPECT_EQ(batch.cache().free_positions(), free);
      if (HasFailure()) return;
    }
    if (!model.blocks) continue;
    tally.in_blocks += tally.rounds - before;
    tally.formats.insert(*model.blocks);
  }
  std::string finishes;
  for (const auto& [finish, count] : tally.by_finish) finishes += fmt::format(" {} {}", finish, count);
  fmt::print("{} rounds with a tree, {} of more than 16 rows, {} deeper than the window\n", tally.rounds, tally.wide,
             tally.deep);
  fmt::print("{} of these rounds stayed on the device\n", tally.resident);
  fmt::print("{} drafted tokens accepted, {} tokens; ended by{}\n", tally.accepted, tally.tokens, finishes);
  fmt::print("{} of these rounds with a teacher in blocks, of {} formats; {} tokens of prompts reused\n",
             tally.in_blocks, tally.formats.size(), tally.reused);
  EXPECT_TRUE(tally.resident > 0 || device->round_ops() == nullptr || test.rounds < kCpuRounds / 4);
  expect_replays(*device);
}

std::vector<LosslessCase> cases() {
  std::vector<LosslessCase> all;
  for (const NamedDevice& device : all_devices()) {
    if (kSanitized && device.name != "cpu") continue;                  // sanitizers look at the same host code
    const bool deep = device.name == "reference" && !judged_device();  // slowly: it is what others are judged by
    const int rounds = kSanitized || deep                              ? kRounds
                       : device.name == "cpu" || device.name == "cuda" ? kCpuRounds
                                                                       : kRoundsElsewhere;
    for (int shard = 0; shard < kShards; ++shard)
      all.push_back({device, 1 + shard % 3, rounds / kShards + 1, 4 * shard + shard % 2,
                     20261115 + static_cast<std::uint32_t>(shard)});
  }
  for (const NamedDevice& device : recording_devices())
    for (int shard = 0; shard < 2; ++shard)
      all.push_back({device, 2 + shard, kRecordedRounds / 2 + 1, shard, 20261117 + static_cast<std::uint32_t>(shard)});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Tiny, Lossless, ::testing::ValuesIn(cases()), [](const auto& info) {
  return info.param.device.name + "_" + std::to_string(info.param.seed);
});

}  // namespace
}  // namespace espalier::testing
