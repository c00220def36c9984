// Company changes no answer: random batches that requests join and leave at any step, in too little memory, against
// answers that were judged alone; and one answer that gives way, or loses its neighbour, at every step of its life.
//
// ESPALIER_BATCH_RUNS, ESPALIER_BATCH_SEED: how many runs, and others (scripts/test-batch). ESPALIER_BATCH_SCENE: of
// these only the runs of one scene, as a failure names it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "decode/batch.h"
#include "decode/eagle_drafter.h"
#include "decode/hostile_drafter.h"
#include "decode/medusa_drafter.h"
#include "decode/model_drafter.h"
#include "decode/ngram_drafter.h"
#include "decode/oracle_drafter.h"
#include "decode/passing_drafter.h"
#include "testing/company.h"
#include "testing/ended_answer.h"
#include "testing/engine.h"
#include "testing/judge.h"

namespace espalier::testing {
namespace {

constexpr int kRuns = kSanitized ? 20 : 100;
constexpr int kRunsOfScene = 4;  // with the same requests, because judging them takes longer than answering them
constexpr int kShards = 4;
constexpr int kRequestsOfScene = 12;
constexpr std::int64_t kBlock = KvShape{}.block_size;

using Tokens = std::vector<std::int32_t>;
using Random = std::mt19937;

int draw(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<std::uint32_t>(high - low + 1));
}

// One in n.
bool rarely(Random& random, int n) {
  return draw(random, 1, n) == 1;
}

template <typename T>
const T& pick(Random& random, const std::vector<T>& from) {
  return from[random() % from.size()];
}

int from_environment(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::stoi(value) : otherwise;
}

// --- what is asked, and what the answer is --------------------------------------------------------------------------

constexpr std::int64_t kMostAlternatives = 3;

struct Judged {
  JudgedRequest request;
  Verdict verdict;
  std::vector<Logprobs> logprobs = {};         // of each token, with the most alternatives
  std::vector<Logprobs> prompt_logprobs = {};  // likewise, of the prompt's tokens but the first
};

// An answer of plain decoding, alone: a claim that the judge looks at.
Tokens claimed_answer(const Transformer& model, const JudgedRequest& request) {
  Batch batch(model, {.context = request.context, .kv_type = request.kv_type});
  const GenerateOptions options{.sampling = request.sampling,
                                .seed = request.seed,
                                .max_tokens = request.max_tokens,
                                .stop_tokens = request.stop_tokens,
                                .min_tokens = request.min_tokens};
  return batch.generate(request.prompt, options).tokens;
}

std::string finish_of(const JudgedRequest& request, std::span<const std::int32_t> answer) {
  const auto length = static_cast<std::int64_t>(answer.size());
  if (std::ranges::find(request.stop_tokens, answer.back()) != request.stop_tokens.end()) return "stop";
  if (length == request.max_tokens) return "length";
  if (std::ssize(request.prompt) + length > request.context) return "context";
  return "";
}

// The judge prefills for every token. Here one prefill judges a claim: where each of its tokens is what the sampler
// draws behind the tokens before, and it ends where it has to and not earlier, it is what the judge would say.
Judged judge_claim(const Transformer& model, const JudgedRequest& request) {
  const Tokens claim = claimed_answer(model, request);
  Tokens path = request.prompt;
  path.insert(path.end(), claim.begin(), claim.end() - 1);
  const ForwardRun run = run_forward(model, path, {.kv_type = request.kv_type});
  const auto vocabulary = static_cast<std::size_t>(model.config().vocabulary);
  Judged judged{.request = request, .verdict = {}};
  judged.verdict.kv = run.kv;
  path.resize(request.prompt.size());
  const auto logits_of = [&](std::size_t row) { return std::span(run.logits).subspan(row * vocabulary, vocabulary); };
  for (std::size_t i = 1; i < path.size(); ++i)
    judged.prompt_logprobs.push_back(logprobs(logits_of(i - 1), path[i], kMostAlternatives));
  for (const std::int32_t token : claim) {
    EXPECT_EQ(judged.verdict.finish, "") << "the claim goes on where it ends";
    const auto logits = logits_of(path.size() - 1);
    const bool may_stop = std::ssize(judged.verdict.tokens) >= request.min_tokens;
    EXPECT_EQ(token, sample(logits, request.sampling, {path, request.prompt.size()}, uniform(request.seed, path.size()),
                            may_stop ? Tokens() : request.stop_tokens));
    path.push_back(token);
    judged.verdict.tokens.push_back(token);
    judged.verdict.finish = finish_of(request, judged.verdict.tokens);
    judged.logprobs.push_back(logprobs(logits, token, kMostAlternatives));
  }
  EXPECT_NE(judged.verdict.finish, "") << "the claim ends where it should go on";
  return judged;
}

void expect_the_judge_agrees(const Transformer& model, const Judged& judged) {
  const Verdict verdict = judge(model, judged.request);
  EXPECT_EQ(verdict.tokens, judged.verdict.tokens);
  EXPECT_EQ(verdict.finish, judged.verdict.finish);
  EXPECT_EQ(verdict.kv, judged.verdict.kv);
}

// quick: on a device that is slow. crowded: many answers that reach the end of their block at about the same time, in a
// pool that has no other blocks for them; elsewhere somebody who gives way is rare.
enum class SceneKind { quick, any, crowded };

// Requests of one batch after the other, with what they share: two or three texts, prompts, answers.
class SceneDraw {
 public:
  SceneDraw(Random& random, const Transformer& judges_model, SceneKind kind)
      : random_(random), model_(judges_model), kind_(kind) {
    // A block holds a short context; answers to the prompts of the longer ones cross the end of a block.
    const std::vector<std::int64_t> any = {64, 64, 160, 200, 300, 400}, quick = {64, 64, 64, 160};
    context_ = crowded() ? 200 : pick(random, kind == SceneKind::quick ? quick : any);
    kv_type_ = pick(random, std::vector{DType::f16, DType::bf16, DType::f32});
    for (int i = draw(random, 2, 3); i > 0; --i) texts_.push_back(draw_text(context_));
    while (judged_.size() < kRequestsOfScene) judged_.push_back(judge_claim(model_, draw_request()));
    expect_the_judge_agrees(model_, *std::ranges::min_element(judged_, {}, [](const Judged& judged) {
                              return judged.request.prompt.size() * judged.verdict.tokens.size();
                            }));
  }

