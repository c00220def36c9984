#include "session/session.h"

#include <algorithm>

#include "base/error.h"
#include "session/text_stream.h"

namespace espalier {

void check_options(const TextOptions& options) {
  check_options(options.generate);
  for (const std::string& stop : options.stop)
    if (stop.empty()) throw InputError("--stop: expected some text, got an empty one");
}

Session::Session(const ModelText& text, Batch& decoder, ChatContext context, GenerateCall call)
    : text_(&text), decoder_(&decoder), context_(std::move(context)), call_(std::move(call)) {}

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
  return fit_chat(*text_, std::move(messages), context_, decoder_->context(), options);
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

Session Session::on(Batch& decoder) const {
  Session other = *this;
  other.decoder_ = &decoder;
  return other;
}

TextResult Session::generate(std::vector<TokenId> prompt, const TextOptions& options, const TextEvents& events) {
  TextStream stream(*text_, std::move(prompt), options, events);
  const GenerateResult generated = call_ ? call_(*decoder_, stream.request()) : decoder_->generate(stream.request());
  stream.finish();
  return stream.take(generated);
}

}  // namespace espalier
