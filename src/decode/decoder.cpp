#include "decode/decoder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "decode/accept.h"
#include "decode/step_invariants.h"
#include "decode/step_timing.h"
#include "tree/tree_tensors.h"

namespace espalier {
namespace {

class Stopwatch {
 public:
  explicit Stopwatch(const SecondsClock& clock) : clock_(&clock), start_(clock()), lap_(start_) {}
  double seconds() const { return (*clock_)() - start_; }
  // Since the last lap, or the start.
  double lap() {
    const double now = (*clock_)();
    return now - std::exchange(lap_, now);
  }

 private:
  const SecondsClock* clock_;
  double start_;
  double lap_;
};

std::int64_t choose_context(const ModelConfig& config, std::int64_t wanted) {
  if (wanted < 0 || wanted > config.context)
    input_error("--context: expected 1 to {} (what the model was made for), got {}", config.context, wanted);
  return wanted == 0 ? config.context : wanted;
}

std::int64_t largest_step(const Device& device, std::int64_t wanted) {
  return device.row_buckets().empty() ? wanted : std::min(wanted, device.row_buckets().back());
}

std::int64_t choose_prefill_rows(const Device& device, std::int64_t context, std::int64_t wanted) {
  check(wanted >= 1, "prefill steps of {} rows", wanted);
  return std::min(largest_step(device, wanted), context);
}

// The shape of the trees, with no more rows than one step of the device takes.
TreeOptions choose_tree(const Device& device, const Speculation& speculation) {
  TreeOptions tree = speculation.tree;
  if (speculation.trees) return tree;
  if (!speculation.drafters) return {.shape = TreeShape::chain, .nodes = 1, .depth = 0};
  if (tree.shape == TreeShape::fixed) {
    check(tree.choices.has_value(), "a static tree without choices");
    const int rows = tree.nodes == 0 ? tree.choices->size() : std::min(tree.nodes, tree.choices->size());
    tree.choices = tree.choices->best(static_cast<int>(largest_step(device, rows)));
    tree.nodes = tree.choices->size();
    tree.depth = std::min(tree.depth, tree.choices->depth());
  }
  tree.nodes = static_cast<int>(largest_step(device, tree.nodes));
  if (tree.branch == 0) tree.branch = tree.expand;
  return tree;
}

// Lists say the same as a mask in fewer bytes; a mask is for eager attention, and for devices that want it as soon as
// there is a tree to hide.
StepForm choose_form(const Device& device, const DecoderOptions& options, const TreeOptions& tree) {
  const bool eager = options.attention == AttentionOp::eager;
  if (eager && options.mask == MaskChoice::list)
    throw InputError("--attention eager --mask list: eager attention needs the dense mask");
  const bool wants_mask = eager || (device.prefers_dense_mask() && max_rows(tree) > 1);
  const bool dense = options.mask == MaskChoice::automatic ? wants_mask : options.mask == MaskChoice::dense;
  return {.attention = options.attention, .mask = dense ? MaskForm::dense : MaskForm::list};
}

std::size_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

std::int64_t size_of(std::span<const std::int32_t> tokens) {
  return static_cast<std::int64_t>(tokens.size());
}

}  // namespace

std::string_view name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop_token:
    case FinishReason::stopped: return "stop";
    case FinishReason::token_limit: return "length";
    case FinishReason::context_limit: return "context";
    case FinishReason::cancelled: return "cancelled";
  }
  return "unknown";
}

std::string_view name(AnswerStage stage) {
  switch (stage) {
    case AnswerStage::prefill: return "prefill";
    case AnswerStage::draft: return "draft";
    case AnswerStage::verify: return "verify";
    case AnswerStage::accept: return "accept";
    case AnswerStage::commit: return "commit";
  }
  return "unknown";
}

double GenerateResult::accept_length() const {
  if (accept_lengths.empty()) return 0;
  const auto sum = std::accumulate(accept_lengths.begin(), accept_lengths.end(), std::int64_t{0});
  return static_cast<double>(sum) / static_cast<double>(accept_lengths.size());
}

struct Decoder::Lane {
  SequenceId sequence = 0;
  std::vector<std::int32_t> committed;  // the tokens whose K and V the cache holds
  DrafterSet drafters;

