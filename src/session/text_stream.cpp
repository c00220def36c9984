#include "session/text_stream.h"

#include <algorithm>
#include <utility>

namespace espalier {

FittedChat fit_chat(const ModelText& text, std::vector<ChatMessage> messages, const ChatContext& chat,
                    std::int64_t context, const TextOptions& options) {
  if (options.drop_oldest)
    return fit_context(text, std::move(messages), chat, context, wanted_room(options.generate.max_tokens, context));
  FittedChat whole{.messages = std::move(messages)};
  whole.prompt = encode_chat(text, whole.messages, chat);
  if (std::ssize(whole.prompt) > context)
    throw ContextFull(std::ssize(whole.prompt), context,
                      std::ranges::count(whole.messages, "user", &ChatMessage::role) == 1);
  return whole;
}

TextStream::TextStream(const ModelText& text, std::vector<TokenId> prompt, const TextOptions& options,
                       const TextEvents& events)
    : text_(&text),
      options_(options),
      events_(events),
      detokenizer_(*text.tokenizer),
      scanner_(options.stop, options.include_stop) {
  result_.prompt = std::move(prompt);
  detokenizer_.continue_behind(result_.prompt);
}

GenerateRequest TextStream::request() {
  GenerateRequest request{.prompt = result_.prompt, .options = options_.generate};
  if (!options_.ignore_eos) {
    std::vector<std::int32_t>& stops = request.options.stop_tokens;
    stops.insert(stops.end(), text_->stop_tokens.begin(), text_->stop_tokens.end());
  }
  request.events = {.on_token = [this](const GeneratedToken& token) { return push(token); },
                    .cancelled = events_.cancelled,
                    .on_prefill = events_.on_prefill,
                    .on_round = events_.on_round,
                    .on_failure = events_.on_failure};
  if (events_.on_part) request.events.on_step = [this] { tell_part(); };
  return request;
}

// False when the answer is complete.
bool TextStream::push(const GeneratedToken& token) {
  ++tokens_;
  if (token.logprobs) result_.logprobs.push_back(*token.logprobs);
  say(token);
  if (token.stops) return true;
  result_.loops = options_.loop_guard && guard_.push(token.token);
  return !scanner_.stopped() && !result_.loops;
}

// The last token may complete a stop string by a character that stays broken. A stop token is no text.
void TextStream::say(const GeneratedToken& token) {
  TextToken told{.id = token.token,
                 .offset = text_size_,
                 .first = detokenizer_.first(),
                 .stops = token.stops,
                 .logprobs = token.logprobs};
  const std::string text = token.stops ? std::string() : detokenizer_.push(token.token);
  if (!token.stops) told.bytes = detokenizer_.added();
  text_size_ += std::ssize(text);
  if (events_.on_part) told_.push(std::move(told), text_size_, static_cast<std::int64_t>(detokenizer_.pending()));
  emit(scanned(text));
  if (token.stops || token.last) say_rest();
}

void TextStream::say_rest() {
  const std::string text = detokenizer_.finish();
  text_size_ += std::ssize(text);
  told_.finish(text_size_);
  emit(scanned(text));
  emit(scanner_.finish());
}

std::string TextStream::scanned(const std::string& text) {
  return tokens_ > options_.generate.min_tokens ? scanner_.push(text) : scanner_.pass(text);
}

void TextStream::emit(const std::string& part) {
  result_.text += part;
  if (events_.on_part) part_.text += part;
  if (!part.empty() && events_.on_text) events_.on_text(part);
}

void TextStream::tell_part() {
  const std::int64_t said = std::ssize(result_.text);
  part_.tokens = scanner_.stopped() ? told_.take_before(said) : told_.take(said);
  const TextPart part = std::exchange(part_, {});
  if (!part.empty()) events_.on_part(part);
}

void TextStream::finish() {
  say_rest();
  if (events_.on_part) tell_part();
}

TextResult TextStream::take(const GenerateResult& generated) {
  result_.generated = generated;
  if (generated.finish_reason == FinishReason::stopped) result_.stop_string = scanner_.found();
  if (generated.finish_reason == FinishReason::stop_token) result_.stop_token = generated.tokens.back();
  return std::move(result_);
}

}  // namespace espalier
