#include "decode/decoder.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/random.h"

namespace espalier {
namespace {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::int64_t choose_context(const ModelConfig& config, std::int64_t wanted) {
  if (wanted < 0 || wanted > config.context)
    input_error("--context: expected 1 to {} (what the model was made for), got {}", config.context, wanted);
  return wanted == 0 ? config.context : wanted;
}

std::int64_t choose_prefill_rows(const Device& device, std::int64_t context, std::int64_t wanted) {
  check(wanted >= 1, "prefill steps of {} rows", wanted);
  const std::int64_t most = device.row_buckets().empty() ? wanted : std::min(wanted, device.row_buckets().back());
  return std::min(most, context);
}

std::size_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
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

Decoder::Decoder(const Transformer& model, const DecoderOptions& options)
    : model_(&model),
      context_(choose_context(model.config(), options.context)),
      prefill_rows_(choose_prefill_rows(model.device(), context_, options.prefill_rows)),
      cache_(model.device(), model.kv_shape(options.kv_type), context_),
      workspace_(model, {.rows = prefill_rows_, .outputs = prefill_rows_, .positions = context_}),
      sequence_(cache_.create()) {}

Decoder::~Decoder() = default;

void Decoder::check_tokens(std::span<const std::int32_t> tokens) const {
  if (tokens.empty()) input_error("the prompt is empty: expected at least one token");
  if (static_cast<std::int64_t>(tokens.size()) > context_)
    input_error("the prompt has {} tokens, the context holds {}", tokens.size(), context_);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= model_->config().vocabulary)
      input_error("token {} of the prompt is {}, the vocabulary has {}", i, tokens[i], model_->config().vocabulary);
}

Row Decoder::row_at(std::int64_t position, std::int32_t token) const {
  Row row;
  row.sequence = sequence_;
  row.token = token;
  row.position = static_cast<std::int32_t>(position);
  row.slot = cache_.slot(sequence_, position);
  row.begin = model_->context_begin(position);
  row.end = static_cast<std::int32_t>(position);
  return row;
}

void Decoder::rewind(std::int64_t length) {
  cache_.set_length(sequence_, length);
  committed_.resize(static_cast<std::size_t>(length));
}

void Decoder::step_over(std::span<const std::int32_t> tokens, std::int64_t begin, std::int64_t end, Wanted wanted) {
  check(cache_.reserve(sequence_, end), "KV cache: no room for {} of {} positions", end, context_);
  std::vector<Row> rows;
  for (std::int64_t p = begin; p < end; ++p) {
    rows.push_back(row_at(p, tokens[static_cast<std::size_t>(p)]));
    rows.back().wants_logits =
        wanted == Wanted::all || (wanted == Wanted::last && p + 1 == static_cast<std::int64_t>(tokens.size()));
  }
  const StepOutput output = model_->forward(rows, cache_, workspace_);
  logits_.resize(output.logits.empty() ? 0 : static_cast<std::size_t>(output.logits.elements()));
  if (!logits_.empty()) download<float>(model_->device(), output.logits, logits_);
  cache_.set_length(sequence_, end);
  for (const Row& row : rows) committed_.push_back(row.token);
}

bool Decoder::prefill(std::span<const std::int32_t> tokens, const GenerateEvents& events) {
  const auto total = static_cast<std::int64_t>(tokens.size());
  const auto first = static_cast<std::int64_t>(committed_.size());
  if (events.on_prefill) events.on_prefill(0, total - first);
  for (std::int64_t begin = first; begin < total; begin += prefill_rows_) {
    if (events.cancelled && events.cancelled()) return false;
    const std::int64_t end = std::min(total, begin + prefill_rows_);
    step_over(tokens, begin, end, Wanted::last);
    if (events.on_prefill) events.on_prefill(end - first, total - first);
  }
  return true;
}

void Decoder::check_request(std::span<const std::int32_t> prompt, const GenerateOptions& options) const {
  check_tokens(prompt);
  check_options(options.sampling);
  for (const auto& [id, bias] : options.sampling.logit_bias)
    if (id < 0 || id >= model_->config().vocabulary)
      input_error("--logit-bias: token {}: the vocabulary has {}", id, model_->config().vocabulary);
  if (options.max_tokens < 0) input_error("--max-tokens: expected 0 or more, got {}", options.max_tokens);
}

GeneratedToken Decoder::draw(const TokenPath& path, const GenerateOptions& options) const {
  GeneratedToken next;
  next.token = sample(logits_, options.sampling, path, uniform(options.seed, path.tokens.size()));
  next.stops = std::ranges::find(options.stop_tokens, next.token) != options.stop_tokens.end();
  if (options.logprobs >= 0) next.logprobs = logprobs(logits_, next.token, options.logprobs);
  return next;
}

// Why the answer ends with the token that was just drawn, if it does.
std::optional<FinishReason> Decoder::end_of_answer(const GeneratedToken& drawn, std::size_t answer, std::size_t path,
                                                   const GenerateOptions& options, const GenerateEvents& events) const {
  const bool goes_on = !events.on_token || events.on_token(drawn);
  if (drawn.stops) return FinishReason::stop_token;
  if (!goes_on) return FinishReason::stopped;
  if (static_cast<std::int64_t>(answer) >= options.max_tokens) return FinishReason::token_limit;
  // To go on, the drawn token needs position path - 1.
  if (static_cast<std::int64_t>(path) > context_) return FinishReason::context_limit;
  if (events.cancelled && events.cancelled()) return FinishReason::cancelled;
  return std::nullopt;
}

GenerateResult Decoder::generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                                 const GenerateEvents& events) {
  check_request(prompt, options);
  GenerateResult result;
  const Stopwatch since_start;
  // The last token of the prompt is always computed again: its logits are what the first draw needs.
  rewind(static_cast<std::int64_t>(std::min(common_prefix(committed_, prompt), prompt.size() - 1)));
  result.reused_tokens = static_cast<std::int64_t>(committed_.size());
  const bool read = prefill(prompt, events);
  if (!read || options.max_tokens == 0) {
    result.finish_reason = read ? FinishReason::token_limit : FinishReason::cancelled;
    result.prefill_seconds = since_start.seconds();
    return result;
  }
  std::vector<std::int32_t> path(prompt.begin(), prompt.end());
  while (true) {
    const GeneratedToken next = draw({path, prompt.size()}, options);
    path.push_back(next.token);
    result.tokens.push_back(next.token);
    if (result.tokens.size() == 1) result.prefill_seconds = since_start.seconds();
    if (const auto reason = end_of_answer(next, result.tokens.size(), path.size(), options, events)) {
      result.finish_reason = *reason;
      break;
    }
    const auto end = static_cast<std::int64_t>(path.size());
    step_over(path, end - 1, end, Wanted::last);
  }
  result.decode_seconds = since_start.seconds() - result.prefill_seconds;
  return result;
}

void Decoder::score(std::span<const std::int32_t> tokens,
                    const std::function<void(std::int64_t, std::span<const float>)>& on_row) {
  check_tokens(tokens);
  rewind(0);
  const auto total = static_cast<std::int64_t>(tokens.size());
  const auto width = static_cast<std::size_t>(model_->config().vocabulary);
  for (std::int64_t begin = 0; begin < total; begin += prefill_rows_) {
    const std::int64_t end = std::min(total, begin + prefill_rows_);
    step_over(tokens, begin, end, Wanted::all);
    for (std::int64_t p = begin; p < end; ++p)
      on_row(p, std::span<const float>(logits_).subspan(static_cast<std::size_t>(p - begin) * width, width));
  }
}

}  // namespace espalier