  void tell(const CommittedRows& rows) {
    for (const auto& drafter : drafters) drafter->committed(rows);
  }
};

struct Decoder::Answer {
  Answer(Lane& l, const GenerateRequest& r, const SecondsClock& c) : lane(l), request(r), clock(c) {}

  Lane& lane;
  const GenerateRequest& request;
  GenerateResult result = {};
  std::vector<std::int32_t> path = {};  // prompt and answer; the last token is the root of the next round
  std::optional<FinishReason> finish = {};
  Stopwatch clock;
  AnswerStage stage = AnswerStage::prefill;
  bool callers_failure = false;  // an exception comes from one of the caller's functions

  // Of the round.
  std::size_t round_path = 0;                 // tokens of the path when it began
  bool drafted = false;                       // the drafters were asked
  std::optional<Candidates> candidates = {};  // what they said, where the rows are chosen
  std::optional<TokenTree> tree = {};
  TreeTensors tensors = {};
  std::optional<Branch> branch = {};
  std::int64_t first_row = 0;  // of the tree in its step
  KvTraffic kv = {};
  RoundTimes times = {};

  void begin_round() {
    stage = AnswerStage::draft;
    round_path = path.size();
    drafted = false;
    times = {};
  }
  std::int64_t tokens_left() const { return request.options.max_tokens - size_of(result.tokens); }

  // Calls a function of the caller's.
  template <typename Function, typename... Args>
  auto ask(const Function& function, Args&&... args) {
    try {
      return function(std::forward<Args>(args)...);
    } catch (...) {
      callers_failure = true;
      throw;
    }
  }
};

template <typename Function>
auto Decoder::observed(std::span<Answer* const> answers, const Function& function) {
  try {
    return function();
  } catch (...) {
    for (const Answer* answer : answers) tell_failure(*answer);
    throw;
  }
}

template <typename Function>
auto Decoder::observed(Answer& answer, const Function& function) {
  Answer* const one = &answer;
  return observed(std::span(&one, 1), function);
}

Decoder::Decoder(const Transformer& model, const DecoderOptions& options, const Speculation& speculation)
    : model_(&model),
      context_(choose_context(model.config(), options.context)),
      prefill_rows_(choose_prefill_rows(model.device(), context_, options.prefill_rows)),
      tree_(choose_tree(model.device(), speculation)),
      form_(choose_form(model.device(), options, tree_)),
      invariants_(options.invariants),
      cache_(model.device(), model.kv_shape(options.kv_type), context_of_all(options.lanes), options.kv),
      clock_(speculation.budget ? speculation.budget->clock : steady_seconds),
      trees_(speculation.trees) {
  check(!trees_ || !speculation.drafters, "trees that are known, and drafters too");
  for (int i = 0; i < options.lanes; ++i)
    lanes_.push_back({cache_.create(), {}, speculation.drafters ? speculation.drafters() : DrafterSet()});
  for (const auto& drafter : lanes_[0].drafters) {
    const FeatureWishes wishes = drafter->wishes();
    if (wishes.taps.empty()) continue;
    if (!taps_.empty() && taps_ != wishes.taps)
      throw InputError("--head: two EAGLE-3 heads that tap the teacher at different layers cannot draft together");
    taps_ = wishes.taps;
  }
  const std::int64_t rows =
      std::max(prefill_rows_, largest_step(model.device(), std::int64_t{max_rows(tree_)} * options.lanes));
  workspace_.emplace(
      model,
      WorkspaceShape{.rows = rows, .outputs = rows, .positions = context_, .tap_boundaries = taps_, .form = form_});
  if (speculation.budget && max_rows(tree_) > 1) prepare_budget(*speculation.budget, options);
}

void Decoder::prepare_budget(const ChosenBudget& chosen, const DecoderOptions& options) {
  const std::int64_t rows = largest_step(device(), std::int64_t{max_rows(tree_)} * options.lanes);
  std::optional<StepTimes> times = chosen.times;
  if (!times || !times->usable()) {
    times =
        measure_step_times(*model_, *workspace_,
                           {.kv_type = options.kv_type, .rows = rows, .taps = !taps_.empty(), .clock = chosen.clock});
    if (chosen.on_measured) chosen.on_measured(*times);
  }
  const auto buckets = device().row_buckets();
  budget_.emplace(std::move(*times), BudgetShape{.rows = static_cast<int>(rows),
                                                 .buckets = {buckets.begin(), buckets.end()},
                                                 .drafters = static_cast<int>(lanes_[0].drafters.size())});
}