  std::vector<Judged> take() { return std::move(judged_); }

 private:
  bool crowded() const { return kind_ == SceneKind::crowded; }
  std::int32_t draw_token() { return draw(random_, 0, static_cast<int>(model_.config().vocabulary) - 1); }

  // Texts repeat themselves, so that lookup finds something.
  Tokens draw_text(std::int64_t length) {
    Tokens phrase, text;
    for (int i = draw(random_, 1, 8); i > 0; --i) phrase.push_back(draw_token());
    while (std::ssize(text) < length)
      text.push_back(rarely(random_, 10) ? draw_token() : phrase[text.size() % phrase.size()]);
    return text;
  }

  Tokens draw_prompt() {
    if (!judged_.empty() && rarely(random_, 4)) return pick(random_, judged_).request.prompt;
    Tokens prompt =
        !judged_.empty() && !crowded() && rarely(random_, 3) ? whole_text(pick(random_, judged_)) : shared_beginning();
    for (int i = draw(random_, 0, 6); i > 0; --i) prompt.push_back(draw_token());
    if (!crowded() && rarely(random_, 6)) prompt.insert(prompt.end(), texts_[0].begin(), texts_[0].end());
    if (std::ssize(prompt) > context_) prompt.resize(static_cast<std::size_t>(context_ - draw(random_, 0, 10)));
    return prompt;
  }

  // As the next turn of a conversation begins.
  static Tokens whole_text(const Judged& judged) {
    Tokens text = judged.request.prompt;
    text.insert(text.end(), judged.verdict.tokens.begin(), judged.verdict.tokens.end());
    return text;
  }

  Tokens shared_beginning() {
    Tokens text = pick(random_, texts_);
    text.resize(static_cast<std::size_t>(draw_length()));
    return text;
  }

  int draw_length() {
    constexpr int block = kBlock;
    if (crowded()) return draw(random_, block - 34, block - 24);
    if (context_ <= block) return draw(random_, 1, 50);
    if (context_ > 2 * block && rarely(random_, 3)) return draw(random_, 2 * block - 20, 2 * block + 2);
    return draw(random_, block - 25, block + 2);
  }

  SamplingOptions draw_sampling() {
    switch (draw(random_, 0, 2)) {
      case 0: return {};
      case 1: return {.temperature = 0.8f, .top_k = draw(random_, 0, 40), .top_p = 0.9f, .min_p = 0.01f};
      default:
        return {.logit_bias = {{3, 4.0f}, {17, -2.5f}},
                .repeat_penalty = 1.2f,
                .presence_penalty = 0.3f,
                .frequency_penalty = 0.2f,
                .temperature = rarely(random_, 2) ? 0.8f : 0.0f};
    }
  }

  int draw_max_tokens() {
    if (crowded()) return draw(random_, 30, 45);
    return draw(random_, 1, kind_ == SceneKind::quick ? 12 : 24);
  }

  JudgedRequest draw_request() {
    JudgedRequest request{.prompt = draw_prompt(),
                          .sampling = draw_sampling(),
                          .seed = random_(),
                          .max_tokens = draw_max_tokens(),
                          .context = context_,
                          .kv_type = kv_type_};
    if (!crowded() && rarely(random_, 3))
      for (int i = 0; i < 12; ++i) request.stop_tokens.push_back(draw_token());
    if (rarely(random_, 3)) forbid_a_stop(request);
    return request;
  }

  // Of an answer that would end with one of these tokens, or has them among others, the first ones cannot be such.
  void forbid_a_stop(JudgedRequest& request) {
    const Tokens claim = claimed_answer(model_, request);
    request.stop_tokens.push_back(pick(random_, claim));
    request.min_tokens = draw(random_, 1, static_cast<int>(request.max_tokens) + 2);
  }

  Random& random_;
  const Transformer& model_;
  const SceneKind kind_;
  std::int64_t context_ = 0;
  DType kv_type_ = DType::f16;
  std::vector<Tokens> texts_;
  std::vector<Judged> judged_;
};

// --- how a batch decodes --------------------------------------------------------------------------------------------

// Falls asleep and wakes up between any two rounds, whatever the batch tells it.
class Restless final : public PassingDrafter {
 public:
  Restless(std::unique_ptr<Drafter> inner, std::uint64_t seed)
      : PassingDrafter(std::move(inner)), random_(static_cast<std::uint32_t>(seed)) {}

  std::unique_ptr<DraftSequence> open(SequenceId sequence, std::span<const std::int32_t> prompt) override {
    return std::make_unique<Sequence>(inner().open(sequence, prompt), random_);
  }
  std::vector<Guesses> expand(std::span<const DraftJob> jobs) override {
    std::vector<DraftJob> unwrapped(jobs.begin(), jobs.end());
    for (DraftJob& job : unwrapped) job.sequence = static_cast<Sequence*>(job.sequence)->inner.get();
    return inner().expand(unwrapped);
  }

 private:
  struct Sequence final : DraftSequence {
    Sequence(std::unique_ptr<DraftSequence> drafted, Random& draws) : inner(std::move(drafted)), random(draws) {}

