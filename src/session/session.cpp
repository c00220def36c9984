#include "session/session.h"

#include "base/error.h"
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

std::vector<TokenId> encode_plain(const ModelText& text, std::string_view prompt) {
  std::vector<TokenId> ids = text.tokenizer->encode(prompt);
  if (text.tokenizer->add_bos() && text.tokenizer->bos()) ids.insert(ids.begin(), *text.tokenizer->bos());
  return ids;
}

std::vector<TokenId> encode_chat(const ModelText& text, const std::vector<ChatMessage>& messages,
                                 const ChatContext& context) {
  if (!text.chat_template) throw InputError("the model has no chat template: use --raw");
  ChatTemplateOptions options;
  options.bos_token = text.bos_text;
  options.eos_token = text.eos_text;
  options.date_iso = context.date_iso;
  options.variables_json = context.variables_json;
  std::vector<TokenId> ids = text.tokenizer->encode(text.chat_template->render(messages, options));
  // Some templates write BOS themselves, others leave it to the tokenizer: exactly one in either case.
  const auto bos = text.tokenizer->bos();
  if (text.tokenizer->add_bos() && bos && (ids.empty() || ids.front() != *bos)) ids.insert(ids.begin(), *bos);
  return ids;
}

Session::Session(const ModelText& text, Decoder& decoder, ChatContext context)
    : text_(&text), decoder_(&decoder), context_(std::move(context)) {}

void Session::reset(std::string_view system) {
  messages_.clear();
  if (!system.empty()) messages_.push_back({"system", std::string(system)});
}

TextResult Session::complete(std::string_view prompt, const TextOptions& options, const TextEvents& events) {
  return complete(encode_plain(*text_, prompt), options, events);
}

TextResult Session::complete(std::vector<TokenId> prompt, const TextOptions& options, const TextEvents& events) {
  return generate(std::move(prompt), options, events);
}

TextResult Session::ask(std::string_view user, const TextOptions& options, const TextEvents& events) {
  std::vector<ChatMessage> messages = messages_;
  messages.push_back({"user", std::string(user)});
  return ask(user, encode_chat(*text_, messages, context_), options, events);
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
  const GenerateEvents forward{.on_token =
                                   [&](const GeneratedToken& token) {
                                     if (token.logprobs) result.logprobs.push_back(*token.logprobs);
                                     return token.stops || stream.push(token);
                                   },
                               .cancelled = events.cancelled,
                               .on_prefill = events.on_prefill,
                               .on_round = events.on_round,
                               .on_failure = events.on_failure};
  result.generated = decoder_->generate(result.prompt, generate, forward);
  stream.finish();
  return result;
}

}  // namespace espalier
