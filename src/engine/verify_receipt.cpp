#include "engine/verify_receipt.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "decode/answer_replay.h"
#include "decode/decoder_choices.h"
#include "decode/draw.h"
#include "decode/step_times.h"
#include "session/text_stream.h"
#include "text/token_text.h"

namespace espalier {
namespace {

constexpr std::int64_t kVerifiedRows = 64;       // larger steps are hardly faster, and their logits take more memory
constexpr std::int64_t kFewestPositions = 1024;  // of a batch, so that most receipts share one
constexpr std::string_view kCancelled = "cancelled";

// Draws the answer of a receipt again. A draw depends on the tokens before it as the receipt states them, so draws can
// be made side by side; the first that differs counts.
class AnswerJudge {
 public:
  AnswerJudge(const Receipt& receipt, const GenerateRequest& request, std::span<const std::int32_t> text,
              ThreadPool& threads)
      : receipt_(receipt),
        options_(request.options),
        text_(text),
        threads_(threads),
        replay_(request, receipt.origin.context) {}

  // The logits of the positions of the text from `position` on.
  void see(std::int64_t position, std::span<const std::span<const float>> rows) {
    if (difference_ || replay_.finish()) return;
    std::vector<std::int32_t> drawn(rows.size());
    threads_.run(std::ssize(rows), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto path = text_.first(static_cast<std::size_t>(position + i + 1));
        drawn[static_cast<std::size_t>(i)] =
            draw_token(rows[static_cast<std::size_t>(i)], options_, {path, receipt_.prompt.size()});
      }
    });
    for (std::size_t i = 0; i < rows.size() && !difference_ && !replay_.finish(); ++i) judge(drawn[i], rows[i]);
  }

  // After the last token.
  std::optional<ReceiptDifference> difference() const {
    if (difference_) return difference_;
    const std::string reason(replay_.finish() ? name(*replay_.finish()) : "");
    ReceiptDifference end{.position = static_cast<std::int64_t>(judged_), .finish_reason = reason};
    if (judged_ < receipt_.answer.size()) {
      end.stated = receipt_.answer[judged_];
      return end;
    }
    // Of an answer that was cancelled only the beginning is stated, and that there was more of it.
    if (reason == (receipt_.finish_reason == kCancelled ? "" : receipt_.finish_reason)) return std::nullopt;
    end.stated_reason = receipt_.finish_reason;
    return end;
  }

 private:
  void judge(std::int32_t drawn, std::span<const float> logits) {
    const std::int32_t stated = receipt_.answer[judged_];
    replay_.take(drawn);
    if (drawn == stated)
      ++judged_;
    else
      difference_ = {.position = static_cast<std::int64_t>(judged_),
                     .drawn = drawn,
                     .stated = stated,
                     .margin = margin(logits, drawn, stated)};
  }

  static std::optional<double> margin(std::span<const float> logits, std::int32_t drawn, std::int32_t stated) {
    if (static_cast<std::size_t>(stated) >= logits.size()) return std::nullopt;
    const double difference = logprobs(logits, drawn, 0).chosen.logprob - logprobs(logits, stated, 0).chosen.logprob;
    return std::isfinite(difference) ? std::optional(difference) : std::nullopt;
  }

  const Receipt& receipt_;
  const GenerateOptions& options_;
  std::span<const std::int32_t> text_;
  ThreadPool& threads_;
  AnswerReplay replay_;
  std::size_t judged_ = 0;  // tokens that are the model's own
  std::optional<ReceiptDifference> difference_;
};

// The tokens whose logits say what the answer is: prompt and answer without what its last draw adds. An id that the
// model does not have ends it, and so does a full context: the token there is judged, and none behind it.
std::vector<std::int32_t> judged_text(const Receipt& receipt, std::int64_t vocabulary) {
  std::vector<std::int32_t> text = receipt.prompt;
  for (std::size_t i = 0; i + 1 < receipt.answer.size(); ++i) {
    if (receipt.answer[i] >= vocabulary || std::ssize(text) >= receipt.origin.context) break;
    text.push_back(receipt.answer[i]);
  }
  return text;
}

std::string token_shown(std::int32_t token, const Tokenizer& tokenizer) {
  return fmt::format("{} {}", token, quoted_token(tokenizer.bytes(token, false)));
}