    void toss() {
      if (rarely(random, 4)) inner->rest(rarely(random, 2));
    }
    bool reused(std::span<const std::int32_t> tokens) override {
      toss();
      return inner->reused(tokens);
    }
    void committed(const CommittedRows& rows) override {
      toss();
      inner->committed(rows);
      toss();
    }
    std::int64_t lacks_from() const override { return inner->lacks_from(); }
    void begin_round(const DraftRound& round) override { inner->begin_round(round); }
    void end_round(const DraftVerdict& verdict) override { inner->end_round(verdict); }
    void settle() override {
      toss();
      inner->settle();
    }
    void predict(std::span<const std::int32_t> prompt, std::span<const std::int32_t> prediction) override {
      inner->predict(prompt, prediction);
    }
    PredictionCounts take_prediction_counts() override { return inner->take_prediction_counts(); }

    std::unique_ptr<DraftSequence> inner;
    Random& random;
  };

  Random random_;
};

const std::vector<std::string> kDrafters = {"ngram",  "oracle", "medusa",  "eagle2",
                                            "eagle3", "model",  "hostile", "none"};

struct Setting {
  DecoderOptions decoder;
  Speculation speculation;
  std::string description;  // for failures
};

class SettingDraw {
 public:
  // Company and answers must outlive the setting.
  SettingDraw(Random& random, const Company& company, const KnownAnswers& answers, const JudgedRequest& asked,
              const std::string& drafter, SceneKind kind)
      : random_(random), company_(company), answers_(answers), kind_(kind) {
    DecoderOptions& decoder = setting_.decoder;
    decoder.context = asked.context;
    decoder.kv_type = asked.kv_type;
    decoder.parallel = draw(random, crowded() ? 6 : 1, 8);
    decoder.prefill_rows = draw(random, crowded() ? 32 : 1, 64);
    decoder.scored_rows = draw(random, 1, 64);
    decoder.attention = rarely(random, 3) ? AttentionOp::eager : AttentionOp::fused;
    decoder.invariants = rarely(random, 4);
    decoder.kv = {.strategy = rarely(random, 4) ? CacheStrategy::replicate : CacheStrategy::shared,
                  .reorder = rarely(random, 2) ? Reorder::full : Reorder::fast,
                  .check = true};
    note(decoder.kv.strategy == CacheStrategy::shared ? "shared" : "replicate");
    note(fmt::format("parallel={} prefill={}", decoder.parallel, decoder.prefill_rows));
    if (drafter != "none") draw_speculation(drafter);
    draw_room();
  }

  Setting take() { return std::move(setting_); }

 private:
  bool crowded() const { return kind_ == SceneKind::crowded; }
  void note(const std::string& text) { setting_.description += text + " "; }

  void draw_speculation(const std::string& drafter) {
    TreeOptions& tree = setting_.speculation.tree;
    tree = {.shape = pick(random_, std::vector{TreeShape::chain, TreeShape::fixed, TreeShape::dynamic}),
            .nodes = draw(random_, 2, crowded() ? 6 : 24),
            .depth = draw(random_, 1, crowded() ? 2 : 6),
            .expand = draw(random_, 1, crowded() ? 2 : 4),
            .branch = draw(random_, 0, 6)};
    if (tree.shape == TreeShape::fixed) tree.choices = random_choices();
    note(fmt::format("{} M={} D={} K={} B={}", name(tree.shape), tree.nodes, tree.depth, tree.expand, tree.branch));
    if (rarely(random_, 3)) setting_.speculation.budget = draw_budget();
    draw_drafters(drafter);
  }

  // By a clock that knows nothing of the real one, so that a failure can be had again.
  ChosenBudget draw_budget() {
    note("chosen");
    StepTimes times{.rows = {1, 2, 8, 64}, .contexts = {20, 100}};
    double seconds = 0;
    for (int i = 0; i < 8; ++i) times.seconds.push_back(seconds += 1e-4 * draw(random_, 1, 10));
    return {.times = times, .clock = [now = 0.0]() mutable { return now += 1e-5; }};
  }

  ChoiceTree random_choices() {
    std::vector<ChoiceTree::Path> paths;
    const int count = draw(random_, 1, crowded() ? 5 : 23);
    for (int tries = 0; static_cast<int>(paths.size()) < count && tries < 1000; ++tries) {
      ChoiceTree::Path path;
      if (!paths.empty() && !rarely(random_, 3)) path = pick(random_, paths);
      path.push_back(draw(random_, 0, 5));
      if (std::ranges::find(paths, path) == paths.end()) paths.push_back(path);
    }
    return ChoiceTree(paths, {}, "random choices");
  }

  void draw_drafters(const std::string& first) {
    std::vector<std::string> kinds = {first};
    while (rarely(random_, 4)) kinds.push_back(beside(kinds, kDrafters[random_() % (kDrafters.size() - 1)]));
    for (const std::string& kind : kinds) note(kind);
    const bool restless = rarely(random_, 2);
    if (restless) note("restless");
    setting_.speculation.drafters = [kinds, restless, seed = random_(), decoder = setting_.decoder,
                                     tree = setting_.speculation.tree, &company = company_,
                                     &answers = answers_](KvCache& cache, int sequences) {
      DrafterSet set;
      for (const std::string& kind : kinds) {
        set.push_back(make(kind, {company, answers, cache, sequences, decoder, tree, seed}));
        if (restless) set.back() = std::make_unique<Restless>(std::move(set.back()), seed);
      }
      return set;
    };
  }

  struct Parts {
    const Company& company;
    const KnownAnswers& answers;
    KvCache& cache;
    int sequences;
    const DecoderOptions& decoder;
    const TreeOptions& tree;
    std::uint64_t seed;
  };