Decoder::~Decoder() = default;

// Lanes do not share blocks.
std::int64_t Decoder::context_of_all(int lanes) const {
  check(lanes >= 1, "a decoder of {} lanes", lanes);
  const std::int64_t block = KvShape{}.block_size;
  return lanes == 1 ? context_ : lanes * ((context_ + block - 1) / block * block);
}

SequenceId Decoder::sequence(int lane) const {
  return lanes_.at(static_cast<std::size_t>(lane)).sequence;
}

void Decoder::check_tokens(std::span<const std::int32_t> tokens) const {
  if (tokens.empty()) input_error("the prompt is empty: expected at least one token");
  if (size_of(tokens) > context_)
    input_error("the prompt has {} tokens, the context holds {}", tokens.size(), context_);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= model_->config().vocabulary)
      input_error("token {} of the prompt is {}, the vocabulary has {}", i, tokens[i], model_->config().vocabulary);
}

void Decoder::check_request(const GenerateRequest& request) const {
  check_tokens(request.prompt);
  if (!request.answered.empty()) check_tokens(request.answered);
  if (size_of(request.prompt) + size_of(request.answered) > context_)
    input_error("prompt and answer have {} tokens, the context holds {}",
                request.prompt.size() + request.answered.size(), context_);
  check_options(request.options.sampling);
  for (const auto& [id, bias] : request.options.sampling.logit_bias)
    if (id < 0 || id >= model_->config().vocabulary)
      input_error("--logit-bias: token {}: the vocabulary has {}", id, model_->config().vocabulary);
  if (request.options.max_tokens < 0)
    input_error("--max-tokens: expected 0 or more, got {}", request.options.max_tokens);
}

// Back to what the drafters can go on from.
void Decoder::rewind(Lane& lane, std::int64_t length) {
  const std::int64_t kept = length;
  for (const auto& drafter : lane.drafters) length = std::min(length, drafter->resumable(kept));
  for (const auto& drafter : lane.drafters) drafter->rewind(length);
  cache_.truncate(lane.sequence, length);
  lane.committed.resize(static_cast<std::size_t>(length));
}

Branch Decoder::begin(const Lane& lane, std::int64_t rows) {
  std::optional<Branch> branch = cache_.begin(lane.sequence, rows);
  check(branch.has_value(), "KV cache: no room for {} rows behind {} positions of {}", rows, lane.committed.size(),
        context_);
  return std::move(*branch);
}

StepOutput Decoder::step_over(Lane& lane, std::span<const std::int32_t> tokens, std::int64_t end, bool every_logit) {
  const std::int64_t begin_at = size_of(lane.committed);
  Branch branch = begin(lane, end - begin_at);
  std::vector<Row> rows;
  for (std::int64_t p = begin_at; p < end; ++p) {
    rows.push_back(model_->prefill_row(branch.id(), p, tokens[static_cast<std::size_t>(p)]));
    rows.back().wants_logits = every_logit || p + 1 == size_of(tokens);
    rows.back().wants_taps = !taps_.empty();
  }
  const StepOutput output = model_->forward(rows, cache_, *workspace_);
  branch.commit_length(end - begin_at);
  for (const Row& row : rows) lane.committed.push_back(row.token);
  return output;
}

bool Decoder::prefill(Answer& answer, std::span<const std::int32_t> tokens) {
  const GenerateEvents& events = answer.request.events;
  Lane& lane = answer.lane;
  const std::int64_t total = size_of(tokens), first = size_of(lane.committed);
  if (events.on_prefill) answer.ask(events.on_prefill, 0, total - first);
  while (size_of(lane.committed) < total) {
    if (events.cancelled && answer.ask(events.cancelled)) return false;
    const std::int64_t begin_at = size_of(lane.committed), end = std::min(total, begin_at + prefill_rows_);
    const StepOutput output = step_over(lane, tokens, end, false);
    std::vector<std::int32_t> tap_rows(static_cast<std::size_t>(end - begin_at));
    std::iota(tap_rows.begin(), tap_rows.end(), 0);
    lane.tell({.begin = begin_at,
               .tokens = std::span(lane.committed).subspan(static_cast<std::size_t>(begin_at)),
               .taps = output.taps,
               .rows = tap_rows,
               .hidden = output.hidden,
               .hidden_row = 0});
    if (end == total) read_logits(output.logits, 0);
    if (events.on_prefill) answer.ask(events.on_prefill, end - first, total - first);
  }
  return true;
}

