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
    : text_(&text), options_(options), events_(events), detokenizer_(*text.tokenizer), scanner_(options.stop) {
  result_.prompt = std::move(prompt);
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
  return request;
}

// False when the answer is complete.
bool TextStream::push(const GeneratedToken& token) {
  if (token.logprobs) result_.logprobs.push_back(*token.logprobs);
  if (token.stops) return true;
  const bool goes_on = say(token);
  result_.loops = options_.loop_guard && guard_.push(token.token);
  return goes_on && !result_.loops;
}

// The last token may complete a stop string by a character that stays broken.
bool TextStream::say(const GeneratedToken& token) {
  emit(scanner_.push(detokenizer_.push(token.token)));
  if (token.last) finish();
  return !scanner_.stopped();
}

void TextStream::finish() {
  emit(scanner_.push(detokenizer_.finish()));
  emit(scanner_.finish());
}

void TextStream::emit(const std::string& part) {
  result_.text += part;
  if (!part.empty() && events_.on_text) events_.on_text(part);
}

TextResult TextStream::take(const GenerateResult& generated) {
  result_.generated = generated;
  return std::move(result_);
}

}  // namespace espalier