  static std::unique_ptr<Drafter> make(const std::string& kind, const Parts& parts) {
    const auto vocabulary = static_cast<std::int32_t>(parts.company.teacher.config().vocabulary);
    if (kind == "ngram") return std::make_unique<NgramDrafter>();
    if (kind == "medusa") return std::make_unique<MedusaDrafter>(*parts.company.medusa_head, 10, parts.sequences);
    if (kind == "hostile") return std::make_unique<HostileDrafter>(parts.seed, vocabulary);
    if (kind == "oracle")
      return std::make_unique<OracleDrafter>(
          &parts.answers, OracleOptions{.profile = {0.9, 0.7, 0.8}, .seed = parts.seed, .vocabulary = vocabulary});
    return with_memory(kind, parts);
  }

  static std::unique_ptr<Drafter> with_memory(const std::string& kind, const Parts& parts) {
    const DecoderOptions& decoder = parts.decoder;
    const bool eager = decoder.attention == AttentionOp::eager;
    const StepForm form{decoder.attention, eager ? MaskForm::dense : MaskForm::list};
    if (const EagleHead* head = parts.company.eagle(kind))
      return std::make_unique<EagleDrafter>(*head, parts.cache,
                                            EagleDrafterOptions{.context = decoder.context,
                                                                .kv_type = decoder.kv_type,
                                                                .window = parts.seed % 2 == 0 ? 0 : 12,
                                                                .form = form,
                                                                .tree = parts.tree,
                                                                .sequences = parts.sequences,
                                                                .invariants = decoder.invariants});
    // Some draft models have a shorter context than the teacher.
    return std::make_unique<ModelDrafter>(
        parts.company.draft_model(), parts.cache,
        ModelDrafterOptions{.context = decoder.context - (parts.seed % 3 == 0 ? 30 : 0),
                            .kv_type = decoder.kv_type,
                            .form = form,
                            .tree = parts.tree,
                            .sequences = parts.sequences,
                            .invariants = decoder.invariants});
  }

  // Most pools hold less than a third of what all need at once, but at least what one needs.
  void draw_room() {
    DecoderOptions& decoder = setting_.decoder;
    if (!crowded() && rarely(random_, 3)) return;
    const Transformer& teacher = company_.teacher;
    const std::int64_t needed =
        decoder_choices(teacher.config(), teacher.device(), decoder, setting_.speculation).cache_positions;
    decoder.cache_positions = std::max(needed / decoder.parallel, needed * (crowded() ? 25 : 30) / 100);
    note(fmt::format("cache={}", decoder.cache_positions));
  }

  Random& random_;
  const Company& company_;
  const KnownAnswers& answers_;
  const SceneKind kind_;
  Setting setting_;
};

// --- a run ----------------------------------------------------------------------------------------------------------

struct Tally {
  std::int64_t runs = 0, requests = 0, tokens = 0;
  std::int64_t preempted = 0;
  std::int64_t reused = 0;     // tokens of prompts
  std::int64_t cancelled = 0;  // before they were complete
  std::int64_t trees = 0;      // rounds
  std::int64_t accepted = 0;   // drafted tokens
  std::int64_t predicted = 0;  // of those, by a prediction
  std::int64_t scored = 0;     // prompts
  std::map<std::string, std::int64_t> by_finish = {};
  std::set<std::string> drafters = {}, devices = {};
};

// What a batch tells of one request.
struct Heard {
  const Judged* judged = nullptr;
  std::size_t known = 0;  // tokens with which the answer began
  std::int64_t alternatives = -1;
  bool may_be_cancelled = false;
  std::int64_t prompt_alternatives = -1;
  int prompts_told = 0;  // times
  std::vector<GeneratedToken> told = {};
  EndedAnswer end = {};
};

bool same_bits(const TokenLogprob& a, const TokenLogprob& b) {
  return a.token == b.token && std::bit_cast<std::uint64_t>(a.logprob) == std::bit_cast<std::uint64_t>(b.logprob);
}

bool same_bits(const Logprobs& told, const Logprobs& judged, std::int64_t alternatives) {
  if (!same_bits(told.chosen, judged.chosen) || std::ssize(told.top) != alternatives) return false;
  for (std::size_t i = 0; i < told.top.size(); ++i)
    if (!same_bits(told.top[i], judged.top[i])) return false;
  return true;
}

void expect_logprobs(const Heard& heard) {
  for (std::size_t i = 0; i < heard.told.size(); ++i) {
    const std::optional<Logprobs>& told = heard.told[i].logprobs;
    ASSERT_EQ(told.has_value(), heard.alternatives >= 0);
    if (!told) continue;
    EXPECT_TRUE(same_bits(*told, heard.judged->logprobs[heard.known + i], heard.alternatives)) << "token " << i;
  }
}

// Those of the whole prompt; or, where it was cancelled, of a beginning.
void expect_prompt_logprobs(const Heard& heard, bool cancelled) {
  const std::vector<Logprobs>& told = heard.end.result.prompt_logprobs;
  const std::size_t all = heard.prompt_alternatives < 0 ? 0 : heard.judged->prompt_logprobs.size();
  ASSERT_LE(told.size(), all);
  EXPECT_TRUE(cancelled || told.size() == all) << told.size() << " of " << all;
  for (std::size_t i = 0; i < told.size(); ++i)
    EXPECT_TRUE(same_bits(told[i], heard.judged->prompt_logprobs[i], heard.prompt_alternatives))
        << "prompt token " << i;
  EXPECT_TRUE(cancelled || heard.prompts_told == (heard.prompt_alternatives < 0 ? 0 : 1)) << heard.prompts_told;
}

// All of the judge's answer; or, where it was cancelled, a beginning of it.
void expect_judged_answer(const Heard& heard) {
  const Verdict& verdict = heard.judged->verdict;
  ASSERT_TRUE(heard.end.ended);
  if (heard.end.failure) std::rethrow_exception(heard.end.failure);
  const GenerateResult& result = heard.end.result;
  const bool cancelled = result.finish_reason == FinishReason::cancelled;
  ASSERT_TRUE(heard.may_be_cancelled || !cancelled);
  ASSERT_LE(result.tokens.size(), verdict.tokens.size());
  EXPECT_TRUE(std::ranges::equal(result.tokens, std::span(verdict.tokens).first(result.tokens.size())));
  ASSERT_EQ(heard.told.size() + heard.known, result.tokens.size()) << "every token is told once";
  for (std::size_t i = 0; i < heard.told.size(); ++i) EXPECT_EQ(heard.told[i].token, result.tokens[heard.known + i]);
  expect_logprobs(heard);
  expect_prompt_logprobs(heard, cancelled);
  if (cancelled) return;
  EXPECT_EQ(result.tokens.size(), verdict.tokens.size());
  EXPECT_EQ(name(result.finish_reason), verdict.finish);
  EXPECT_EQ(heard.end.length, std::ssize(heard.judged->request.prompt) + std::ssize(verdict.tokens) - 1);
  EXPECT_TRUE(heard.end.kv == verdict.kv) << "KV bytes";
}

GenerateRequest plain_request(Device& device, const Judged& judged, Heard& heard, std::int64_t alternatives) {
  heard.judged = &judged;
  heard.alternatives = alternatives;
  const JudgedRequest& asked = judged.request;
  return {.prompt = asked.prompt,
          .options = {.sampling = asked.sampling,
                      .seed = asked.seed,
                      .max_tokens = asked.max_tokens,
                      .stop_tokens = asked.stop_tokens,
                      .logprobs = alternatives,
                      .min_tokens = asked.min_tokens},
          .events = {.on_token =
                         [&heard](const GeneratedToken& token) {
                           heard.told.push_back(token);
                           return true;
                         },
                     .on_end = keep_end(device, heard.end)}};
}

class RandomRun {
 public:
  RandomRun(Random& random, Batch& batch, const std::vector<Judged>& judged, SceneKind kind, Tally& tally)
      : random_(random),
        batch_(batch),
        tally_(tally),
        crowded_(kind == SceneKind::crowded),
        heard_(static_cast<std::size_t>(crowded_ ? draw(random, 8, 12) : draw(random, 1, 16))) {
    for (Heard& heard : heard_) requests_.push_back(draw_request(pick(random, judged), heard));
  }