void Decoder::read_logits(ConstView logits, std::int64_t row) {
  logits_.resize(static_cast<std::size_t>(model_->config().vocabulary));
  download<float>(model_->device(), logits.rows(row, 1), logits_);
}

// The teacher's next token behind the path, from the logits just read; tells the caller.
std::int32_t Decoder::draw(Answer& answer) {
  const GenerateOptions& options = answer.request.options;
  const TokenPath path{answer.path, answer.request.prompt.size()};
  GeneratedToken next;
  next.token = sample(logits_, options.sampling, path, uniform(options.seed, path.tokens.size()));
  next.stops = std::ranges::find(options.stop_tokens, next.token) != options.stop_tokens.end();
  if (options.logprobs >= 0) next.logprobs = logprobs(logits_, next.token, options.logprobs);
  answer.path.push_back(next.token);
  answer.result.tokens.push_back(next.token);
  answer.finish = end_of_answer(answer, next);
  return next.token;
}

// Why the answer ends with the token that was just drawn, if it does.
std::optional<FinishReason> Decoder::end_of_answer(Answer& answer, const GeneratedToken& drawn) const {
  const GenerateEvents& events = answer.request.events;
  const bool goes_on = !events.on_token || answer.ask(events.on_token, drawn);
  if (drawn.stops) return FinishReason::stop_token;
  if (!goes_on) return FinishReason::stopped;
  if (answer.tokens_left() <= 0) return FinishReason::token_limit;
  // To go on, the drawn token needs the last position of the path.
  if (size_of(answer.path) > context_) return FinishReason::context_limit;
  if (events.cancelled && answer.ask(events.cancelled)) return FinishReason::cancelled;
  return std::nullopt;
}

// From the prompt to the first token, or to the first round of an answer that has begun.
void Decoder::start(Answer& answer) {
  const auto& [prompt, options, events, answered] = answer.request;
  answer.path.assign(prompt.begin(), prompt.end());
  answer.path.insert(answer.path.end(), answered.begin(), answered.end());
  answer.round_path = answer.path.size();
  answer.result.tokens.assign(answered.begin(), answered.end());
  // The last token of the prompt is always computed again: its logits are what the first draw needs. The last one of an
  // answer is the root: its logits are the first round's.
  const auto before = static_cast<std::ptrdiff_t>(answer.path.size()) - (answered.empty() ? 0 : 1);
  const auto tokens = std::span(answer.path).first(static_cast<std::size_t>(before));
  rewind(answer.lane, static_cast<std::int64_t>(std::min(common_prefix(answer.lane.committed, tokens),
                                                         answered.empty() ? prompt.size() - 1 : tokens.size())));
  answer.result.reused_tokens = size_of(answer.lane.committed);
  if (!prefill(answer, tokens)) {
    answer.finish = FinishReason::cancelled;
  } else if (answer.tokens_left() <= 0) {
    answer.finish = FinishReason::token_limit;
  } else if (answered.empty()) {
    draw(answer);
  }
  answer.result.prefill_seconds = answer.clock.seconds();
}

// The trees of the next round.
void Decoder::draft(std::span<Answer* const> answers) {
  bool ask = true;
  if (budget_) {
    std::int64_t positions = 0;
    for (const Answer* answer : answers) positions += size_of(answer->lane.committed);
    ask = budget_->begin_round(static_cast<int>(answers.size()), positions / static_cast<std::int64_t>(answers.size()));
  }
  for (Answer* answer : answers) {
    observed(*answer, [&] {
      answer->begin_round();
      trees_ ? take_known_tree(*answer) : grow(*answer, ask);
    });
  }
  if (budget_) observed(answers, [&] { cut(answers); });
}