std::string difference_text(const ReceiptDifference& difference, const Tokenizer& tokenizer) {
  const auto ending = [](const std::string& reason) {
    return reason.empty() ? std::string("goes on") : "ends by " + reason;
  };
  if (!difference.stated)
    return fmt::format("after {} tokens the answer {}, by the receipt it {}", difference.position,
                       ending(difference.finish_reason), ending(difference.stated_reason));
  const std::string stated = token_shown(*difference.stated, tokenizer);
  if (!difference.drawn)
    return fmt::format("after {} tokens the answer {}, the receipt goes on with {}", difference.position,
                       ending(difference.finish_reason), stated);
  return fmt::format("token {} of the answer is {}, the receipt says {}, margin {}", difference.position,
                     token_shown(*difference.drawn, tokenizer), stated,
                     difference.margin ? fmt::format("{:.4f}", *difference.margin) : "infinite");
}

}  // namespace

ReceiptVerifier::ReceiptVerifier(const OpenEngine& engine)
    : engine_(&engine), fingerprint_(model_fingerprint(engine)), threads_(engine.threads) {
  check_receipts(*engine.device, "verify");
}

// The type of its keys and values, which any model can have.
DType ReceiptVerifier::check_origin(const ReceiptOrigin& origin, std::string_view where) const {
  const std::optional<DType> kv_type = parse_dtype(origin.fingerprint.kv);
  if (!kv_type || !is_float(*kv_type))
    input_error("{}: kv: expected f16, bf16 or f32, got {}", where, origin.fingerprint.kv);
  ModelFingerprint expected = fingerprint_;
  expected.kv = origin.fingerprint.kv;
  expected.chat_template = origin.fingerprint.chat_template;
  if (const auto other = first_other_part(origin.fingerprint, expected))
    input_error("{}: not of {} as it is computed here: {}", where, engine_->path.string(), *other);
  return *kv_type;
}

Batch& ReceiptVerifier::batch_for(std::int64_t positions, DType kv_type) {
  if (batch_ && batch_->context() >= positions && kv_type_ == kv_type) return *batch_;
  DecoderOptions options = engine_->decoder;
  const auto wanted = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(positions)));
  options.context = std::min(engine_->model->config().context, std::max(wanted, kFewestPositions));
  options.kv_type = kv_type_ = kv_type;
  options.scored_rows = options.prefill_rows = kVerifiedRows;
  options.parallel = 1;
  options.cache_positions = 0;
  return batch_.emplace(*engine_->model, options);
}

ReceiptVerdict ReceiptVerifier::verify(const Receipt& receipt, std::string_view where) {
  const double begin = steady_seconds();
  const DType kv_type = check_origin(receipt.origin, where);
  const ModelConfig& config = engine_->model->config();
  TextOptions options = receipt.options;
  options.generate.logprobs = options.generate.prompt_logprobs = -1;
  TextStream stream(*engine_->text, receipt.prompt, options, {});
  const GenerateRequest request = stream.request();
  try {
    choose_context(config, receipt.origin.context);
    check_request(request, {.context = receipt.origin.context, .vocabulary = config.vocabulary});
  } catch (const InputError& error) {
    input_error("{}: {}", where, error.what());
  }
  const std::vector<std::int32_t> text = judged_text(receipt, config.vocabulary);
  AnswerJudge judge(receipt, request, text, threads_);
  if (!receipt.answer.empty())
    batch_for(std::ssize(text), kv_type)
        .score_behind(std::ssize(receipt.prompt) - 1, text,
                      [&](std::int64_t position, auto rows) { judge.see(position, rows); });
  ReceiptVerdict verdict{.difference = judge.difference()};
  stream.finish();
  if (verdict.verified()) verdict.text = stream.take({}).text;
  verdict.seconds = steady_seconds() - begin;
  return verdict;
}

bool is_text_of(const Receipt& receipt, std::string_view answer, std::string_view said, const ModelText& text) {
  if (said == answer) return true;
  if (!said.ends_with(answer)) return false;
  const std::string_view echo = said.substr(0, said.size() - answer.size());
  return encode_plain(text, echo) == receipt.prompt || encode_plain(text, echo, true) == receipt.prompt ||
         text.tokenizer->decode(receipt.prompt) == echo;
}

std::string verdict_text(const ReceiptVerdict& verdict, const Receipt& receipt, const Tokenizer& tokenizer) {
  if (verdict.difference) return "NOT VERIFIED: " + difference_text(*verdict.difference, tokenizer);
  return fmt::format("verified: {} tokens, finished by {}", receipt.answer.size(), receipt.finish_reason);
}

}  // namespace espalier