  void answer_all() {
    const int pace = crowded_ ? 0 : draw(random_, 0, 6);
    const int patience = crowded_ ? draw(random_, 50, 200) : draw(random_, 8, 80);
    while (ids_.size() < requests_.size() || batch_.running() + batch_.waiting() > 0) {
      while (ids_.size() < requests_.size() && rarely(random_, 1 + pace))
        ids_.push_back(batch_.submit(requests_[ids_.size()]));
      if (!ids_.empty() && rarely(random_, patience)) cancel(random_() % ids_.size());
      const std::int64_t waiting = batch_.waiting();
      const std::int64_t preempted = batch_.statistics().preemptions;
      batch_.step();
      batch_.check_conservation();
      EXPECT_GE(batch_.statistics().preemptions - preempted, batch_.waiting() - waiting);
      tally_.preempted += batch_.statistics().preemptions - preempted;
    }
    tally_.accepted += batch_.statistics().drafts.accepted_tokens;
  }

  void expect_answers() {
    for (std::size_t i = 0; i < heard_.size(); ++i) {
      SCOPED_TRACE(fmt::format("request {} of {}", i, heard_.size()));
      expect_judged_answer(heard_[i]);
      if (::testing::Test::HasFailure()) return;
      count(heard_[i].end.result);
      // What has been answered behind a prompt that is scored may come from others.
      const bool scores = requests_[i].options.prompt_logprobs >= 0 && requests_[i].answered.empty();
      const bool reuses = requests_[i].cache && !scores;
      EXPECT_TRUE(reuses || heard_[i].end.result.reused_tokens == 0);
    }
  }

 private:
  GenerateRequest draw_request(const Judged& judged, Heard& heard) {
    GenerateRequest request = plain_request(batch_.device(), judged, heard, draw(random_, -1, kMostAlternatives));
    if (rarely(random_, 3)) request.draft = draw_caps();
    if (rarely(random_, 5)) {
      request.options.prompt_logprobs = heard.prompt_alternatives = draw(random_, 0, kMostAlternatives);
      request.events.on_prompt_logprobs = [&heard](std::span<const Logprobs> told) {
        EXPECT_EQ(told.size(), heard.judged->prompt_logprobs.size());
        EXPECT_TRUE(heard.told.empty());
        ++heard.prompts_told;
      };
    }
    if (rarely(random_, 3)) request.prediction = draw_prediction(judged);
    request.priority = rarely(random_, 3) ? draw(random_, kFirstPriority, kLastPriority) : 0;
    request.salt = rarely(random_, 4) ? "another" : "";
    request.cache = !rarely(random_, 4);
    request.key = draw(random_, 0, 2);
    if (rarely(random_, 6)) {  // the answer has begun already
      heard.known = random_() % judged.verdict.tokens.size();
      request.answered = std::span(judged.verdict.tokens).first(heard.known);
    }
    if (rarely(random_, 8)) {  // its caller loses interest at some token
      heard.may_be_cancelled = true;
      request.events.cancelled = [&heard, most = random_() % 12] { return heard.told.size() >= most; };
    }
    request.events.on_round = [this, caps = request.draft](const Round& round) { hear_round(caps, round); };
    return request;
  }

