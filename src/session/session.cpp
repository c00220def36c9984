#include "session/session.h"

#include <algorithm>

#include "base/error.h"
#include "session/loop_guard.h"
#include "session/stop_scanner.h"
#include "text/detokenizer.h"

namespace espalier {
namespace {

// Token ids to shown text: whole characters, nothing from a stop string on.
class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, const TextOptions& options, const TextEvents& events, std::string& text)
      : detokenizer_(tokenizer), scanner_(options.stop), events_(events), text_(text) {}

  // False when the answer is complete. The last token may complete it by a character that stays broken.
  bool push(const GeneratedToken& token) {
    emit(scanner_.push(detokenizer_.push(token.token)));
    if (token.last) finish();
    return !scanner_.stopped();
  }

  void finish() {
    emit(scanner_.push(detokenizer_.finish()));
    emit(scanner_.finish());
  }

 private:
  void emit(const std::string& part) {
    text_ += part;
    if (!part.empty() && events_.on_text) events_.on_text(part);
  }

  Detokenizer detokenizer_;
  StopScanner scanner_;
  const TextEvents& events_;
  std::string& text_;
};

}  // namespace

void check_options(const TextOptions& options) {
  check_options(options.generate);
  for (const std::string& stop : options.stop)
    if (stop.empty()) throw InputError("--stop: expected some text, got an empty one");
}

Session::Session(const ModelText& text, Decoder& decoder, ChatContext context)
    : text_(&text), decoder_(&decoder), context_(std::move(context)) {}

void Session::reset(std::string_view system) {
  messages_.clear();
  change_system(system);
}

void Session::change_system(std::string_view system) {
  if (!messages_.empty() && messages_[0].role == "system") messages_.erase(messages_.begin());
  if (!system.empty()) messages_.insert(messages_.begin(), {"system", std::string(system)});
}

std::optional<std::string> Session::take_back() {
  const auto last = std::find_if(messages_.rbegin(), messages_.rend(), [](const auto& m) { return m.role == "user"; });
  if (last == messages_.rend()) return std::nullopt;
  std::string question = std::move(last->content);
  messages_.erase(std::prev(last.base()), messages_.end());
  return question;
}

TextResult Session::complete(std::string_view prompt, const TextOptions& options, const TextEvents& events) {
  return complete(encode_plain(*text_, prompt), options, events);
}

TextResult Session::complete(std::vector<TokenId> prompt, const TextOptions& options, const TextEvents& events) {
  return generate(std::move(prompt), options, events);
}

// Everything that asking sends to the model, as it must be: what was computed for earlier turns is found by the
// decoder.
FittedChat Session::fitted(std::string_view user, const TextOptions& options) const {
  std::vector<ChatMessage> messages = messages_;
  messages.push_back({"user", std::string(user)});
  const std::int64_t context = decoder_->context();
  if (options.drop_oldest)
    return fit_context(*text_, std::move(messages), context_, context,
                       wanted_room(options.generate.max_tokens, context));
  FittedChat whole{.messages = std::move(messages)};
  whole.prompt = encode_chat(*text_, whole.messages, context_);
  if (std::ssize(whole.prompt) > context)
    throw ContextFull(std::ssize(whole.prompt), context,
                      std::ranges::count(whole.messages, "user", &ChatMessage::role) == 1);
  return whole;
}

TextResult Session::ask(std::string_view user, const TextOptions& options, const TextEvents& events) {
  FittedChat chat = fitted(user, options);
  if (chat.dropped_turns > 0 && events.on_dropped) events.on_dropped(chat.dropped_turns);
  TextResult result = generate(std::move(chat.prompt), options, events);
  result.dropped_turns = chat.dropped_turns;
  messages_ = std::move(chat.messages);
  messages_.push_back({"assistant", result.text});
  return result;
}

TextResult Session::ask(std::string_view user, std::vector<TokenId> prompt, const TextOptions& options,
                        const TextEvents& events) {
  TextResult result = generate(std::move(prompt), options, events);
  messages_.push_back({"user", std::string(user)});
  messages_.push_back({"assistant", result.text});
  return result;
}

Session Session::on(Decoder& decoder) const {
  Session other = *this;
  other.decoder_ = &decoder;
  return other;
}

TextResult Session::generate(std::vector<TokenId> prompt, const TextOptions& options, const TextEvents& events) {
  TextResult result;
  result.prompt = std::move(prompt);
  GenerateOptions generate = options.generate;
  if (!options.ignore_eos)
    generate.stop_tokens.insert(generate.stop_tokens.end(), text_->stop_tokens.begin(), text_->stop_tokens.end());
  TextStream stream(*text_->tokenizer, options, events, result.text);
  LoopGuard guard;
  const auto on_token = [&](const GeneratedToken& token) {
    if (token.logprobs) result.logprobs.push_back(*token.logprobs);
    if (token.stops) return true;
    const bool goes_on = stream.push(token);
    result.loops = options.loop_guard && guard.push(token.token);
    return goes_on && !result.loops;
  };
  const GenerateEvents forward{.on_token = on_token,
                               .cancelled = events.cancelled,
                               .on_prefill = events.on_prefill,
                               .on_round = events.on_round,
                               .on_failure = events.on_failure};
  result.generated = decoder_->generate(result.prompt, generate, forward);
  stream.finish();
  return result;
}

}  // namespace espalier
