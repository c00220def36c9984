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

// Runs one step over rows that lie behind the committed ones and commits them all.
void Decoder::step(std::span<const Row> rows, std::int64_t new_length) {
  const StepOutput output = model_->forward(rows, cache_, workspace_);
  logits_.resize(output.logits.empty() ? 0 : static_cast<std::size_t>(output.logits.elements()));
  if (!logits_.empty()) download<float>(model_->device(), output.logits, logits_);
  cache_.set_length(sequence_, new_length);
  for (const Row& row : rows) committed_.push_back(row.token);
}

bool Decoder::prefill(std::span<const std::int32_t> tokens, const GenerateEvents& events) {
  const auto total = static_cast<std::int64_t>(tokens.size());
  const auto first = static_cast<std::int64_t>(committed_.size());
  check(cache_.reserve(sequence_, total), "KV cache: no room for {} of {} positions", total, context_);
  std::vector<Row> rows;
  for (std::int64_t begin = first; begin < total; begin += prefill_rows_) {
    if (events.cancelled && events.cancelled()) {
      rewind(begin);
      return false;
    }
    // The blocks behind a committed prefix stay reserved only until the next commit: ask again for all of them.
    check(cache_.reserve(sequence_, total), "KV cache: no room for {} of {} positions", total, context_);
    const std::int64_t end = std::min(total, begin + prefill_rows_);
    rows.clear();
    for (std::int64_t p = begin; p < end; ++p) rows.push_back(row_at(p, tokens[static_cast<std::size_t>(p)]));
    rows.back().wants_logits = end == total;
    step(rows, end);
    if (events.on_prefill) events.on_prefill(end - first, total - first);
  }
  return true;
}

GenerateResult Decoder::generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                                 const GenerateEvents& events) {
  check_tokens(prompt);
  check_options(options.sampling);
  if (options.max_tokens < 0) input_error("--max-tokens: expected 0 or more, got {}", options.max_tokens);
  GenerateResult result;
  const Stopwatch since_start;
  // The last token of the prompt is always computed again: its logits are what the first draw needs.
  rewind(static_cast<std::int64_t>(std::min(common_prefix(committed_, prompt), prompt.size() - 1)));
  result.reused_tokens = static_cast<std::int64_t>(committed_.size());
  if (!prefill(prompt, events)) {
    result.finish_reason = FinishReason::cancelled;
    result.prefill_seconds = since_start.seconds();
    return result;
  }
  std::vector<std::int32_t> path(prompt.begin(), prompt.end());
  Stopwatch since_first;
  while (true) {
    if (static_cast<std::int64_t>(result.tokens.size()) >= options.max_tokens) {
      result.finish_reason = FinishReason::token_limit;
      break;
    }
    GeneratedToken next;
    next.token = sample(logits_, options.sampling, {path, prompt.size()}, uniform(options.seed, path.size()));
    if (options.logprobs >= 0) next.logprobs = logprobs(logits_, next.token, options.logprobs);
    result.tokens.push_back(next.token);
    path.push_back(next.token);
    if (result.tokens.size() == 1) {
      result.prefill_seconds = since_start.seconds();
      since_first = Stopwatch();
    }
    next.stops = std::ranges::find(options.stop_tokens, next.token) != options.stop_tokens.end();
    const bool goes_on = !events.on_token || events.on_token(next);
    if (next.stops) {
      result.finish_reason = FinishReason::stop_token;
      break;
    }
    if (!goes_on) {
      result.finish_reason = FinishReason::stopped;
      break;
    }
    if (static_cast<std::int64_t>(result.tokens.size()) >= options.max_tokens) continue;
    // The new token would stand at position path.size() - 1.
    if (static_cast<std::int64_t>(path.size()) > context_) {
      result.finish_reason = FinishReason::context_limit;
      break;
    }
    if (events.cancelled && events.cancelled()) {
      result.finish_reason = FinishReason::cancelled;
      break;
    }
    const auto position = static_cast<std::int64_t>(path.size()) - 1;
    check(cache_.reserve(sequence_, position + 1), "KV cache: no room for position {} of {}", position, context_);
    Row root = row_at(position, next.token);
    root.wants_logits = true;
    step(std::span(&root, 1), position + 1);
  }
  if (result.tokens.empty()) {
    result.prefill_seconds = since_start.seconds();
  } else {
    result.decode_seconds = since_first.seconds();
  }
  return result;
}

void Decoder::score(std::span<const std::int32_t> tokens,
                    const std::function<void(std::int64_t, std::span<const float>)>& on_row) {
  check_tokens(tokens);
  rewind(0);
  const auto total = static_cast<std::int64_t>(tokens.size());
  const auto width = static_cast<std::size_t>(model_->config().vocabulary);
  std::vector<Row> rows;
  for (std::int64_t begin = 0; begin < total; begin += prefill_rows_) {
    check(cache_.reserve(sequence_, total), "KV cache: no room for {} of {} positions", total, context_);
    const std::int64_t end = std::min(total, begin + prefill_rows_);
    rows.clear();
    for (std::int64_t p = begin; p < end; ++p) {
      rows.push_back(row_at(p, tokens[static_cast<std::size_t>(p)]));
      rows.back().wants_logits = true;
    }
    step(rows, end);
    for (std::int64_t p = begin; p < end; ++p)
      on_row(p, std::span<const float>(logits_).subspan(static_cast<std::size_t>(p - begin) * width, width));
  }
}

}  // namespace espalier