  DraftCaps draw_caps() {
    DraftCaps caps{.drafts = !rarely(random_, 3), .nodes = draw(random_, 0, 12), .depth = draw(random_, 0, 4)};
    const std::vector<std::string> drafters = batch_.drafters();
    if (!drafters.empty() && rarely(random_, 2)) caps.drafters = {pick(random_, drafters)};
    if (rarely(random_, 3)) caps.tree = rarely(random_, 2) ? TreeShape::chain : batch_.tree().shape;
    return caps;
  }

  // The answer, often with some errors.
  std::span<const std::int32_t> draw_prediction(const Judged& judged) {
    Tokens& prediction = *predictions_.emplace_back(std::make_unique<Tokens>(judged.verdict.tokens));
    const bool errors = rarely(random_, 2);
    for (std::int32_t& token : prediction)
      if (errors && rarely(random_, 5)) token = draw(random_, 0, 200);
    return prediction;
  }

  void hear_round(const DraftCaps& caps, const Round& round) {
    tally_.trees += round.tree.size() > 1 ? 1 : 0;
    EXPECT_TRUE(caps.drafts || round.tree.size() == 1);
    EXPECT_TRUE(caps.nodes == 0 || round.tree.size() <= caps.nodes);
    EXPECT_TRUE(caps.depth == 0 || round.tree.depth() <= caps.depth);
    EXPECT_TRUE(caps.tree != TreeShape::chain || round.tree.size() <= 1 + batch_.tree().depth);
    const std::vector<std::string> drafters = batch_.drafters();
    for (const TreeNode& node : round.tree.nodes().subspan(1)) {
      EXPECT_NE(node.sources, 0u);
      for (std::size_t i = 0; i < drafters.size(); ++i)
        EXPECT_TRUE((node.sources >> i & 1) == 0 || caps.drafters.empty() || caps.drafters[0] == drafters[i]);
    }
  }

  void cancel(std::size_t which) {
    heard_[which].may_be_cancelled = true;
    batch_.cancel(ids_[which]);
  }

  void count(const GenerateResult& result) {
    ++tally_.requests;
    tally_.tokens += std::ssize(result.tokens);
    tally_.reused += result.reused_tokens;
    tally_.predicted += result.prediction.accepted;
    tally_.scored += result.prompt_logprobs.empty() ? 0 : 1;
    tally_.cancelled += result.finish_reason == FinishReason::cancelled ? 1 : 0;
    ++tally_.by_finish[std::string(name(result.finish_reason))];
  }

  Random& random_;
  Batch& batch_;
  Tally& tally_;
  const bool crowded_;
  std::vector<Heard> heard_;
  std::vector<GenerateRequest> requests_;
  std::vector<RequestId> ids_;  // of those that have joined
  std::vector<std::unique_ptr<Tokens>> predictions_;
};

// The CPU device, or where there is one a GPU in turn with it; of the scenes of a shard every third is on another one,
// or crowded.
SceneKind kind_of(int scene) {
  return std::vector{SceneKind::any, SceneKind::crowded,
                     SceneKind::quick}[static_cast<std::size_t>(scene / kShards) % 3];
}

NamedDevice device_named(const std::string& name) {
  const std::vector<NamedDevice> devices = all_devices();
  return *std::ranges::find(devices, name, &NamedDevice::name);
}

NamedDevice device_of(int scene) {
  const std::vector<std::string> slow = {"reference", "checked", "checked_ascend"};
  if (kind_of(scene) == SceneKind::quick)
    return device_named(slow[static_cast<std::size_t>(scene / 12 + scene) % slow.size()]);
  return device_named(scene % 2 == 1 && !gpu_devices().empty() ? "cuda" : "cpu");
}

class RandomBatch : public ::testing::TestWithParam<int> {
 protected:
  static TinyModel draw_model(Random& random) {
    TinyModel model{pick(random, tiny_families())};
    if (rarely(random, 3)) model.blocks = pick(random, block_types());
    return model;
  }

  void run_scene(int seed, int scene, int runs) {
    std::seed_seq seeds{seed, scene};
    Random random(seeds);
    const SceneKind kind = kind_of(scene);
    const NamedDevice named = device_of(scene);
    const int threads = draw(random, 1, 4);
    const auto device = named.make(threads);
    const TinyModel model = draw_model(random);
    const Company company(*device, model);
    // One judge for all devices that compute the same bits.
    const bool own_order = device->float_order() != judges_device_->float_order();
    const Transformer judges_model = load_tiny(own_order ? *device : *judges_device_, model);
    const std::vector<Judged> judged = SceneDraw(random, judges_model, kind).take();
    KnownAnswers answers;
    for (const Judged& each : judged) answers.learn(each.request.prompt, each.verdict.tokens);
    tally_.devices.insert(named.name);
    for (int run = 0; run < runs && !HasFailure(); ++run) {
      const std::string& drafter =
          kDrafters[static_cast<std::size_t>(scene / kShards * kRunsOfScene + run) % kDrafters.size()];
      const Setting setting = SettingDraw(random, company, answers, judged[0].request, drafter, kind).take();
      SCOPED_TRACE(fmt::format("seed {}, scene {}.{}: {}, {} threads, {}, context {}: {}", seed, scene, run, named.name,
                               threads, name(model), judged[0].request.context, setting.description));
      tally_.drafters.insert(drafter);
      run_batch(random, company, setting, judged, kind);
    }
  }

