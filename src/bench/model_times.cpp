#include "bench/model_times.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/float16.h"
#include "base/random.h"
#include "bench/figures.h"
#include "decode/draft_tree.h"
#include "trace/turn_recorder.h"

namespace espalier {
namespace {

constexpr std::int64_t kDraftedAnswer = 64;
constexpr std::int64_t kUserSteps = 64;
constexpr std::int64_t kRepeatedTokens = 24;  // prompts repeat themselves, so that n-grams find something

std::int32_t made_up_token(std::uint64_t seed, std::int64_t position, std::int64_t vocabulary) {
  return static_cast<std::int32_t>(uniform(seed, static_cast<std::uint64_t>(position)) *
                                   static_cast<double>(vocabulary));
}

std::int64_t whole_blocks(std::int64_t positions) {
  const std::int64_t block = KvShape{}.block_size;
  return (positions + block - 1) / block * block;
}

// Every context is a sequence of its own, with room for the rows of a step.
std::int64_t positions_of_all(const BenchSizes& sizes) {
  std::int64_t positions = 0;
  for (std::int64_t context : sizes.contexts) positions += whole_blocks(context + sizes.most_rows());
  return positions;
}

StepForm form_of(const OpenEngine& engine) {
  const DecoderOptions& options = engine.decoder;
  const bool wanted =
      options.mask == MaskChoice::automatic ? engine.device->prefers_dense_mask() : options.mask == MaskChoice::dense;
  const bool dense = wanted || options.attention == AttentionOp::eager;
  return {.attention = options.attention, .mask = dense ? MaskForm::dense : MaskForm::list};
}

// Numbers in [-1, 1) in the type of the cache; a short pattern repeated, for there are many of them.
std::vector<std::byte> random_elements(DType type, std::int64_t count) {
  constexpr std::size_t kPattern = 65521;  // a prime: rows of the cache do not repeat each other
  std::vector<std::byte> pattern, bytes(static_cast<std::size_t>(row_bytes(type, count)));
  for (std::size_t i = 0; i < kPattern; ++i) {
    const auto value = static_cast<float>(2 * uniform(1, i) - 1);
    const std::uint16_t half = type == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    const auto* begin =
        type == DType::f32 ? reinterpret_cast<const std::byte*>(&value) : reinterpret_cast<const std::byte*>(&half);
    pattern.insert(pattern.end(), begin, begin + traits(type).block_bytes);
  }
  for (std::size_t at = 0; at < bytes.size(); at += pattern.size())
    std::memcpy(bytes.data() + at, pattern.data(), std::min(pattern.size(), bytes.size() - at));
  return bytes;
}

// Guesses that cost nothing: what is left is the growing of the tree.
class FreeSequence final : public LoneSequence {
 public:
  bool reused(std::span<const std::int32_t>) override { return false; }
  void committed(const CommittedRows&) override {}
  void begin_round(const DraftRound&) override {}
  Guesses expand(const Candidates&, std::span<const int> nodes, int branch) override {
    std::vector<DraftToken> guesses;
    for (int i = 0; i < branch; ++i) guesses.push_back({i, -0.5 - i});
    return Guesses(nodes.size(), guesses);
  }
};
class FreeDrafter final : public LoneDrafter {
 public:
  std::string_view name() const override { return "free"; }
  std::unique_ptr<DraftSequence> open(SequenceId, std::span<const std::int32_t>) override {
    return std::make_unique<FreeSequence>();
  }
};

// `value` cut to `limit`, with a line about it.
std::int64_t cut(std::string_view what, std::int64_t value, std::int64_t limit, std::vector<std::string>& cuts) {
  if (value <= limit) return value;
  cuts.push_back(fmt::format("{}: {} cut to {}, what the context holds", what, value, limit));
  return limit;
}

void sort_and_thin(std::vector<std::int64_t>& values) {
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

std::int64_t BenchSizes::most_rows() const {
  return *std::ranges::max_element(rows);
}

BenchSizes cut_to_context(BenchSizes sizes, std::int64_t context) {
  sort_and_thin(sizes.rows);
  const std::int64_t room = context - sizes.most_rows();
  if (room < 1) input_error("--rows: a step of {} rows does not fit the context of {}", sizes.most_rows(), context);
  for (std::int64_t& length : sizes.contexts) length = cut("context", length, room, sizes.cuts);
  sort_and_thin(sizes.contexts);
  sort_and_thin(sizes.users);
  sizes.prefill = cut("prefill", sizes.prefill, context, sizes.cuts);
  sizes.prompt = cut("prompt", sizes.prompt, std::max<std::int64_t>(1, context / 2), sizes.cuts);
  sizes.answer = cut("answer", sizes.answer, context - sizes.prompt, sizes.cuts);
  return sizes;
}

StepBench::StepBench(const OpenEngine& engine, const BenchSizes& sizes)
    : model_(&*engine.model),
      timed_(engine.timed),
      form_(form_of(engine)),
      sizes_(sizes),
      positions_(whole_blocks(sizes.contexts.back() + sizes.most_rows())),
      cache_(model_->device(), model_->kv_shape(engine.decoder.kv_type), positions_of_all(sizes), engine.decoder.kv),
      workspace_(*model_, cache_.memory(),
                 {.rows = sizes.most_rows(), .outputs = sizes.most_rows(), .positions = positions_, .form = form_}),
      tables_(model_->device(), cache_.memory(), sizes.most_rows(), positions_, form_),
      numbers_(
          model_->device().tensor(DType::f32, {most_rows(), model_->config().kv_heads, model_->config().head_size})),
      logits_(static_cast<std::size_t>(model_->config().vocabulary)) {
  fill_contexts();
  model_->device().upload(random_elements(DType::f32, numbers_.view.elements()), numbers_);
}

// Numbers are there before a commit may want to copy them.
void StepBench::fill_contexts() {
  const std::vector<std::byte> numbers =
      random_elements(cache_.memory().shape().type, cache_.memory().layer(0).k.elements());
  for (std::size_t i = 0; i < sizes_.contexts.size(); ++i) {
    sequences_.push_back(cache_.create());
    Branch branch = begin(i, length(i));
    for (std::int64_t layer = 0; layer < cache_.memory().shape().layers; ++layer)
      for (const View& memory : {cache_.memory().layer(layer).k, cache_.memory().layer(layer).v})
        model_->device().upload(numbers, memory);
    branch.commit_length(length(i));
  }
}

Branch StepBench::begin(std::size_t context, std::int64_t rows) {
  std::optional<Branch> branch = cache_.begin(sequences_[context], rows);
  check(branch.has_value(), "bench: no room for {} rows behind context {}", rows, length(context));
  return std::move(*branch);
}

TokenTree StepBench::tree(std::int64_t rows) const {
  const std::int64_t vocabulary = model_->config().vocabulary;
  TokenTree tree(made_up_token(2, 0, vocabulary));
  for (std::int64_t k = 1; k < rows; ++k) {
    // Siblings are neighbours: k and k + 1 carry different tokens.
    const auto token = static_cast<std::int32_t>((made_up_token(2, k, vocabulary - 1) / 2 * 2 + k % 2) % vocabulary);
    tree.append(static_cast<int>((k - 1) / 2), {.token = token, .score = -static_cast<double>(k)});
  }
  return tree;
}

std::vector<Row> StepBench::tree_rows(const Branch& branch, const TreeTensors& tensors) const {
  std::vector<Row> rows;
  for (int k = 0; k < tensors.nodes; ++k) {
    std::vector<std::int32_t> above;
    for (std::int32_t ancestor : tensors.ancestors(k)) above.push_back(tensors.prefix + ancestor);
    rows.push_back(model_->tree_row(branch.id(), tensors.prefix, tensors.prefix + k,
                                    tensors.token[static_cast<std::size_t>(k)], above));
    rows.back().wants_logits = true;
  }
  return rows;
}

// A step and the logits of its first output, which make sure that it is over.
double StepBench::run_step(std::span<const Row> rows) {
  return seconds_of([&] {
    const StepOutput output = model_->forward(rows, workspace_);
    download<float>(model_->device(), output.logits.rows(0, 1), logits_);
  });
}

double StepBench::verify_step(std::size_t context, std::int64_t rows) {
  const Branch branch = begin(context, rows);
  return run_step(tree_rows(branch, tensorize(tree(rows), static_cast<std::int32_t>(length(context)))));
}

OpSample StepBench::verify_step_by_ops(std::size_t context, std::int64_t rows) {
  check(timed_ != nullptr, "bench: no timed device");
  timed_->start();
  const double whole = verify_step(context, rows);
  return {whole, timed_->stop()};
}

double StepBench::prompt_step(std::size_t context, std::int64_t rows) {
  const Branch branch = begin(context, rows);
  std::vector<Row> step;
  for (std::int64_t i = 0; i < rows; ++i)
    step.push_back(
        model_->prefill_row(branch.id(), length(context) + i, made_up_token(3, i, model_->config().vocabulary)));
  step.back().wants_logits = true;
  return run_step(step);
}

// The tables of a step whose rows have K and V, though nobody has computed them.
StepPlan StepBench::write_rows(const Branch& branch, const TokenTree& tree) {
  const TreeTensors tensors = tensorize(tree, static_cast<std::int32_t>(branch.prefix()));
  const StepPlan step = tables_.prepare(tree_rows(branch, tensors));
  const View numbers = numbers_.view.rows(0, step.key.rows);
  for (std::int64_t layer = 0; layer < model_->config().layers; ++layer)
    model_->device().kv_write(numbers, numbers, step.rows.slot, cache_.memory().layer(layer));
  return step;
}

double StepBench::grow(std::int64_t rows) {
  DrafterSet drafters;
  drafters.push_back(std::make_unique<FreeDrafter>());
  const TreeOptions options{.shape = TreeShape::dynamic, .nodes = static_cast<int>(rows), .branch = 4};
  std::vector<std::unique_ptr<DraftSequence>> sequences;
  sequences.push_back(drafters[0]->open(0, {}));
  const GrowthJob job{.limits = {.rows = static_cast<int>(rows),
                                 .depth = options.depth,
                                 .vocabulary = static_cast<std::int32_t>(model_->config().vocabulary)},
                      .sequences = sequences};
  return seconds_of([&] { grow_candidates(std::span(&job, 1), options, drafters)[0].best(max_rows(options)); });
}

double StepBench::tensorise(std::size_t context, std::int64_t rows) {
  const TokenTree grown = tree(rows);
  const Branch branch = begin(context, rows);
  return seconds_of([&] { tree_rows(branch, tensorize(grown, static_cast<std::int32_t>(length(context)))); });
}

double StepBench::tables(std::size_t context, std::int64_t rows) {
  const Branch branch = begin(context, rows);
  const std::vector<Row> step = tree_rows(branch, tensorize(tree(rows), static_cast<std::int32_t>(length(context))));
  return seconds_of([&] { tables_.prepare(step); });
}

double StepBench::mask(std::size_t context, std::int64_t rows) {
  const Branch branch = begin(context, rows);
  const std::vector<Row> step = tree_rows(branch, tensorize(tree(rows), static_cast<std::int32_t>(length(context))));
  std::vector<std::uint8_t> hidden(static_cast<std::size_t>(rows * mask_columns(step)));
  return seconds_of([&] { write_mask(step, mask_columns(step), hidden); });
}

double StepBench::commit(std::size_t context, std::int64_t rows) {
  const TokenTree grown = tree(rows);
  Branch branch = begin(context, rows);
  write_rows(branch, grown);
  const double seconds = seconds_of([&] {
    std::vector<std::int32_t> positions;
    for (int node : grown.path(grown.size() - 1))
      positions.push_back(static_cast<std::int32_t>(length(context) + node));
    branch.commit_path(positions);
  });
  cache_.truncate(sequences_[context], length(context));
  return seconds;
}

std::int64_t StepBench::kv_bytes() const {
  return cache_.memory().slot_bytes() * positions_of_all(sizes_);
}

namespace {

// No more KV memory than the loop needs here.
DecoderOptions decoder_options(const OpenEngine& engine, std::int64_t positions) {
  DecoderOptions options = engine.decoder;
  options.context = std::min(options.context, positions);
  return options;
}

std::int64_t plain_positions(const BenchSizes& sizes) {
  return std::max(sizes.prefill, sizes.prompt + sizes.answer);
}

}  // namespace

LoopBench::LoopBench(const OpenEngine& engine, const Drafting* drafting, const BenchSizes& sizes,
                     std::function<bool()> cancelled)
    : engine_(&engine),
      sizes_(sizes),
      cancelled_(std::move(cancelled)),
      plain_(*engine.model, decoder_options(engine, plain_positions(sizes))) {
  if (drafting != nullptr)
    drafted_ = std::make_unique<Batch>(
        *engine.model, decoder_options(engine, sizes.prompt + kDraftedAnswer + max_rows(drafting->tree())),
        drafting->speculation());
}

std::vector<std::int32_t> LoopBench::prompt(std::int64_t length, std::int32_t first) const {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
  for (std::int64_t i = 0; i < length; ++i)
    tokens[static_cast<std::size_t>(i)] = made_up_token(4, i % kRepeatedTokens, engine_->model->config().vocabulary);
  tokens[0] = first;
  return tokens;
}

GenerateResult LoopBench::generate(Batch& decoder, std::int64_t prompt, std::int64_t answer, GenerateEvents events) {
  const std::vector<std::int32_t> tokens = this->prompt(prompt, next_prompt_);
  next_prompt_ = static_cast<std::int32_t>((next_prompt_ + 1) % engine_->model->config().vocabulary);
  events.cancelled = cancelled_;
  return decoder.generate({.prompt = tokens, .options = {.max_tokens = answer}, .events = events, .cache = false});
}

double LoopBench::prefill() {
  return generate(plain_, sizes_.prefill, 0, {}).prefill_seconds;
}

double LoopBench::plain_decoding(std::int64_t prompt) {
  // The first token comes with the prompt.
  const GenerateResult result = generate(plain_, prompt, sizes_.answer + 1, {});
  return result.decode_seconds / static_cast<double>(std::max<std::int64_t>(1, result.rounds()));
}

OpSample LoopBench::plain_decoding_by_ops() {
  check(engine_->timed != nullptr, "bench: no timed device");
  bool begun = false;
  const auto on_token = [&](const GeneratedToken&) {
    if (!begun) engine_->timed->start();
    return begun = true;
  };
  const GenerateResult result = generate(plain_, sizes_.prompt, sizes_.answer + 1, {.on_token = on_token});
  return {result.decode_seconds, engine_->timed->stop()};
}

RoundSample LoopBench::round() {
  check(drafted_ != nullptr, "bench: rounds without drafters");
  RoundSample sum;
  double rounds = 0;
  TurnRecorder recorder;
  const auto add_round = [&](const Round& round) {
    sum.times += round.times;
    sum.trace += seconds_of([&] { recorder.observe(round); });
    sum.rows += round.tree.size();
    ++rounds;
  };
  generate(*drafted_, sizes_.prompt, kDraftedAnswer, {.on_round = add_round});
  for (double* part : {&sum.times.draft, &sum.times.prepare, &sum.times.verify, &sum.times.accept, &sum.times.commit,
                       &sum.trace, &sum.rows})
    *part /= std::max(1.0, rounds);
  return sum;
}

std::int64_t LoopBench::user_steps() const {
  return std::min(sizes_.answer, kUserSteps);
}

// With room for the prompts, which are read once and found again, and for what is written behind them.
Batch& LoopBench::batch_of(std::int64_t users) {
  std::unique_ptr<Batch>& batch = of_users_[users];
  if (batch == nullptr) {
    DecoderOptions options = decoder_options(*engine_, sizes_.prompt + user_steps());
    options.parallel = static_cast<int>(users);
    options.cache_positions = 3 * users * whole_blocks(options.context);
    batch = std::make_unique<Batch>(*engine_->model, options);
    submit_users(*batch, users, 1);
    while (batch->step() && !cancelled_()) {
    }
    users_step(users);  // warms up
  }
  return *batch;
}

void LoopBench::submit_users(Batch& batch, std::int64_t users, std::int64_t answer) const {
  for (std::int64_t user = 0; user < users; ++user) {
    const auto first = static_cast<std::int32_t>(user % engine_->model->config().vocabulary);
    batch.submit({.prompt = prompt(sizes_.prompt, first),
                  .options = {.max_tokens = answer},
                  .events = {.cancelled = cancelled_}});
  }
}

// All of them join in one step, since all but the last token of their prompts is known, and leave in one.
double LoopBench::users_step(std::int64_t users) {
  Batch& batch = batch_of(users);
  submit_users(batch, users, user_steps() + 1);
  batch.step();
  const std::int64_t before = batch.statistics().answer_tokens;
  const double begin = steady_seconds();
  while (batch.step()) {
  }
  const double steps = static_cast<double>(batch.statistics().answer_tokens - before) / static_cast<double>(users);
  return (steady_seconds() - begin) / std::max(1.0, steps);
}

}  // namespace espalier