void Decoder::take_known_tree(Answer& answer) {
  Stopwatch clock(clock_);
  answer.tree = trees_(answer.path);
  const TokenTree& tree = *answer.tree;
  check(tree[0].token == answer.path.back(), "a tree below token {}, expected one below {}", tree[0].token,
        answer.path.back());
  check(tree.size() <= max_rows(tree_), "a tree of {} rows, expected at most {}", tree.size(), max_rows(tree_));
  check(size_of(answer.lane.committed) + tree.size() <= context_, "a tree of {} rows behind {} of {} positions",
        tree.size(), answer.lane.committed.size(), context_);
  answer.times.draft = clock.lap();
}

// What the drafters say: no deeper than the answer may still get, and inside the context.
void Decoder::grow(Answer& answer, bool ask) {
  Stopwatch clock(clock_);
  const std::int64_t prefix = size_of(answer.lane.committed), room = context_ - prefix;
  const auto depth = static_cast<int>(std::min<std::int64_t>({tree_.depth, room - 1, answer.tokens_left() - 1}));
  const auto rows = static_cast<int>(std::min<std::int64_t>(tree_.nodes, room));
  const RoundLimits limits{
      .rows = rows, .depth = depth, .vocabulary = static_cast<std::int32_t>(model_->config().vocabulary)};
  const std::int32_t root = answer.path.back();
  answer.tree.emplace(root);
  if (budget_) answer.candidates.emplace(root);
  answer.drafted = ask && depth > 0 && rows > 1 && !answer.lane.drafters.empty();
  if (answer.drafted) {
    for (const auto& drafter : answer.lane.drafters) drafter->begin_round(answer.path);
    if (budget_) {
      LevelBudget levels(*budget_, clock_);
      answer.candidates = grow_candidates(root, tree_, limits, answer.lane.drafters, &levels);
    } else {
      answer.tree = grow_tree(root, tree_, limits, answer.lane.drafters);
    }
  }
  answer.times.draft = clock.lap();
}

// Of all that was drafted, what pays.
void Decoder::cut(std::span<Answer* const> answers) {
  Stopwatch clock(clock_);
  double draft_seconds = 0;
  std::vector<DraftOfLane> drafts;
  for (const Answer* answer : answers) {
    const auto room = std::min<std::int64_t>(tree_.nodes, context_ - size_of(answer->lane.committed));
    drafts.push_back({&*answer->candidates, static_cast<int>(room)});
    draft_seconds += answer->times.draft;
  }
  std::vector<TokenTree> trees = budget_->cut(drafts, draft_seconds);
  const double seconds = clock.lap() / static_cast<double>(answers.size());
  for (std::size_t i = 0; i < answers.size(); ++i) {
    answers[i]->tree = std::move(trees[i]);
    answers[i]->times.draft += seconds;
  }
}

// What the round was worth.
void Decoder::settle(std::span<Answer* const> answers) {
  std::int64_t rows = 0, tokens = 0;
  double draft_seconds = 0;
  for (const Answer* answer : answers) {
    rows += answer->tree->size();
    tokens += answer->result.accept_lengths.back() + 1;
    draft_seconds += answer->times.draft;
  }
  budget_->end_round(rows, tokens, draft_seconds);
}

// The rows of the answer's tree, behind the rows of the step's other trees.
void Decoder::append_rows(Answer& answer, std::vector<Row>& rows) {
  const auto prefix = static_cast<std::int32_t>(answer.lane.committed.size());
  answer.tensors = tensorize(*answer.tree, {.prefix = prefix});
  const std::int64_t copied = cache_.counts().bytes_branched;
  answer.branch = begin(answer.lane, answer.tree->size());
  answer.kv = {.branched = cache_.counts().bytes_branched - copied};
  answer.first_row = static_cast<std::int64_t>(rows.size());
  for (int k = 0; k < answer.tensors.nodes; ++k) {
    std::vector<std::int32_t> above;
    for (std::int32_t ancestor : answer.tensors.ancestors(k)) above.push_back(prefix + ancestor);
    rows.push_back(model_->tree_row(answer.branch->id(), prefix, prefix + k,
                                    answer.tensors.token[static_cast<std::size_t>(k)], above));
    rows.back().wants_logits = true;
    rows.back().wants_taps = !taps_.empty();
  }
}