  void run_batch(Random& random, const Company& company, const Setting& setting, const std::vector<Judged>& judged,
                 SceneKind kind) {
    Batch batch(company.teacher, setting.decoder, setting.speculation);
    const std::int64_t free = batch.cache().free_positions();
    RandomRun run(random, batch, judged, kind, tally_);
    run.answer_all();
    run.expect_answers();
    ++tally_.runs;
    EXPECT_EQ(batch.running() + batch.waiting(), 0);
    batch.cache().check_conservation();
    batch.forget();
    EXPECT_EQ(batch.cache().free_positions(), free) << "somebody keeps blocks";
  }

  void print_tally() const {
    fmt::print("{} runs, {} requests, {} tokens; {} preempted, {} tokens reused, {} cancelled; ", tally_.runs,
               tally_.requests, tally_.tokens, tally_.preempted, tally_.reused, tally_.cancelled);
    fmt::print("{} rounds with a tree, {} drafted tokens accepted, {} of predictions; {} prompts scored; ended by",
               tally_.trees, tally_.accepted, tally_.predicted, tally_.scored);
    for (const auto& [finish, count] : tally_.by_finish) fmt::print(" {} {}", finish, count);
    fmt::print("; on {}\n", fmt::join(tally_.devices, ", "));
  }

  // A test in which nothing happens proves nothing.
  void expect_everything_happened() const {
    EXPECT_GT(tally_.preempted, 0);
    EXPECT_GT(tally_.reused, 0);
    EXPECT_GT(tally_.cancelled, 0);
    EXPECT_GT(tally_.trees, 0);
    EXPECT_GT(tally_.accepted, 0);
    EXPECT_GT(tally_.predicted, 0);
    EXPECT_GT(tally_.scored, 0);
    EXPECT_EQ(tally_.drafters.size(), kDrafters.size());
    EXPECT_EQ(tally_.by_finish.size(), 4u) << "stop, length, context, cancelled";
    EXPECT_GT(tally_.devices.size(), 1u);
  }

  std::unique_ptr<Device> judges_device_ = device_named("cpu").make(1);
  Tally tally_;
};

TEST_P(RandomBatch, EveryAnswerIsTheJudgesWhateverTheCompany) {
  const int runs = from_environment("ESPALIER_BATCH_RUNS", kRuns);
  const int seed = from_environment("ESPALIER_BATCH_SEED", 20261117);
  const int only = from_environment("ESPALIER_BATCH_SCENE", -1);
  for (int scene = GetParam(); scene * kRunsOfScene < runs && !HasFailure(); scene += kShards)
    if (only < 0 || scene == only) run_scene(seed, scene, std::min(kRunsOfScene, runs - scene * kRunsOfScene));
  print_tally();
  if (tally_.runs >= 20 && !HasFailure()) expect_everything_happened();
}

INSTANTIATE_TEST_SUITE_P(Tiny, RandomBatch, ::testing::Range(0, kShards),
                         [](const auto& info) { return fmt::format("shard_{}", info.param); });

// --- at every step --------------------------------------------------------------------------------------------------

// One answer that is watched, and others whose fate is chosen.
class EveryStep : public ::testing::Test {
 protected:
  Judged judged(Tokens prompt, std::int64_t max_tokens, const SamplingOptions& sampling = {}) {
    return judge_claim(
        company_.teacher,
        {.prompt = std::move(prompt), .sampling = sampling, .seed = 5, .max_tokens = max_tokens, .context = kContext});
  }

  static Tokens text(int length, std::int32_t first, std::int32_t step) {
    Tokens tokens;
    for (int i = 0; i < length; ++i) tokens.push_back((first + i * step) % 250);
    return tokens;
  }

  // Two drafters, one of them with a memory under the same tables.
  Speculation speculation() const {
    const TreeOptions tree{.nodes = 6, .depth = 2, .expand = 2};
    return {.tree = tree, .drafters = [this, tree](KvCache& cache, int sequences) {
              DrafterSet set;
              set.push_back(std::make_unique<NgramDrafter>());
              set.push_back(std::make_unique<EagleDrafter>(
                  *company_.eagle3_head, cache,
                  EagleDrafterOptions{.context = kContext, .tree = tree, .sequences = sequences}));
              return set;
            }};
  }

  static constexpr std::int64_t kContext = 200;
  static SamplingOptions sampled() { return {.frequency_penalty = 0.3f, .temperature = 0.9f}; }

  std::unique_ptr<Device> device_ = device_named("cpu").make(1);
  Company company_{*device_, {"llama2"}};
};

class CancelledNeighbour : public EveryStep {
 protected:
  // The answer of the watched one, with a neighbour that leaves at step k; false: it was complete before.
  bool cancel_at(int k, bool cache, bool neighbour_first) {
    Batch batch(company_.teacher,
                {.context = kContext, .prefill_rows = 32, .parallel = 2, .kv = {.check = true}, .invariants = true},
                speculation());
    Heard heard, others;
    GenerateRequest watched = plain_request(*device_, watched_, heard, 2);
    GenerateRequest neighbour = plain_request(*device_, neighbour_, others, 0);
    watched.cache = neighbour.cache = cache;
    others.may_be_cancelled = true;
    if (!neighbour_first) batch.submit(watched);
    const RequestId cancelled = batch.submit(neighbour);
    if (neighbour_first) batch.submit(watched);
    for (int step = 0; step < k; ++step) batch.step();
    const bool in_time = !others.end.ended;
    batch.cancel(cancelled);
    while (batch.step()) continue;
    expect_judged_answer(heard);
    expect_judged_answer(others);
    EXPECT_EQ(others.end.result.finish_reason == FinishReason::cancelled, in_time);
    return in_time;
  }

  // Both cross the end of a block while they decode, and share what they can.
  const Judged watched_ = judged(text(120, 3, 7), 16, sampled());
  const Judged neighbour_ = judged(text(124, 3, 7), 14);
};

TEST_F(CancelledNeighbour, ThatLeavesAtAnyStepChangesNoBitOfAnAnswer) {
  int steps = 0;
  for (bool cache : {true, false})
    for (bool neighbour_first : {true, false})
      for (int k = 0; !HasFailure(); ++k, ++steps) {
        SCOPED_TRACE(fmt::format("step {}, cache {}, neighbour {}", k, cache, neighbour_first ? "first" : "second"));
        if (!cancel_at(k, cache, neighbour_first)) break;
      }
  fmt::print("a neighbour was cancelled at {} steps\n", steps);
  EXPECT_GT(steps, 4 * 10);
}

// Three older answers reach the end of their block in the same step, with two blocks left: the newest gives way, and at
// which step of its life depends on when it joins.
class GivingWay : public EveryStep {
 protected:
  static constexpr std::size_t kOlder = 3;
  // A block of each of the older, and what the newest is admitted for: its prompt with a reserve, and one to copy.
  static constexpr std::int64_t kBlocks = kOlder + 3;

  struct Manner {
    bool cache = true, drafts = true;
    std::int64_t blocks = kBlocks;
  };
  struct Outcome {
    EndedAnswer end = {};
    std::vector<int> gave_way = {};  // after so many steps of its life
  };

  // The newest joins when the youngest of the older has so many tokens.
  Outcome answer(std::size_t joins_at, const Manner& manner) {
    Batch batch(company_.teacher,
                {.context = kContext,
                 .prefill_rows = 16,
                 .parallel = kOlder + 1,
                 .cache_positions = manner.blocks * kBlock,
                 .kv = {.check = true},
                 .invariants = true},
                speculation());
    std::vector<Heard> older(kOlder);
    // One behind the other. They do not draft, but take a row in each step, so that it is known when blocks end.
    for (std::size_t i = 0; i < kOlder; ++i) {
      submit(batch, older_[i], older[i], {.cache = manner.cache, .drafts = false});
      while (older[i].told.empty()) batch.step();
    }
    while (older.back().told.size() < joins_at) batch.step();
    Heard newest;
    submit(batch, newest_, newest, manner);
    Outcome outcome{.gave_way = watch(batch)};
    for (const Heard& heard : older) expect_judged_answer(heard);
    expect_judged_answer(newest);
    outcome.end = newest.end;
    return outcome;
  }

  void submit(Batch& batch, const Judged& judged, Heard& heard, const Manner& manner) {
    GenerateRequest request = plain_request(*device_, judged, heard, 2);
    request.cache = manner.cache;
    request.draft = {.drafts = manner.drafts};
    batch.submit(request);
  }

  // Nobody joins any more: where more wait after a step than before, the newest has given way.
  static std::vector<int> watch(Batch& batch) {
    std::vector<int> gave_way;
    int admitted = 0;
    for (int step = 0;; ++step) {
      const std::int64_t waiting = batch.waiting();
      const bool more = batch.step();
      if (batch.waiting() < waiting) admitted = step;
      if (batch.waiting() > waiting) gave_way.push_back(step - admitted);
      if (!more) return gave_way;
    }
  }

  // Of lengths that are the same when the youngest begins to decode: each prompt takes six steps, in which the answers
  // before it grow by six tokens. They end some steps behind the end of their blocks.
  static constexpr int kYoungest = 96;
  const std::vector<Judged> older_ = {judged(text(kYoungest - 12, 1, 3), 50),
                                      judged(text(kYoungest - 6, 2, 5), 44, sampled()),
                                      judged(text(kYoungest, 4, 11), 38)};
  const Judged newest_ = judged(text(40, 7, 13), 14, sampled());
  static constexpr int kLife = 3 + 13;  // steps of the newest without drafts: its prompt with the first token, the rest
  static constexpr std::size_t kEndOfBlock = kBlock - kYoungest;  // tokens of the youngest
};

TEST_F(GivingWay, AtAnyStepOfItsLifeAnAnswerAndItsBytesInTheCacheAreTheSame) {
  for (bool cache : {true, false})
    for (bool drafts : {true, false}) {
      std::set<int> steps;
      for (std::size_t joins_at = kEndOfBlock - kLife; joins_at <= kEndOfBlock && !HasFailure(); ++joins_at) {
        SCOPED_TRACE(fmt::format("joins at {}, cache {}, drafts {}", joins_at, cache, drafts));
        for (int step : answer(joins_at, {.cache = cache, .drafts = drafts}).gave_way) steps.insert(step);
      }
      fmt::print("cache {}, drafts {}: gave way at steps {}\n", cache, drafts, fmt::join(steps, " "));
      for (int k = 1; k < kLife && !drafts; ++k) EXPECT_TRUE(steps.contains(k)) << "never at step " << k;
      EXPECT_GE(steps.size(), 10u);
    }
}

TEST_F(GivingWay, ARecomputeLeavesTheBytesThatAnUninterruptedAnswerLeaves) {
  for (bool cache : {true, false})
    for (bool drafts : {true, false}) {
      const Outcome short_of_blocks = answer(kEndOfBlock - kLife / 2, {.cache = cache, .drafts = drafts});
      const Outcome plenty = answer(kEndOfBlock - kLife / 2, {.cache = cache, .drafts = drafts, .blocks = 30});
      EXPECT_EQ(short_of_blocks.gave_way.size(), 1u);
      EXPECT_TRUE(plenty.gave_way.empty());
      EXPECT_EQ(short_of_blocks.end.length, plenty.end.length);
      EXPECT_TRUE(short_of_blocks.end.kv == plenty.end.kv);
    }
}

}  // namespace
}  // namespace espalier::testing