// One step of the teacher over the trees of all these answers, made and launched.
StepOutput Decoder::launch(std::span<Answer* const> answers) {
  Stopwatch clock(clock_);
  std::vector<Row> rows;
  tables_.reset();
  for (Answer* answer : answers) {
    answer->stage = AnswerStage::verify;
    append_rows(*answer, rows);
  }
  step_rows_ = static_cast<std::int64_t>(rows.size());
  const auto keep_and_check = [&](const HostTables& tables) {
    tables_ = tables;
    if (invariants_) check_trees(tables, answers);
  };
  const double prepare = clock.lap();
  const StepOutput output = model_->forward(rows, cache_, *workspace_, std::cref(keep_and_check));
  const double verify = clock.lap();
  for (Answer* answer : answers) {
    answer->times.prepare = prepare;
    answer->times.verify = verify;
  }
  return output;
}

void Decoder::verify(std::span<Answer* const> answers) {
  const StepOutput output = observed(answers, [&] { return launch(answers); });
  for (Answer* answer : answers) observed(*answer, [&] { accept(*answer, output); });
}

void Decoder::check_trees(const HostTables& tables, std::span<Answer* const> answers) const {
  std::vector<TreeOfStep> trees;
  for (const Answer* answer : answers) trees.push_back({&*answer->tree, answer->tensors, answer->branch->id()});
  const StepLimits limits{.tree = {.vocabulary = static_cast<std::int32_t>(model_->config().vocabulary),
                                   .positions = static_cast<std::int32_t>(context_)},
                          .window = static_cast<std::int32_t>(model_->config().sliding_window)};
  check_step(tables, trees, cache_, limits);
}

// Walks the verified tree, commits the path and tells everybody.
void Decoder::accept(Answer& answer, const StepOutput& output) {
  Stopwatch clock(clock_);
  answer.stage = AnswerStage::accept;
  const std::vector<Visit> visits = walk(
      *answer.tree,
      [&](int node) {
        read_logits(output.logits, answer.first_row + node);
        answer.times.verify += clock.lap();
        // A step has ended when the first of its logits can be looked at.
        if (budget_ && answer.first_row + node == 0) budget_->observe_step(step_rows_, answer.times.verify);
        const std::int32_t token = draw(answer);
        answer.times.accept += clock.lap();
        return token;
      },
      [&](std::int32_t) { return answer.finish.has_value(); });
  answer.stage = AnswerStage::commit;
  commit(answer, visits, output);
  answer.times.commit = clock.lap();
  tell_round(answer, visits);
}

// Everybody who listens, and the result.
void Decoder::tell_round(Answer& answer, std::span<const Visit> visits) {
  if (budget_ && answer.drafted) budget_->learn(*answer.candidates, visits);
  GenerateResult& result = answer.result;
  result.accept_lengths.push_back(static_cast<std::int64_t>(visits.size()) - 1);
  result.verified_rows += answer.tree->size();
  result.plain_rounds += answer.tree->size() == 1 ? 1 : 0;
  result.undrafted_rounds += answer.drafted ? 0 : 1;
  result.times += answer.times;
  if (!answer.request.events.on_round) return;
  Round round{.number = result.rounds() - 1,
              .prefix = answer.tensors.prefix,
              .tree = *answer.tree,
              .visits = visits,
              .finish = answer.finish,
              .times = answer.times,
              .kv = answer.kv,
              .form = form_};
  if (budget_) round.budget = {answer.drafted, budget_->step_seconds(), step_rows_};
  answer.ask(answer.request.events.on_round, round);
}

void Decoder::commit(Answer& answer, std::span<const Visit> visits, const StepOutput& output) {
  Lane& lane = answer.lane;
  const std::int64_t prefix = answer.tensors.prefix;
  std::vector<std::int32_t> positions(static_cast<std::size_t>(prefix)), rows;
  std::iota(positions.begin(), positions.end(), 0);
  for (const Visit& visit : visits) {
    positions.push_back(static_cast<std::int32_t>(prefix + visit.node));
    rows.push_back(static_cast<std::int32_t>(answer.first_row + visit.node));
  }
  const std::int64_t moved = cache_.counts().bytes_committed;
  answer.branch->commit_path(positions);
  answer.kv.committed = cache_.counts().bytes_committed - moved;
  answer.branch.reset();
  for (const Visit& visit : visits) lane.committed.push_back((*answer.tree)[visit.node].token);
  if (answer.drafted)
    for (const auto& drafter : lane.drafters) drafter->end_round(*answer.tree, visits);
  lane.tell({.begin = prefix,
             .tokens = std::span(lane.committed).subspan(static_cast<std::size_t>(prefix)),
             .taps = output.taps,
             .rows = rows,
             .hidden = output.hidden,
             .hidden_row = rows.back()});
}

void Decoder::tell_failure(const Answer& answer) const {
  const GenerateRequest& request = answer.request;
  if (!request.events.on_failure || answer.callers_failure) return;
  const auto path = std::span<const std::int32_t>(answer.path);
  if (path.size() < request.prompt.size()) return;  // not even the prompt found its memory
  const bool has_tree = answer.stage > AnswerStage::draft;
  const bool is_open = answer.branch && answer.branch->open();
  const std::int64_t length = cache_.length(answer.lane.sequence);
  request.events.on_failure({.stage = answer.stage,
                             .round = answer.result.rounds(),
                             .prompt = request.prompt,
                             .options = request.options,
                             .answered = path.first(answer.round_path).subspan(request.prompt.size()),
                             .tree = has_tree ? &*answer.tree : nullptr,
                             .drawn = path.subspan(answer.round_path),
                             .tables = has_tree && tables_ ? &*tables_ : nullptr,
                             .first_row = answer.first_row,
                             .cache = cache_,
                             .table = is_open ? answer.branch->id() : answer.lane.sequence,
                             .committed = length,
                             .positions = length + (is_open ? answer.branch->rows() : 0),
                             .form = form_});
}

// Rounds until every answer is complete. Trees that do not fit one step of the device take several.
void Decoder::run_rounds(std::vector<Answer>& answers) {
  while (true) {
    std::vector<Answer*> active;
    for (Answer& answer : answers)
      if (!answer.finish) active.push_back(&answer);
    if (active.empty()) return;
    draft(active);
    for (std::size_t begin_at = 0; begin_at < active.size();) {
      std::size_t end = begin_at;
      for (std::int64_t rows = 0; end < active.size(); ++end) {
        rows += active[end]->tree->size();
        if (rows > workspace_->shape().rows) break;
      }
      verify(std::span(active).subspan(begin_at, end - begin_at));
      begin_at = end;
    }
    if (budget_) settle(active);
  }
}

std::vector<GenerateResult> Decoder::generate(std::span<const GenerateRequest> requests) {
  check(requests.size() <= lanes_.size(), "{} requests for {} lanes", requests.size(), lanes_.size());
  for (const GenerateRequest& request : requests) check_request(request);
  std::vector<Answer> answers;
  answers.reserve(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    answers.emplace_back(lanes_[i], requests[i], clock_);
    observed(answers.back(), [&] { start(answers.back()); });
  }
  run_rounds(answers);
  std::vector<GenerateResult> results;
  for (Answer& answer : answers) {
    answer.result.finish_reason = *answer.finish;
    answer.result.decode_seconds = answer.clock.seconds() - answer.result.prefill_seconds;
    results.push_back(std::move(answer.result));
  }
  return results;
}

GenerateResult Decoder::generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                                 const GenerateEvents& events) {
  return generate(GenerateRequest{.prompt = prompt, .options = options, .events = events});
}

GenerateResult Decoder::generate(const GenerateRequest& request) {
  return std::move(generate(std::span(&request, 1)).front());
}

void Decoder::score(std::span<const std::int32_t> tokens,
                    const std::function<void(std::int64_t, std::span<const float>)>& on_row) {
  check_tokens(tokens);
  Lane& lane = lanes_[0];
  rewind(lane, 0);
  const std::int64_t total = size_of(tokens);
  for (std::int64_t begin_at = 0; begin_at < total; begin_at += prefill_rows_) {
    const std::int64_t end = std::min(total, begin_at + prefill_rows_);
    const StepOutput output = step_over(lane, tokens, end, true);
    for (std::int64_t p = begin_at; p < end; ++p) {
      read_logits(output.logits, p - begin_at);
      on_row(p, logits_);
    }
  }
}

}  // namespace espalier
